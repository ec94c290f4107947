"""Refinement: re-match aligned clients with all that their units write and read, until no step lowers the objective."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from modelfuse.core.average import objective, weighted_mean
from modelfuse.core.engine import Alignment, Matching, Units, move_group
from modelfuse.core.units import invert, realign_tensor, unit_matrix
from modelfuse.solvers.profiled import cheapest, is_cheaper, profiled_cost
from modelfuse.spec.axes import PermutationSpec, Place
from modelfuse.types import FloatArray, IndexArray, Order, Tensors

__all__ = ["profiled_objective", "refine"]


def refine(
    alignment: Alignment, spec: PermutationSpec, rng: np.random.Generator, sweeps: int
) -> tuple[Alignment, dict[str, Any]]:
    """Re-match each client in each group to the rest, with incoming and outgoing weights, in random order.

    Every step that is taken lowers the full-model objective at its best average. A tensor that meets a group on two
    axes (hidden-to-hidden weights) stays outside the costs, but not outside the objective: a step that would raise it
    is not taken.

    Args:
        alignment: Aligned clients with their precisions and an order for each group.
        spec: The permutation spec.
        rng: Draws the order of the visits.
        sweeps: Sweeps over groups and clients at most.

    Returns:
        The better alignment, whose orders still start from the clients' own units; and what the report says of it.
    """
    pool = _Pool.start(alignment, spec)
    pairs = [(group, client) for group in pool.groups for client in range(len(pool.values))]
    pending = set(pairs)
    at_start = profiled_objective(pool.values, pool.precisions)
    steps: list[dict[str, float]] = []
    while pending and len(steps) < sweeps:
        started = time.perf_counter()
        visited = accepted = 0
        for index in rng.permutation(len(pairs)):
            group, client = pair = pairs[index]
            if pair not in pending:
                continue
            visited += 1
            if pool.rematch(group, client):
                accepted += 1
                near = pool.groups[group].near
                pending.update(other for other in pairs if other[0] in near)
            pending.discard(pair)
        value = profiled_objective(pool.values, pool.precisions)
        steps.append(
            {
                "objective": value,
                "visited": visited,
                "accepted": accepted,
                "seconds": time.perf_counter() - started,
            }
        )
    trace = {"objective_at_start": at_start, "sweeps": steps, "stop": "S" if pending else "unchanged"}
    return pool.alignment(alignment.matchings), trace


def profiled_objective(values: Sequence[Tensors], precisions: Sequence[Tensors]) -> float:
    """Return J at its best average, over every tensor that has a precision.

    Args:
        values: One mapping of aligned tensors a client.
        precisions: The same for the precisions.

    Source: FedFiOT eq. 2, with the average of eq. 7 put in.
    """
    return sum(_tensor_objective([c[name] for c in values], [c[name] for c in precisions]) for name in precisions[0])


def _tensor_objective(values: Sequence[FloatArray], precisions: Sequence[FloatArray]) -> float:
    merged, _ = weighted_mean(values, precisions, [1.0] * len(values))
    return objective(merged, values, precisions)


@dataclass(frozen=True, slots=True)
class _Group:
    """Where a group's units are.

    Args:
        places: The places that a cost can weigh: tensors with a precision that meet the group on one axis.
        twofold: Tensors with a precision that meet it on more.
        near: The groups whose orders a cost depends on, this one included.
    """

    places: tuple[Place, ...]
    twofold: tuple[str, ...]
    near: frozenset[str]

    @classmethod
    def of(cls, name: str, spec: PermutationSpec, weighed: Tensors) -> _Group:
        everywhere = [place for place in spec.places(name) if place.tensor in weighed]
        tensors = [place.tensor for place in everywhere]
        return cls(
            tuple(place for place in everywhere if tensors.count(place.tensor) == 1),
            tuple(sorted({tensor for tensor in tensors if tensors.count(tensor) > 1})),
            frozenset(axis.group for tensor in tensors for axis in spec.axes[tensor] if axis is not None),
        )


@dataclass(slots=True)
class _Pool:
    """The clients' tensors in the present orders."""

    spec: PermutationSpec
    groups: Mapping[str, _Group]
    values: list[dict[str, Any]]
    precisions: list[dict[str, Any]]
    orders: dict[str, list[Order]]

    @classmethod
    def start(cls, alignment: Alignment, spec: PermutationSpec) -> _Pool:
        precisions = [dict(tensors) for tensors in alignment.precisions or ()]
        groups = {name: _Group.of(name, spec, precisions[0]) for name in alignment.matchings}
        orders = {name: list(matching.orders) for name, matching in alignment.matchings.items()}
        return cls(
            spec,
            {name: group for name, group in groups.items() if group.places},
            [dict(tensors) for tensors in alignment.values],
            precisions,
            orders,
        )

    def alignment(self, matchings: Mapping[str, Matching]) -> Alignment:
        """Return the present state; the groups' traces tell the fractions that are permuted now."""
        refined = {}
        for name, matching in matchings.items():
            orders = tuple(self.orders[name])
            fractions = [float(np.mean(order != np.arange(len(order)))) for order in orders]
            refined[name] = Matching(orders, matching.width, {**matching.trace, "permuted_fraction": fractions})
        return Alignment(tuple(self.values), tuple(self.precisions), refined)

    def rematch(self, group: str, client: int) -> bool:
        """Match one client's units to the rest and return whether that moved any."""
        if len(self.values) == 1:
            return False
        places = self.groups[group].places
        rest = self._rest(places, client)
        mine = Units(unit_matrix(self.values[client], places), unit_matrix(self.precisions[client], places))
        found = cheapest(profiled_cost(rest.weights(), rest.values, mine.weights(), mine.values))
        order, known = invert(found), np.arange(len(found), dtype=np.intp)
        if not is_cheaper(rest, mine, found, known, self._twofold_change(group, client, order)):
            return False
        for tensors in (self.values[client], self.precisions[client]):
            move_group(tensors, self.spec, group, order, len(order))
        self.orders[group][client] = order[self.orders[group][client]]
        return True

    def _rest(self, places: Sequence[Place], client: int) -> Units:
        """Return the other clients' mean and summed precision; summed anew, so that nothing is lost in differences."""
        means: dict[str, FloatArray] = {}
        totals: dict[str, FloatArray] = {}
        others = [index for index in range(len(self.values)) if index != client]
        for tensor in (place.tensor for place in places):
            totals[tensor] = sum(self.precisions[index][tensor] for index in others)
            weighted = sum(self.precisions[index][tensor] * self.values[index][tensor] for index in others)
            means[tensor] = weighted / totals[tensor]
        return Units(unit_matrix(means, places), unit_matrix(totals, places))

    def _twofold_change(self, group: str, client: int, order: IndexArray) -> float:
        """Return what a new order adds to the objective in tensors that meet the group on two axes."""
        change = 0.0
        for tensor in self.groups[group].twofold:
            values = [tensors[tensor] for tensors in self.values]
            precisions = [tensors[tensor] for tensors in self.precisions]
            before = _tensor_objective(values, precisions)
            axes, orders, widths = self.spec.axes[tensor], {group: order}, {group: len(order)}
            values[client] = realign_tensor(values[client], axes, orders, widths)
            precisions[client] = realign_tensor(precisions[client], axes, orders, widths)
            change += _tensor_objective(values, precisions) - before
        return change
