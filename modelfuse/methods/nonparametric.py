"""What PFNM and FedMA share: the options of BBP-MAP, and the report on how far the layers grew."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from modelfuse.core.engine import Alignment, Matching, Schedule, align
from modelfuse.errors import ContentError, OptionError
from modelfuse.methods.contract import Merged, one_of, whole
from modelfuse.methods.uploads import Uploads
from modelfuse.solvers.bbp_map import BetaBernoulli, draw_sweep_orders
from modelfuse.solvers.nonparametric import NonparametricMatching, PriorMean
from modelfuse.spec.axes import Axis, PermutationSpec
from modelfuse.types import FloatArray, IndexArray, Kind, Tensors

__all__ = ["Nonparametric", "SweepOrders", "grown", "weights_of"]

SweepOrders = Mapping[str, Sequence[Sequence[int]]]
"""For each group, the clients (counted in the merge's order) in the order in which each sweep visits them."""


@dataclass(frozen=True, slots=True)
class Nonparametric:
    """The options of a method that matches by BBP-MAP, with the defaults of the authors' code.

    Args:
        gamma: Mass γ0 of the process, above 0; a larger one opens more global units. The authors take 1e-3 for LSTMs.
        sigma: Variance σ² of a local unit around its global one, above 0.
        sigma0: Variance σ0² of the global units around the prior mean, above 0.
        sweeps: Refinement sweeps over the clients, at least 0.
        seed: Seed of the order in which they visit the clients, at least 0.
        sweep_orders: These orders instead, so that a run can be replayed; ``sweeps`` and ``seed`` do nothing then.
        popularity_cap: Clients of a global unit beyond this number make it no more attractive; at least 1.
        max_width: Global units from which on a step may open one more only; 0 lifts the cap.
        bias_mean: Prior mean of the biases; that of weights is 0.
        bias_prior: Where it sits beyond the first group: ``bias``, or ``ibm``: on the first incoming weight, as in
            FedMA's code, whose columns are not in the order that its prior assumes.

    Source: FedMA app. D.2; FedMA's main.py lines 1239-1257, matching/pfnm.py lines 45, 62, 838-839.
    """

    takes: ClassVar[Kind] = "model"
    companion: ClassVar[Kind | None] = None
    needs_spec: ClassVar[bool] = True
    takes_reference: ClassVar[bool] = False
    takes_unequal_widths: ClassVar[bool] = True

    gamma: float = 7.0
    sigma: float = 1.0
    sigma0: float = 1.0
    sweeps: int = 5
    seed: int = 0
    sweep_orders: SweepOrders | None = None
    popularity_cap: int = 10
    max_width: int = 700
    bias_mean: float = 0.1
    bias_prior: str = "bias"

    def __post_init__(self) -> None:
        """Check the options."""
        self.process()
        for option, value in (("--sweeps", self.sweeps), ("--seed", self.seed)):
            if value < 0:
                raise OptionError(option, f"{value} is negative", "Use 0 or more.")
        if not np.isfinite(self.bias_mean):
            raise OptionError("--bias-mean", f"{self.bias_mean} is not a number", "The authors take 0.1.")
        one_of("--bias-prior", self.bias_prior, ("bias", "ibm"))

    def process(self) -> BetaBernoulli:
        """Return the prior over matchings."""
        cap = None if self.max_width == 0 else self.max_width
        return BetaBernoulli(self.gamma, self.sigma, self.sigma0, self.popularity_cap, cap)

    def prior(self, spec: PermutationSpec) -> PriorMean:
        """Return the mean of the global units."""
        return PriorMean(spec, self.bias_mean, on_first_weight=self.bias_prior == "ibm")

    def matched(
        self,
        clients: Sequence[Tensors],
        spec: PermutationSpec,
        schedule: Schedule | None = None,
        relative_precision: Mapping[str, Sequence[FloatArray]] | None = None,
    ) -> Alignment:
        """Return the clients, matched.

        Args:
            clients: Their tensors.
            spec: The permutation spec.
            schedule: Which groups, in which order and on what; all in the spec's order by default.
            relative_precision: As in :class:`NonparametricMatching`.
        """

        def sweeps(group: str, count: int) -> IndexArray:
            return self._sweeps(spec.groups(), group, count)

        solver = NonparametricMatching(self.process(), self.prior(spec), sweeps, relative_precision or {})
        return align(clients, None, spec, solver, schedule)

    def _sweeps(self, groups: Sequence[str], group: str, clients: int) -> IndexArray:
        """Return a group's sweeps; the group's place seeds them, so that rounds draw what one shot would."""
        if self.sweep_orders is None:
            return draw_sweep_orders(self.sweeps, clients, np.random.default_rng([self.seed, groups.index(group)]))
        if group not in self.sweep_orders:
            raise ContentError("--sweep-orders", f"there are none for group {group}", "Give a list for every group.")
        rows = self.sweep_orders[group]
        if any(len(row) != clients for row in rows):
            raise ContentError(
                "--sweep-orders", f"a sweep of group {group} does not visit {clients} clients", "Give each client once."
            )
        return np.array(rows, dtype=np.intp).reshape(len(rows), clients)


def weights_of(uploads: Uploads) -> list[Tensors]:
    """Return each client's tensors, in float64 (integers as they are)."""
    return [{name: client.weights(name) for name in uploads.names()} for client in uploads.clients]


def grown(uploads: Uploads, tensors: Tensors, matchings: Mapping[str, Matching], said: Mapping[str, Any]) -> Merged:
    """Return the merge of matched clients, with a report on its widths and its growth.

    Args:
        uploads: The clients' files.
        tensors: The global model.
        matchings: How the clients' units became its units.
        said: What else the report says.
    """
    spec = uploads.permutation_spec()
    local = [
        sum(_size(array.shape, spec.axes[name], matchings, client) for name, array in tensors.items())
        for client in range(len(uploads.clients))
    ]
    total = sum(array.size for array in tensors.values())
    report = {
        **said,
        "groups": {group: {"width": found.width, **found.trace} for group, found in matchings.items()},
        "parameters": {"global": total, "local": local, "growth": total / max(local)},
    }
    return Merged(whole(uploads, tensors), report, {group: matching.orders for group, matching in matchings.items()})


def _size(shape: Sequence[int], axes: Sequence[Axis | None], matchings: Mapping[str, Matching], client: int) -> int:
    """Return how many entries of a tensor of the global model are a client's own."""
    own = [
        length if axis is None else axis.stack * axis.block * len(matchings[axis.group].orders[client])
        for length, axis in zip(shape, axes, strict=True)
    ]
    return math.prod(own)
