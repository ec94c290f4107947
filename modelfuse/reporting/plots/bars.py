"""Bars with error bars for a table: one cluster a column, one hatch a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from modelfuse.errors import OptionError
from modelfuse.reporting.plots.style import GREY, HATCHES, INK, house_style, new_figure, with_symbols
from modelfuse.reporting.table import Head, Table

__all__ = ["draw_bars"]

PUBLISHED = "DoX"
POINT: Mapping[str, Any] = {
    "markersize": 6,
    "markerfacecolor": "white",
    "markeredgecolor": INK,
    "markeredgewidth": 1.2,
    "zorder": 4,
}
CLUSTER = 0.8  # width of a cluster; 1 is the distance between two


def draw_bars(table: Table, title: str | None = None) -> Figure:
    """Return the bar chart of a table; published figures stand beside the bars as diamonds.

    Args:
        table: The table; a missing cell leaves a gap with a dash.
        title: The heading.

    Raises:
        OptionError: There are more rows than can be told apart.
    """
    if len(table.rows) > len(HATCHES):
        raise OptionError("--rows", f"{len(table.rows)} bars cannot be told apart", "Choose some of them by --where.")
    if len(table.references) > len(PUBLISHED):
        raise OptionError(
            "--reference", f"{len(table.references)} references cannot be told apart", "Give up to three."
        )
    quantity = table.layout.quantity
    count = len(table.rows) * len(table.columns)
    with house_style():
        figure = new_figure(min(max(4.2, 0.38 * count + 2.6), 12), 3.3)
        axes = figure.add_subplot()
        for number, row in enumerate(table.rows):
            _row(axes, table, number, row, labelled=count <= 24)
        _published(axes, table)
        unit = f" ({quantity.unit})" if quantity.unit else ""
        axes.set_ylabel(f"{quantity.title}{unit}")
        axes.set_title(title or f"{quantity.title.capitalize()}, mean ± standard deviation")
        axes.set_xticks(
            range(len(table.columns)), [with_symbols(column.label).replace(" ", "\n") for column in table.columns]
        )
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="y")
        axes.set_xlim(-0.55, len(table.columns) - 0.45)
        axes.legend(handles=_handles(table), loc="center left", bbox_to_anchor=(1.01, 0.5), handleheight=1.2)
    return figure


def _row(axes: Axes, table: Table, number: int, row: Head, labelled: bool) -> None:
    factor = table.layout.quantity.factor
    color, hatch = HATCHES[number]
    bar = CLUSTER / len(table.rows)
    for place, column in enumerate(table.columns):
        x, cell = _x(table, number, place), table.cells.get((row, column))
        if cell is None:
            axes.annotate("–", (x, 0), (0, 2), textcoords="offset points", ha="center", fontsize=10, color=GREY)
            continue
        height, spread = cell.mean * factor, None if cell.std is None else cell.std * factor
        error = {"elinewidth": 1.0, "ecolor": INK, "capsize": min(3.0, 24 * bar)}
        axes.bar(
            x, height, 0.9 * bar, yerr=spread, color=color, edgecolor=INK, linewidth=0.8, hatch=hatch,
            error_kw=error, zorder=2,
        )  # fmt: skip
        if labelled:
            top = height + (spread or 0)
            text = f"{height:.1f}" if table.layout.quantity.percent else f"{height:.3g}"
            axes.annotate(text, (x, top), (0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=7.5)


def _published(axes: Axes, table: Table) -> None:
    for reference, marker in zip(table.references, PUBLISHED, strict=False):
        for number, row in enumerate(table.rows):
            for place, column in enumerate(table.columns):
                figure = reference.find(row.names, column.names)
                if figure is not None:
                    axes.plot(_x(table, number, place), figure.value, marker, **POINT)


def _handles(table: Table) -> list[Artist]:
    """Return the legend's entries: every row, whether it has a bar or only a published figure, then the references."""
    rows: list[Artist] = [
        Patch(facecolor=color, edgecolor=INK, linewidth=0.8, hatch=hatch, label=with_symbols(row.label))
        for row, (color, hatch) in zip(table.rows, HATCHES, strict=False)
    ]
    points = [
        Line2D([], [], linestyle="", marker=marker, label=reference.name, **POINT)
        for reference, marker in zip(table.references, PUBLISHED, strict=False)
    ]
    return [*rows, *points]


def _x(table: Table, number: int, place: int) -> float:
    bar = CLUSTER / len(table.rows)
    return place + (number - (len(table.rows) - 1) / 2) * bar
