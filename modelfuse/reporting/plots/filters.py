"""First-layer filters of clients and of the global model side by side (FedMA fig. 5)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from modelfuse.errors import ContentError, OptionError
from modelfuse.files.artifacts import open_kind
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.reporting.plots.assignment import orders_by_group, read_order
from modelfuse.reporting.plots.style import blank, house_style, new_figure
from modelfuse.spec.axes import PermutationSpec
from modelfuse.types import FloatArray, Order

__all__ = ["Filters", "draw_filters", "read_filters"]

TILE = 0.5  # inches


@dataclass(frozen=True, slots=True)
class Filters:
    """The same units of several models.

    Args:
        tensor: The tensor that they come from.
        models: What the R rows are called; the global model is last.
        units: (U,) the global units shown.
        images: (R, U, h, w, c) weights, c = 1 or 3; NaN where a client has no such unit.
        matched: Whether the clients' units follow the orders.
    """

    tensor: str
    models: tuple[str, ...]
    units: tuple[int, ...]
    images: FloatArray
    matched: bool


def read_filters(
    paths: Sequence[Path], tensor: str | None = None, orders: Path | None = None, count: int = 12
) -> Filters:
    """Return the filters of some clients' models and of the global model.

    Args:
        paths: The clients' files and, last, the global model's.
        tensor: The first layer's weights; by default the tensor that no group is read by.
        orders: Orders file; with it each column is one global unit and what it came from.
        count: At most so many units.

    Raises:
        FileError: A file cannot be read or is of another kind.
        OptionError: There is no such tensor, or its filters are no images.
        ContentError: The models or the orders do not fit together.
    """
    checkpoints = [open_kind(path, "model") for path in paths]
    name = tensor or first_layer(checkpoints[-1])
    stacks = [_images(checkpoint, name) for checkpoint in checkpoints]
    for checkpoint, stack in zip(checkpoints, stacks, strict=True):
        if stack.shape[1:] != stacks[-1].shape[1:]:
            what = f"filters of {name} are {stack.shape[1:]}, in {checkpoints[-1].label} {stacks[-1].shape[1:]}"
            raise ContentError(checkpoint.label, what, "Give models of one architecture.")
    units = np.arange(min(count, len(stacks[-1])))
    places = [np.arange(len(stack)) for stack in stacks]
    if orders is not None:
        places = [*_orders(orders, name, checkpoints[:-1], stacks), places[-1]]
    images = np.stack([_ordered(stack, place, units) for stack, place in zip(stacks, places, strict=True)])
    models = (*(_client(checkpoint, place) for place, checkpoint in enumerate(checkpoints[:-1])), "global")
    return Filters(name, models, tuple(units.tolist()), images, orders is not None)


def first_layer(checkpoint: Checkpoint) -> str:
    """Return the weights that read the network's input: the spec knows, else the first convolution or matrix.

    Raises:
        OptionError: There is none.
    """
    shapes = checkpoint.shapes()
    spec = _spec(checkpoint)
    reading = [name for name, row in spec.axes.items() if len(row) > 1 and row[0] and row[1] is None] if spec else []
    guessed = [name for rank in (4, 2) for name, shape in sorted(shapes.items()) if len(shape) == rank]
    for name in (*reading, *guessed):
        if name in shapes:
            return name
    raise OptionError("--tensor", f"{checkpoint.label} has no layer of filters", "Name the tensor.")


def draw_filters(filters: Filters, title: str | None = None) -> Figure:
    """Return one row a model, one column a unit; grey is zero, all on one scale.

    Args:
        filters: The filters.
        title: The heading.
    """
    rows, columns, height, width, _ = filters.images.shape
    how = "matched" if filters.matched else "by index"
    with house_style():
        figure = new_figure(columns * TILE + 1.3, rows * TILE * height / width + 0.9)
        axes = figure.add_subplot()
        axes.imshow(_mosaic(filters.images), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        blank(axes)
        axes.set_yticks(np.arange(rows) * (height + 1) + (height - 1) / 2, filters.models)
        axes.set_xticks(np.arange(columns) * (width + 1) + (width - 1) / 2, [str(unit) for unit in filters.units])
        axes.tick_params(length=0)
        axes.set_xlabel("global unit" if filters.matched else "unit")
        axes.set_title(title or f"Filters of {filters.tensor}, {how}")
        axes.axhline((rows - 1) * (height + 1) - 1, color="black", linewidth=0.8)
    return figure


def _mosaic(images: FloatArray) -> FloatArray:
    """Lay the filters out with one white pixel between them; 0.5 is a weight of zero."""
    rows, columns, height, width, channels = images.shape
    largest = float(np.nanmax(np.abs(images))) or 1.0
    tones = np.nan_to_num(0.5 + images / (2 * largest), nan=1.0)
    padded = np.ones((rows, columns, height + 1, width + 1, channels))
    padded[:, :, :height, :width] = tones
    mosaic: FloatArray = padded.transpose(0, 2, 1, 3, 4).reshape(rows * (height + 1), columns * (width + 1), channels)
    return mosaic[:-1, :-1].squeeze(-1) if channels == 1 else mosaic[:-1, :-1]


def _images(checkpoint: Checkpoint, name: str) -> FloatArray:
    """Return (n, h, w, c) filters: colour from three input channels, else the mean over the channels."""
    weights: FloatArray = checkpoint.read(name).astype(np.float64)
    if weights.ndim == 2 and math.isqrt(weights.shape[1]) ** 2 == weights.shape[1]:
        side = math.isqrt(weights.shape[1])
        return weights.reshape(len(weights), side, side, 1)  # (n, h·w) -> (n, h, w, 1)
    if weights.ndim != 4:
        what = f"{name} of {checkpoint.label} has shape {weights.shape}, which is no stack of images"
        raise OptionError("--tensor", what, "Name the weights of a convolution.")
    if weights.shape[1] == 3:
        return np.moveaxis(weights, 1, -1)  # (n, 3, h, w) -> (n, h, w, 3)
    return np.moveaxis(np.mean(weights, axis=1, keepdims=True), 1, -1)  # (n, c, h, w) -> (n, h, w, 1)


def _orders(path: Path, tensor: str, clients: Sequence[Checkpoint], stacks: Sequence[FloatArray]) -> list[Order]:
    """Return each client's order of the units of a tensor."""
    checkpoint = open_kind(path, "orders")
    groups = orders_by_group(checkpoint)
    spec = _spec(clients[0])
    axis = spec.axes[tensor][0] if spec and tensor in spec.axes else None
    group = axis.group if axis else tensor.rpartition(".")[0]
    found: list[Order] = []
    for place, client in enumerate(clients):
        number = _number(client, place)
        name = groups.get(group, {}).get(number)
        if name is None:
            what = f"has no order of group {group} for client {number}"
            raise ContentError(checkpoint.label, what, "Give the orders of the merge that made the global model.")
        order = read_order(checkpoint, name)
        if len(order) != len(stacks[place]) or order.max() >= len(stacks[-1]):
            what = f"{name} does not fit {client.label} and the global model"
            raise ContentError(checkpoint.label, what, "Give the orders of the merge that made the global model.")
        found.append(order)
    return found


def _ordered(stack: FloatArray, order: Order, units: Order) -> FloatArray:
    """Return the filters that became these global units, NaN where none did."""
    images = np.full((max(int(order.max()), int(units.max())) + 1, *stack.shape[1:]), np.nan)
    images[order] = stack
    return images[units]


def _spec(checkpoint: Checkpoint) -> PermutationSpec | None:
    data = checkpoint.metadata.spec if checkpoint.metadata else None
    return None if data is None else PermutationSpec.from_json(data, checkpoint.label)


def _number(checkpoint: Checkpoint, place: int) -> int:
    client = checkpoint.metadata.client if checkpoint.metadata else None
    return place if client is None or client.id is None else client.id


def _client(checkpoint: Checkpoint, place: int) -> str:
    return f"client {_number(checkpoint, place)}"
