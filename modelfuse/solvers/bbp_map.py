"""BBP-MAP: match units of many clients under a Beta-Bernoulli process, letting the global layer grow (FedMA, PFNM)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.errors import ContentError, OptionError
from modelfuse.solvers.bbp_layer import ClientUnits, GlobalLayer, GlobalPrior
from modelfuse.solvers.bbp_process import BetaBernoulli
from modelfuse.solvers.bbp_search import Search, Step
from modelfuse.types import FloatArray, IndexArray, Order

__all__ = ["BetaBernoulli", "Consensus", "Step", "bbp_map", "draw_sweep_orders"]


@dataclass(frozen=True, slots=True)
class Consensus:
    """The matched layer.

    Args:
        orders: For each client (n_k,), the global unit that each local unit became.
        counts: (width,) number of clients in each global unit.
        natural: (width, d) sum of value times precision over members and prior.
        precision: (width, d) sum of precision over members and prior.
        steps: Initial pass first, then the sweeps.
        objectives: After the initial pass and after each sweep.
    """

    orders: tuple[Order, ...]
    counts: IndexArray
    natural: FloatArray
    precision: FloatArray
    steps: tuple[Step, ...]
    objectives: tuple[float, ...]

    @property
    def width(self) -> int:
        """Number of global units."""
        return len(self.counts)

    @property
    def posterior_mean(self) -> FloatArray:
        """(width, d): shrunk towards the prior mean, by m / (m + 1) for m members at σ = σ0 = 1."""
        mean: FloatArray = self.natural / self.precision
        return mean


def draw_sweep_orders(sweeps: int, clients: int, generator: np.random.Generator) -> IndexArray:
    """Return the order in which each refinement sweep visits the clients, (sweeps, clients).

    Args:
        sweeps: Number of sweeps, at least 0.
        clients: Number of clients.
        generator: Source of the random permutations.

    Raises:
        OptionError: ``sweeps`` is negative.
    """
    if sweeps < 0:
        raise OptionError("--sweeps", f"{sweeps} is negative", "Give 0 or more.")
    return generator.permuted(np.tile(np.arange(clients, dtype=np.intp), (sweeps, 1)), axis=1)


def bbp_map(
    units: Sequence[NDArray[Any]],
    prior_mean: NDArray[Any],
    sweep_orders: NDArray[Any],
    process: BetaBernoulli | None = None,
    relative_precision: NDArray[Any] | None = None,
) -> Consensus:
    """Match the units of all clients, largest client first, then re-match one client at a time in every sweep.

    A step maximises, over one client's assignments, the gain of joining global units (closeness, and log(c / (J − c))
    for a unit that c of the J clients share) or of opening the k-th new one (2 log(γ0 / J) − 2 log k), exactly.
    Summed up, the objective of a matching is, with S and P the sums of natural parameters and precisions of a global
    unit, m its number of clients, and n_j the global units that client j has to itself::

        Σ_i [ Σ_c S_ic² / P_ic − μ_c² s0 + Σ_{c<m_i} log(c / (J − c)) + 2 log(γ0 / J) ] − 2 Σ_j log n_j!

    A step never lowers what its own client sees of this (``improvement`` is not negative, unless the cap on the width
    takes places back), but a client that comes or goes changes other clients' n_j, whose term only their own steps
    see: by that much the objective may fall, and sweeps may end in a cycle. No function of the matching alone rises at
    every step, as two clients of unequal widths can disagree on whether to share a unit.

    Args:
        units: For each client (n_k, d), one row a unit; widths may differ.
        prior_mean: (d,) mean of the global units; the authors take 0 for weights and 0.1 for the bias.
        sweep_orders: (sweeps, J) clients in the order in which each sweep visits them.
        process: The prior; the authors' by default.
        relative_precision: (J, d) local precisions in units of 1/σ², such as class shares, at least 0; 1 by default.

    Raises:
        ContentError: Arrays that are empty, not finite, negative precisions, or of shapes that do not go together.
        OptionError: The cap on the width leaves units of a client without a place.

    Source: FedMA §2.1, eq. 3; the gains are in the authors' code only (matching/pfnm.py lines 14-111 and 213-277).
    """
    process = BetaBernoulli() if process is None else process
    prior_mean, sweep_orders = np.asarray(prior_mean, dtype=np.float64), np.asarray(sweep_orders)
    _check_units(units, prior_mean)
    _check_sweeps(sweep_orders, len(units))
    precisions = _local_precisions(relative_precision, len(units), len(prior_mean)) / process.sigma
    prior = GlobalPrior(prior_mean / process.sigma0, 1.0 / process.sigma0)
    clients = [ClientUnits.prepare(values, row, prior) for values, row in zip(units, precisions, strict=True)]
    per_coordinate = precisions.shape[1] > 1
    search = Search(
        clients, GlobalLayer(prior, per_coordinate, capacity=max(map(len, clients)) + len(clients)), process
    )
    first, *others = sorted(range(len(clients)), key=lambda client: -len(clients[client]))
    search.seed(first)
    steps = [search.match(client, sweep=0) for client in others]
    objectives = [search.objective()]
    for sweep, visits in enumerate(sweep_orders.tolist(), start=1):
        steps += [search.match(client, sweep) for client in visits]
        objectives.append(search.objective())
    layer = GlobalLayer(prior, per_coordinate, capacity=max(order.max() for order in search.orders) + 1)
    for client, order in zip(clients, search.orders, strict=True):  # afresh: rounding of the way here is left behind
        layer.join(client, np.arange(len(order)), order)
    precision = np.broadcast_to(layer.precision, layer.natural.shape)
    return Consensus(tuple(search.orders), layer.counts, layer.natural, precision, tuple(steps), tuple(objectives))


def _check_units(units: Sequence[NDArray[Any]], prior_mean: FloatArray) -> None:
    if not units:
        raise ContentError("BBP-MAP", "there are no clients", "Give the units of at least one.")
    if prior_mean.ndim != 1 or not np.isfinite(prior_mean).all():
        raise ContentError("prior mean", "it is not a finite vector", "Give one finite number for each coordinate.")
    for client, values in enumerate(units):
        if values.ndim != 2 or not len(values) or values.shape[1] != len(prior_mean):
            raise ContentError(
                f"client {client}",
                f"its units have the shape {values.shape}",
                f"Give one row of {len(prior_mean)} coordinates for each unit, and at least one.",
            )
        if not np.isfinite(values).all():
            raise ContentError(f"client {client}", "its units hold NaN or infinity", "Leave the client out.")


def _check_sweeps(sweep_orders: NDArray[Any], clients: int) -> None:
    everyone = np.arange(clients)
    if sweep_orders.ndim != 2 or not np.array_equal(
        np.sort(sweep_orders, axis=1), np.tile(everyone, (len(sweep_orders), 1))
    ):
        raise ContentError(
            "sweep orders",
            "a sweep does not visit every client once",
            f"Give a permutation of {clients} clients for each sweep.",
        )


def _local_precisions(relative: NDArray[Any] | None, clients: int, coordinates: int) -> FloatArray:
    """Return local precisions in units of 1/σ², (J, d), or (J, 1) where no client's differ between coordinates."""
    if relative is None:
        return np.ones((clients, 1))
    if relative.shape != (clients, coordinates):
        raise ContentError(
            "relative precision",
            f"its shape is {relative.shape}",
            f"Give ({clients}, {coordinates}): one row a client.",
        )
    if not (np.isfinite(relative).all() and (relative >= 0).all()):
        raise ContentError(
            "relative precision", "it holds negative or infinite numbers or NaN", "Give numbers from 0 on."
        )
    first = relative[:, :1]
    return np.asarray(first if (relative == first).all() else relative, dtype=np.float64)
