"""BBP-MAP as a straight transcription of the published per-unit loop: the yardstick of tests and benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Array = NDArray[Any]


def per_unit_loop(
    units: Sequence[Array],
    prior_mean: Array,
    sweep_orders: Array,
    local_precision: Array,
    *,
    gamma: float = 7.0,
    sigma0: float = 1.0,
    max_width: int = 700,
    dtype: type = np.float64,
) -> tuple[list[Array], Array]:
    """Return each client's assignment and the posterior mean; costs are computed in ``dtype``, sums in float64."""
    clients, dimensions = len(units), len(prior_mean)
    prior_precision = np.full(dimensions, 1.0 / sigma0)
    prior = prior_mean * prior_precision
    naturals = [np.asarray(rows, dtype=np.float64) * s for rows, s in zip(units, local_precision, strict=True)]
    by_size = sorted(range(clients), key=lambda j: -len(units[j]))
    first = by_size[0]
    sums = prior + naturals[first]
    precisions = np.tile(prior_precision + local_precision[first], (len(sums), 1))
    counts = [1] * len(sums)
    assignment: list[Any] = [None] * clients
    assignment[first] = list(range(len(sums)))

    def match(j: int) -> None:
        nonlocal sums, precisions
        gains = _gains(
            naturals[j],
            sums,
            precisions,
            counts,
            local_precision[j],
            prior,
            prior_precision,
            gamma,
            clients,
            max_width,
            dtype,
        )
        width = len(sums)
        assignment[j] = []
        for row, column in zip(*linear_sum_assignment(-gains), strict=True):
            if column < width:
                sums[column] += naturals[j][row]
                precisions[column] += local_precision[j]
                counts[column] += 1
                assignment[j].append(int(column))
            else:
                sums = np.vstack([sums, prior + naturals[j][row]])
                precisions = np.vstack([precisions, prior_precision + local_precision[j]])
                counts.append(1)
                assignment[j].append(len(sums) - 1)

    def remove(j: int) -> None:
        nonlocal sums, precisions
        for i in sorted(assignment[j], reverse=True):
            counts[i] -= 1
            if counts[i] == 0:
                sums, precisions = np.delete(sums, i, axis=0), np.delete(precisions, i, axis=0)
                del counts[i]
                for k in range(clients):
                    if k != j:
                        assignment[k] = [unit - (unit > i) for unit in assignment[k]]
            else:
                sums[i] -= naturals[j][assignment[j].index(i)]
                precisions[i] -= local_precision[j]

    for j in by_size[1:]:
        match(j)
    for visits in sweep_orders:
        for j in visits:
            remove(j)
            match(j)
    return [np.array(order) for order in assignment], sums / precisions


def _gains(
    natural: Array,
    sums: Array,
    precisions: Array,
    counts: Sequence[int],
    local: Array,
    prior: Array,
    prior_precision: Array,
    gamma: float,
    clients: int,
    max_width: int,
    dtype: type,
) -> Array:
    natural, sums, precisions, local, prior, prior_precision = (
        array.astype(dtype) for array in (natural, sums, precisions, local, prior, prior_precision)
    )
    popularity = np.minimum(counts, 10)
    together, before = local + precisions, (sums**2 / precisions).sum(axis=1)
    joining = [((unit + sums) ** 2 / together).sum(axis=1) - before for unit in natural]
    opening = [((unit + prior) ** 2 / (local + prior_precision)).sum() for unit in natural] - (
        prior**2 / prior_precision
    ).sum()
    offered = min(len(natural), max(max_width - len(sums), 1))
    crowding = 2 * np.log(np.arange(1, offered + 1))
    return np.hstack(
        [
            np.array(joining) + np.log(popularity / (clients - popularity)),
            np.array(opening)[:, None] - crowding + 2 * np.log(gamma / clients),
        ]
    )
