"""FedFiOT: align by Fisher-weighted optimal transport, then average by Fisher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from modelfuse.core.average import objective, plain_mean, weighted_mean
from modelfuse.core.engine import Alignment, Units, align
from modelfuse.core.units import unit_matrix
from modelfuse.errors import OptionError
from modelfuse.files.layout import is_float
from modelfuse.methods.contract import Merged, one_of, whole
from modelfuse.methods.fisher import check_tempering, temper
from modelfuse.methods.uploads import Uploads, is_running_statistic
from modelfuse.solvers.fisher_ot import FisherTransport
from modelfuse.spec.axes import Place
from modelfuse.types import FloatArray, Tensors

__all__ = ["FedFiOT"]


@dataclass(frozen=True, slots=True)
class FedFiOT:
    """One-shot or few-round merging by Fisher-weighted optimal transport.

    Args:
        rho: Tempering ρ in (0, 1].
        lam: Damping λ, above 0.
        inner_iters: S, at least 1: assignments and averages a group.
        matching: ``fisher`` (eq. 4), ``euclidean`` (ablation C), or ``identity`` (no alignment, ablation B).
        average: ``fisher`` (eq. 7) or ``uniform`` (ablation D; with ``euclidean`` WB Fusion, ablation E).
        safeguard: Keep the identity-aligned Fisher average where alignment did not lower the objective (alg. 1, l. 34).

    Source: FedFiOT alg. 1.
    """

    needs_fisher: ClassVar[bool] = True
    needs_spec: ClassVar[bool] = True

    rho: float = 0.3
    lam: float = 1e-4
    inner_iters: int = 8
    matching: str = "fisher"
    average: str = "fisher"
    safeguard: bool = True

    def __post_init__(self) -> None:
        """Check the options."""
        check_tempering(self.rho, self.lam)
        if self.lam == 0:
            raise OptionError("--lam", "0 gives entries that no Fisher sees no cost", "FedFiOT uses 1e-3 to 1e-5.")
        if self.inner_iters < 1:
            raise OptionError("--inner-iters", f"{self.inner_iters} is not at least 1", "FedFiOT uses 8.")
        one_of("--matching", self.matching, ("fisher", "euclidean", "identity"))
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
        start = Alignment(values, precisions, {})
        if self.matching == "identity":
            return self._finish(uploads, start, start, {})
        reference, of_group = _reference(uploads)
        solver = FisherTransport(of_group, self.inner_iters, self.matching == "fisher", self.average == "fisher")
        aligned = align(values, precisions, spec, solver)
        report = {
            "reference": reference,
            "groups": {group: {"width": m.width, **m.trace} for group, m in aligned.matchings.items()},
        }
        return self._finish(uploads, start, aligned, report)

    def _finish(self, uploads: Uploads, start: Alignment, aligned: Alignment, report: dict[str, Any]) -> Merged:
        """Average both alignments and keep the one that alg. 1 keeps."""
        merged, at_aligned = _average(uploads, aligned, self.average == "fisher")
        identity, at_identity = _average(uploads, start, True)
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


def _reference(uploads: Uploads) -> tuple[str, Callable[[Sequence[Place], Sequence[Units]], FloatArray]]:
    """Return the reference's name and what gives its units: a client's own reordered copy, or a file as it stands."""
    labels = [client.model.label for client in uploads.clients]
    if uploads.reference is None:
        examples = uploads.examples()
        index = examples.index(max(examples))  # ties go to the first client
    else:
        identities = [client.model.model_id() for client in uploads.clients]
        if uploads.reference.model_id() not in identities:
            outside = uploads.reference
            return outside.label, lambda places, _: unit_matrix(
                {p.tensor: outside.read(p.tensor) for p in places}, places
            )
        index = identities.index(uploads.reference.model_id())
    return labels[index], lambda _, units: units[index].values


def _average(uploads: Uploads, alignment: Alignment, by_fisher: bool) -> tuple[dict[str, Any], float]:
    """Return the average of aligned clients and its full-model objective (FedFiOT eq. 2 over all layers)."""
    merged: dict[str, Any] = {}
    total = 0.0
    shares = uploads.shares()
    weighed: Sequence[Tensors] = alignment.precisions or ()
    for name in uploads.names():
        values = [tensors[name] for tensors in alignment.values]
        if not is_float(uploads.clients[0].model.layout[name].dtype):
            merged[name] = np.maximum.reduce(values)
        elif is_running_statistic(name):
            merged[name] = plain_mean(values, shares)
        else:
            precision = [tensors[name] for tensors in weighed]
            merged[name], _ = weighted_mean(values, precision if by_fisher else [1.0] * len(values), shares)
            total += objective(merged[name], values, precision)
    return merged, total
