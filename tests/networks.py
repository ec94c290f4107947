"""Networks and data for the client side's tests: the zoo, and what the zoo has not."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from modelfuse.client.data import Dataset
from modelfuse.client.models import Network, build, initialize
from modelfuse.client.sources.source import Normalisation
from modelfuse.spec.architectures import ZOO, Architecture, parse_architecture
from modelfuse.spec.layers import (
    LSTM,
    BatchNorm2d,
    Conv2d,
    Embedding,
    GlobalAveragePool,
    Linear,
    MaxPool2d,
    ReLU,
    Residual,
)

TOKENS, STEPS = 11, 7

RESIDUAL = Architecture(
    "residual",
    (3, 8, 8),
    (
        *(Conv2d("stem", 6, 3, padding=1), BatchNorm2d("bn0"), ReLU(), MaxPool2d(2, 2)),
        Residual(
            "one",
            (
                *(Conv2d("one.conv1", 5, 3, padding=1, bias=False), BatchNorm2d("one.bn1"), ReLU()),
                *(Conv2d("one.conv2", 6, 3, padding=1), BatchNorm2d("one.bn2")),
            ),
        ),
        Residual(
            "two",
            (*(Conv2d("two.conv1", 4, 3, stride=2, padding=1), ReLU()), Conv2d("two.conv2", 9, 3, padding=1)),
            (Conv2d("two.short", 9, 1, stride=2), BatchNorm2d("two.bn")),
        ),
        *(GlobalAveragePool(), Linear("fc", 10)),
    ),
)
CHARACTERS = Architecture(
    "characters",
    (),
    (Embedding("embed", TOKENS, 6), LSTM("lstm1", 8), LSTM("lstm2", 5), Linear("decoder", TOKENS)),
)
SETTINGS = {"mlp": "mlp:in=64,hidden=20-12,out=10", "resnet18": "resnet18:size=16"}
ARCHITECTURES = {name: parse_architecture(SETTINGS.get(name, name)) for name in ZOO}
ARCHITECTURES |= {architecture.text: architecture for architecture in (RESIDUAL, CHARACTERS)}


def narrow(architecture: Architecture, width: int) -> Architecture:
    """Return the architecture with every group ``width`` wide."""
    spec = architecture.spec()
    shapes = {
        tensor: (4 * width if "_l0" in tensor else width,) * len(axes)
        for tensor, axes in spec.axes.items()
        if tensor not in spec.class_axis
    }
    return architecture.resized(shapes)


def network_of(architecture: Architecture, seed: int = 0) -> Network:
    """Return a network in evaluation mode, none of whose tensors is constant and whose signals do not fade."""
    network = build(architecture)
    initialize(network, seed, "torch")
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for norm in norms:
            norm.momentum = 1.0  # one batch decides the running statistics
            norm.weight += torch.rand(norm.weight.shape, generator=generator)
            norm.bias += torch.rand(norm.bias.shape, generator=generator)
        if norms:
            network(inputs_of(architecture, 16, seed + 1))
    return network.eval()


def inputs_of(architecture: Architecture, count: int, seed: int = 0) -> Tensor:
    """Return random inputs of an architecture."""
    generator = torch.Generator().manual_seed(seed)
    if not architecture.input_shape:
        return torch.randint(0, TOKENS, (count, STEPS), generator=generator)
    return torch.randn(count, *architecture.input_shape, generator=generator)


def data_of(inputs: Tensor, labels: Tensor, num_classes: int) -> Dataset:
    """Return a data set that hands out its inputs as they are."""
    return Dataset("made", inputs, labels, tuple(map(str, range(num_classes))), Normalisation((0.0,), (1.0,)))


def dataset_of(architecture: Architecture, count: int, seed: int = 0) -> Dataset:
    """Return random examples of an architecture."""
    inputs = inputs_of(architecture, count, seed)
    classes = TOKENS if inputs.dtype == torch.int64 else 10
    shape = inputs.shape if inputs.dtype == torch.int64 else (count,)
    return data_of(inputs, torch.randint(0, classes, shape, generator=torch.Generator().manual_seed(seed)), classes)


def linear(weight: list[list[float]], bias: list[float] | None = None) -> nn.Linear:
    """Return a linear layer with the given weights."""
    layer = nn.Linear(len(weight[0]), len(weight), bias is not None)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        if bias is not None:
            layer.bias.copy_(torch.tensor(bias))
    return layer
