"""Sums of squared per-example gradients of one layer, from its inputs and its outputs' gradients in a batch.

For a linear layer the gradient of example n is the outer product g_n a_nᵀ, whose square is g_n² (a_n²)ᵀ: one matrix
product for the whole batch. A convolution's per-example weight gradients are one grouped convolution, a group an
example. No rule adds gradients over the batch before squaring: that would not be the Fisher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv1d_weight, conv2d_weight, conv3d_weight

__all__ = ["Rule", "Squares", "Unrolled", "rule_for", "unroll_lstm"]

Squares = dict[str, Tensor]
"""For each of a module's parameters, by its own name: Σ_n (∂ℓ_n/∂θ)², in the parameter's shape."""


@dataclass(frozen=True, slots=True)
class Unrolled:
    """An LSTM's run: what it reads (N, T, in + h), gates (N, T, 4·h), outputs (N, T, h), and last states."""

    reads: Tensor
    gates: Tensor
    outputs: Tensor
    last: tuple[Tensor, Tensor]


Rule = Callable[[Any, Tensor, Tensor], Squares]
"""From a module, its inputs and the gradients of its outputs, one example a row each, to the squares."""

CHUNK = 2**19
"""Entries of per-example gradients held at once: about 2 MiB in float32, which stay in a core's cache."""


def rule_for(module: nn.Module) -> Rule | None:
    """Return the rule of a module, or None if there is none for its type and settings."""
    # subclasses may compute something else, so the type must be the very one
    rule = RULES.get(type(module))
    match module:
        case nn.Conv1d() | nn.Conv2d() | nn.Conv3d() if module.padding_mode != "zeros" or isinstance(
            module.padding, str
        ):
            return None
        case nn.LSTM() if module.num_layers > 1 or module.bidirectional or module.proj_size or not module.batch_first:
            return None
        case nn.BatchNorm1d() | nn.BatchNorm2d() if module.running_mean is None:
            return None
        case nn.Embedding() if module.max_norm is not None or module.scale_grad_by_freq or module.sparse:
            return None
    return rule


def _linear(module: nn.Linear, a: Tensor, g: Tensor) -> Squares:
    if a.dim() > 2:
        return _shared_linear(
            a.flatten(1, -2), g.flatten(1, -2), "weight", ("bias",) if module.bias is not None else ()
        )
    squared = g.square()  # (N, out)
    squares = {"weight": squared.T @ a.square()}  # (out, in)
    if module.bias is not None:
        squares["bias"] = squared.sum(0)
    return squares


def _shared_linear(a: Tensor, g: Tensor, weight: str, biases: tuple[str, ...]) -> Squares:
    """Return the squares of a linear layer that every time step uses: a (N, T, in), g (N, T, out)."""
    squares = {weight: _chunked(lambda rows: g[rows].mT @ a[rows], len(a), g.shape[2] * a.shape[2])}
    return squares | {bias: g.sum(1).square().sum(0) for bias in biases}


def _convolution(module: nn.Conv1d | nn.Conv2d | nn.Conv3d, a: Tensor, g: Tensor) -> Squares:
    shape = module.weight.shape  # (out, in / groups, kernel…)
    weight_gradient = WEIGHT_GRADIENTS[type(module)]

    def gradients(rows: slice) -> Tensor:
        inputs, outputs = a[rows], g[rows]
        count = len(inputs)
        stacked = weight_gradient(
            inputs.reshape(1, -1, *inputs.shape[2:]),  # (1, n·in, size…)
            (count * shape[0], *shape[1:]),
            outputs.reshape(1, -1, *outputs.shape[2:]),  # (1, n·out, size…)
            module.stride,
            module.padding,
            module.dilation,
            count * module.groups,
        )
        return stacked.reshape(count, *shape)  # (n·out, …) -> (n, out, …)

    squares = {"weight": _chunked(gradients, len(a), shape.numel())}
    if module.bias is not None:
        squares["bias"] = g.flatten(2).sum(2).square().sum(0)
    return squares


def _batch_norm(module: nn.BatchNorm1d | nn.BatchNorm2d, a: Tensor, g: Tensor) -> Squares:
    # in evaluation mode the statistics are constants
    normalised = functional.batch_norm(a, module.running_mean, module.running_var, eps=module.eps)
    return _per_channel(module, g, normalised)


