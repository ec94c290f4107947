"""Fisher-weighted optimal transport: alternate exact assignments with precision-weighted averages (FedFiOT alg. 1)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from modelfuse.core.assignment import solve
from modelfuse.core.average import objective
from modelfuse.core.engine import Matching, Units
from modelfuse.core.units import invert
from modelfuse.spec.axes import Place
from modelfuse.types import BoolArray, FloatArray, IndexArray

__all__ = ["FisherTransport"]


@dataclass(frozen=True, slots=True)
class FisherTransport:
    """Matches all clients to one reference that moves to their average, at most ``iterations`` times.

    Args:
        reference: Returns the global units that the first assignment is made to, (n, d), in the places' coordinates.
        iterations: S, at least 1.
        fisher_cost: The cost weighs coordinates by the client's precision (FedFiOT eq. 4), or all alike (ablation C).
        fisher_average: The average weighs them by precision (FedFiOT eq. 7), or clients all alike (ablation D).
    """

    reference: Callable[[Sequence[Place], Sequence[Units]], FloatArray]
    iterations: int = 8
    fisher_cost: bool = True
    fisher_average: bool = True

    def __call__(self, places: Sequence[Place], units: Sequence[Units]) -> Matching:
        """Return the alignment of one group (see :class:`modelfuse.core.engine.Solver`).

        The trace holds the objective at the reference, and for each iteration the objective after the assignment and
        after the average, and the seconds spent on costs and on assignments.
        """
        merged = self.reference(places, units)
        identity = np.arange(len(merged), dtype=np.intp)
        members = [identity for _ in units]  # members[k][i]: client k's unit that is global unit i
        at_reference = _objective(merged, units, members)
        costs = _Costs.prepare(units, self.fisher_cost)
        steps: list[dict[str, float]] = []
        stop = "S"
        while stop == "S" and len(steps) < self.iterations:
            started = time.perf_counter()
            cost = costs.update(merged)  # (K, n, n)
            solved = time.perf_counter()
            found = [_cheaper(matrix, solve(matrix), known) for matrix, known in zip(cost, members, strict=True)]
            ended = time.perf_counter()
            if steps and all(map(np.array_equal, found, members)):
                stop = "unchanged"
            else:
                members = found
            after_alignment = _objective(merged, units, members)
            merged = merged if stop == "unchanged" else self._average(units, members)
            steps.append(
                {
                    "objective_after_alignment": after_alignment,
                    "objective": _objective(merged, units, members),
                    "cost_seconds": solved - started,
                    "lap_seconds": ended - solved,
                }
            )
        trace = {
            "objective_at_reference": at_reference,
            "iterations": steps,
            "stop": stop,
            "permuted_fraction": [float(np.mean(found != identity)) for found in members],
        }
        return Matching(tuple(invert(found) for found in members), len(merged), trace)

    def _average(self, units: Sequence[Units], members: Sequence[IndexArray]) -> FloatArray:
        total = np.zeros_like(units[0].values)
        weight = np.zeros_like(units[0].values)
        for client, found in zip(units, members, strict=True):
            precision = client.weights()[found] if self.fisher_average else 1.0
            total += precision * client.values[found]
            weight += precision
        mean: FloatArray = total / weight
        return mean


@dataclass(slots=True)
class _Costs:
    """The costs of all clients, of which only the rows of global units that moved are computed again.

    C_k[i, j] = Σ_c f_kjc (w_ic − w_kjc)²; the term without w_i is the same for every i and left out: it cannot change
    which assignment is cheapest. What remains is one product, [w², −2w] · [f, f∘w_k]ᵀ.

    Source: FedFiOT eq. 4.
    """

    right: FloatArray  # (2d, K·n)
    cost: FloatArray  # (n, K·n)
    merged: FloatArray | None
    clients: int

    @classmethod
    def prepare(cls, units: Sequence[Units], fisher_cost: bool) -> _Costs:
        width, coordinates = units[0].values.shape
        rows = np.empty((len(units), width, 2 * coordinates))
        for part, client in zip(rows, units, strict=True):
            part[:, :coordinates] = client.weights() if fisher_cost else 1.0
            np.multiply(part[:, :coordinates], client.values, out=part[:, coordinates:])
        right = rows.reshape(-1, 2 * coordinates).T  # (K·n, 2d) → (2d, K·n)
        return cls(right, np.empty((len(units[0].values), right.shape[1])), None, len(units))

    def update(self, merged: FloatArray) -> FloatArray:
        """Return the costs against ``merged``, (K, n, n)."""
        moved: BoolArray = (
            np.ones(len(merged), dtype=np.bool_) if self.merged is None else (merged != self.merged).any(axis=1)
        )
        rows = merged[moved]
        self.cost[moved] = np.concatenate([np.square(rows), -2.0 * rows], axis=1) @ self.right
        self.merged = merged
        by_client: FloatArray = self.cost.reshape(len(merged), self.clients, -1).swapaxes(0, 1)  # (n, K, n) → (K, n, n)
        return by_client


def _cheaper(cost: FloatArray, found: IndexArray, known: IndexArray) -> IndexArray:
    """Return the new assignment only if it costs less: among ties the known one stays, and nothing moves in vain."""
    rows = np.arange(len(cost))
    return found if cost[rows, found].sum() < cost[rows, known].sum() else known


def _objective(merged: FloatArray, units: Sequence[Units], members: Sequence[IndexArray]) -> float:
    """Return eq. 2, one client at a time: six reordered copies would double what a merge holds."""
    return sum(
        objective(merged, [client.values[found]], [client.weights()[found]])
        for client, found in zip(units, members, strict=True)
    )
