"""The assignment matrices of one group: for each client, which global unit each local unit became."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from modelfuse.errors import ContentError, OptionError
from modelfuse.files.artifacts import open_kind
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.reporting.plots.style import GREY, INK, house_style, new_figure
from modelfuse.types import Order

__all__ = ["Assignment", "draw_assignment", "orders_by_group", "read_assignment"]

PANEL = 1.75  # inches
ACROSS = 6  # panels in a line


@dataclass(frozen=True, slots=True)
class Assignment:
    """The orders of one group.

    Args:
        group: The group's name.
        orders: For each client, its order: (n_k,), for each local unit the global one.
    """

    group: str
    orders: Mapping[int, Order]

    @property
    def width(self) -> int:
        """How many global units there are, as far as any client has them."""
        return 1 + max(int(order.max()) for order in self.orders.values())


def orders_by_group(checkpoint: Checkpoint) -> dict[str, dict[int, str]]:
    """Return, for each group of an orders file, the tensor of each client.

    Args:
        checkpoint: An orders file; its tensors are named ``GROUP.client_K``.
    """
    found: dict[str, dict[int, str]] = {}
    for name in checkpoint.layout:
        group, _, client = name.rpartition(".client_")
        if group and client.isdecimal():
            found.setdefault(group, {})[int(client)] = name
    return {group: dict(sorted(tensors.items())) for group, tensors in found.items()}


def read_assignment(path: Path, group: str, clients: Collection[int] = ()) -> Assignment:
    """Return one group's orders.

    Args:
        path: An orders file.
        group: The group.
        clients: Only these clients; empty for all.

    Raises:
        FileError: The file cannot be read, or is no orders file.
        OptionError: It has no such group or client.
        ContentError: An order is no sequence of distinct units.
    """
    checkpoint = open_kind(path, "orders")
    groups = orders_by_group(checkpoint)
    if group not in groups:
        raise OptionError("--group", f"{checkpoint.label} has no group {group!r}", f"It has {', '.join(groups)}.")
    tensors = groups[group]
    absent = sorted(set(clients) - tensors.keys())
    if absent:
        what = f"{checkpoint.label} has no client {', '.join(map(str, absent))}"
        raise OptionError("--clients", what, f"It has {', '.join(map(str, tensors))}.")
    chosen = {client: name for client, name in tensors.items() if not clients or client in clients}
    return Assignment(group, {client: read_order(checkpoint, name) for client, name in chosen.items()})


def read_order(checkpoint: Checkpoint, name: str) -> Order:
    """Return one order, checked.

    Raises:
        ContentError: It is no sequence of distinct, non-negative integers.
    """
    order = checkpoint.read(name)
    if order.ndim != 1 or order.dtype.kind not in "iu" or not order.size:
        what = f"tensor {name} is {order.dtype} of shape {order.shape}, no sequence of units"
        raise ContentError(checkpoint.label, what, "Make the file with merge --orders.")
    if order.min() < 0 or np.unique(order).size != order.size:
        what = f"tensor {name} maps two units to one, or one to none"
        raise ContentError(checkpoint.label, what, "Make the file with merge --orders.")
    return order.astype(np.intp)


def draw_assignment(assignment: Assignment, title: str | None = None) -> Figure:
    """Return one panel a client: local units down, global units across, a dot where one became the other.

    Args:
        assignment: The orders.
        title: The heading.
    """
    count = len(assignment.orders)
    down = math.ceil(count / ACROSS)
    across = math.ceil(count / down)
    with house_style():
        figure = new_figure(max(PANEL * across + 0.5, 3.0), (PANEL + 0.3) * down + 0.55)
        panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        for panel, (client, order) in zip(panels.flat, assignment.orders.items(), strict=False):
            _panel(panel, client, order, assignment.width)
            panel.label_outer(remove_inner_ticks=True)
        for panel in panels.flat[count:]:
            panel.set_visible(False)
        figure.suptitle(
            title or f"Group {assignment.group}: which global unit each local unit became",
            x=0.01,
            ha="left",
            fontsize=10,
        )
        figure.supxlabel("global unit", fontsize=9)
        figure.supylabel("local unit", fontsize=9)
    return figure


def _panel(axes: Axes, client: int, order: Order, width: int) -> None:
    moved = float(np.mean(order != np.arange(order.size)))
    points_a_unit = PANEL * 72 / width
    axes.plot([-0.5, width - 0.5], [-0.5, width - 0.5], color=GREY, linewidth=0.5, zorder=1)
    axes.scatter(
        order, np.arange(order.size), s=max(0.8 * points_a_unit, 1.1) ** 2, marker="s", color=INK, linewidth=0, zorder=2
    )
    axes.set(xlim=(-0.5, width - 0.5), ylim=(width - 0.5, -0.5), aspect="equal")
    axes.set_title(f"client {client}: {100 * moved:.0f} % moved", fontsize=8.5, pad=4)
    axes.spines[:].set_visible(True)
    axes.spines[:].set_linewidth(0.6)
    axes.set_xticks([0, width - 1])
    axes.set_yticks([0, width - 1])
