"""Gathering: result files, or standard input, into records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from modelfuse.errors import FileError, OptionError
from modelfuse.reporting.records import Record, records_of

__all__ = ["read_results"]

STANDARD_INPUT = Path("-")
FIX = "Give the JSON of modelfuse eval or of modelfuse merge --report."
SPACE = re.compile(r"\s*")


def read_results(paths: Sequence[Path], standard_input: TextIO) -> tuple[Record, ...]:
    """Return every record of some result files, in the order given.

    Args:
        paths: JSON files of ``eval`` and ``merge --report``; each may hold several documents in a row, as
            ``cat`` leaves them. ``-`` is standard input.
        standard_input: What ``-`` stands for.

    Raises:
        OptionError: Standard input is named twice.
        FileError: A file cannot be read, is not JSON, or is no result.
        ContentError: A field is missing or a figure impossible.
    """
    if paths.count(STANDARD_INPUT) > 1:
        raise OptionError("-", "standard input can be read only once", "Name it once.")
    records: list[Record] = []
    for path in paths:
        name = "standard input" if path == STANDARD_INPUT else str(path)
        text = standard_input.read() if path == STANDARD_INPUT else _read(path)
        for document in _documents(text, name):
            records += records_of(document, name)
    return tuple(records)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise FileError(str(path), f"cannot be read: {error.strerror}", "Check the path.") from error
    except UnicodeDecodeError as error:
        raise FileError(str(path), "is not text", FIX) from error


def _documents(text: str, where: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    position = _skip_space(text, 0)
    if position == len(text):
        raise FileError(where, "is empty", "Write it again: the command behind it may have failed.")
    while position < len(text):
        try:
            document, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            what = f"is not JSON at line {error.lineno}, column {error.colno}"
            raise FileError(where, what, FIX) from error
        except RecursionError as error:
            raise FileError(where, "is nested deeper than any result", FIX) from error
        yield document
        position = _skip_space(text, position)


def _skip_space(text: str, position: int) -> int:
    found = SPACE.match(text, position)
    return position if found is None else found.end()
