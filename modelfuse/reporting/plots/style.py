"""The house style: quiet axes, strokes and hatches that tell apart without colour, and bytes that repeat."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from modelfuse.errors import OptionError
from modelfuse.reporting.output import write_whole

__all__ = [
    "ACCENT",
    "GREY",
    "HATCHES",
    "INK",
    "STROKES",
    "Stroke",
    "blank",
    "check_picture",
    "house_style",
    "new_figure",
    "save_figure",
    "with_symbols",
]

INK = "#222222"
GREY = "#8a8a8a"
ACCENT = "#1f5a8c"

SETTINGS: Mapping[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.grid": False,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "hatch.color": INK,
    "hatch.linewidth": 0.7,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "savefig.dpi": 200,
    "svg.hashsalt": "modelfuse",
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.color": INK,
    "ytick.labelsize": 8.5,
}

UNDATED: Mapping[str, Mapping[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
}


@dataclass(frozen=True, slots=True)
class Stroke:
    """How one line of several is drawn.

    Args:
        color: Its colour; the luminances differ as well.
        dashes: matplotlib's line style.
        marker: The marker at its points.
    """

    color: str
    dashes: Any
    marker: str


STROKES: Sequence[Stroke] = (
    Stroke("#000000", "-", "o"),
    Stroke("#0072b2", (0, (5, 1.5)), "s"),
    Stroke("#d55e00", (0, (1, 1.2)), "^"),
    Stroke("#009e73", (0, (6, 1.5, 1, 1.5)), "D"),
    Stroke("#cc79a7", "-", "v"),
    Stroke("#56b4e9", (0, (3, 1.2)), "P"),
    Stroke("#8a8a8a", (0, (1, 1.2)), "X"),
    Stroke("#e69f00", (0, (6, 1.5, 1, 1.5, 1, 1.5)), "*"),
)

HATCHES: Sequence[tuple[str, str]] = (
    ("#ffffff", ""),
    ("#6e6e6e", ""),
    ("#ffffff", "////"),
    ("#c4c4c4", ""),
    ("#ffffff", "...."),
    ("#c4c4c4", "\\\\\\\\"),
    ("#ffffff", "xxxx"),
    ("#8a8a8a", "||||"),
)
"""Face colour and hatch of the bars of one row."""


SYMBOLS: Mapping[str, str] = {"alpha": "α", "gamma": "γ", "lam": "λ", "mu": "μ", "rho": "ρ", "sigma": "σ"}


def with_symbols(label: str) -> str:
    """Return a label of a table as papers write it: ``alpha=0.1`` becomes ``α=0.1``."""
    words = (word.partition("=") for word in label.split(" "))
    return " ".join(f"{SYMBOLS.get(key, key) if equals else key}{equals}{value}" for key, equals, value in words)


@contextmanager
def house_style() -> Iterator[None]:
    """Draw and save in the house style, whatever the user's matplotlib settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(SETTINGS)
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure that no window knows of.

    Args:
        width: In inches.
        height: In inches.
    """
    return Figure(figsize=(width, height))


def blank(axes: Axes) -> None:
    """Take away the frame and the ticks of axes that hold an image."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def check_picture(path: Path) -> None:
    """Check before any work that the output's suffix names a picture.

    Raises:
        OptionError: It is neither ``.png`` nor ``.svg``.
    """
    if path.suffix.lower() not in UNDATED:
        raise OptionError("--output", f"{path} is neither .png nor .svg", "End the name in one of them.")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure in one step; the same figure gives the same bytes.

    Args:
        figure: The picture.
        path: A ``.png`` or ``.svg`` file.

    Raises:
        OptionError: The suffix is another.
        FileError: The file cannot be written.
    """
    check_picture(path)
    suffix = path.suffix.lower()
    data = io.BytesIO()
    with house_style():
        figure.savefig(data, format=suffix[1:], metadata=dict(UNDATED[suffix]))
    write_whole(path, data.getvalue())
