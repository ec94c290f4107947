"""From layers to spec rows: one walk along an architecture, carrying what each layer reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelfuse.errors import ContentError
from modelfuse.spec.axes import Axis, PermutationSpec, carry, consume, match
from modelfuse.spec.layers import (
    LSTM,
    BatchNorm2d,
    Conv2d,
    Embedding,
    Flatten,
    GlobalAveragePool,
    Layer,
    Linear,
    MaxPool2d,
    Residual,
)

__all__ = ["Signal", "advance", "permutation_spec", "resize", "width_of"]

GATES = 4  # input, forget, cell, output: torch stacks them in this order


@dataclass(frozen=True, slots=True)
class Signal:
    """What flows between two layers.

    Args:
        width: Channels or features.
        size: (height, width) of the feature maps; None for vectors and sequences of vectors.
        group: The group whose units the channels are; None for the network's input and output.
        block: Entries a unit on the feature axis (h·w behind a flatten, else 1).
    """

    width: int
    size: tuple[int, int] | None = None
    group: str | None = None
    block: int = 1


def advance(layer: Layer, signal: Signal) -> Signal:
    """Return the signal behind a layer.

    Args:
        layer: The layer.
        signal: The signal that it reads.

    Raises:
        ContentError: A feature map becomes smaller than one pixel, or a layer for feature maps receives vectors.
    """
    match layer:
        case Conv2d(name, outputs, kernel, stride, padding):
            return Signal(outputs, _shrink(signal, name, kernel, stride, padding), name)
        case MaxPool2d(kernel, stride, padding):
            return replace(signal, size=_shrink(signal, "max-pool", kernel, stride, padding))
        case Linear(name, outputs):
            return Signal(outputs, None, name)
        case Embedding(name, _, outputs) | LSTM(name, outputs):
            return Signal(outputs, None, name)
        case Flatten():
            height, width = _size(signal, "flatten")
            return Signal(signal.width * height * width, None, signal.group, height * width)
        case GlobalAveragePool():
            return Signal(signal.width, None, signal.group)
        case Residual(name, body, shortcut):
            inner = signal
            for each in body:
                inner = advance(each, inner)
            return replace(inner, group=name if shortcut else signal.group)
        case _:
            return signal


def permutation_spec(layers: Sequence[Layer], signal: Signal) -> PermutationSpec:
    """Return the permutation spec of a network.

    Args:
        layers: The layers in order; the last one with weights writes the classes.
        signal: The network's input.

    Raises:
        ContentError: As :func:`advance`.
    """
    rows: dict[str, tuple[Axis | None, ...]] = {}
    last = max(number for number, layer in enumerate(layers) if isinstance(layer, Conv2d | Linear))
    for number, layer in enumerate(layers):
        after = advance(layer, signal)
        if number == last:
            after = replace(after, group=None)
        rows.update(_rows(layer, signal, after))
        signal = after
    output = layers[last]
    class_axis = {tensor: 0 for tensor in rows if tensor.rpartition(".")[0] == getattr(output, "name", None)}
    return PermutationSpec(rows, class_axis)


def resize(layers: Sequence[Layer], shapes: Mapping[str, Sequence[int]]) -> tuple[Layer, ...]:
    """Return the layers with the widths that the tensors' shapes have (PFNM and FedMA let groups grow).

    Args:
        layers: The layers as the architecture string gives them.
        shapes: Shape of every tensor of one model.
    """
    return tuple(_resize(layer, shapes) for layer in layers)


def width_of(layer: Conv2d | Linear | Embedding | LSTM, shapes: Mapping[str, Sequence[int]]) -> int:
    """Return how many units the tensors give a layer, or its own number where they do not name it."""
    tensor, dimension, stack = {
        Embedding: ("weight", 1, 1),
        LSTM: ("weight_ih_l0", 0, GATES),
    }.get(type(layer), ("weight", 0, 1))
    shape = shapes.get(f"{layer.name}.{tensor}", ())
    return shape[dimension] // stack if len(shape) > dimension else layer.outputs


def _resize(layer: Layer, shapes: Mapping[str, Sequence[int]]) -> Layer:
    if isinstance(layer, Residual):
        return replace(layer, body=resize(layer.body, shapes), shortcut=resize(layer.shortcut, shapes))
    if isinstance(layer, Conv2d | Linear | Embedding | LSTM):
        return replace(layer, outputs=width_of(layer, shapes))
    return layer


def _rows(layer: Layer, before: Signal, after: Signal) -> dict[str, tuple[Axis | None, ...]]:
    reads = None if before.group is None else consume(before.group, block=before.block)
    owns = None if after.group is None else match(after.group)
    match layer:
        case Conv2d(name, bias=bias):
            rows: dict[str, tuple[Axis | None, ...]] = {f"{name}.weight": (owns, reads, None, None)}
            return rows | ({f"{name}.bias": (owns,)} if bias else {})
        case Linear(name, bias=bias):
            rows = {f"{name}.weight": (owns, reads)}
            return rows | ({f"{name}.bias": (owns,)} if bias else {})
        case Embedding(name):
            return {f"{name}.weight": (None, owns)}
        case LSTM(name):
            return _lstm_rows(name, reads)
        case BatchNorm2d(name):
            return _norm_rows(name, after.group)
        case Residual():
            return _residual_rows(layer, before, after)
        case _:
            return {}


def _lstm_rows(name: str, reads: Axis | None) -> dict[str, tuple[Axis | None, ...]]:
    # hidden-to-hidden weights move on both axes, outside the cost: matching them is a quadratic problem (FedMA §2.2)
    return {
        f"{name}.weight_ih_l0": (match(name, stack=GATES), reads),
        f"{name}.weight_hh_l0": (carry(name, stack=GATES), consume(name)),
        f"{name}.bias_ih_l0": (match(name, stack=GATES),),
        f"{name}.bias_hh_l0": (carry(name, stack=GATES),),
    }


def _norm_rows(name: str, group: str | None) -> dict[str, tuple[Axis | None, ...]]:
    owns = None if group is None else match(group)
    moves = None if group is None else carry(group)
    return {
        f"{name}.weight": (owns,),
        f"{name}.bias": (owns,),
        f"{name}.running_mean": (moves,),
        f"{name}.running_var": (moves,),
        f"{name}.num_batches_tracked": (),
    }


def _residual_rows(block: Residual, before: Signal, after: Signal) -> dict[str, tuple[Axis | None, ...]]:
    # the shortcut first: it carries the stream's group, which the body's last layer then joins
    rows: dict[str, tuple[Axis | None, ...]] = {}
    for branch in (block.shortcut, block.body):
        signal = before
        stream = max((number for number, layer in enumerate(branch) if isinstance(layer, Conv2d | Linear)), default=-1)
        for number, layer in enumerate(branch):
            ahead = advance(layer, signal)
            if number == stream:
                ahead = replace(ahead, group=after.group)
            rows.update(_rows(layer, signal, ahead))
            signal = ahead
    return rows


def _size(signal: Signal, name: str) -> tuple[int, int]:
    if signal.size is None:
        raise ContentError(name, "needs feature maps and receives vectors", "Correct the architecture.")
    return signal.size


def _shrink(signal: Signal, name: str, kernel: int, stride: int, padding: int) -> tuple[int, int]:
    height, width = ((side + 2 * padding - kernel) // stride + 1 for side in _size(signal, name))
    if height < 1 or width < 1:
        raise ContentError(name, f"a {kernel}×{kernel} window does not fit a {signal.size} map", "Use larger images.")
    return height, width
