"""What a result can be asked for: how each quantity is shown, and which direction is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["QUANTITIES", "Quantity"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """One kind of figure.

    Args:
        title: How an axis or a caption calls it.
        percent: A fraction in [0, 1] that is shown in percent.
        better: Which direction is better, or None where figures of a column do not compete: objectives depend on the
            Fishers' tempering and damping, seconds on the machine.
    """

    title: str
    percent: bool = False
    better: Literal["higher", "lower"] | None = None

    @property
    def factor(self) -> float:
        """What a stored figure is multiplied by to be shown."""
        return 100.0 if self.percent else 1.0

    @property
    def unit(self) -> str:
        """The unit shown, empty for none."""
        return "%" if self.percent else ""


QUANTITIES: Mapping[str, Quantity] = {
    "accuracy": Quantity("accuracy", percent=True, better="higher"),
    "accuracy_std": Quantity("accuracy's deviation over clients", percent=True, better="lower"),
    "loss": Quantity("loss", better="lower"),
    "count": Quantity("examples"),
    "objective": Quantity("objective"),
    "objective_aligned": Quantity("objective of the aligned merge"),
    "objective_identity": Quantity("objective of the identity merge"),
    "permuted": Quantity("permuted units", percent=True),
    "iterations": Quantity("iterations"),
    "width": Quantity("width"),
    "parameters": Quantity("parameters"),
    "growth": Quantity("times the clients' size"),
    "cost_seconds": Quantity("seconds in costs"),
    "lap_seconds": Quantity("seconds in assignments"),
    "seconds": Quantity("seconds"),
    "validation_accuracy": Quantity("validation accuracy", percent=True, better="higher"),
    "candidate_objective": Quantity("objective of the candidate"),
}
"""Every quantity that ``report`` and ``plot`` know, by the name that ``--value`` takes."""
