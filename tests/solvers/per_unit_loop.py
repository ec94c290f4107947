"""BBP-MAP as a straight transcription of the published per-unit loop: the yardstick of tests and benchmark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Array = NDArray[Any]

POPULARITY_CAP = 10
MAX_WIDTH = 700


class PerUnitLoop:
    """The published procedure, one unit at a time; costs are computed in ``dtype``, sums in float64."""

    def __init__(
        self,
        units: Sequence[Array],
        prior_mean: Array,
        local_precision: Array,
        gamma: float = 7.0,
        sigma0: float = 1.0,
        dtype: type[np.floating[Any]] = np.float64,
    ) -> None:
        self.local = local_precision
        self.naturals = [values * precision for values, precision in zip(units, local_precision, strict=True)]
        self.gamma = gamma
        self.dtype = dtype
        self.prior_precision = np.full(len(prior_mean), 1.0 / sigma0)
        self.prior = prior_mean * self.prior_precision
        self.assignment: list[list[int]] = [[] for _ in units]
        self.sums = self.precisions = np.empty((0, len(prior_mean)))
        self.counts: list[int] = []

    def run(self, sweep_orders: Iterable[Iterable[int]]) -> tuple[list[list[int]], Array]:
        """Return each client's assignment and the posterior mean."""
        first, *others = sorted(range(len(self.naturals)), key=lambda j: -len(self.naturals[j]))
        for row in range(len(self.naturals[first])):
            self._open(first, row)
        for j in others:
            self._match(j)
        for visits in sweep_orders:
            for j in visits:
                self._remove(j)
                self._match(j)
        return self.assignment, self.sums / self.precisions

    def _open(self, j: int, row: int) -> None:
        self.sums = np.vstack([self.sums, self.prior + self.naturals[j][row]])
        self.precisions = np.vstack([self.precisions, self.prior_precision + self.local[j]])
        self.counts.append(1)
        self.assignment[j].append(len(self.sums) - 1)

    def _match(self, j: int) -> None:
        width = len(self.sums)
        for row, column in zip(*linear_sum_assignment(-self._gains(j)), strict=True):
            if column >= width:
                self._open(j, row)
                continue
            self.sums[column] += self.naturals[j][row]
            self.precisions[column] += self.local[j]
            self.counts[column] += 1
            self.assignment[j].append(int(column))

    def _remove(self, j: int) -> None:
        removed, self.assignment[j] = self.assignment[j], []
        for unit in sorted(removed, reverse=True):
            self.counts[unit] -= 1
            self.sums[unit] -= self.naturals[j][removed.index(unit)]
            self.precisions[unit] -= self.local[j]
            if self.counts[unit] == 0:
                self.sums = np.delete(self.sums, unit, axis=0)
                self.precisions = np.delete(self.precisions, unit, axis=0)
                del self.counts[unit]
                self.assignment = [[other - (other > unit) for other in order] for order in self.assignment]

    def _gains(self, j: int) -> Array:
        natural, local, sums, precisions, prior, prior_precision = (
            array.astype(self.dtype)
            for array in (self.naturals[j], self.local[j], self.sums, self.precisions, self.prior, self.prior_precision)
        )
        clients, together = len(self.naturals), local + precisions
        before = (sums**2 / precisions).sum(axis=1)
        popularity = np.minimum(self.counts, POPULARITY_CAP)
        joining = [
            ((unit + sums) ** 2 / together).sum(axis=1) - before + np.log(popularity / (clients - popularity))
            for unit in natural
        ]
        crowding = 2 * np.log(np.arange(1, min(len(natural), max(MAX_WIDTH - len(sums), 1)) + 1))
        opening = [
            ((unit + prior) ** 2 / (local + prior_precision)).sum()
            - (prior**2 / prior_precision).sum()
            - crowding
            + 2 * np.log(self.gamma / clients)
            for unit in natural
        ]
        return np.hstack([np.reshape(joining, (len(natural), len(sums))), opening])
