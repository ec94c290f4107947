"""The global layer of BBP-MAP: sums that a client's units join and leave, and what they gain by joining."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.types import FloatArray, IndexArray

__all__ = ["ClientUnits", "GlobalLayer", "GlobalPrior"]

# Values become float64 a slab at a time: no step holds a copy of a client or of the layer.
_ROWS = 16
_COLUMNS = 512


@dataclass(frozen=True, slots=True)
class GlobalPrior:
    """The Gaussian that global units are drawn from.

    Args:
        natural: (d,) mean times precision.
        precision: 1 / σ0², above 0.
    """

    natural: FloatArray
    precision: float


@dataclass(frozen=True, slots=True)
class ClientUnits:
    """One client's units, and what of them no step changes.

    Args:
        values: (n, d) one row a unit, in any float dtype.
        precision: (1,) or (d,) local precision s, one number for all coordinates or one for each.
        squared_norms: (n,) of the natural parameters z = s · value.
        alone: (n,) gain of each unit as the only member of a global one, Σ_c (z_c + μ_c s0)² / (s0 + s_c) − μ_c² s0.
    """

    values: NDArray[Any]
    precision: FloatArray
    squared_norms: FloatArray
    alone: FloatArray

    @classmethod
    def prepare(cls, values: NDArray[Any], precision: FloatArray, prior: GlobalPrior) -> ClientUnits:
        """Return the client with its norms and gains against the prior."""
        client = cls(values, precision, np.zeros(len(values)), np.zeros(len(values)))
        for columns in _slabs(values.shape[1], _COLUMNS):
            natural, start = client.natural(columns=columns), prior.natural[columns]
            client.squared_norms[:] += np.square(natural).sum(axis=1)
            client.alone[:] += (np.square(natural + start) / (prior.precision + _part(precision, columns))).sum(axis=1)
            client.alone[:] -= np.square(start).sum() / prior.precision
        return client

    def __len__(self) -> int:
        return len(self.values)

    def natural(self, rows: IndexArray | slice = slice(None), columns: slice = slice(None)) -> FloatArray:
        """Return the natural parameters of some units, (rows, columns)."""
        part = self.values[rows, columns]
        natural: FloatArray = np.multiply(part, _part(self.precision, columns), dtype=np.float64)
        return natural


class GlobalLayer:
    """The sums of natural parameters S and of precisions P over each global unit's members and prior.

    Args:
        prior: What a global unit starts from.
        per_coordinate: Whether precision is kept for each coordinate, or as one number a unit.
        capacity: Global units to make room for at first; the room grows with the layer.
    """

    def __init__(self, prior: GlobalPrior, per_coordinate: bool, capacity: int = 0) -> None:
        coordinates = len(prior.natural)
        self.width = 0
        self._prior = prior
        self._per_coordinate = per_coordinate
        self._natural = np.empty((capacity, coordinates))
        self._precision = np.empty((capacity, coordinates if per_coordinate else 1))
        self._counts = np.empty(capacity, dtype=np.intp)

    @property
    def natural(self) -> FloatArray:
        """S, (width, d)."""
        return self._natural[: self.width]

    @property
    def precision(self) -> FloatArray:
        """P, (width, d), or (width, 1) where it is one number a unit."""
        return self._precision[: self.width]

    @property
    def counts(self) -> IndexArray:
        """(width,) number of members of each global unit."""
        return self._counts[: self.width]

    def join(self, client: ClientUnits, rows: IndexArray, units: IndexArray) -> None:
        """Add local units to global ones; a number from the width on opens a global unit."""
        self._widen(int(units.max(initial=-1)) + 1)
        for part in _slabs(len(rows), _ROWS):
            self._natural[units[part]] += client.natural(rows[part])
            self._precision[units[part]] += client.precision
        self._counts[units] += 1

    def leave(self, client: ClientUnits, rows: IndexArray, units: IndexArray) -> IndexArray:
        """Take local units out of their global ones and delete those that are left empty.

        Returns:
            (width before,): the new number of each global unit; of no meaning for a deleted one.
        """
        shared = self._counts[units] > 1
        rows, kept = rows[shared], units[shared]
        for part in _slabs(len(rows), _ROWS):
            self._natural[kept[part]] -= client.natural(rows[part])
            self._precision[kept[part]] -= client.precision
        self._counts[kept] -= 1
        return self._delete(units[~shared])

    def gains(self, client: ClientUnits) -> FloatArray:
        """Return what each of the client's units gains by joining each global unit, (n, width).

        Σ_c (z_lc + S_ic)² / (s_c + P_ic) − S_ic² / P_ic, in matrix products.
        """
        return self._gains_by_coordinate(client) if self._per_coordinate else self._gains_by_unit(client)

    def _gains_by_unit(self, client: ClientUnits) -> FloatArray:
        gains = np.zeros((len(client), self.width))
        squared_norms = np.zeros(self.width)
        for columns in _slabs(self._natural.shape[1], _COLUMNS):
            natural = self.natural[:, columns]
            gains += client.natural(columns=columns) @ natural.T
            squared_norms += np.einsum("ic,ic->i", natural, natural)
        precision = self.precision[:, 0]
        together = client.precision + precision
        gains *= 2.0
        gains += client.squared_norms[:, None]
        gains /= together
        gains += squared_norms * (1.0 / together - 1.0 / precision)
        return gains

    def _gains_by_coordinate(self, client: ClientUnits) -> FloatArray:
        gains = np.zeros((len(client), self.width))
        for columns in _slabs(self._natural.shape[1], _COLUMNS // 4):  # several arrays of a slab's size at a time
            local = client.natural(columns=columns)
            natural, precision = self.natural[:, columns], self.precision[:, columns]
            together = _part(client.precision, columns) + precision
            mean = natural / together
            gains += np.hstack((np.square(local), 2.0 * local)) @ np.hstack((1.0 / together, mean)).T
            gains += np.einsum("ic,ic->i", natural, mean - natural / precision)
        return gains

    def _widen(self, width: int) -> None:
        if width > len(self._counts):
            room = width + width // 4
            self._natural = _resized(self._natural, self.width, room)
            self._precision = _resized(self._precision, self.width, room)
            self._counts = _resized(self._counts, self.width, room)
        if width > self.width:
            opened = slice(self.width, width)
            self._natural[opened] = self._prior.natural
            self._precision[opened] = self._prior.precision
            self._counts[opened] = 0
            self.width = width

    def _delete(self, units: IndexArray) -> IndexArray:
        keep = np.ones(self.width, dtype=np.bool_)
        keep[units] = False
        first = int(units.min(initial=self.width))
        above = first + np.flatnonzero(keep[first:])  # the only rows that move
        for part in _slabs(len(above), _ROWS):
            for stored in (self._natural, self._precision, self._counts):
                stored[first + part.start : first + part.stop] = stored[above[part]]
        self.width = first + len(above)
        return np.cumsum(keep) - 1


def _slabs(length: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def _part(precision: FloatArray, columns: slice) -> FloatArray:
    return precision if len(precision) == 1 else precision[columns]


def _resized(stored: NDArray[Any], used: int, room: int) -> NDArray[Any]:
    larger = np.empty((room, *stored.shape[1:]), dtype=stored.dtype)
    larger[:used] = stored[:used]
    return larger
