"""Published figures to stand beside a table: a csv with the columns row, column, value and, if known, std."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from modelfuse.errors import ContentError, FileError

__all__ = ["Published", "Reference", "read_reference"]

NEEDED = ("row", "column", "value")


@dataclass(frozen=True, slots=True)
class Published:
    """One published figure.

    Args:
        value: The mean, in the unit that the table shows.
        std: Its standard deviation, or None where none is given.
    """

    value: float
    std: float | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """The figures of one source.

    Args:
        file: The csv, as the user named it.
        name: What its columns are called: the file's stem.
        figures: The figures by row and column label.
    """

    file: str
    name: str
    figures: Mapping[tuple[str, str], Published]

    @property
    def rows(self) -> tuple[str, ...]:
        """Row labels, in the order of the file."""
        return tuple(dict.fromkeys(row for row, _ in self.figures))

    @property
    def columns(self) -> tuple[str, ...]:
        """Column labels, in the order of the file."""
        return tuple(dict.fromkeys(column for _, column in self.figures))

    def find(self, rows: frozenset[str], columns: frozenset[str]) -> Published | None:
        """Return the figure of a cell that goes by any of these names."""
        return next(
            (self.figures[row, column] for row in rows for column in columns if (row, column) in self.figures), None
        )


def read_reference(path: Path) -> Reference:
    """Return the figures of a csv; what ``report --format csv`` writes is one.

    Args:
        path: A csv with the columns row, column, value and, optionally, std; others are ignored, and so are lines
            without a value.

    Raises:
        FileError: It cannot be read, or a column is missing.
        ContentError: A figure is no number, or a cell is listed twice.
    """
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise FileError(str(path), f"cannot be read: {error.strerror}", "Check the path.") from error
    except UnicodeDecodeError as error:
        raise FileError(str(path), "is not text", "Give a csv file in UTF-8.") from error
    lines = csv.DictReader(io.StringIO(text), restval="", skipinitialspace=True)
    missing = [name for name in NEEDED if name not in (lines.fieldnames or ())]
    if missing:
        raise FileError(
            str(path), f"has no column {', '.join(missing)}", "Its first line has to be row,column,value,std."
        )
    figures: dict[tuple[str, str], Published] = {}
    for line in lines:
        where = f"{path}, line {lines.line_num}"
        value, place = _number(line["value"], where), (line["row"], line["column"])
        if value is None:
            continue
        if place in figures:
            raise ContentError(where, f"lists {' × '.join(place)} a second time", "Leave one of them.")
        figures[place] = Published(value, _number(line.get("std", ""), where))
    return Reference(str(path), path.stem, figures)


def _number(text: str, where: str) -> float | None:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError as error:
        raise ContentError(where, f"{text!r} is no number", "Write numbers such as 43.3.") from error
