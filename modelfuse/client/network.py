"""Torch modules made from layer records: one source of truth for the permutation spec and for the network."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from modelfuse.errors import ContentError
from modelfuse.spec import layers as records
from modelfuse.spec.architectures import Architecture
from modelfuse.spec.rows import Signal, advance

__all__ = ["Network", "build"]

Weighted = (records.Conv2d, records.Linear, records.Embedding, records.LSTM, records.BatchNorm2d)


class Network(nn.Module):
    """A network that runs an architecture's layer records; its tensors carry the names of the permutation spec.

    Args:
        architecture: The network as plain data. Without a Representation marker, the representation is what the last
            layer with weights reads.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        layers = architecture.layers
        last = max(number for number, layer in enumerate(layers) if isinstance(layer, Weighted))
        marks = [number for number, layer in enumerate(layers) if isinstance(layer, records.Representation)]
        split = marks[0] if marks else last
        self._body, self._head = layers[:split], layers[split:]
        self._register(layers, architecture.signal())

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits, shape (N, C), or (N, T, C) for sequences."""
        return self.classify(self.represent(inputs))

    def represent(self, inputs: Tensor) -> Tensor:
        """Return the representation h = f(φ; x), shape (N, d).

        Args:
            inputs: One example a row; reshaped to the architecture's input shape, so that an mlp takes images.

        Source: FedProto, Problem Setting.
        """
        return self._run(self._body, _fit(inputs, self.architecture.input_shape))

    def classify(self, representations: Tensor) -> Tensor:
        """Return the logits of representations that :meth:`represent` made."""
        return self._run(self._head, representations)

    def _register(self, layers: Sequence[records.Layer], signal: Signal) -> None:
        for layer in layers:
            if isinstance(layer, records.Residual):
                self._register(layer.body, signal)
                self._register(layer.shortcut, signal)
            elif isinstance(layer, Weighted):
                *path, name = layer.name.split(".")
                parent: nn.Module = self
                for part in path:
                    if not hasattr(parent, part):
                        parent.add_module(part, nn.Module())
                    parent = parent.get_submodule(part)
                parent.add_module(name, _module(layer, signal.width))
            signal = advance(layer, signal)

    def _run(self, layers: Sequence[records.Layer], x: Tensor) -> Tensor:
        for layer in layers:
            x = self._apply_layer(layer, x)
        return x

    def _apply_layer(self, layer: records.Layer, x: Tensor) -> Tensor:
        match layer:
            case records.LSTM(name):
                x, _ = self.get_submodule(name)(x)  # (N, T, h): every time step is decoded
            case records.Conv2d() | records.Linear() | records.Embedding() | records.BatchNorm2d():
                x = self.get_submodule(layer.name)(x)
            case records.ReLU():
                x = torch.relu(x)
            case records.MaxPool2d(kernel, stride, padding):
                x = functional.max_pool2d(x, kernel, stride, padding)
            case records.Dropout(p, channels):
                x = (functional.dropout2d if channels else functional.dropout)(x, p, self.training)
            case records.Flatten():
                x = x.flatten(1)  # (N, C, h, w) -> (N, C·h·w)
            case records.GlobalAveragePool():
                x = x.mean((2, 3))  # (N, C, h, w) -> (N, C)
            case records.Residual(_, body, shortcut):
                x = torch.relu(self._run(body, x) + self._run(shortcut, x))
        return x


def _module(layer: records.Layer, inputs: int) -> nn.Module:
    match layer:
        case records.Conv2d(_, outputs, kernel, stride, padding, bias):
            return nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=bias)
        case records.Linear(_, outputs, bias):
            return nn.Linear(inputs, outputs, bias)
        case records.Embedding(_, tokens, outputs):
            return nn.Embedding(tokens, outputs)
        case records.LSTM(_, outputs):
            return nn.LSTM(inputs, outputs, batch_first=True)
        case _:
            return nn.BatchNorm2d(inputs)


def _fit(inputs: Tensor, shape: tuple[int, ...]) -> Tensor:
    given = tuple(inputs.shape[1:])
    if not shape or given == shape:
        return inputs
    if math.prod(given) != math.prod(shape) or (len(shape) > 1 and len(given) > 1):
        raise ContentError(
            "--data",
            f"an example has shape {'×'.join(map(str, given))} and the network reads {'×'.join(map(str, shape))}",
            "Use the data that the network was made for, or another --architecture.",
        )
    return inputs.reshape(len(inputs), *shape)


def build(architecture: Architecture) -> Network:
    """Return the network of an architecture with all tensors zero: :func:`initialize` or :func:`load_tensors` next.

    Args:
        architecture: The network as plain data.

    Raises:
        ContentError: The layers do not fit together.
    """
    with torch.device("meta"):
        network = Network(architecture)
    network.to_empty(device="cpu")
    for tensor in network.state_dict().values():
        tensor.zero_()
    return network
