"""Profiled transport: each client in turn is matched to what the others agree on, priced by the best average."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from modelfuse.core.assignment import solve
from modelfuse.core.average import objective
from modelfuse.core.engine import Matching, Units
from modelfuse.core.units import invert
from modelfuse.spec.axes import Place
from modelfuse.types import FloatArray, IndexArray

__all__ = ["ProfiledTransport", "cheapest", "is_cheaper", "profiled_cost"]

COLUMNS = 2048  # coordinates a block: short enough that no library call starts threads of its own
ENTRIES = 1 << 18  # entries a block: in smaller ones threads mostly wait for the interpreter's lock
SHARE = 1 << 20  # entries that are worth a thread
MARGIN = 1e-12  # relative fall of a cost that float64 sums can tell from rounding


def profiled_cost(
    rest_precision: FloatArray, rest_mean: FloatArray, precision: FloatArray, values: FloatArray
) -> FloatArray:
    """Return what each pairing leaves of the objective once the average is the best one.

    C[i, j] = Σ_c p_ic f_jc / (p_ic + f_jc) · (μ_ic − w_jc)² = Σ_c (μ_ic − w_jc)² / (1/p_ic + 1/f_jc)

    Blocks are in float32, scaled so that nothing overflows: an entry is good to about six digits. What must be exact
    is asked of :func:`is_cheaper`. The result does not depend on the number of threads.

    Args:
        rest_precision: (m, d) summed precision p of the other clients, at least 0; infinite where μ is held fixed.
        rest_mean: (m, d) their precision-weighted mean μ.
        precision: (n, d) precision f of the client, finite and at least 0.
        values: (n, d) its units w.

    Returns:
        (m, n).

    Source: FedFiOT eq. 4, with the average of eq. 7 put in.
    """
    top = float(precision.max(initial=0.0)) or 1.0
    span = float(max(np.abs(values).max(initial=0.0), np.abs(rest_mean).max(initial=0.0))) or 1.0
    with np.errstate(divide="ignore", over="ignore"):  # no precision: an infinite reciprocal, and no cost
        rest = (top / rest_precision).astype(np.float32), (rest_mean / span).astype(np.float32)
        client = (top / precision).astype(np.float32), (values / span).astype(np.float32)
    work = len(rest_mean) * values.size
    threads = max(1, min(os.cpu_count() or 1, work // SHARE))
    slices = np.array_split(np.arange(len(rest_mean)), threads)
    with ThreadPoolExecutor(threads) as pool:
        rows = list((map if threads == 1 else pool.map)(partial(_cost_rows, rest, client), slices))
    return np.concatenate(rows).astype(np.float64) * (top * span * span)


def _cost_rows(
    rest: tuple[NDArray[np.float32], NDArray[np.float32]],
    client: tuple[NDArray[np.float32], NDArray[np.float32]],
    rows: IndexArray,
) -> NDArray[np.float32]:
    """Return the rows' costs, block by block: a block of the client's entries serves all rows while it is in cache."""
    units, coordinates = client[0].shape
    cost = np.zeros((len(rows), units), dtype=np.float32)
    height = max(1, ENTRIES // max(1, min(coordinates, COLUMNS)))
    for left in range(0, coordinates, COLUMNS):
        columns = slice(left, left + COLUMNS)
        for top in range(0, units, height):
            block = slice(top, top + height)
            spread, values = (np.ascontiguousarray(part[block, columns]) for part in client)
            gap, share = np.empty_like(values), np.empty_like(values)
            for row, unit in enumerate(rows):
                np.subtract(values, rest[1][unit, columns], out=gap)
                np.add(spread, rest[0][unit, columns], out=share)
                np.divide(gap, share, out=share)
                cost[row, block] += np.vecdot(gap, share)
    return cost


def cheapest(cost: FloatArray) -> IndexArray:
    """Return (n,) the client's unit for each global unit at least cost, from (n, n) costs."""
    # the same problem, but the solver takes a third of the time when the rows are the client's
    return invert(solve(cost.T))


def is_cheaper(rest: Units, client: Units, found: IndexArray, known: IndexArray, extra: float = 0.0) -> bool:
    """Return whether one assignment leaves less of the objective than another, in float64.

    Args:
        rest: The other clients' mean and summed precision, (n, d).
        client: The client's units, (n, d).
        found: (n,) the client's unit for each global unit, as proposed.
        known: (n,) the same, as it is.
        extra: What else the proposal adds to the objective.
    """
    rows = np.flatnonzero(found != known)
    before = _assigned_cost(rest, client, rows, known[rows])
    after = _assigned_cost(rest, client, rows, found[rows]) + extra
    return after < before - MARGIN * abs(before)


def _assigned_cost(rest: Units, client: Units, rows: IndexArray, columns: IndexArray) -> float:
    with np.errstate(divide="ignore"):
        spread = 1 / rest.weights()[rows] + 1 / client.weights()[columns]
    return float(np.sum(np.square(rest.values[rows] - client.values[columns]) / spread))


