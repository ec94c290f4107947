"""The steps of BBP-MAP: take one client out of the global layer, match it to what remains, put it back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from modelfuse.core.assignment import solve
from modelfuse.errors import OptionError
from modelfuse.solvers.bbp_layer import ClientUnits, GlobalLayer
from modelfuse.solvers.bbp_process import BetaBernoulli
from modelfuse.types import BoolArray, FloatArray, IndexArray, Order

__all__ = ["Search", "Step"]

# Costs are solved as integers with this many binary digits. What differs by the rounding of a sum only (equal units,
# another number of threads) then ties exactly, and the LAP solver's own sums are exact.
_COST_BITS = 36


@dataclass(frozen=True, slots=True)
class Step:
    """One client matched to the global units of the others.

    Args:
        sweep: 0 in the initial pass, then the number of the sweep.
        client: Whose units.
        order: (n_k,) the global unit of each local one, as numbered right after the step.
        width_before: Global units without this client's own.
        offered: New global units that the step could open.
        width: Global units after the step.
        improvement: By how much the step's gain exceeds that of the order the client had; in the initial pass the gain.
        objective: Of the whole matching after the step (see :func:`modelfuse.solvers.bbp_map.bbp_map`).
        solved: False where no unit had moved since the client's last step, so that the answer was known.
        cost_seconds: Time spent on gains, sums included.
        lap_seconds: Time spent on the assignment problem.
    """

    sweep: int
    client: int
    order: Order
    width_before: int
    offered: int
    width: int
    improvement: float
    objective: float
    solved: bool
    cost_seconds: float
    lap_seconds: float


class Search:
    """A matching under way: the global layer, and who is where in it.

    Args:
        clients: All J of them.
        layer: Empty.
        process: The prior over matchings.
    """

    def __init__(self, clients: Sequence[ClientUnits], layer: GlobalLayer, process: BetaBernoulli) -> None:
        self.orders: list[Order] = [np.empty(0, dtype=np.intp) for _ in clients]
        self._clients = clients
        self._layer = layer
        self._process = process
        self._popularity = process.popularity(len(clients))
        self._opening = process.opening(len(clients))
        self._potential = 0.0  # the objective before crowding
        self._moves = 0  # steps so far that changed the matching
        self._settled = [-1 for _ in clients]  # how many there were when each client was matched last

    def seed(self, client: int) -> None:
        """Let the first client open a global unit for each of its own, whatever the cap."""
        units = self._clients[client]
        self.orders[client] = np.arange(len(units), dtype=np.intp)
        self._layer.join(units, self.orders[client], self.orders[client])
        self._potential = float((units.alone + self._opening).sum())
        if len(self._clients) == 1:
            self._settled[client] = self._moves  # alone, it has nobody to be matched to

    def match(self, client: int, sweep: int) -> Step:
        """Match one client, which may have joined the layer already or not.

        Raises:
            OptionError: The cap on the width leaves it fewer places than it has units.
        """
        started = time.perf_counter()
        units = self._clients[client]
        known = self._settled[client] == self._moves
        stay = self._take_out(client, only_own=known)
        width = self._layer.width
        offered = self._process.offered(len(units), width)
        order, improvement = stay, 0.0
        costed = solved = time.perf_counter()
        if not known:
            self._check_room(client, width + offered)
            gains = self._gains(units)
            costs = _costs(gains, self._process.crowding(offered))
            costed = time.perf_counter()
            order = _numbered(solve(costs), width)
            solved = time.perf_counter()
            improvement = self._credit(gains, order, stay)
            self._moves += not np.array_equal(order, stay)
        self._settled[client] = self._moves
        self._put_in(client, order, order >= width if known else np.ones(len(units), dtype=np.bool_))
        ended = time.perf_counter()
        return Step(
            sweep=sweep,
            client=client,
            order=order,
            width_before=width,
            offered=offered,
            width=self._layer.width,
            improvement=improvement,
            objective=self.objective(),
            solved=not known,
            cost_seconds=(costed - started) + (ended - solved),
            lap_seconds=solved - costed,
        )

    def objective(self) -> float:
        """Return the objective of the matching as it stands."""
        own = [int(np.count_nonzero(self._layer.counts[order] == 1)) for order in self.orders]
        return self._potential - float(sum(self._process.crowding(count).sum() for count in own))

    def _take_out(self, client: int, only_own: bool) -> Order:
        """Take the client's units out of the layer, or only those that it has global units to itself for.

        Returns:
            The order that would put everything back where it was.
        """
        order = self.orders[client]
        own = self._layer.counts[order] == 1
        rows = np.flatnonzero(own) if only_own else np.arange(len(order))
        renumbered = self._layer.leave(self._clients[client], rows, order[rows])
        self.orders = [renumbered[order] for order in self.orders]
        return _numbered(np.where(own, self._layer.width, renumbered[order]), self._layer.width)

    def _put_in(self, client: int, order: Order, joining: BoolArray) -> None:
        rows = np.flatnonzero(joining)
        self._layer.join(self._clients[client], rows, order[rows])
        self.orders[client] = order

    def _gains(self, units: ClientUnits) -> FloatArray:
        """Return the gains of joining each global unit and, in the last column, of opening one, (n, width + 1)."""
        gains = np.empty((len(units), self._layer.width + 1))
        np.add(self._layer.gains(units), self._popularity[self._layer.counts], out=gains[:, :-1])
        np.add(units.alone, self._opening, out=gains[:, -1])
        return gains

    def _credit(self, gains: FloatArray, order: Order, stay: Order) -> float:
        """Add to the objective what a step changes; return its improvement."""
        (new, opened), (old, kept) = (_value(gains, chosen) for chosen in (order, stay))
        self._potential += new - old
        return new - old - float(self._process.crowding(opened).sum() - self._process.crowding(kept).sum())

    def _check_room(self, client: int, places: int) -> None:
        units = len(self._clients[client])
        if units > places:
            raise OptionError(
                f"--max-width {self._process.max_width}",
                f"client {client} has {units} units, of which only {places} have a place",
                "Raise the cap to the widest client's units or more, or lift it.",
            )


def _value(gains: FloatArray, order: Order) -> tuple[float, int]:
    """Return the summed gain of an order, crowding aside, and how many units it opens."""
    columns = np.minimum(order, gains.shape[1] - 1)
    return float(gains[np.arange(len(order)), columns].sum()), int(np.count_nonzero(order >= gains.shape[1] - 1))


def _costs(gains: FloatArray, crowding: FloatArray) -> FloatArray:
    """Return the costs of every existing and every offered global unit as integers, (n, width + offered)."""
    width = gains.shape[1] - 1
    costs = np.empty((len(gains), width + len(crowding)))
    np.negative(gains[:, :width], out=costs[:, :width])
    np.subtract(crowding, gains[:, width:], out=costs[:, width:])
    _, exponent = np.frexp(max(costs.max(), -costs.min()))
    costs *= np.ldexp(1.0, _COST_BITS - int(exponent))
    return np.rint(costs, out=costs)


def _numbered(columns: IndexArray, width: int) -> Order:
    """Return the columns with those of new units replaced by the next free numbers, in row order."""
    opened = columns >= width
    return np.where(opened, width + np.cumsum(opened) - 1, columns)
