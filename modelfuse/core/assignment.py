"""The linear assignment problem: who becomes whom, at least cost."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from modelfuse.types import IndexArray

__all__ = ["solve"]


def solve(cost: NDArray[Any]) -> IndexArray:
    """Return the cheapest assignment of every row to a column of its own, exactly.

    Args:
        cost: (n, m) with n <= m, finite.

    Returns:
        (n,): the column of each row.
    """
    _, columns = linear_sum_assignment(cost)
    return np.asarray(columns, dtype=np.intp)
