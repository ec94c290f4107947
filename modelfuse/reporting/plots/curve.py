"""A quantity over rounds, epochs or any other number: one line a row, a band of one standard deviation."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from modelfuse.errors import OptionError
from modelfuse.reporting.plots.style import STROKES, Stroke, house_style, new_figure, with_symbols
from modelfuse.reporting.table import Head, Table

__all__ = ["draw_curve"]


def draw_curve(table: Table, title: str | None = None) -> Figure:
    """Return the line chart of a table whose one column key is a number.

    Args:
        table: Rows are lines; columns are positions on the x axis.
        title: The heading.

    Raises:
        OptionError: There is not one key, its value is no number, or there are more lines than can be told apart.
    """
    if len(table.layout.columns) != 1:
        what = f"{len(table.layout.columns)} keys are given"
        raise OptionError("--x", what, "Name one, such as round or epoch.")
    (key,) = table.layout.columns
    positions = [_position(column, key) for column in table.columns]
    lines = [row for row in table.rows if any((row, column) in table.cells for column in table.columns)]
    if len(lines) > len(STROKES):
        raise OptionError("--lines", f"{len(lines)} lines cannot be told apart", "Choose some of them by --where.")
    quantity = table.layout.quantity
    with house_style():
        figure = new_figure(5.2, 3.3)
        axes = figure.add_subplot()
        for row, stroke in zip(lines, STROKES, strict=False):
            _line(axes, table, row, positions, stroke)
        unit = f" ({quantity.unit})" if quantity.unit else ""
        axes.set(xlabel=key.replace("_", " "), ylabel=f"{quantity.title}{unit}")
        axes.set_title(title or f"{quantity.title.capitalize()} by {key.replace('_', ' ')}")
        axes.grid(axis="y")
        axes.margins(x=0.03)
        axes.xaxis.set_major_locator(FixedLocator(positions) if len(positions) <= 10 else MaxNLocator(8, integer=True))
        if len(lines) > 1:
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=3)
    return figure


def _line(axes: Axes, table: Table, row: Head, positions: list[float], stroke: Stroke) -> None:
    factor = table.layout.quantity.factor
    cells = [table.cells.get((row, column)) for column in table.columns]
    means = np.array([np.nan if cell is None else cell.mean * factor for cell in cells])
    spreads = np.array([0.0 if cell is None or cell.std is None else cell.std * factor for cell in cells])
    there = ~np.isnan(means)  # a missing point is skipped, not drawn as zero
    x = np.array(positions)[there]
    axes.plot(
        x,
        means[there],
        color=stroke.color,
        linestyle=stroke.dashes,
        marker=stroke.marker,
        markeredgecolor="white",
        markeredgewidth=0.6,
        label=with_symbols(row.label),
        zorder=3,
    )
    if spreads.any():
        low, high = means[there] - spreads[there], means[there] + spreads[there]
        axes.fill_between(x, low, high, color=stroke.color, alpha=0.13, linewidth=0)


def _position(column: Head, key: str) -> float:
    (value,) = column.values
    try:
        return float(value)
    except ValueError as error:
        raise OptionError("--x", f"{key} {value!r} is no number", "Choose a key such as round or epoch.") from error
