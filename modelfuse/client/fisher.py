"""The exact diagonal Fisher: the mean over examples of squared per-example gradients, from batched passes.

One forward and one backward pass a batch give every layer's inputs and the gradients of its outputs, and no weight
gradients; the rules of :mod:`modelfuse.client.per_example` make the squares from them.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.nn import functional

from modelfuse.client.checks import require_outputs
from modelfuse.client.data import Dataset
from modelfuse.client.per_example import Rule, Squares, rule_for, unroll_lstm
from modelfuse.errors import ContentError, OptionError
from modelfuse.types import FloatArray

__all__ = ["Estimator", "diagonal_fisher"]

Estimator: TypeAlias = Literal["empirical", "true"]

PROBES = 2  # examples on which the rules are held against one backward pass an example
VMAP_CHUNK = 16  # examples whose gradients are held at once
AGREEMENT = 1e-2  # of a tensor's largest square: far above rounding, far below what a wrong rule makes


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples, and which losses of theirs are differentiated.

    Args:
        inputs: (N, …), normalised, in the network's dtype.
        labels: (N,) or (N, T).
        estimator: The Fisher's estimator.
    """

    inputs: Tensor
    labels: Tensor
    estimator: Estimator

    def losses(self, logits: Tensor) -> Tensor:
        """Return ℓ_m(x_n), (M, N): the Fisher is the mean over n of the sum over m of their squared gradients."""
        log_p = functional.log_softmax(logits, dim=-1)  # (N, C) or (N, T, C)
        if self.estimator == "true":
            if log_p.dim() > 2:
                raise OptionError("--estimator true", "the network labels sequences", "Use --estimator empirical.")
            # √p_c is held fixed, so that squaring the gradient weighs class c by p_c
            return ((log_p.detach() / 2).exp() * log_p).T
        observed = log_p.gather(-1, self.labels[..., None])  # (N, 1) or (N, T, 1)
        return observed.reshape(1, len(logits), -1).sum(2)

    def split(self, size: int) -> Iterator[Batch]:
        """Yield the examples in batches of at most ``size``."""
        for start in range(0, len(self.labels), size):
            part = slice(start, start + size)
            yield replace(self, inputs=self.inputs[part], labels=self.labels[part])