@dataclass(frozen=True, slots=True)
class ProfiledTransport:
    """Lowers J(π) = min_w J(w, π): takes one client out, matches it to the average of the rest, and puts it back.

    Args:
        seed: The client that all others join one by one; or what returns fixed global units, (n, d), to which every
            client is matched before the sweeps start without them.
        sizes: One number a client: the largest join first, ties in the order of the clients.
        sweeps: Sweeps over the clients at most, at least 1.
    """

    seed: int | Callable[[Sequence[Place]], FloatArray]
    sizes: Sequence[float]
    sweeps: int = 8

    def __call__(self, places: Sequence[Place], units: Sequence[Units]) -> Matching:
        """Return the alignment of one group (see :class:`modelfuse.core.engine.Solver`).

        The trace has one entry for the clients' joining and one for each sweep, with the objective at the best average.
        """
        identity = np.arange(len(units[0].values), dtype=np.intp)
        visits = sorted(range(len(units)), key=lambda client: (-self.sizes[client], client))
        if isinstance(self.seed, int):
            reference = units[self.seed].values
            pool = _Pool.start(units, {self.seed: identity})
            joining = [client for client in visits if client != self.seed]
        else:
            reference = self.seed(places)
            fixed = Units(reference, np.full_like(reference, np.inf))
            pool = _Pool.start(units, {client: _matched(fixed, units[client]) for client in visits})
            joining = []
        steps = [pool.sweep(joining)]
        stop = "S"
        while stop == "S" and len(steps) <= self.sweeps:
            before = pool.members.copy()
            steps.append(pool.sweep(visits))
            if np.array_equal(before, pool.members):
                stop = "unchanged"
        trace = {
            "objective_at_reference": sum(objective(reference, [c.values], [c.weights()]) for c in units),
            "iterations": steps,
            "stop": stop,
            "permuted_fraction": [float(np.mean(found != identity)) for found in pool.members],
        }
        return Matching(tuple(invert(found) for found in pool.members), len(identity), trace)


@dataclass(slots=True)
class _Pool:
    """The clients that have joined, and each one's costs, of which only rows whose rest has changed are made again."""

    units: Sequence[Units]
    members: IndexArray  # (K, n): client k's unit that is global unit i; -1 before it has joined
    seen: IndexArray  # (K, K, n): the members that client k's costs were computed from
    cost: FloatArray  # (K, n, n)

    @classmethod
    def start(cls, units: Sequence[Units], joined: dict[int, IndexArray]) -> _Pool:
        clients, width = len(units), len(units[0].values)
        members = np.full((clients, width), -1, dtype=np.intp)
        for client, found in joined.items():
            members[client] = found
        seen = np.full((clients, clients, width), -2, dtype=np.intp)
        return cls(units, members, seen, np.empty((clients, width, width)))

    def sweep(self, clients: Sequence[int]) -> dict[str, float]:
        """Match the clients, one after another, and return what the trace says of it."""
        cost_seconds = lap_seconds = 0.0
        for client in clients:
            started = time.perf_counter()
            rest = self._rest(client)
            if rest is None:
                continue
            self._refresh(client, rest)
            priced = time.perf_counter()
            found, known = cheapest(self.cost[client]), self.members[client]
            if known[0] < 0 or is_cheaper(rest, self.units[client], found, known):
                self.members[client] = found
            cost_seconds += priced - started
            lap_seconds += time.perf_counter() - priced
        value = self._objective()
        return {
            "objective_after_alignment": value,  # the average follows at once
            "objective": value,
            "cost_seconds": cost_seconds,
            "lap_seconds": lap_seconds,
        }

    def _refresh(self, client: int, rest: Units) -> None:
        others = np.arange(len(self.units)) != client
        stale = (self.members[others] != self.seen[client][others]).any(axis=0)
        if stale.any():
            mine = self.units[client]
            self.cost[client][stale] = profiled_cost(
                rest.weights()[stale], rest.values[stale], mine.weights(), mine.values
            )
        self.seen[client] = self.members

    def _rest(self, client: int) -> Units | None:
        others = [k for k, found in enumerate(self.members) if k != client and found[0] >= 0]
        return self._average(others) if others else None

    def _average(self, clients: Sequence[int]) -> Units:
        total = np.zeros_like(self.units[0].values)
        weight = np.zeros_like(total)
        for client in clients:
            found, mine = self.members[client], self.units[client]
            precision = mine.weights()[found]
            total += precision * mine.values[found]
            weight += precision
        return Units(total / weight, weight)

    def _objective(self) -> float:
        merged = self._average(range(len(self.units))).values
        return sum(
            objective(merged, [client.values[found]], [client.weights()[found]])
            for client, found in zip(self.units, self.members, strict=True)
        )


def _matched(fixed: Units, client: Units) -> IndexArray:
    return cheapest(profiled_cost(fixed.weights(), fixed.values, client.weights(), client.values))
