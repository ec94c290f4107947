"""The split of a data set as a bubble chart: clients × classes, area in proportion to the examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from modelfuse.errors import ContentError
from modelfuse.files.artifacts import open_kind
from modelfuse.reporting.plots.style import ACCENT, GREY, house_style, new_figure

__all__ = ["Split", "draw_split", "read_split"]

LARGEST = 0.92  # diameter of the largest bubble, in cells
CELL = 0.36  # inches


@dataclass(frozen=True, slots=True)
class Split:
    """Who holds how much of what.

    Args:
        counts: (K, C) examples of each class at each client.
        classes: The C class names.
        title: How the split was made.
    """

    counts: NDArray[np.int64]
    classes: tuple[str, ...]
    title: str


def read_split(path: Path) -> Split:
    """Return what a partition file says of itself.

    Raises:
        FileError: It cannot be read, or is no partition.
        ContentError: It does not hold the class counts.
    """
    checkpoint = open_kind(path, "partition")
    details = checkpoint.metadata.details if checkpoint.metadata else {}
    if not details.get("class_counts"):
        raise ContentError(
            checkpoint.label, "does not say how many examples of each class a client has", "Make it with partition."
        )
    try:
        counts = np.array(details["class_counts"], np.int64)  # (K, C)
    except (TypeError, ValueError) as error:
        raise ContentError(
            checkpoint.label, f"class_counts is no table ({error})", "Make it with partition."
        ) from error
    if counts.ndim != 2 or counts.min() < 0 or not counts.any():
        raise ContentError(checkpoint.label, "class_counts is no table of counts", "Make it with partition.")
    classes = tuple(map(str, details.get("classes") or range(counts.shape[1])))
    if len(classes) != counts.shape[1]:
        what = f"names {len(classes)} classes and counts {counts.shape[1]}"
        raise ContentError(checkpoint.label, what, "Make it with partition.")
    alpha = details.get("alpha")
    made = (details.get("data"), details.get("scheme"), f"α = {alpha:g}" if isinstance(alpha, int | float) else None)
    return Split(counts, classes, ", ".join(str(part) for part in made if part is not None))


def draw_split(split: Split, title: str | None = None) -> Figure:
    """Return the bubble chart, with each client's total above its column.

    Args:
        split: The split.
        title: The heading; by default how the split was made.
    """
    clients, classes = split.counts.shape
    cell = min(CELL, 12 / clients, 12 / classes)
    longest = max(map(len, split.classes))
    with house_style():
        figure = new_figure(max(clients * cell, 1.6) + 0.075 * longest + 1.9, classes * cell + 1.3)
        axes = figure.add_subplot()
        axes.set_title(title or split.title, pad=18)
        _bubbles(axes, split.counts)
        axes.set(xlim=(-0.6, clients - 0.4), ylim=(classes - 0.4, -0.6), aspect="equal", xlabel="client")
        axes.set_xticks(range(0, clients, max(1, round(0.25 / cell))))
        step = max(1, round(0.16 / cell))
        axes.set_yticks(range(0, classes, step), split.classes[::step])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.grid(axis="y")
        if cell > 0.3:
            _totals(axes, split.counts)
        _legend(axes, int(split.counts.max()))
    return figure


def _bubbles(axes: Axes, counts: NDArray[np.int64]) -> None:
    rows, columns = np.nonzero(counts.T)  # class, client
    _circles(axes, np.stack([columns, rows], axis=1), counts[columns, rows] / counts.max())


def _circles(axes: Axes, centres: NDArray[np.int64], shares: NDArray[np.float64]) -> None:
    """Draw circles whose area, not diameter, is in proportion to the share."""
    diameters = LARGEST * np.sqrt(shares)
    circles = EllipseCollection(
        diameters,
        diameters,
        np.zeros(len(diameters)),
        units="xy",
        offsets=centres,
        offset_transform=axes.transData,
        facecolor=ACCENT,
        edgecolor="none",
        clip_on=False,
        zorder=3,
    )
    axes.add_collection(circles)


def _totals(axes: Axes, counts: NDArray[np.int64]) -> None:
    for client, total in enumerate(counts.sum(axis=1)):
        axes.text(client, -0.75, f"{total:,}", ha="center", va="bottom", fontsize=6.5, color=GREY)


def _legend(axes: Axes, largest: int) -> None:
    """Three bubbles and their counts, right of the chart."""
    right = axes.get_xlim()[1] + 0.9
    for place, count in enumerate(_round_counts(largest)):
        _circles(axes, np.array([[right, place]]), np.array([count / largest]))
        axes.text(right + 0.75, place, f"{count:,}", va="center", fontsize=8)


def _round_counts(largest: int) -> Sequence[int]:
    """Return up to three round numbers that span the bubbles, none larger than the largest."""
    wanted = (max(largest // part, 1) for part in (1, 4, 20))
    return tuple(dict.fromkeys(number - number % 10 ** (len(str(number)) - 1) for number in wanted))
