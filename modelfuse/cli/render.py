"""What a person sees: remarks and progress on stderr, tables and JSON on stdout. The only file that knows rich."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Progress", "Screen"]


class Progress(Protocol):
    """A running count of work done."""

    def advance(self, count: float = 1) -> None:
        """Count more work as done."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Where a command writes.

    Args:
        quiet: No remarks and no progress.
        debug: Failures show their traceback.
    """

    quiet: bool = False
    debug: bool = False

    def say(self, text: str) -> None:
        """Write one remark to stderr."""
        if not self.quiet:
            sys.stderr.write(f"{text}\n")

    def json(self, data: Any) -> None:
        """Write one JSON document to stdout, on one line; what JSON has no number for (NaN, infinity) is null."""
        from modelfuse.files.metadata import json_text

        sys.stdout.write(f"{json_text(data)}\n")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> None:
        """Write a table to stdout: the first columns flush left, the others flush right.

        Args:
            title: What the table shows; empty for none.
            columns: The heads.
            rows: The cells, as text.
            left: How many columns are flush left.
        """
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table

        table = Table(title=title or None, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
        for number, column in enumerate(columns):
            table.add_column(column, justify="left" if number < left else "right", overflow="fold")
        for row in rows:
            table.add_row(*row)
        console = Console(highlight=False, markup=False)
        if not console.is_terminal:  # a pipe has no width: do not fold what a program or a log will read
            console = Console(highlight=False, markup=False, width=max(80, _natural_width(columns, rows)))
        console.print(table)

    @contextmanager
    def progress(self, total: float, what: str) -> Iterator[Progress]:
        """Show work as it goes: a bar on a terminal, a plain line elsewhere, nothing with ``--quiet``.

        Args:
            total: The work in all, in the unit of :meth:`Progress.advance`.
            what: What is being done, such as ``train client 3``.
        """
        if self.quiet:
            yield _Silent()
            return
        if not sys.stderr.isatty():
            self.say(f"{what} …")
            yield _Silent()
            return
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
        with Bars(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bars:
            yield _Bar(bars, bars.add_task(what, total=total))


class _Silent:
    def advance(self, count: float = 1) -> None:
        """Count nothing."""


@dataclass(frozen=True, slots=True)
class _Bar:
    bars: Any
    task: Any

    def advance(self, count: float = 1) -> None:
        """Move the bar."""
        self.bars.advance(self.task, count)


def _natural_width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    return sum(widths) + 3 * len(widths) + 1
