"""BBP-MAP as the solver of an alignment: the prior's mean over a group's coordinates, and what the report says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from modelfuse.core.engine import Matching, Units
from modelfuse.core.units import unit_matrix, write_units
from modelfuse.solvers.bbp_map import BetaBernoulli, Consensus, bbp_map
from modelfuse.spec.axes import PermutationSpec, Place
from modelfuse.types import FloatArray, IndexArray

__all__ = ["NonparametricMatching", "PriorMean"]


@dataclass(frozen=True, slots=True)
class PriorMean:
    """The mean of the global units: 0 for weights, a number for biases.

    Args:
        spec: The permutation spec.
        bias: Mean of the biases.
        on_first_weight: Beyond the first group, put that number on the first incoming weight and 0 on the bias. It is
            what the authors' code does, where that column holds the bias in PFNM's layout and a weight in FedMA's.

    Source: FedMA's matching/pfnm.py lines 838-839.
    """

    spec: PermutationSpec
    bias: float = 0.1
    on_first_weight: bool = False

    def of(self, tensor: str, shape: Sequence[int]) -> FloatArray:
        """Return the mean of one tensor in a given shape."""
        axes = self.spec.axes[tensor]
        if any(axis is not None and axis.role == "carry" for axis in axes):
            return np.zeros(tuple(shape))
        place = next((place for place in self.spec.places(role="match") if place.tensor == tensor), None)
        if self.on_first_weight and place is not None and place.axis.group != self.spec.groups()[0]:
            return self._on_first_weight(place, shape)
        return np.full(tuple(shape), self.bias if len(axes) == 1 and not tensor.endswith("weight") else 0.0)

    def _on_first_weight(self, place: Place, shape: Sequence[int]) -> FloatArray:
        units = place.axis.units(shape[place.dimension]) or 1
        matrix = np.zeros((units, int(np.prod(shape)) // units))
        if place == next(self.spec.places(place.axis.group, "match")):
            matrix[:, 0] = self.bias
        return write_units(matrix, [place], {place.tensor: shape})[place.tensor]


@dataclass(frozen=True, slots=True)
class NonparametricMatching:
    """Matches one group after another by BBP-MAP (see :class:`modelfuse.core.engine.Solver`).

    Args:
        process: The prior over matchings.
        prior: The mean of the global units.
        sweep_orders: Returns a group's refinement sweeps, (sweeps, J), of its name and the number of clients.
        relative_precision: For each tensor whose precision differs from 1/σ², one array a client that broadcasts
            against the tensor, in units of 1/σ².
    """

    process: BetaBernoulli
    prior: PriorMean
    sweep_orders: Callable[[str, int], IndexArray]
    relative_precision: Mapping[str, Sequence[FloatArray]] = field(default_factory=dict)

    def __call__(self, places: Sequence[Place], units: Sequence[Units]) -> Matching:
        """Return the alignment of one group."""
        shapes = [_of_one_unit(place, units[0].shapes[place.tensor]) for place in places]
        means = [self.prior.of(place.tensor, shape) for place, shape in zip(places, shapes, strict=True)]
        consensus = bbp_map(
            [client.values for client in units],
            _row(places, means),
            self.sweep_orders(places[0].axis.group, len(units)),
            self.process,
            self._precisions(places, shapes, len(units)),
        )
        return Matching(consensus.orders, consensus.width, _trace(consensus))

    def _precisions(
        self, places: Sequence[Place], shapes: Sequence[tuple[int, ...]], clients: int
    ) -> FloatArray | None:
        if not any(place.tensor in self.relative_precision for place in places):
            return None
        ones = [np.ones(())] * clients
        each = [self.relative_precision.get(place.tensor, ones) for place in places]
        rows = [
            _row(places, [np.broadcast_to(of[client], shape) for of, shape in zip(each, shapes, strict=True)])
            for client in range(clients)
        ]
        return np.stack(rows)  # (J, d)


def _of_one_unit(place: Place, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that the tensor would have if the group had one unit."""
    return (*shape[: place.dimension], place.axis.stack * place.axis.block, *shape[place.dimension + 1 :])


def _row(places: Sequence[Place], tensors: Sequence[FloatArray]) -> FloatArray:
    """Return the unit matrix of tensors of one unit, (d,)."""
    row: FloatArray = unit_matrix({place.tensor: array for place, array in zip(places, tensors, strict=True)}, places)[
        0
    ]
    return row


def _trace(consensus: Consensus) -> dict[str, Any]:
    """Return what the report says of a matching: how far the layer grew, and every sweep."""
    local = [len(order) for order in consensus.orders]
    iterations: list[dict[str, float]] = []
    width = max(local)
    for sweep, objective in enumerate(consensus.objectives):
        steps = [step for step in consensus.steps if step.sweep == sweep]
        width = steps[-1].width if steps else width
        iterations.append(
            {
                "objective": objective,
                "width": width,
                "cost_seconds": sum(step.cost_seconds for step in steps),
                "lap_seconds": sum(step.lap_seconds for step in steps),
            }
        )
    return {
        "local_widths": local,
        "growth": consensus.width / max(local),
        "units_by_members": np.bincount(consensus.counts, minlength=len(local) + 1)[1:].tolist(),
        "iterations": iterations,
    }
