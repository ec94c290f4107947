"""Folders of clients' files, as ``--client all`` writes them: ``client_3``, ``fisher_3``, ``gram_3``, …."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["clients_files", "own_model"]

NAME = re.compile(r"(client|fisher|gram|prototypes)_(\d+)\.safetensors")


def clients_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files that paths name: themselves, and of a folder of clients' files each, by number.

    Args:
        paths: Files, and folders. A folder without clients' files stands for itself: it may be a sharded checkpoint.
    """
    found: list[Path] = []
    for path in paths:
        found += (_inside(path) or [path]) if path.is_dir() else [path]
    return found


def own_model(path: Path, client: int) -> Path:
    """Return a client's own model in a folder of them; a path that is no such folder stands for itself."""
    return path / f"client_{client}.safetensors" if path.is_dir() and _inside(path) else path


def _inside(folder: Path) -> list[Path]:
    matches = [(match, path) for path in folder.iterdir() if (match := NAME.fullmatch(path.name))]
    return [path for match, path in sorted(matches, key=lambda pair: (pair[0][1], int(pair[0][2])))]
