"""Merges without alignment: streamed slice by slice, so that memory does not grow with the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.core.average import weighted_mean
from modelfuse.files.layout import TensorLayout, is_float, numpy_dtype
from modelfuse.methods.contract import Merged, MergedTensor, promote
from modelfuse.methods.uploads import Upload, Uploads, is_running_statistic
from modelfuse.types import FloatArray

__all__ = ["Weigh", "elementwise"]

CHUNK = 1 << 18  # entries a slice: 2 MiB a client in float64

Weigh = Callable[[Upload, str, int, int], FloatArray]
"""Returns a client's weights for entries start to stop of a tensor."""


def elementwise(uploads: Uploads, shares: Sequence[float], weigh: Weigh | None = None, floor: float = 0.0) -> Merged:
    """Return the weighted mean of clients whose units already correspond.

    Integer buffers take the maximum; running statistics and entries without weight take the shares' mean.

    Args:
        uploads: The clients' files, all of one shape.
        shares: One plain weight a client.
        weigh: The weights entry by entry, or None for the shares alone.
        floor: The least sum of weights that is trusted, at least 0.
    """
    report: dict[str, Any] = {"entries_without_weight": 0}
    tensors: dict[str, MergedTensor] = {}
    for name in uploads.names():
        dtype = promote([client.model.layout[name] for client in uploads.clients])
        layout = TensorLayout(dtype, uploads.clients[0].model.layout[name].shape)
        if dtype != uploads.clients[0].model.layout[name].dtype:
            report.setdefault("promoted", {})[name] = dtype
        by_entry = None if is_running_statistic(name) else weigh
        tensors[name] = MergedTensor(layout, _Chunks(name, layout, uploads.clients, shares, by_entry, floor, report))
    return Merged(tensors, report)


class _Chunks:
    """Makes one tensor's entries, a slice at a time."""

    def __init__(
        self,
        name: str,
        layout: TensorLayout,
        clients: Sequence[Upload],
        shares: Sequence[float],
        weigh: Weigh | None,
        floor: float,
        report: dict[str, Any],
    ) -> None:
        self.name, self.layout, self.clients = name, layout, clients
        self.shares, self.weigh, self.floor, self.report = shares, weigh, floor, report

    def __call__(self) -> Iterator[NDArray[Any]]:
        """Yield the merged entries in order, in the layout's dtype."""
        size = int(np.prod(self.layout.shape, dtype=np.int64))
        for start in range(0, size, CHUNK):
            yield self._merge(start, min(start + CHUNK, size))

    def _merge(self, start: int, stop: int) -> NDArray[Any]:
        values = [client.slice(self.name, start, stop) for client in self.clients]
        if not is_float(self.layout.dtype):
            greatest: NDArray[Any] = np.maximum.reduce(values)
            return greatest.astype(numpy_dtype(self.layout.dtype))
        weights: Sequence[FloatArray | float] = self.shares
        if self.weigh is not None:
            weights = [self.weigh(client, self.name, start, stop) for client in self.clients]
        mean, replaced = weighted_mean(values, weights, self.shares, self.floor)
        self.report["entries_without_weight"] += replaced
        return mean.astype(numpy_dtype(self.layout.dtype))
