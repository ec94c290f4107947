"""The zoo: architecture strings such as ``mlp:in=64,hidden=100-50,out=10,bias=false``, read into plain data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from modelfuse.errors import OptionError
from modelfuse.spec.axes import PermutationSpec
from modelfuse.spec.layers import (
    LSTM,
    BatchNorm2d,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePool,
    Layer,
    Linear,
    MaxPool2d,
    ReLU,
    Representation,
    Residual,
)
from modelfuse.spec.rows import Signal, permutation_spec, resize

__all__ = ["ZOO", "Architecture", "parse_architecture"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """A network as plain data.

    Args:
        text: The canonical architecture string; :func:`parse_architecture` reads it back.
        input_shape: Shape of one example: (features,), (channels, height, width), or () for a sequence of tokens.
        layers: The layers in order.
    """

    text: str
    input_shape: tuple[int, ...]
    layers: tuple[Layer, ...]

    def signal(self) -> Signal:
        """Return the signal that enters the first layer."""
        if len(self.input_shape) == 3:
            channels, height, width = self.input_shape
            return Signal(channels, (height, width))
        return Signal(self.input_shape[0] if self.input_shape else 1)

    def spec(self) -> PermutationSpec:
        """Return the permutation spec; it holds for every width of the groups."""
        return permutation_spec(self.layers, self.signal())

    def resized(self, shapes: Mapping[str, Sequence[int]]) -> Architecture:
        """Return the architecture with the widths that one model's tensor shapes have."""
        return replace(self, layers=resize(self.layers, shapes))


Build = tuple[tuple[int, ...], Sequence[Layer]]


def _mlp(inputs: int, outputs: int, hidden: tuple[int, ...] = (), bias: bool = True) -> Build:
    layers: list[Layer] = []
    for number, width in enumerate(hidden, start=1):
        layers += [Linear(f"fc{number}", width, bias), ReLU()]
    return (inputs,), [*layers, Representation(), Linear(f"fc{len(hidden) + 1}", outputs, bias)]


def _lenet(channels: int = 1, size: int = 28, outputs: int = 10) -> Build:
    """FedMA tab. 3 and its code: two convolutions of 20 and 50 filters, one hidden layer of 500."""
    return (channels, size, size), [
        *(Conv2d("conv1", 20, 5), MaxPool2d(2, 2), ReLU()),
        *(Conv2d("conv2", 50, 5), MaxPool2d(2, 2), ReLU()),
        *(Flatten(), Linear("fc1", 500), ReLU(), Representation(), Linear("fc2", outputs)),
    ]


def _fednet(channels: int = 3, size: int = 32, outputs: int = 10, bias: bool = False) -> Build:
    """FedFiOT §5.1: L = 5, d = 939,616 for CIFAR-10, no biases."""
    return (channels, size, size), [
        *(Conv2d("conv1", 32, 5, bias=bias), ReLU(), MaxPool2d(2, 2)),
        *(Conv2d("conv2", 64, 5, bias=bias), ReLU(), MaxPool2d(2, 2)),
        *(Flatten(), Linear("fc1", 512, bias), ReLU(), Linear("fc2", 128, bias), ReLU()),
        *(Representation(), Linear("fc3", outputs, bias)),
    ]


def _vgg9(channels: int = 3, size: int = 32, outputs: int = 10) -> Build:
    """FedMA tab. 4: VGG-9 without batch normalisation."""
    return (channels, size, size), [
        *(Conv2d("conv1", 32, 3, padding=1), ReLU(), Conv2d("conv2", 64, 3, padding=1), ReLU(), MaxPool2d(2, 2)),
        *(Conv2d("conv3", 128, 3, padding=1), ReLU(), Conv2d("conv4", 128, 3, padding=1), ReLU(), MaxPool2d(2, 2)),
        Dropout(0.05, channels=True),
        *(Conv2d("conv5", 256, 3, padding=1), ReLU(), Conv2d("conv6", 256, 3, padding=1), ReLU(), MaxPool2d(2, 2)),
        *(Flatten(), Dropout(0.1), Linear("fc7", 512), ReLU(), Linear("fc8", 512), ReLU(), Dropout(0.1)),
        *(Representation(), Linear("fc9", outputs)),
    ]


def _char_lstm(tokens: int = 80, embedding: int = 8, hidden: int = 256) -> Build:
    """FedMA tab. 5: embedding, one LSTM layer, decoder; tensors named as its code names them. 293,584 parameters."""
    return (), [Embedding("encoder", tokens, embedding), LSTM("rnn", hidden), Linear("decoder", tokens)]


