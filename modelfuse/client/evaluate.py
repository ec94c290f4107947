"""How well networks do on data: per example first, then summed up over any part of the examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from modelfuse.client.checks import require_outputs
from modelfuse.client.data import Dataset
from modelfuse.errors import ContentError
from modelfuse.types import BoolArray, FloatArray, IndexArray

__all__ = ["ClassAccuracy", "Evaluation", "Outcomes", "evaluate", "evaluating", "judge", "mixture"]


@dataclass(frozen=True, slots=True)
class ClassAccuracy:
    """Accuracy on the examples of one class.

    Args:
        accuracy: In [0, 1]; None without examples.
        count: Examples of the class.
    """

    accuracy: float | None
    count: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures of one model on some examples.

    Args:
        accuracy: Share of right predictions in [0, 1]; an example whose outputs are not finite counts as wrong.
        loss: Mean cross-entropy in nats; infinity where an example's outputs are not finite.
        count: Predictions made: examples, or their time steps for sequences.
        non_finite: Predictions whose outputs hold NaN or infinity.
        per_class: Accuracy of every class, in the label order.
    """

    accuracy: float
    loss: float
    count: int
    non_finite: int
    per_class: dict[str, ClassAccuracy]


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """What one model, or an ensemble, made of each example.

    Args:
        classes: The label order.
        labels: (N,) or (N, T).
        correct: Where the most probable class is the label, in the shape of the labels.
        losses: −log p(label | x) in nats, in the shape of the labels; infinite where the outputs are not finite.
    """

    classes: tuple[str, ...]
    labels: IndexArray
    correct: BoolArray
    losses: FloatArray

    def summary(self, indices: IndexArray | None = None) -> Evaluation:
        """Return the figures over some examples.

        Args:
            indices: Which examples; None: all.

        Raises:
            ContentError: There are none.
        """
        chosen = slice(None) if indices is None else indices
        labels, correct, losses = (array[chosen].ravel() for array in (self.labels, self.correct, self.losses))
        if not labels.size:
            raise ContentError("--data", "there are no examples to evaluate on", "Choose another split or partition.")
        counts = np.bincount(labels, minlength=len(self.classes))
        right = np.bincount(labels, weights=correct, minlength=len(self.classes))
        per_class = {
            name: ClassAccuracy(float(right[number] / counts[number]) if counts[number] else None, int(counts[number]))
            for number, name in enumerate(self.classes)
        }
        return Evaluation(
            accuracy=float(correct.mean()),
            loss=float(losses.mean()),
            count=labels.size,
            non_finite=int(np.isinf(losses).sum()),
            per_class=per_class,
        )


def evaluate(network: nn.Module, dataset: Dataset, batch_size: int = 500) -> Evaluation:
    """Return the figures of one network on a data set.

    Args:
        network: Gives logits (N, C), or (N, T, C) for sequences.
        dataset: At least one example; moved to the network's device.
        batch_size: Examples a pass.

    Raises:
        ContentError: There are no examples, or more classes than the network has outputs.
    """
    (outcomes,) = judge([network], dataset, batch_size)
    return outcomes.summary()


def judge(
    networks: Sequence[nn.Module],
    dataset: Dataset,
    batch_size: int = 500,
    weights: Sequence[float] | None = None,
    advance: Callable[[int], None] | None = None,
) -> list[Outcomes]:
    """Return what each network makes of each example, and at the end, with weights, what their ensemble does.

    Args:
        networks: Networks on one device; each batch is prepared once for all of them.
        dataset: The examples; moved to the networks' device.
        batch_size: Examples a pass.
        weights: One positive weight a network: the ensemble's probabilities are the weighted mean of the networks'.
        advance: Told the number of examples after each batch.

    Raises:
        ContentError: There are no examples, or more classes than a network has outputs.
    """
    if len(dataset) == 0:
        raise ContentError("--data", "there are no examples to evaluate on", "Choose another split or partition.")
    columns: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(len(networks) + (weights is not None))]
    with evaluating(networks), torch.inference_mode():
        for labels, log_p in _passes(networks, dataset, batch_size, advance):
            for each in log_p:
                require_outputs(each, len(dataset.classes))
            if weights is not None:
                log_p.append(_mixture(log_p, weights))
            for column, each in zip(columns, log_p, strict=True):
                column.append(_outcome(each, labels))
    return [_gathered(column, dataset) for column in columns]


def mixture(
    networks: Sequence[nn.Module],
    dataset: Dataset,
    weights: Sequence[float],
    *,
    temperature: float = 1.0,
    batch_size: int = 500,
    advance: Callable[[int], None] | None = None,
) -> Tensor:
    """Return the probabilities that an ensemble gives each example; labels are not looked at.

    Args:
        networks: Networks on one device, with equally many outputs.
        dataset: The examples; moved to the networks' device.
        weights: One positive weight a network.
        temperature: Divides all logits, above 0.
        batch_size: Examples a pass.
        advance: Told the number of examples after each batch.

    Returns:
        (N, C), or (N, T, C) for sequences, float32.
    """
    with evaluating(networks), torch.inference_mode():
        passes = _passes(networks, dataset, batch_size, advance, temperature)
        parts = [_mixture(log_p, weights).exp().float() for _, log_p in passes]
    return torch.cat(parts)  # out here: a tensor that training may use


def _passes(
    networks: Sequence[nn.Module],
    dataset: Dataset,
    batch_size: int,
    advance: Callable[[int], None] | None,
    temperature: float = 1.0,
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yield each batch's labels and, on the CPU, what every network makes of it; it is prepared once for all."""
    device = next(networks[0].parameters()).device
    dataset = dataset.to(device)
    for indices in torch.split(torch.arange(len(dataset), device=device), batch_size):
        inputs = _prepared(dataset.batch(indices))
        log_p = [_log_probabilities(network(inputs), temperature) for network in networks]
        yield dataset.labels[indices].cpu(), log_p
        if advance is not None:
            advance(len(indices))


@contextmanager
def evaluating(networks: Sequence[nn.Module]) -> Iterator[None]:
    """Put networks into evaluation mode, and back at the end."""
    modes = [network.training for network in networks]
    try:
        for network in networks:
            network.eval()
        yield
    finally:
        for network, mode in zip(networks, modes, strict=True):
            network.train(mode)


def _prepared(inputs: Tensor) -> Tensor:
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _log_probabilities(logits: Tensor, temperature: float) -> Tensor:
    """Return log-probabilities (n, C) or (n, T, C) in float64, on the CPU: not every accelerator has float64."""
    return functional.log_softmax(logits.cpu().double() / temperature, dim=-1)


def _mixture(log_p: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the log of the weighted mean of probabilities."""
    shares = torch.tensor(weights, dtype=torch.float64)
    shares = (shares / shares.sum()).log().reshape(-1, *(1,) * log_p[0].dim())  # (K, 1, …)
    return torch.logsumexp(torch.stack(tuple(log_p)) + shares, dim=0)


def _outcome(log_p: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    finite = ~log_p.isnan().any(-1)  # a logit of NaN or +infinity makes the whole softmax NaN
    correct = (log_p.argmax(-1) == labels) & finite
    losses = -log_p.gather(-1, labels[..., None]).squeeze(-1)  # (n, 1) -> (n,)
    return correct, losses.masked_fill(~finite, math.inf)


def _gathered(column: Sequence[tuple[Tensor, Tensor]], dataset: Dataset) -> Outcomes:
    correct, losses = (torch.cat(parts).numpy() for parts in zip(*column, strict=True))
    return Outcomes(dataset.classes, dataset.labels.cpu().numpy(), correct, losses)
