"""What the commands that read result files share: their options, and the table they build from them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modelfuse.cli.render import Screen
from modelfuse.errors import FileError, OptionError

if TYPE_CHECKING:
    from modelfuse.reporting.table import Layout, Table

__all__ = [
    "OverOption",
    "ReferenceOption",
    "ResultsArgument",
    "ValueOption",
    "WhereOption",
    "gather",
    "layout_of",
]

ResultsArgument = Annotated[
    list[Path],
    typer.Argument(metavar="RESULTS...", help="JSON of eval and of merge --report; - reads standard input."),
]
ValueOption = Annotated[
    str,
    typer.Option(
        "--value",
        metavar="VALUE",
        help="What to show: accuracy, loss, objective, permuted, seconds, validation_accuracy, …",
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="KEY=VALUE", help="Only results with this value of this key; repeatable."),
]
OverOption = Annotated[
    str, typer.Option("--over", metavar="KEYS", help="Keys that tell the runs of one cell apart, joined by commas.")
]
ReferenceOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--reference",
        metavar="CSV",
        help="Published figures to show beside: a csv with the columns row,column,value[,std]; repeatable.",
    ),
]


def layout_of(
    rows: str, columns: str, value: str, where: Sequence[str] | None, over: str, show: str = "", pick: str = ""
) -> Layout:
    """Return the layout that the options describe.

    Raises:
        OptionError: ``--rows`` is empty, or a filter is not KEY=VALUE.
    """
    from modelfuse.reporting.table import Layout

    if not _keys(rows):
        raise OptionError("--rows", "no key is given", "Write --rows method.")
    filters = tuple(map(_filter, where or ()))
    return Layout(_keys(rows), _keys(columns), value, filters, _keys(over), _keys(show), _keys(pick))


def gather(screen: Screen, results: Sequence[Path], layout: Layout, references: Sequence[Path] | None = None) -> Table:
    """Return the table of some result files, and say what does not fit into it.

    Args:
        screen: Where remarks go.
        results: The files; ``-`` is standard input.
        layout: What to show.
        references: Csv files of published figures.

    Raises:
        InputError: As :func:`modelfuse.reporting.results.read_results` and :func:`modelfuse.reporting.table.tabulate`.
    """
    from modelfuse.reporting.reference import read_reference
    from modelfuse.reporting.results import read_results
    from modelfuse.reporting.table import tabulate

    if sys.stdin is None and "-" in map(str, results):
        raise FileError("-", "standard input is closed", "Name the result files.")
    records = read_results(results, sys.stdin)
    table = tabulate(records, layout, [read_reference(path) for path in references or ()])
    if table.left_out:
        keys = ", ".join((*layout.rows, *layout.columns))
        screen.say(f"results left out because they lack one of {keys}: {table.left_out}")
    return table


def _keys(text: str) -> tuple[str, ...]:
    return tuple(_key(part) for part in text.split(",") if part.strip())


def _key(text: str) -> str:
    return text.strip().replace("-", "_")


def _filter(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise OptionError("--where", f"{text!r} is not KEY=VALUE", "Write --where alpha=0.1.")
    return _key(key), value
