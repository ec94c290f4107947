"""Settings of the client side's tests."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Compute on one thread: on such small networks more of them only wait for each other."""
    torch.set_num_threads(1)
