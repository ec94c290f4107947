"""The identity of a model: one digest of its float weights, whatever file they are in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.files.layout import TensorLayout, is_float, layout_of
from modelfuse.files.metadata import json_text
from modelfuse.types import Tensors

__all__ = ["IdentityDigest", "bytes_of", "model_id"]


class IdentityDigest:
    """Takes a model's tensors in pieces and returns its ``model_id``.

    The identity is a SHA-256 over name, dtype, shape and a digest of the bytes of every float tensor, in name order.
    Integer buffers do not count, unless there is nothing else (the indices of a partition).

    Args:
        layout: All tensors, as they are before quantisation.
    """

    def __init__(self, layout: Mapping[str, TensorLayout]) -> None:
        floats = {name for name, tensor in layout.items() if is_float(tensor.dtype)}
        self._layout = {name: layout[name] for name in sorted(floats or layout)}
        self._digests = {name: hashlib.sha256() for name in self._layout}

    @property
    def names(self) -> Iterable[str]:
        """The tensors that count."""
        return self._layout.keys()

    def update(self, name: str, chunk: NDArray[Any]) -> None:
        """Add the next entries of a tensor, in order; a tensor that does not count is passed over."""
        if name in self._digests:
            self._digests[name].update(bytes_of(chunk).data)

    def hexdigest(self) -> str:
        """Return the ``model_id``: 64 hexadecimal digits."""
        rows = [
            [name, tensor.dtype, tensor.shape, self._digests[name].hexdigest()] for name, tensor in self._layout.items()
        ]
        return hashlib.sha256(json_text(rows).encode()).hexdigest()


def bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an array's entries as the bytes that a file holds, without a copy where they already are such."""
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(little).reshape(-1).view(np.uint8)


def model_id(tensors: Tensors) -> str:
    """Return the identity of a model that is in memory; see :class:`IdentityDigest`.

    Args:
        tensors: Its tensors by name, before quantisation.
    """
    digest = IdentityDigest({name: layout_of(array) for name, array in tensors.items()})
    for name in digest.names:
        digest.update(name, tensors[name])
    return digest.hexdigest()
