"""The vocabulary that architectures are written in: one frozen record a layer, without torch.

An architecture is a tuple of these records. The spec room turns it into a permutation spec, the client room into a
torch module; neither tests an architecture's name. A layer gives its outputs only: its inputs follow from the layer
before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, Union

__all__ = [
    "LSTM",
    "BatchNorm2d",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "GlobalAveragePool",
    "Layer",
    "Linear",
    "MaxPool2d",
    "ReLU",
    "Representation",
    "Residual",
]


@dataclass(frozen=True, slots=True)
class Conv2d:
    """A square convolution; its units are the output channels."""

    name: str
    outputs: int
    kernel: int
    stride: int = 1
    padding: int = 0
    bias: bool = True


@dataclass(frozen=True, slots=True)
class Linear:
    """A fully connected layer; its units are the outputs."""

    name: str
    outputs: int
    bias: bool = True


@dataclass(frozen=True, slots=True)
class Embedding:
    """A table of ``tokens`` rows; its units are the embedding's dimensions."""

    name: str
    tokens: int
    outputs: int


@dataclass(frozen=True, slots=True)
class LSTM:
    """One LSTM layer, batch first; its units are the hidden states. The next layer reads every time step."""

    name: str
    outputs: int


@dataclass(frozen=True, slots=True)
class BatchNorm2d:
    """Batch normalisation of the channels it receives; it has no units of its own."""

    name: str


@dataclass(frozen=True, slots=True)
class ReLU:
    """The rectifier."""


@dataclass(frozen=True, slots=True)
class MaxPool2d:
    """Square max-pooling."""

    kernel: int
    stride: int
    padding: int = 0


@dataclass(frozen=True, slots=True)
class Dropout:
    """Dropout with probability ``p``; ``channels`` drops whole feature maps."""

    p: float
    channels: bool = False


@dataclass(frozen=True, slots=True)
class Flatten:
    """Flatten feature maps, channel-major: each channel becomes one block of h·w entries."""


@dataclass(frozen=True, slots=True)
class GlobalAveragePool:
    """Mean over each feature map."""


@dataclass(frozen=True, slots=True)
class Representation:
    """Marks where the embedding h = f(φ; x) is taken: f precedes it, g follows (FedProto, Problem Setting)."""


@dataclass(frozen=True, slots=True)
class Residual:
    """A body and a shortcut whose outputs are added, then rectified; an empty shortcut is the identity.

    The body's last layers write into the stream: they share the group of what comes in (identity) or a group of the
    block's own name (projection).
    """

    name: str
    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()


Layer: TypeAlias = Union[  # noqa: UP007  (a forward reference cannot be joined with | on Python 3.10)
    Conv2d,
    Linear,
    Embedding,
    LSTM,
    BatchNorm2d,
    ReLU,
    MaxPool2d,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Representation,
    Residual,
]
