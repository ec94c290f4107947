"""Merges of a part of the network: what is not merged is left out, or comes from a file that the user names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from modelfuse.errors import ContentError
from modelfuse.files.checkpoint import CHUNK, Checkpoint
from modelfuse.methods.contract import Merged, MergedTensor

__all__ = ["completed"]


def completed(merged: Merged, rest: Checkpoint) -> Merged:
    """Return a whole model: the merged tensors, and from a file all others.

    Args:
        merged: The merge of a part.
        rest: A whole model.

    Raises:
        ContentError: A merged tensor is not in the file, or has another shape there.
    """
    for name, tensor in merged.tensors.items():
        if name not in rest.layout:
            raise ContentError(rest.label, f"it has no tensor {name}, which is merged", "Name a whole model of theirs.")
        if rest.layout[name].shape != tensor.layout.shape:
            raise ContentError(
                rest.label,
                f"{name} is {list(rest.layout[name].shape)}, merged it is {list(tensor.layout.shape)}",
                "Name a whole model of theirs.",
            )
    kept = {
        name: MergedTensor(layout, _Stored(rest, name))
        for name, layout in rest.layout.items()
        if name not in merged.tensors
    }
    tensors = {**merged.tensors, **kept}
    return replace(merged, tensors={name: tensors[name] for name in sorted(tensors)})


@dataclass(frozen=True, slots=True)
class _Stored:
    file: Checkpoint
    name: str

    def __call__(self) -> Iterator[NDArray[Any]]:
        """Yield the tensor's entries in order."""
        for start in range(0, max(self.file.layout[self.name].size, 1), CHUNK):
            yield self.file.read_flat(self.name, start, start + CHUNK)
