"""FedProto: prototypes averaged class by class, over the clients that hold the class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from modelfuse.files.layout import layout_of
from modelfuse.files.prototypes import Prototypes, read_prototypes
from modelfuse.methods.contract import Merged, MergedTensor, Once, one_of
from modelfuse.methods.uploads import Uploads
from modelfuse.types import FloatArray, Kind

__all__ = ["FedProto"]


@dataclass(frozen=True, slots=True)
class FedProto:
    """The mean of the clients' prototypes; a class that no client holds stays absent.

    Args:
        weighting: ``uniform``: the plain mean over the clients N_j that hold class j (the authors' code).
            ``count``: weights |D_ij| / N_j, which sum to 1: the mean over all clients' examples.
            ``paper``: eq. 6 to the letter, ``count`` divided once more by |N_j|, which shrinks every prototype.

    Source: FedProto eq. 6.
    """

    takes: ClassVar[Kind] = "prototypes"
    companion: ClassVar[Kind | None] = None
    needs_spec: ClassVar[bool] = False
    takes_reference: ClassVar[bool] = False
    takes_unequal_widths: ClassVar[bool] = False

    weighting: str = "uniform"

    def __post_init__(self) -> None:
        """Check the options."""
        one_of("--weighting", self.weighting, ("uniform", "count", "paper"))

    def merge(self, uploads: Uploads) -> Merged:
        """Return the global prototypes of the clients' local ones."""
        local = [read_prototypes(client.model) for client in uploads.clients]
        classes = np.unique(np.concatenate([each.classes for each in local]))
        rows = [self._average(local, number) for number in classes.tolist()]
        vectors = np.stack(rows) if rows else np.empty((0, local[0].width))
        counts = [sum(int(each.counts[each.classes == number].sum()) for each in local) for number in classes]
        merged = Prototypes(vectors, classes, np.array(counts, np.intp))
        holders = {str(number): sum(number in each.classes for each in local) for number in classes.tolist()}
        tensors = {name: MergedTensor(layout_of(array), Once(array)) for name, array in merged.tensors().items()}
        return Merged(tensors, {"clients_per_class": holders}, kind=self.takes)

    def _average(self, local: list[Prototypes], number: int) -> FloatArray:
        """Return the global prototype of one class."""
        holders = [(each, each.classes == number) for each in local if number in each.classes]
        vectors = np.stack([each.vectors[at][0] for each, at in holders])  # (|N_j|, d)
        if self.weighting == "uniform":
            return np.asarray(vectors.mean(0))
        counts = np.array([each.counts[at][0] for each, at in holders], np.float64)  # |D_ij|
        mean = counts @ vectors / counts.sum()
        return np.asarray(mean / len(holders) if self.weighting == "paper" else mean)
