"""The engine: group by group, units to a solver, orders back into the clients' tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from modelfuse.core.units import realign_tensor, unit_matrix
from modelfuse.spec.axes import PermutationSpec, Place
from modelfuse.types import FloatArray, Order, Tensors

__all__ = [
    "Alignment",
    "Matching",
    "Schedule",
    "Solver",
    "Units",
    "align",
    "cost_places",
    "move_group",
    "outgoing_places",
]


@dataclass(frozen=True, slots=True)
class Units:
    """The units of one group of one client, as a solver sees them.

    Args:
        values: (n_k, d) one row a unit.
        precision: (n_k, d) precision of each coordinate, or None where the method has none of its own.
        shapes: Shape of the tensor at each of the places, for solvers that must tell the coordinates apart.
    """

    values: FloatArray
    precision: FloatArray | None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def weights(self) -> FloatArray:
        """Return the precision, or ones where there is none."""
        return np.ones_like(self.values) if self.precision is None else self.precision


@dataclass(frozen=True, slots=True)
class Matching:
    """What a solver found for one group.

    Args:
        orders: For each client (n_k,), the global unit that each local unit became.
        width: Number of global units.
        trace: What the report says of it.
    """

    orders: tuple[Order, ...]
    width: int
    trace: Mapping[str, Any]


class Solver(Protocol):
    """Matches the units of one group across clients."""

    def __call__(self, places: Sequence[Place], units: Sequence[Units]) -> Matching:
        """Return the orders that align the clients.

        Args:
            places: Where the units' coordinates come from.
            units: One entry a client; their inputs are already in the global order.
        """


@dataclass(frozen=True, slots=True)
class Alignment:
    """Clients whose tensors are all in the global order.

    Args:
        values: One mapping of tensors a client; missing units are zeros.
        precisions: The same for the precisions, or None.
        matchings: For each group in merge order, what the solver found.
    """

    values: tuple[Tensors, ...]
    precisions: tuple[Tensors, ...] | None
    matchings: Mapping[str, Matching]

    def orders(self, client: int) -> dict[str, Order]:
        """Return one client's order in every group."""
        return {group: matching.orders[client] for group, matching in self.matchings.items()}

    def widths(self) -> dict[str, int]:
        """Return every group's global width."""
        return {group: matching.width for group, matching in self.matchings.items()}


def cost_places(spec: PermutationSpec, group: str, aligned: Collection[str]) -> list[Place]:
    """Return the places whose coordinates may be compared across clients when a group's turn comes.

    A match axis counts once everything that its tensor reads is aligned: before, its columns mean different things in
    different clients. Where no tensor of the group qualifies (a stream that is read before it is written), all count.

    Args:
        spec: The permutation spec.
        group: The group to match.
        aligned: The groups that are aligned already.
    """
    places = list(spec.places(group, "match"))
    ready = [place for place in places if _reads_only(spec, place.tensor, aligned)]
    return ready or places


def outgoing_places(spec: PermutationSpec, group: str, aligned: Collection[str]) -> list[Place]:
    """Return the places that may be compared when groups are aligned from the output down.

    A unit is then known by its bias and by what reads it; by its incoming weights too where these read the network's
    input, which means the same in all clients. Arguments as :func:`cost_places`.

    Source: PFNM, as in FedMA's matching/pfnm_communication.py.
    """

    def comparable(place: Place) -> bool:
        row = enumerate(spec.axes[place.tensor])
        return all(axis is None or axis.group in aligned for dimension, axis in row if dimension != place.dimension)

    return [place for place in spec.places(group) if place.axis.role != "carry" and comparable(place)]


def _reads_only(spec: PermutationSpec, tensor: str, aligned: Collection[str]) -> bool:
    return all(axis is None or axis.role != "input" or axis.group in aligned for axis in spec.axes[tensor])


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which groups are aligned, in which order, and on which coordinates.

    Args:
        groups: In the order in which they are aligned.
        aligned: The groups that all clients share already.
        places: Returns the places to compare, of a spec, a group, and the groups that are aligned when its turn comes.
    """

    groups: tuple[str, ...]
    aligned: frozenset[str] = frozenset()
    places: Callable[[PermutationSpec, str, Collection[str]], list[Place]] = cost_places


def align(
    values: Sequence[Tensors],
    precisions: Sequence[Tensors] | None,
    spec: PermutationSpec,
    solver: Solver,
    schedule: Schedule | None = None,
    done: Callable[[str], None] | None = None,
) -> Alignment:
    """Align the clients group by group: solve, then move every axis of the group, in weights and precisions alike.

    Args:
        values: One mapping of tensors a client.
        precisions: One mapping of precisions a client, of the same shapes; None where the method has none of its own.
        spec: The permutation spec.
        solver: Matches the units of a group.
        schedule: Which groups, and how; all of the spec in its own order by default.
        done: Called with each group's name once it is aligned.

    Source: FedFiOT alg. 1, FedMA alg. 1.
    """
    schedule = Schedule(spec.groups()) if schedule is None else schedule
    working = [dict(tensors) for tensors in values]
    weights = None if precisions is None else [dict(tensors) for tensors in precisions]
    matchings: dict[str, Matching] = {}
    for group in schedule.groups:
        places = schedule.places(spec, group, schedule.aligned | matchings.keys())
        units = [
            _units(tensors, None if weights is None else weights[client], places)
            for client, tensors in enumerate(working)
        ]
        matching = matchings[group] = solver(places, units)
        for client, order in enumerate(matching.orders):
            for tensors in (working[client],) if weights is None else (working[client], weights[client]):
                move_group(tensors, spec, group, order, matching.width)
        if done is not None:
            done(group)
    return Alignment(tuple(working), None if weights is None else tuple(weights), matchings)


def _units(tensors: Tensors, precisions: Tensors | None, places: Sequence[Place]) -> Units:
    shapes = {place.tensor: tensors[place.tensor].shape for place in places}
    return Units(unit_matrix(tensors, places), None if precisions is None else unit_matrix(precisions, places), shapes)


def move_group(tensors: dict[str, Any], spec: PermutationSpec, group: str, order: Order, width: int) -> None:
    """Put one model's tensors into the global order of a group, on every axis that the group is on.

    Args:
        tensors: The model's tensors, or its precisions; changed in place.
        spec: The permutation spec.
        group: The group.
        order: (n_k,) the global unit that each local unit became.
        width: The group's global width.
    """
    for name in {place.tensor: None for place in spec.places(group)}:
        if name in tensors:
            tensors[name] = realign_tensor(tensors[name], spec.axes[name], {group: order}, {group: width})
