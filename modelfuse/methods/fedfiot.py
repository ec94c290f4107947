"""FedFiOT: align by Fisher-weighted optimal transport, then average by Fisher."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from modelfuse.core.average import objective, plain_mean, weighted_mean
from modelfuse.core.engine import Alignment, Matching, Solver, Units, align
from modelfuse.core.logits import even, input_scale
from modelfuse.core.units import realign, unit_matrix
from modelfuse.errors import OptionError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.layout import is_float
from modelfuse.methods.contract import Merged, one_of, whole
from modelfuse.methods.fisher import check_tempering, temper
from modelfuse.methods.uploads import Uploads, is_running_statistic
from modelfuse.solvers.fisher_ot import FisherTransport
from modelfuse.solvers.profiled import ProfiledTransport
from modelfuse.solvers.refinement import refine
from modelfuse.spec.axes import PermutationSpec, Place
from modelfuse.types import FloatArray, Kind, Tensors

__all__ = ["FedFiOT"]


@dataclass(frozen=True, slots=True)
class FedFiOT:
    """One-shot or few-round merging by Fisher-weighted optimal transport.

    Args:
        rho: Tempering ρ in (0, 1].
        lam: Damping λ, above 0.
        inner_iters: S, at least 1: assignments and averages a group, and sweeps of ``profiled`` and ``refine``.
        matching: ``fisher`` (eq. 4), ``profiled`` (the cost at the best average), ``euclidean`` (ablation C), or
            ``identity`` (no alignment, ablation B).
        average: ``fisher`` (eq. 7) or ``uniform`` (ablation D; with ``euclidean`` WB Fusion, ablation E).
        safeguard: Keep the identity-aligned Fisher average where alignment did not lower the objective (alg. 1, l. 34).
        refine: Re-match all groups with outgoing weights as well, once they are aligned.
        refine_seed: Seed of the order in which it visits them, at least 0; None: 0.
        even_logits: Take from each client's output layer, and from the merged one, what prefers a class at any input.

    Source: FedFiOT alg. 1.
    """

    takes: ClassVar[Kind] = "model"
    companion: ClassVar[Kind | None] = "fisher"
    needs_spec: ClassVar[bool] = True
    takes_reference: ClassVar[bool] = True
    takes_unequal_widths: ClassVar[bool] = False

    rho: float = 0.3
    lam: float = 1e-4
    inner_iters: int = 8
    matching: str = "fisher"
    average: str = "fisher"
    safeguard: bool = True
    refine: bool = False
    refine_seed: int | None = None
    even_logits: bool = False

    def __post_init__(self) -> None:
        """Check the options."""
        check_tempering(self.rho, self.lam)
        if self.lam == 0:
            raise OptionError("--lam", "0 gives entries that no Fisher sees no cost", "FedFiOT uses 1e-3 to 1e-5.")
        if self.inner_iters < 1:
            raise OptionError("--inner-iters", f"{self.inner_iters} is not at least 1", "FedFiOT uses 8.")
        if self.refine_seed is not None and not self.refine:
            raise OptionError("--refine-seed", "nothing is refined", "Pass --refine too, or leave it out.")
        if (self.refine_seed or 0) < 0:
            raise OptionError("--refine-seed", f"{self.refine_seed} is negative", "Use 0 or more.")
        one_of("--matching", self.matching, ("fisher", "profiled", "euclidean", "identity"))
        one_of("--average", self.average, ("fisher", "uniform"))

    def merge(self, uploads: Uploads) -> Merged:
        """Return the merge of the clients."""
        spec = uploads.permutation_spec()
        values = tuple({name: client.weights(name) for name in uploads.names()} for client in uploads.clients)
        weighed = [name for name in uploads.names() if _is_weighed(uploads, name)]
        precisions = tuple(
            {name: temper(client.raw_fisher(name), self.rho, self.lam) for name in weighed}
            for client in uploads.clients
        )
        inputs = self._inputs(uploads)
        if inputs:
            each = zip(values, precisions, inputs, strict=True)
            values = tuple(tensors | even(tensors, weights, read, spec.class_axis) for tensors, weights, read in each)
        start = Alignment(values, precisions, {})
        aligned, report = self._align(uploads, start)
        if self.refine:
            rng = np.random.default_rng(self.refine_seed or 0)
            aligned, refinement = refine(_in_orders(aligned, spec), spec, rng, self.inner_iters)
            report["refinement"] = {"seed": self.refine_seed or 0, **refinement}
        if aligned.matchings:
            report["groups"] = {group: {"width": m.width, **m.trace} for group, m in aligned.matchings.items()}
        return self._finish(uploads, start, aligned, inputs, report)

    def _inputs(self, uploads: Uploads) -> list[dict[str, FloatArray]]:
        """Return the sizes of what each client's output layer reads; empty where nobody asks."""
        if not self.even_logits:
            return []
        class_axis = uploads.permutation_spec().class_axis
        if not class_axis:
            raise OptionError(
                "--even-logits", "the spec does not say which tensors write the classes", "Add class_axis."
            )
        return [
            input_scale({name: client.raw_fisher(name) for name in class_axis}, class_axis)
            for client in uploads.clients
        ]

    def _align(self, uploads: Uploads, start: Alignment) -> tuple[Alignment, dict[str, Any]]:
        """Align the clients layer by layer, and report what they were aligned to."""
        if self.matching == "identity":
            return start, {}
        reference = _Reference.of(uploads)
        solver: Solver
        if self.matching == "profiled":
            seed = reference.units if reference.client is None else reference.client
            solver = ProfiledTransport(seed, uploads.shares(), self.inner_iters)
        else:
            by_fisher = self.matching == "fisher", self.average == "fisher"
            solver = FisherTransport(reference.units, self.inner_iters, *by_fisher)
        aligned = align(start.values, start.precisions, uploads.permutation_spec(), solver)
        return aligned, {"reference": reference.model.label}

    def _finish(
        self,
        uploads: Uploads,
        start: Alignment,
        aligned: Alignment,
        inputs: Sequence[Tensors],
        report: dict[str, Any],
    ) -> Merged:
        """Average both alignments and keep the one that alg. 1 keeps."""
        merged, at_aligned = _average(uploads, aligned, self.average == "fisher", inputs)
        identity, at_identity = _average(uploads, start, True, inputs)
        fall_back = self.safeguard and bool(aligned.matchings) and at_aligned > at_identity
        report["objective"] = {
            "aligned": at_aligned,
            "identity": at_identity,
            "chosen": "identity" if fall_back or not aligned.matchings else "aligned",
        }
        chosen = start if fall_back else aligned
        orders = {group: matching.orders for group, matching in chosen.matchings.items()}
        return Merged(whole(uploads, identity if fall_back else merged), report, orders)


