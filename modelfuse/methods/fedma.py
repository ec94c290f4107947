"""FedMA: match layer by layer under a Beta-Bernoulli process, in one shot or with retraining between the layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from modelfuse.core.engine import Alignment, Schedule
from modelfuse.methods.contract import Merged, one_of
from modelfuse.methods.matched import (
    ClassShares,
    PosteriorMean,
    RecurrentMean,
    Rule,
    UniformMean,
    average,
    class_weights,
)
from modelfuse.methods.nonparametric import Nonparametric, grown, weights_of
from modelfuse.methods.rounds import Progress, global_tensors, progress_of, require_no_round
from modelfuse.methods.uploads import Uploads, is_running_statistic
from modelfuse.spec.axes import PermutationSpec
from modelfuse.types import Tensors

__all__ = ["FedMA", "Round"]


@dataclass(frozen=True, slots=True)
class Round:
    """The clients after a layer-wise round.

    Args:
        tensors: For each client, its model in float64 (integers as they are): global layers, then its own.
        merged: The names of the tensors that this round has made global.
        progress: How far the pass has come now.
        report: What there is to say of it, as JSON data.
    """

    tensors: tuple[Tensors, ...]
    merged: frozenset[str]
    progress: Progress
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FedMA(Nonparametric):
    """Layer-wise matched averaging.

    Args:
        average: ``posterior`` (the authors' code for CNNs: shrunk by m / (m + 1) at σ = σ0 = 1), ``uniform`` (alg. 1;
            a client without a unit does not count), ``recurrent`` (the authors' code for LSTMs: means over a unit's
            clients where it was matched, over all clients elsewhere), or ``auto``: what the authors' code does,
            recurrent where weights move along outside the matching's cost.
        final: All hidden layers are global: average the output layer.

    Source: FedMA alg. 1; FedMA's main.py and language_modeling/lstm_fedma_with_comm.py.
    """

    average: str = "auto"
    final: bool = False

    def __post_init__(self) -> None:
        """Check the options."""
        Nonparametric.__post_init__(self)  # the bare super() does not work in slotted dataclasses
        one_of("--average", self.average, ("auto", "posterior", "uniform", "recurrent"))

    def merge(self, uploads: Uploads) -> Merged:
        """Return the merge of the clients: of all layers in one shot, or of the output layer that rounds have left."""
        spec = uploads.permutation_spec()
        name = self._average(spec)
        rule, output = self._rule(name, spec), self._output(name, uploads)
        if self.final:
            return self._finish(uploads, rule, output, {"average": name})
        require_no_round(uploads)
        alignment = self.matched(weights_of(uploads), spec)
        return grown(uploads, average(uploads, alignment, rule, output), alignment.matchings, {"average": name})

    def round(self, uploads: Uploads, group: str) -> Round:
        """Return the clients with one group more matched and global, for retraining the layers behind it.

        Args:
            uploads: The clients' files: their own for the first group, then those of the last round, retrained.
            group: The group, the next one in merge order.

        Raises:
            OptionError: It is not that group's turn, or there is no such group.
            ContentError: The clients are not in one round.
        """
        spec = uploads.permutation_spec()
        progress = progress_of(uploads)
        progress.require_next(group)
        schedule = Schedule((group,), frozenset(progress.shared))
        alignment = self.matched(weights_of(uploads), spec, schedule)
        matching = alignment.matchings[group]
        known = global_tensors(spec, progress.shared)
        progress = replace(progress, orders={**progress.orders, group: matching.orders})
        fresh = [name for name in global_tensors(spec, progress.shared) if name not in known]
        name = self._average(spec)
        rule = self._rule(name, spec)
        merged = average(uploads, alignment, rule, rule, fresh)
        report = {"average": name, "through": group, "groups": {group: {"width": matching.width, **matching.trace}}}
        tensors = tuple({**own, **merged} for own in alignment.values)
        return Round(tensors, frozenset(fresh), progress, report)

    def _finish(self, uploads: Uploads, rule: Rule, output: Rule, said: dict[str, Any]) -> Merged:
        progress = progress_of(uploads)
        progress.require_last()
        spec = uploads.permutation_spec()
        values = weights_of(uploads)
        widths = spec.widths(uploads.clients[0].model.shapes(), uploads.clients[0].model.label)
        clients = Alignment(tuple(values), None, {})  # nothing to align: every client has every unit
        shared = global_tensors(spec, progress.groups)
        left = [name for name in uploads.names() if name not in shared]
        tensors = {name: values[0][name] for name in shared} | average(uploads, clients, rule, output, left)
        return grown(uploads, tensors, progress.matchings(widths), said)

    def _average(self, spec: PermutationSpec) -> str:
        if self.average != "auto":
            return self.average
        carried = any(place.axis.role == "carry" and not is_running_statistic(place.tensor) for place in spec.places())
        return "recurrent" if carried else "posterior"

    def _rule(self, name: str, spec: PermutationSpec) -> Rule:
        if name == "posterior":
            return PosteriorMean(self.process(), self.prior(spec))
        return UniformMean() if name == "uniform" else RecurrentMean()

    def _output(self, name: str, uploads: Uploads) -> Rule:
        if name == "recurrent":
            return RecurrentMean()
        return ClassShares(class_weights(uploads), uploads.shares(), members_only=name == "uniform")
