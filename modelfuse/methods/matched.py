"""Averages over matched clients, where some units are one client's only: who counts, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from modelfuse.core.average import members_mean
from modelfuse.core.engine import Alignment
from modelfuse.core.units import presence
from modelfuse.methods.uploads import Uploads, is_running_statistic
from modelfuse.solvers.bbp_map import BetaBernoulli
from modelfuse.solvers.nonparametric import PriorMean
from modelfuse.spec.axes import Axis
from modelfuse.types import BoolArray, FloatArray

__all__ = [
    "ClassShares",
    "Matched",
    "PosteriorMean",
    "RecurrentMean",
    "Rule",
    "UniformMean",
    "average",
    "class_weights",
]


@dataclass(frozen=True, slots=True)
class Matched:
    """One tensor of all clients, in the global order.

    Args:
        name: Its name.
        axes: Its row of the spec.
        values: One array a client; 0 in units that the client lacks.
        masks: For each client and axis, which positions the client has; None: all.
    """

    name: str
    axes: tuple[Axis | None, ...]
    values: Sequence[FloatArray]
    masks: Sequence[tuple[BoolArray | None, ...]]

    def owner(self) -> list[int]:
        """Return the axes of the units that the tensor makes up, as opposed to those that it reads."""
        return [number for number, axis in enumerate(self.axes) if axis is not None and axis.role != "input"]

    def membership(self, dimensions: Iterable[int] | None = None) -> list[FloatArray]:
        """Return for each client 1 where it has the units of some axes (None: of all) and 0 where it lacks one.

        Returns:
            One array a client that broadcasts against the tensor.
        """
        chosen = range(len(self.axes)) if dimensions is None else list(dimensions)
        return [self._indicator(masks, chosen) for masks in self.masks]

    def _indicator(self, masks: tuple[BoolArray | None, ...], dimensions: Iterable[int]) -> FloatArray:
        indicator = np.ones((1,) * len(self.axes))
        for dimension in dimensions:
            mask = masks[dimension]
            if mask is not None:
                indicator = indicator * np.expand_dims(
                    mask, [other for other in range(len(masks)) if other != dimension]
                )
        return indicator


class Rule(Protocol):
    """Averages one tensor of floats."""

    def __call__(self, tensor: Matched) -> FloatArray:
        """Return the average."""


@dataclass(frozen=True, slots=True)
class PosteriorMean:
    """The mean of the global units given their members: shrunk towards the prior by m / (m + 1) at σ = σ0 = 1.

    Zeros in inputs that a member lacks count as its weights, as in the authors' code.

    Args:
        process: The prior's variances.
        prior: Its mean.
        outgoing: Units are made up by what they feed (PFNM's layout), which the axis aligned last tells.
        relative_precision: As in :class:`modelfuse.solvers.nonparametric.NonparametricMatching`.

    Source: FedMA's matching/pfnm.py lines 100-111 and 1009.
    """

    process: BetaBernoulli
    prior: PriorMean
    outgoing: bool = False
    relative_precision: Mapping[str, Sequence[FloatArray]] = field(default_factory=dict)

    def __call__(self, tensor: Matched) -> FloatArray:
        """Return the average."""
        members = tensor.membership(self._outgoing_owner(tensor) if self.outgoing else tensor.owner())
        scales = self.relative_precision.get(tensor.name, [np.ones(())] * len(members))
        precisions = [scale * member / self.process.sigma for scale, member in zip(scales, members, strict=True)]
        mean = self.prior.of(tensor.name, tensor.values[0].shape) / self.process.sigma0
        total: FloatArray = np.asarray(1.0 / self.process.sigma0)
        for value, precision in zip(tensor.values, precisions, strict=True):
            mean += precision * value
            total = total + precision
        mean /= total
        return mean

    def _outgoing_owner(self, tensor: Matched) -> list[int]:
        order = self.prior.spec.groups()
        ranks = {number: order.index(axis.group) for number, axis in enumerate(tensor.axes) if axis is not None}
        return [number for number, rank in ranks.items() if rank == min(ranks.values())]


@dataclass(frozen=True, slots=True)
class UniformMean:
    """The mean over the clients that have an entry: both the unit and the unit that it reads.

    Source: FedMA alg. 1 and §2.1.
    """

    def __call__(self, tensor: Matched) -> FloatArray:
        """Return the average."""
        return members_mean(tensor.values, tensor.membership())[0]


@dataclass(frozen=True, slots=True)
class RecurrentMean:
    """The mean of the authors' language models.

    What the units were matched by is divided by the number of clients that have the unit; everything else (hidden-to-
    hidden weights, their bias, the decoder) by the number of all clients, zeros of missing units included.

    Source: FedMA's language_modeling/lstm_fedma_with_comm.py.
    """

    def __call__(self, tensor: Matched) -> FloatArray:
        """Return the average."""
        own = [number for number, axis in enumerate(tensor.axes) if axis is not None and axis.role == "match"]
        return members_mean(tensor.values, tensor.membership(own))[0]


@dataclass(frozen=True, slots=True)
class ClassShares:
    """The output layer: class k's row is the mean weighted by the clients' examples of class k.

    Args:
        weights: For each tensor of the output layer, one array a client, as :func:`class_weights` returns them.
        examples: One weight a client, for classes that nobody has.
        members_only: Leave out clients that lack the unit that is read; else its zeros count (the authors' code).

    Source: FedMA §2.3; FedMA's main.py lines 1344-1371 and 1538-1550.
    """

    weights: Mapping[str, Sequence[FloatArray]]
    examples: Sequence[float]
    members_only: bool

    def __call__(self, tensor: Matched) -> FloatArray:
        """Return the average."""
        members = tensor.membership(None if self.members_only else ())
        weights = [weight * member for weight, member in zip(self.weights[tensor.name], members, strict=True)]
        mean, total = members_mean(tensor.values, weights)
        if total.all():
            return mean
        stand_in, _ = members_mean(
            tensor.values, [n * member for n, member in zip(self.examples, members, strict=True)]
        )
        return np.where(total > 0, mean, stand_in)


def class_weights(uploads: Uploads, relative: bool = False) -> dict[str, list[FloatArray]]:
    """Return for each tensor of the output layer each client's examples of each class, along its class axis.

    Args:
        uploads: The clients' files.
        relative: Divide by the examples that all clients have of the class (0 where nobody has any).

    Raises:
        OptionError: A client's file does not say how many it has.
        ContentError: It has other classes than the output layer.
    """
    weights: dict[str, list[FloatArray]] = {}
    for name, dimension in uploads.permutation_spec().class_axis.items():
        shape = uploads.clients[0].model.layout[name].shape
        counts = uploads.class_counts(shape[dimension])  # (J, K)
        if relative:
            total = counts.sum(axis=0)
            counts = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
        others = [other for other in range(len(shape)) if other != dimension]
        weights[name] = [np.expand_dims(row, others) for row in counts]
    return weights


def average(
    uploads: Uploads, alignment: Alignment, rule: Rule, output: Rule, names: Iterable[str] | None = None
) -> dict[str, NDArray[Any]]:
    """Return the average of matched clients.

    Args:
        uploads: The clients' files.
        alignment: Their tensors in the global order.
        rule: Averages hidden layers.
        output: Averages the tensors that have a class axis.
        names: Which tensors; all by default.
    """
    spec = uploads.permutation_spec()
    orders = [alignment.orders(client) for client in range(len(uploads.clients))]
    widths = alignment.widths()
    merged: dict[str, NDArray[Any]] = {}
    for name in uploads.names() if names is None else names:
        axes = spec.axes[name]
        masks = [presence(axes, order, widths) for order in orders]
        tensor = Matched(name, axes, [tensors[name] for tensors in alignment.values], masks)
        if not np.issubdtype(tensor.values[0].dtype, np.floating):
            merged[name] = np.maximum.reduce(list(tensor.values))
        elif is_running_statistic(name) or not (tensor.owner() or name in spec.class_axis):
            shares = [n * member for n, member in zip(uploads.shares(), tensor.membership(), strict=True)]
            merged[name] = members_mean(tensor.values, shares)[0]
        else:
            merged[name] = (output if name in spec.class_axis else rule)(tensor)
    return merged
