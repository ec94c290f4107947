"""What ``modelfuse merge`` reads beside models: lists of numbers, typed or in JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from modelfuse.errors import ContentError, FileError, OptionError

__all__ = ["read_class_counts", "read_sweep_orders", "whole_numbers"]


def whole_numbers(text: str, option: str) -> list[int]:
    """Return the numbers that a text such as ``10701,13230`` lists.

    Raises:
        OptionError: It lists something else.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise OptionError(option, f"{text!r} is not made of whole numbers", "Write 10701,13230,5764.")
    return [int(part) for part in parts]


def read_class_counts(path: Path) -> list[list[int]]:
    """Return the examples of each class, one list a model, that a JSON file holds.

    Raises:
        FileError: The file cannot be read, or is not JSON.
        ContentError: It holds something else.
    """
    data = _read_json(path)
    if not (isinstance(data, list) and all(map(_counts, data))):
        raise ContentError(str(path), "it holds no class counts", "Write [[10, 0, 3], [0, 7, 1]]: one list a model.")
    return data


def read_sweep_orders(path: Path) -> dict[str, list[list[int]]]:
    """Return the order in which each sweep visits the clients, for each group, that a JSON file holds.

    Raises:
        FileError: The file cannot be read, or is not JSON.
        ContentError: It holds something else.
    """
    data = _read_json(path)
    if not (
        isinstance(data, dict) and all(isinstance(rows, list) and all(map(_counts, rows)) for rows in data.values())
    ):
        raise ContentError(
            str(path), "it holds no sweep orders", 'Write {"conv1": [[0, 2, 1], [1, 0, 2]], …}: one list a sweep.'
        )
    return data


def _counts(row: Any) -> bool:
    return isinstance(row, list) and all(type(entry) is int and entry >= 0 for entry in row)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(str(path), f"cannot be read ({error.strerror})", "Check the path.") from error
    except (ValueError, RecursionError) as error:
        raise FileError(str(path), f"not JSON ({error})", "Check what is in it.") from error
