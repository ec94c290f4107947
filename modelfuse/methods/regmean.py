"""RegMean: linear layers that say, of every client's inputs, what the client's own layer says; in closed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from modelfuse.errors import ContentError, OptionError
from modelfuse.files.layout import TensorLayout, numpy_dtype
from modelfuse.methods.contract import Merged, MergedTensor
from modelfuse.methods.elementwise import elementwise
from modelfuse.methods.uploads import Upload, Uploads
from modelfuse.types import FloatArray, Kind

__all__ = ["RegMean", "least_squares"]

RIDGE = 1e-6  # of the mean diagonal: inputs that are never on take the weighted mean


@dataclass(frozen=True, slots=True)
class RegMean:
    """The least-squares fit of each layer that comes with Gram matrices; the example-weighted mean of the rest.

    Args:
        off_diagonal: What entries beside the diagonal of a Gram matrix are multiplied by, in [0, 1].

    Source: RegMean (arXiv 2212.09849) eq. 2; as a baseline FedFiOT app. C.2.
    """

    takes: ClassVar[Kind] = "model"
    companion: ClassVar[Kind | None] = "gram"
    needs_spec: ClassVar[bool] = False
    takes_reference: ClassVar[bool] = False
    takes_unequal_widths: ClassVar[bool] = False

    off_diagonal: float = 0.9

    def __post_init__(self) -> None:
        """Check the option."""
        if not 0 <= self.off_diagonal <= 1:
            raise OptionError("--off-diagonal", f"{self.off_diagonal} is outside [0, 1]", "RegMean uses 0.1 to 0.9.")

    def merge(self, uploads: Uploads) -> Merged:
        """Return the merge of the clients."""
        examples = uploads.examples()
        mean = elementwise(uploads, examples)
        known = _fitted(uploads)
        fitted = {
            name: MergedTensor(layout, _Fit(name, layout, uploads.clients, examples, self.off_diagonal))
            for name, layout in ((name, mean.tensors[name].layout) for name in known)
        }
        return Merged({**mean.tensors, **fitted}, {**mean.report, "fitted": known})


def _fitted(uploads: Uploads) -> list[str]:
    """Return the names of the weights that come with Gram matrices, from all clients alike."""
    having = {name: [client.has_gram(name) for client in uploads.clients] for name in uploads.names()}
    for name, has in having.items():
        if any(has) and not all(has):
            lacking = uploads.clients[has.index(False)]
            raise ContentError(
                (lacking.companion or lacking.model).label,
                f"it has no Gram matrix of {name}, and another client has one",
                "Make all of them alike.",
            )
    known = [name for name, has in having.items() if all(has)]
    if not known:
        raise OptionError("--method regmean", "no tensor to merge comes with Gram matrices", "Use fedavg.")
    return known


def least_squares(
    weights: Sequence[FloatArray], grams: Sequence[FloatArray], shares: Sequence[float], off_diagonal: float = 1.0
) -> FloatArray:
    """Return the W that minimises Σ_k n_k E‖W x − W_k x‖², which is (Σ_k n_k W_k G_k) (Σ_k n_k G_k)⁻¹.

    Args:
        weights: (outputs, inputs), one a client.
        grams: (inputs, inputs), E[x xᵀ] of each client.
        shares: n_k of each client, positive.
        off_diagonal: What entries beside the diagonal are multiplied by, in [0, 1].

    Returns:
        (outputs, inputs).

    Source: RegMean (arXiv 2212.09849) eq. 2.
    """
    total = np.zeros_like(grams[0])
    wanted = np.zeros_like(weights[0])
    # the ridge leans on the clients' own weights, so that clients who agree are their own merge
    ridge = RIDGE * float(np.mean([np.diagonal(gram).mean() for gram in grams])) or 1.0
    for weight, gram, share in zip(weights, grams, shares, strict=True):
        scaled = share * off_diagonal * gram
        np.fill_diagonal(scaled, share * (np.diagonal(gram) + ridge))
        total += scaled
        wanted += weight @ scaled
    solution: FloatArray = np.linalg.solve(total, wanted.T).T  # total is symmetric
    return solution


@dataclass(frozen=True, slots=True)
class _Fit:
    """Makes one layer's weight."""

    name: str
    layout: TensorLayout
    clients: Sequence[Upload]
    shares: Sequence[float]
    off_diagonal: float

    def __call__(self) -> Iterator[NDArray[Any]]:
        """Yield the fitted weight, in the layout's dtype."""
        grams = [client.gram(self.name) for client in self.clients]
        # a convolution reads patches: (O, C, h, w) -> (O, C·h·w)
        weights = [client.weights(self.name).reshape(self.layout.shape[0], -1) for client in self.clients]
        try:
            fitted = least_squares(weights, grams, self.shares, self.off_diagonal)
        except np.linalg.LinAlgError as error:
            raise ContentError(
                self.name, "its Gram matrices together are singular", "Pass an --off-diagonal below 1."
            ) from error
        if not np.isfinite(fitted).all():
            raise ContentError(self.name, "its least squares overflow", "Look at the clients' Gram files.")
        yield fitted.astype(numpy_dtype(self.layout.dtype)).reshape(-1)
