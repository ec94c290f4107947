"""The Beta-Bernoulli process of BBP-MAP: how popular global units attract, and what new ones cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from modelfuse.errors import OptionError
from modelfuse.types import FloatArray

__all__ = ["BetaBernoulli"]


@dataclass(frozen=True, slots=True)
class BetaBernoulli:
    """The prior over matchings, with the defaults of the authors' code.

    Args:
        gamma: Mass γ0 of the process, above 0; a larger one opens more global units.
        sigma: Variance σ² of a local unit around its global one, above 0.
        sigma0: Variance σ0² of the global units around the prior mean, above 0.
        popularity_cap: Clients of a global unit beyond this number make it no more attractive; at least 1.
        max_width: Global units from which on a step may open one more only, at least 1; None lifts the cap.

    Raises:
        OptionError: A value is out of its range.

    Source: FedMA app. D.2; the two caps are in the authors' code only (matching/pfnm.py lines 45 and 62).
    """

    gamma: float = 7.0
    sigma: float = 1.0
    sigma0: float = 1.0
    popularity_cap: int = 10
    max_width: int | None = 700

    def __post_init__(self) -> None:
        for name in ("gamma", "sigma", "sigma0"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise OptionError(f"--{name}", f"{value} is not a positive number", "Give one above 0.")
        if self.popularity_cap < 1:
            raise OptionError("--popularity-cap", f"{self.popularity_cap} is below 1", "Give 1 or more.")
        if self.max_width is not None and self.max_width < 1:
            raise OptionError("--max-width", f"{self.max_width} is below 1", "Give 1 or more, or lift the cap.")

    def popularity(self, clients: int) -> FloatArray:
        """Return the log odds log(c / (J − c)) of joining a global unit that c other clients are in, (J,).

        Args:
            clients: J, at least 1. Entry c = 0 is −∞: a unit that nobody is in does not exist.
        """
        counts = np.minimum(np.arange(1, clients), self.popularity_cap)
        return np.concatenate(([-np.inf], np.log(counts / (clients - counts))))

    def opening(self, clients: int) -> float:
        """Return 2 log(γ0 / J), what the prior adds to the gain of opening a first global unit."""
        return 2.0 * math.log(self.gamma / clients)

    def crowding(self, opened: int) -> FloatArray:
        """Return 2 log k for k = 1 … ``opened``: how much more the k-th new unit of one step costs than the first."""
        costs: FloatArray = 2.0 * np.log(np.arange(1, opened + 1))
        return costs

    def offered(self, units: int, width: int) -> int:
        """Return how many global units a client of ``units`` units may open beside ``width`` existing ones."""
        return units if self.max_width is None else min(units, max(self.max_width - width, 1))
