"""Gram matrices: which inputs of a layer occur together, the second moment E[x xᵀ] over a client's examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from modelfuse.client.checks import readable
from modelfuse.client.data import Dataset
from modelfuse.client.evaluate import evaluating
from modelfuse.errors import ContentError
from modelfuse.types import FloatArray

__all__ = ["gram_matrices"]


def gram_matrices(
    network: nn.Module,
    dataset: Dataset,
    batch_size: int = 128,
    convolutions: bool = False,
    advance: Callable[[int], None] | None = None,
) -> dict[str, FloatArray]:
    """Return the Gram matrix of what each linear layer reads: the mean of x xᵀ over examples, and over positions.

    Labels are not looked at. A layer that runs several times in a pass is averaged over its runs.

    Args:
        network: The network; it runs in evaluation mode.
        dataset: At least one example.
        batch_size: Examples a pass; it decides memory and speed, and the last digits.
        convolutions: Of convolutions too, over the patches that they read, where they are not grouped.
        advance: Told the number of examples after each pass.

    Returns:
        For the weight of each such layer an (inputs, inputs) array, where inputs is C · h · w for a convolution.

    Raises:
        ContentError: There are no examples, no such layer, or a layer reads NaN or infinity.

    Source: RegMean (arXiv 2212.09849) eq. 2, divided by the number of rows.
    """
    if len(dataset) == 0:
        raise ContentError("--data", "there are no examples", "Choose a client that has some.")
    layers = {name: module for name, module in network.named_modules() if _reads_rows(module, convolutions)}
    if not layers:
        raise ContentError(
            "the network", "it has no linear layer", "Pass --convolutions, or merge it by another method."
        )
    device = next(network.parameters()).device
    dataset = dataset.to(device)
    sums: dict[str, Tensor] = {}
    rows = dict.fromkeys(layers, 0)
    with evaluating([network]), torch.inference_mode(), readable(dataset), _reading(layers, sums, rows):
        for indices in torch.split(torch.arange(len(dataset), device=device), batch_size):
            network(dataset.batch(indices))
            if advance is not None:
                advance(len(indices))
    return {_weight(name): _finite(name, total / rows[name]) for name, total in sums.items()}


def _reads_rows(module: nn.Module, convolutions: bool) -> bool:
    if isinstance(module, nn.Linear):
        return True
    plain = isinstance(module, nn.Conv2d) and module.groups == 1 and module.padding_mode == "zeros"
    return convolutions and plain and not isinstance(getattr(module, "padding", None), str)


@contextmanager
def _reading(layers: dict[str, nn.Module], sums: dict[str, Tensor], rows: dict[str, int]) -> Iterator[None]:
    """Add up what the layers read as long as the context lasts."""

    def reader(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def read(module: nn.Module, arguments: tuple[Any, ...]) -> None:
            inputs = _rows(module, arguments[0])  # (R, inputs)
            sums[name] = sums.get(name, 0) + (inputs.T @ inputs).cpu().double()
            rows[name] += len(inputs)

        return read

    handles = [module.register_forward_pre_hook(reader(name)) for name, module in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _rows(module: nn.Module, inputs: Tensor) -> Tensor:
    """Return what each output of a layer is made from, a row each: (R, inputs)."""
    if isinstance(module, nn.Conv2d):
        size, padding, stride, dilation = module.kernel_size, module.padding, module.stride, module.dilation
        patches = functional.unfold(inputs, size, dilation, padding, stride)  # type: ignore[arg-type]
        inputs = patches.transpose(1, 2)  # (N, C·h·w, positions) -> (N, positions, C·h·w)
    return inputs.flatten(0, -2).float()


def _weight(name: str) -> str:
    return f"{name}.weight" if name else "weight"


def _finite(name: str, gram: Tensor) -> FloatArray:
    if not gram.isfinite().all():
        raise ContentError(name or "the network", "it reads NaN or infinity", "Train the model again, at a lower rate.")
    array: FloatArray = ((gram + gram.T) / 2).numpy()  # a product rounds its two halves apart
    return array
