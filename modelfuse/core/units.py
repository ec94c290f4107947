"""Unit matrices and realignment: the two ways in which tensors and units meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.spec.axes import Axis, PermutationSpec, Place
from modelfuse.types import BoolArray, FloatArray, Order, Tensors

__all__ = ["invert", "local_part", "presence", "realign", "realign_tensor", "unit_matrix", "write_units"]


def unit_matrix(tensors: Tensors, places: Sequence[Place]) -> FloatArray:
    """Return one row a unit: what the places' tensors hold of it, side by side.

    Args:
        tensors: The tensors of one model.
        places: Where the group's units are, in the order of the coordinates; all of one group.

    Returns:
        (n, d) float64: for each place the ``stack`` copies, in each copy the ``block`` entries times the other axes.
    """
    return np.concatenate([_rows(tensors[place.tensor], place) for place in places], axis=1)


def write_units(
    matrix: FloatArray, places: Sequence[Place], shapes: Mapping[str, Sequence[int]]
) -> dict[str, FloatArray]:
    """Return the tensors whose unit matrix is ``matrix``: the inverse of :func:`unit_matrix`.

    Args:
        matrix: (n, d), as :func:`unit_matrix` lays it out.
        places: The places, one a tensor.
        shapes: Shape of every tensor at these places.
    """
    tensors: dict[str, FloatArray] = {}
    start = 0
    for place in places:
        shape = tuple(shapes[place.tensor])
        rest = shape[: place.dimension] + shape[place.dimension + 1 :]
        stack, block = place.axis.stack, place.axis.block
        stop = start + stack * block * int(np.prod(rest))
        part = matrix[:, start:stop].reshape(len(matrix), stack, block, *rest)  # (n, s, b, rest)
        moved = part.swapaxes(0, 1).reshape(shape[place.dimension], *rest)  # (s·n·b, rest)
        tensors[place.tensor] = np.ascontiguousarray(np.moveaxis(moved, 0, place.dimension))
        start = stop
    return tensors


def realign(
    tensors: Tensors, spec: PermutationSpec, orders: Mapping[str, Order], widths: Mapping[str, int] | None = None
) -> dict[str, NDArray[Any]]:
    """Return one model's tensors with every axis of the given groups moved to the global order.

    Args:
        tensors: The model's tensors; those without a row in the spec stay as they are.
        spec: The permutation spec.
        orders: For each group to move, (n_k,) the global unit that each local unit became.
        widths: Global width of each group; n_k where it is not given. Units that this model lacks are zeros.
    """
    return {
        name: realign_tensor(array, spec.axes.get(name, ()), orders, widths or {}) for name, array in tensors.items()
    }


def realign_tensor(
    array: NDArray[Any], axes: Sequence[Axis | None], orders: Mapping[str, Order], widths: Mapping[str, int]
) -> NDArray[Any]:
    """Return one tensor with the axes of the given groups moved; the others stay (see :func:`realign`)."""
    for dimension, axis in enumerate(axes):
        if axis is None or axis.group not in orders:
            continue
        order = orders[axis.group]
        width = widths.get(axis.group, len(order))
        before, after = array.shape[:dimension], array.shape[dimension + 1 :]
        local = array.reshape(*before, axis.stack, len(order), axis.block, *after)  # (…, s, n_k, b, …)
        moved = np.zeros((*before, axis.stack, width, axis.block, *after), dtype=array.dtype)
        moved[(slice(None),) * (dimension + 1) + (order,)] = local
        array = moved.reshape(*before, axis.stack * width * axis.block, *after)  # (…, s·width·b, …)
    return array


def local_part(tensors: Tensors, spec: PermutationSpec, orders: Mapping[str, Order]) -> dict[str, NDArray[Any]]:
    """Return the part of a global model that is one client's, in the client's own order: the inverse of ``realign``.

    Args:
        tensors: The global model's tensors; those without a row in the spec stay as they are.
        spec: The permutation spec.
        orders: For each group to cut, (n_k,) the global unit that each local unit became.

    Source: FedMA §2.3, FedMA with communication.
    """
    return {name: _local_tensor(array, spec.axes.get(name, ()), orders) for name, array in tensors.items()}


def _local_tensor(array: NDArray[Any], axes: Sequence[Axis | None], orders: Mapping[str, Order]) -> NDArray[Any]:
    for dimension, axis in enumerate(axes):
        if axis is None or axis.group not in orders:
            continue
        order = orders[axis.group]
        before, after = array.shape[:dimension], array.shape[dimension + 1 :]
        units = array.reshape(*before, axis.stack, -1, axis.block, *after)  # (…, s, width, b, …)
        mine = np.take(units, order, axis=dimension + 1)  # (…, s, n_k, b, …)
        array = mine.reshape(*before, axis.stack * len(order) * axis.block, *after)  # (…, s·n_k·b, …)
    return array


def presence(
    axes: Sequence[Axis | None], orders: Mapping[str, Order], widths: Mapping[str, int]
) -> tuple[BoolArray | None, ...]:
    """Return, for each axis of a realigned tensor, which positions the client really has.

    Args:
        axes: The tensor's row of the spec.
        orders: The client's orders.
        widths: Global widths.

    Returns:
        One entry an axis: a mask over its positions, or None where the client has them all.
    """
    masks: list[BoolArray | None] = []
    for axis in axes:
        if axis is None or axis.group not in orders or len(orders[axis.group]) == widths[axis.group]:
            masks.append(None)
            continue
        units = np.zeros(widths[axis.group], dtype=np.bool_)
        units[orders[axis.group]] = True
        masks.append(np.tile(np.repeat(units, axis.block), axis.stack))
    return tuple(masks)


def invert(order: Order) -> Order:
    """Return, for each global unit, the local unit that became it; the order must be a permutation."""
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order), dtype=order.dtype)
    return inverse


def _rows(array: NDArray[Any], place: Place) -> FloatArray:
    axis = place.axis
    front = np.moveaxis(np.asarray(array, dtype=np.float64), place.dimension, 0)
    copies = front.reshape(axis.stack, -1, axis.block, *front.shape[1:])  # (s, n, b, rest)
    rows: FloatArray = copies.swapaxes(0, 1).reshape(copies.shape[1], -1)  # (n, s·b·rest)
    return rows