def _group_norm(module: nn.GroupNorm, a: Tensor, g: Tensor) -> Squares:
    return _per_channel(module, g, functional.group_norm(a, module.num_groups, eps=module.eps))


def _per_channel(module: nn.Module, g: Tensor, normalised: Tensor) -> Squares:
    """Return the squares of a scale and a shift of each channel; g and normalised (N, C, …)."""
    sources = {"weight": g * normalised, "bias": g}
    return {
        name: sources[name].reshape(*g.shape[:2], -1).sum(2).square().sum(0)  # (N, C, …) -> (N, C) -> (C,)
        for name, _ in module.named_parameters()
    }


def _layer_norm(module: nn.LayerNorm, a: Tensor, g: Tensor) -> Squares:
    sources = {"weight": g * functional.layer_norm(a, module.normalized_shape, eps=module.eps), "bias": g}
    return {
        name: sources[name].reshape(len(g), -1, *module.normalized_shape).sum(1).square().sum(0)  # (N, T, …) -> (…)
        for name, _ in module.named_parameters()
    }


def _embedding(module: nn.Embedding, a: Tensor, g: Tensor) -> Squares:
    # a token that an example uses twice gets both gradients before the square: sum by (example, token) first
    tokens = a.flatten(1)  # (N, T)
    rows = torch.arange(len(tokens), device=a.device)[:, None] * module.num_embeddings + tokens
    pairs, places = torch.unique(rows, return_inverse=True)
    summed = g.new_zeros(len(pairs), module.embedding_dim)
    summed.index_add_(0, places.flatten(), g.reshape(-1, module.embedding_dim))
    table = g.new_zeros(module.num_embeddings, module.embedding_dim)
    table.index_add_(0, pairs % module.num_embeddings, summed.square_())
    if module.padding_idx is not None:
        table[module.padding_idx] = 0
    return {"weight": table}


def _lstm(module: nn.LSTM, a: Tensor, g: Tensor) -> Squares:
    """Return the squares of an LSTM; a (N, T, in + h): inputs beside previous states, g (N, T, 4·h): of the gates."""
    inputs, states = torch.split(a, [module.input_size, module.hidden_size], dim=2)
    biases = ("bias_ih_l0", "bias_hh_l0") if module.bias else ()
    return _shared_linear(inputs, g, "weight_ih_l0", biases) | _shared_linear(states, g, "weight_hh_l0", ())


def unroll_lstm(module: nn.LSTM, inputs: Tensor) -> Unrolled:
    """Run an LSTM step by step, so that the gradients of its gates can be had.

    Args:
        module: A single, unidirectional, batch-first layer, with frozen weights.
        inputs: (N, T, in).
    """
    parameters = dict(module.named_parameters())
    # what the inputs alone make of the gates: its gradient is the gates', before their nonlinearities
    gates = functional.linear(inputs, parameters["weight_ih_l0"], parameters.get("bias_ih_l0")).requires_grad_()
    state = cell = inputs.new_zeros(len(inputs), module.hidden_size)
    states = [state]
    for step in gates.unbind(1):
        recurrent = functional.linear(state, parameters["weight_hh_l0"], parameters.get("bias_hh_l0"))
        enter, forget, content, leave = (step + recurrent).chunk(4, dim=1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * content.tanh()
        state = leave.sigmoid() * cell.tanh()
        states.append(state)
    reads = torch.cat((inputs, torch.stack(states[:-1], 1)), 2).detach()
    return Unrolled(reads, gates, torch.stack(states[1:], 1), (state[None], cell[None]))


def _chunked(gradients: Callable[[slice], Tensor], count: int, entries: int) -> Tensor:
    """Return the sum over examples of squared gradients, a few examples at a time."""
    step = max(1, CHUNK // entries)
    total: Tensor | None = None
    for start in range(0, count, step):
        squares = gradients(slice(start, start + step)).square_().sum(0)
        total = squares if total is None else total.add_(squares)
    return total  # type: ignore[return-value]


WEIGHT_GRADIENTS: Mapping[type[nn.Module], Callable[..., Tensor]] = {
    nn.Conv1d: conv1d_weight,
    nn.Conv2d: conv2d_weight,
    nn.Conv3d: conv3d_weight,
}

RULES: Mapping[type[nn.Module], Rule] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.Conv3d: _convolution,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _layer_norm,
    nn.Embedding: _embedding,
    nn.LSTM: _lstm,
}
