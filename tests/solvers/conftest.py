"""What the tests of all solvers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Keep matrix products from waiting for cores that other tests use."""
    with threadpool_limits(1):
        yield
