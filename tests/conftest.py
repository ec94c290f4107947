"""Fixtures that every room's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says more of the machine's other work than of the code.
settings.register_profile("modelfuse", deadline=None)
settings.load_profile("modelfuse")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of reference vectors and real data beside the checkout, or skip."""
    if not SHARED.is_dir():
        pytest.skip("the reference vectors and data of ../shared are not on this machine")
    return SHARED