def _fedproto_cnn(width: int = 20, channels: int = 1, size: int = 28, outputs: int = 10) -> Build:
    """FedProto §Experiments: two convolutions (the second of 18, 20 or 22 filters), a 50-dimensional embedding."""
    return (channels, size, size), [
        *(Conv2d("conv1", 10, 5), MaxPool2d(2, 2), ReLU()),
        *(Conv2d("conv2", width, 5), Dropout(0.5, channels=True), MaxPool2d(2, 2), ReLU()),
        *(Flatten(), Linear("fc1", 50), ReLU(), Representation(), Dropout(0.5), Linear("fc2", outputs)),
    ]


def _resnet18(stride: int = 2, pool: int = 2, channels: int = 3, size: int = 32, outputs: int = 10) -> Build:
    """ResNet-18 (arXiv 1512.03385), tensors named as torchvision names them.

    ``stride`` is that of the first convolution, ``pool`` that of the max-pooling behind it: FedProto's unlike clients
    have 1 and 4, or 2 and 2. The embedding is layer4's feature map, 512×1×1 on 32×32 images (FedProto's code).
    """
    blocks = (
        _basic_block(f"layer{stage}.{number}", 32 << stage, 2 if stage > 1 and number == 0 else 1)
        for stage in (1, 2, 3, 4)
        for number in (0, 1)
    )
    return (channels, size, size), [
        *(Conv2d("conv1", 64, 7, stride, padding=3, bias=False), BatchNorm2d("bn1"), ReLU()),
        MaxPool2d(3, pool, padding=1),
        *blocks,
        *(Representation(), GlobalAveragePool(), Linear("fc", outputs)),
    ]


def _basic_block(name: str, width: int, stride: int) -> Residual:
    body = (
        *(Conv2d(f"{name}.conv1", width, 3, stride, padding=1, bias=False), BatchNorm2d(f"{name}.bn1"), ReLU()),
        *(Conv2d(f"{name}.conv2", width, 3, padding=1, bias=False), BatchNorm2d(f"{name}.bn2")),
    )
    shortcut = (
        Conv2d(f"{name}.downsample.0", width, 1, stride, bias=False),
        BatchNorm2d(f"{name}.downsample.1"),
    )
    return Residual(name, body, shortcut if stride > 1 else ())


ZOO: Mapping[str, Callable[..., Build]] = {
    "mlp": _mlp,
    "lenet": _lenet,
    "fednet": _fednet,
    "vgg9": _vgg9,
    "char-lstm": _char_lstm,
    "fedproto-cnn": _fedproto_cnn,
    "resnet18": _resnet18,
}

SHORT = {"in": "inputs", "out": "outputs"}


def parse_architecture(text: str, where: str = "--architecture") -> Architecture:
    """Return the architecture that a string names.

    Args:
        text: ``name`` or ``name:key=value,…``; whole numbers, ``true``/``false``, and lists of numbers joined by ``-``.
        where: The option or file that the string comes from, for messages.

    Raises:
        OptionError: The name, a key or a value is unknown, or a key without default is missing.
    """
    name, _, rest = text.partition(":")
    if name not in ZOO:
        raise OptionError(where, f"no architecture is called {name!r}", f"There are {', '.join(ZOO)}.")
    parameters = inspect.signature(ZOO[name], eval_str=True).parameters
    given: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        parameter = parameters.get(SHORT.get(key, key))
        if parameter is None or not equals:
            raise OptionError(where, f"{name} has no setting {item!r}", f"It has {_settings(parameters)}.")
        given[parameter.name] = _value(parameter, value, f"{where} {text}")
    missing = [
        key for key, parameter in parameters.items() if parameter.default is parameter.empty and key not in given
    ]
    if missing:
        raise OptionError(where, f"{name} needs {', '.join(map(_public, missing))}", f"It has {_settings(parameters)}.")
    input_shape, layers = ZOO[name](**given)
    return Architecture(_canonical(name, parameters, given), input_shape, tuple(layers))


def _canonical(name: str, parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> str:
    """Return the one string that stands for these settings: defaults left out, in the order of the signature."""
    shown = [
        f"{_public(key)}={_text(given[key])}"
        for key, parameter in parameters.items()
        if key in given and given[key] != parameter.default
    ]
    return f"{name}:{','.join(shown)}" if shown else name


def _public(key: str) -> str:
    return next((short for short, full in SHORT.items() if full == key), key)


def _settings(parameters: Mapping[str, inspect.Parameter]) -> str:
    return ", ".join(
        f"{_public(key)}={'…' if parameter.default is parameter.empty else _text(parameter.default)}"
        for key, parameter in parameters.items()
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _value(parameter: inspect.Parameter, value: str, where: str) -> Any:
    if parameter.annotation is bool:
        if value not in ("true", "false"):
            raise OptionError(
                where, f"{_public(parameter.name)}={value} is neither true nor false", "Write one of them."
            )
        return value == "true"
    parts = value.split("-") if parameter.annotation is not int else [value]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise OptionError(
            where, f"{_public(parameter.name)}={value} is not made of positive whole numbers", "Write 100 or 100-50."
        )
    return int(value) if parameter.annotation is int else tuple(map(int, parts))
