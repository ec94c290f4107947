"""How a candidate is chosen: on the examples that the server holds out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Validation"]


@dataclass(frozen=True, slots=True)
class Validation:
    """How to choose from a grid.

    Args:
        data: The data string.
        partition: The split whose ``validation`` indices are the server's hold-out.
        device: Where to evaluate.
        download: Fetch the data if it is missing.
        normalize: How to normalise it, or None for the clients' way, or else its own.
    """

    data: str
    partition: Path
    device: str
    download: bool
    normalize: str | None = None
