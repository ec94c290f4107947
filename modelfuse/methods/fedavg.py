"""FedAvg: the example-weighted mean, index by index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from modelfuse.methods.contract import Merged, one_of
from modelfuse.methods.elementwise import elementwise
from modelfuse.methods.uploads import Uploads
from modelfuse.types import Kind

__all__ = ["FedAvg"]


@dataclass(frozen=True, slots=True)
class FedAvg:
    """The mean of the clients' weights.

    Args:
        weighting: ``examples`` (n_k) or ``uniform``.

    Source: FedAvg (arXiv 1602.05629) alg. 1; FedProto eq. 1.
    """

    takes: ClassVar[Kind] = "model"
    companion: ClassVar[Kind | None] = None
    needs_spec: ClassVar[bool] = False
    takes_reference: ClassVar[bool] = False
    takes_unequal_widths: ClassVar[bool] = False

    weighting: str = "examples"

    def __post_init__(self) -> None:
        """Check the options."""
        one_of("--weighting", self.weighting, ("examples", "uniform"))

    def merge(self, uploads: Uploads) -> Merged:
        """Return the mean of the clients."""
        uniform = [1.0] * len(uploads.clients)
        return elementwise(uploads, uniform if self.weighting == "uniform" else uploads.examples())
