"""Fisher merging: each entry weighted by the client's tempered and damped Fisher, index by index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from modelfuse.errors import OptionError
from modelfuse.methods.contract import Merged
from modelfuse.methods.elementwise import elementwise
from modelfuse.methods.uploads import Upload, Uploads
from modelfuse.types import FloatArray, Kind

__all__ = ["FisherMerge", "check_tempering", "temper"]


@dataclass(frozen=True, slots=True)
class FisherMerge:
    """The Fisher-weighted mean of the clients' weights, without alignment.

    Args:
        rho: Tempering ρ in (0, 1]; 1 is the raw Fisher.
        lam: Damping λ, at least 0.
        fisher_floor: Entries whose summed weight is below this take the plain example-weighted mean, at least 0.

    Source: FedFiOT ablation B and eq. 7; Fisher merging (arXiv 2111.09832).
    """

    takes: ClassVar[Kind] = "model"
    companion: ClassVar[Kind | None] = "fisher"
    needs_spec: ClassVar[bool] = False
    takes_reference: ClassVar[bool] = False
    takes_unequal_widths: ClassVar[bool] = False

    rho: float = 1.0
    lam: float = 0.0
    fisher_floor: float = 0.0

    def __post_init__(self) -> None:
        """Check the options."""
        check_tempering(self.rho, self.lam)
        if not 0 <= self.fisher_floor < np.inf:
            raise OptionError("--fisher-floor", f"{self.fisher_floor} is negative", "Write 1e-6, or leave it out.")

    def merge(self, uploads: Uploads) -> Merged:
        """Return the Fisher-weighted mean of the clients."""
        return elementwise(uploads, uploads.shares(), self._weigh, self.fisher_floor)

    def _weigh(self, client: Upload, name: str, start: int, stop: int) -> FloatArray:
        return temper(client.fisher_slice(name, start, stop), self.rho, self.lam)


def temper(fisher: FloatArray, rho: float, lam: float) -> FloatArray:
    """Return the tempered, damped Fisher F^ρ + λ.

    Args:
        fisher: Raw Fisher, at least 0.
        rho: Tempering ρ in (0, 1].
        lam: Damping λ, at least 0.

    Source: FedFiOT eq. 1.
    """
    return np.asarray((fisher if rho == 1 else fisher**rho) + lam)


def check_tempering(rho: float, lam: float) -> None:
    """Check ρ and λ.

    Raises:
        OptionError: One is out of range.
    """
    if not 0 < rho <= 1:
        raise OptionError("--rho", f"{rho} is outside (0, 1]", "FedFiOT uses 0.2 to 0.7; 1 is the raw Fisher.")
    if not 0 <= lam < np.inf:
        raise OptionError("--lam", f"{lam} is negative", "FedFiOT uses 1e-3 to 1e-5.")
