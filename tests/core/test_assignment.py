"""The assignment problem, against all permutations."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelfuse.core.assignment import solve


@given(st.integers(1, 5), st.integers(0, 2), st.integers(0, 2**32 - 1))
def test_no_assignment_is_cheaper(rows: int, more: int, seed: int) -> None:
    cost = np.random.default_rng(seed).normal(size=(rows, rows + more))
    found = solve(cost)
    assert len(set(found.tolist())) == rows
    best = min(
        sum(cost[row, column] for row, column in enumerate(columns))
        for columns in itertools.permutations(range(rows + more), rows)
    )
    assert np.isclose(cost[np.arange(rows), found].sum(), best)