def _is_weighed(uploads: Uploads, name: str) -> bool:
    return is_float(uploads.clients[0].model.layout[name].dtype) and not is_running_statistic(name)


@dataclass(frozen=True, slots=True)
class _Reference:
    """What the clients are aligned to first: a client's own reordered copy, or a file as it stands.

    Args:
        model: Its file.
        client: Its place among the clients, or None for another model.
    """

    model: Checkpoint
    client: int | None

    @classmethod
    def of(cls, uploads: Uploads) -> _Reference:
        models = [client.model for client in uploads.clients]
        if uploads.reference is None:
            examples = uploads.examples()
            index = examples.index(max(examples))  # ties go to the first client
            return cls(models[index], index)
        identities = [model.model_id() for model in models]
        if uploads.reference.model_id() not in identities:
            return cls(uploads.reference, None)
        index = identities.index(uploads.reference.model_id())
        return cls(models[index], index)

    def units(self, places: Sequence[Place], units: Sequence[Units] = ()) -> FloatArray:
        """Return the reference's units of one group."""
        if self.client is not None:
            return units[self.client].values
        return unit_matrix({place.tensor: self.model.read(place.tensor) for place in places}, places)


def _in_orders(alignment: Alignment, spec: PermutationSpec) -> Alignment:
    """Return the alignment with an order for each group: the clients' own where nothing was aligned."""
    if alignment.matchings:
        return alignment
    shapes = {name: array.shape for name, array in alignment.values[0].items()}
    matchings = {
        group: Matching(tuple(np.arange(width) for _ in alignment.values), width, {})
        for group, width in spec.widths(shapes, "the clients").items()
    }
    return Alignment(alignment.values, alignment.precisions, matchings)


def _average(
    uploads: Uploads, alignment: Alignment, by_fisher: bool, inputs: Sequence[Tensors]
) -> tuple[dict[str, Any], float]:
    """Return the average of aligned clients and its full-model objective (FedFiOT eq. 2 over all layers).

    Where the output layers' inputs are given, the average is the best one whose classes have even logits.
    """
    merged: dict[str, Any] = {}
    shares = uploads.shares()
    precisions: Sequence[Tensors] = alignment.precisions or ()
    for name in uploads.names():
        values = [tensors[name] for tensors in alignment.values]
        if not is_float(uploads.clients[0].model.layout[name].dtype):
            merged[name] = np.maximum.reduce(values)
        elif is_running_statistic(name):
            merged[name] = plain_mean(values, shares)
        else:
            precision = [tensors[name] for tensors in precisions]
            merged[name], _ = weighted_mean(values, precision if by_fisher else [1.0] * len(values), shares)
    if inputs:
        spec = uploads.permutation_spec()
        moved = [realign(read, spec, alignment.orders(client)) for client, read in enumerate(inputs)]
        weights = precisions if by_fisher else [{name: np.ones_like(merged[name]) for name in spec.class_axis}]
        merged |= even(merged, _summed(weights, spec.class_axis), _summed(moved, spec.class_axis), spec.class_axis)
    total = sum(
        objective(merged[name], [tensors[name] for tensors in alignment.values], [each[name] for each in precisions])
        for name in precisions[0]
    )
    return merged, total


def _summed(models: Sequence[Tensors], names: Iterable[str]) -> dict[str, FloatArray]:
    return {name: np.sum([tensors[name] for tensors in models], axis=0) for name in names}