@dataclass(frozen=True, slots=True)
class Layer:
    """A module and the rule that squares its gradients."""

    module: nn.Module
    rule: Rule


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a layer on a batch: what it read, and its output, which is part of the graph."""

    layer: str
    inputs: Tensor
    output: Tensor


def diagonal_fisher(
    network: nn.Module,
    dataset: Dataset,
    batch_size: int = 128,
    estimator: Estimator = "empirical",
    advance: Callable[[int], None] | None = None,
) -> dict[str, FloatArray]:
    """Return the raw diagonal Fisher of a network on data: neither tempered nor damped nor weighted by size.

    F = 1/N Σ_n Σ_m (∂ℓ_m(x_n)/∂θ)², where ℓ is log p(y_n | x_n) alone for the empirical Fisher, and for the true one
    √p_c · log p(c | x_n) for every class c, with √p_c held fixed: the expectation over the model's own labels.

    Args:
        network: Gives logits (N, C), or (N, T, C) for sequences, each of which is one example.
        dataset: At least one example, with labels (N,) or (N, T).
        batch_size: Examples a pass; it decides memory and speed, not the result.
        estimator: ``empirical``: observed labels; ``true``: the exact expectation over y ~ p(· | x).
        advance: Told the number of examples after each pass.

    Returns:
        For each parameter an array of its shape; buffers have no Fisher.

    Raises:
        ContentError: There are no examples, more classes than outputs, or a gradient is not finite.
        OptionError: The true Fisher is asked of sequences.

    Source: FedFiOT eq. 106 with ρ = 1 (empirical), eq. 104 (true).
    """
    if len(dataset) == 0:
        raise ContentError("--data", "there are no examples", "Choose a client that has some.")
    parameters = dict(network.named_parameters())
    first = next(iter(parameters.values()))
    kept = torch.device("cpu") if first.device.type == "mps" else first.device  # mps has no float64
    totals = {name: torch.zeros(p.shape, dtype=torch.float64, device=kept) for name, p in parameters.items()}
    dataset = dataset.to(first.device)
    with _evaluating(network):
        layers = _trusted_layers(network, dataset, first.dtype)
        for indices in torch.split(torch.arange(len(dataset), device=first.device), batch_size):
            batch = Batch(_inputs(dataset, indices, first.dtype), dataset.labels[indices], estimator)
            squares = _by_rules(network, layers, batch)
            squares |= _by_vmap(network, parameters.keys() - squares.keys(), batch)
            for name, square in squares.items():
                totals[name] += square.to(kept)
            if advance is not None:
                advance(len(indices))
    return {name: _finite(name, total / len(dataset)) for name, total in totals.items()}


def _inputs(dataset: Dataset, indices: Tensor, dtype: torch.dtype) -> Tensor:
    inputs = dataset.batch(indices)
    if inputs.is_floating_point():
        inputs = inputs.to(dtype)
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _finite(name: str, fisher: Tensor) -> FloatArray:
    if not fisher.isfinite().all():
        raise ContentError(name, "its Fisher is not finite", "Train the model again, at a lower learning rate.")
    array: FloatArray = fisher.cpu().numpy()
    return array


def _trusted_layers(network: nn.Module, dataset: Dataset, dtype: torch.dtype) -> dict[str, Layer]:
    """Return the layers whose rules give, on a few examples, what one backward pass an example gives.

    A rule cannot see that a weight is tied or used outside its module, or that a layer folds time into the batch.
    """
    indices = torch.arange(min(PROBES, len(dataset)), device=dataset.labels.device)
    batch = Batch(_inputs(dataset, indices, dtype), dataset.labels[indices], "empirical")
    require_outputs(network(batch.inputs), len(dataset.classes))
    candidates = {
        name: Layer(module, rule) for name, module in network.named_modules() if (rule := rule_for(module)) is not None
    }
    squares = _by_rules(network, candidates, batch)
    reference = _one_by_one(network, dict(network.named_parameters()).keys(), batch)

    def agrees(name: str) -> bool:
        expected = reference.get(name)
        if expected is None or name not in squares:
            return False
        return bool((squares[name] - expected).abs().max() <= AGREEMENT * expected.abs().max())

    return {
        name: layer
        for name, layer in candidates.items()
        if all(agrees(_join(name, own)) for own, _ in layer.module.named_parameters())
    }


def _by_rules(network: nn.Module, layers: Mapping[str, Layer], batch: Batch) -> Squares:
    """Return the sums of squares of the parameters of layers that run once, on the whole batch."""
    with _recorded(layers, len(batch.labels)) as recorded:
        losses = batch.losses(network(batch.inputs))
    runs = Counter(call.layer for call in recorded)
    calls = [call for call in recorded if runs[call.layer] == 1]
    squares: Squares = {}
    for number, loss in enumerate(losses.sum(1)) if calls else ():
        more = number + 1 < len(losses)
        gradients = torch.autograd.grad(loss, [call.output for call in calls], retain_graph=more, allow_unused=True)
        for call, gradient in zip(calls, gradients, strict=True):
            if gradient is None:  # the loss does not depend on it
                continue
            layer = layers[call.layer]
            for own, square in layer.rule(layer.module, call.inputs, gradient).items():
                name = _join(call.layer, own)
                squares[name] = squares[name] + square if name in squares else square
    return squares


@contextmanager
def _recorded(layers: Mapping[str, Layer], count: int) -> Iterator[list[Call]]:
    """Record how the layers run; what they return is from then on part of the graph."""
    calls: list[Call] = []

    def recorder(layer: str) -> Callable[[nn.Module, tuple[Any, ...], Any], Any]:
        def record(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> Any:
            if len(arguments) != 1 or not isinstance(arguments[0], Tensor) or len(arguments[0]) != count:
                return output
            if isinstance(module, nn.LSTM):
                run = unroll_lstm(module, arguments[0])
                calls.append(Call(layer, run.reads, run.gates))
                return run.outputs, run.last
            seen = output.requires_grad_()
            calls.append(Call(layer, arguments[0].detach(), seen))
            return seen.clone()  # the next layer may write into its input

        return record

    with ExitStack() as stack:
        for name, layer in layers.items():
            stack.callback(layer.module.register_forward_hook(recorder(name)).remove)
        yield calls


def _by_vmap(network: nn.Module, names: Collection[str], batch: Batch) -> Squares:
    """Return the sums of squares of any parameters, from the gradients of a few examples at a time."""
    chosen = {name: parameter for name, parameter in network.named_parameters() if name in names}
    squares = {name: torch.zeros_like(parameter) for name, parameter in chosen.items()}

    def losses(values: dict[str, Tensor], inputs: Tensor, labels: Tensor) -> Tensor:
        logits = functional_call(network, values, (inputs[None],))
        return Batch(inputs[None], labels[None], batch.estimator).losses(logits)[:, 0]  # (M, 1) -> (M,)

    for part in batch.split(VMAP_CHUNK) if names else ():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # torch says which operations it does one by one
                gradients = vmap(jacrev(losses), in_dims=(None, 0, 0))(chosen, part.inputs, part.labels)
        except RuntimeError:  # an operation cannot be batched, or the flow depends on the data
            return _one_by_one(network, names, batch)
        for name, gradient in gradients.items():
            squares[name] += gradient.square().sum((0, 1))  # (n, M, …) -> (…)
    return squares


def _one_by_one(network: nn.Module, names: Collection[str], batch: Batch) -> Squares:
    """Return the sums of squares of any parameters, from one backward pass an example and loss."""
    leaves = {name: p.detach().requires_grad_() for name, p in network.named_parameters() if name in names}
    squares = {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    for example in batch.split(1):
        losses = example.losses(functional_call(network, leaves, (example.inputs,)))[:, 0]  # (M, 1) -> (M,)
        for loss in losses:
            gradients = torch.autograd.grad(loss, list(leaves.values()), retain_graph=True, allow_unused=True)
            for name, gradient in zip(leaves, gradients, strict=True):
                if gradient is not None:
                    squares[name] += gradient.square()
    return squares


@contextmanager
def _evaluating(network: nn.Module) -> Iterator[None]:
    """Put the network into evaluation mode with frozen weights, without reduced precision; and back at the end."""
    training = network.training
    trainable = [parameter for parameter in network.parameters() if parameter.requires_grad]
    network.eval().requires_grad_(False)
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield
    finally:
        network.train(training)
        for parameter in trainable:
            parameter.requires_grad_(True)


def _join(layer: str, own: str) -> str:
    return f"{layer}.{own}" if layer else own
