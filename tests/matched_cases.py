"""Stored runs of the authors' code, as clients' files that a method can merge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.writer import save
from modelfuse.methods.gather import Given, gather
from modelfuse.methods.uploads import Uploads
from modelfuse.spec.axes import PermutationSpec
from modelfuse.types import ClientInfo, Metadata

Array = NDArray[Any]


class Case:
    """One stored run."""

    def __init__(self, folder: Path, name: str) -> None:
        self.about = json.loads((folder / f"{name}.json").read_text())
        with np.load(folder / f"{name}.npz") as arrays:
            self.arrays = dict(arrays)

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def ragged(self, name: str) -> list[Array]:
        return np.split(self[f"{name}_flat"], self[f"{name}_offsets"][1:-1])

    def part(self, prefix: str) -> dict[str, Array]:
        """Return the arrays below a prefix."""
        return {name.removeprefix(prefix): array for name, array in self.arrays.items() if name.startswith(prefix)}


def torch_layout(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return a perceptron's weight_i, (in, out), and bias_i under torch's names and in its layout, (out, in)."""
    tensors = {}
    for name, array in arrays.items():
        kind, number = name.split("_")
        tensors[f"fc{int(number) + 1}.{kind}"] = np.ascontiguousarray(array.T)
    return tensors


def uploads_of(
    folder: Path, clients: list[dict[str, Array]], spec: PermutationSpec, class_counts: Array | None = None
) -> Uploads:
    """Write clients' files and gather them."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, tensors in enumerate(clients):
        counts = None if class_counts is None else tuple(map(int, class_counts[number]))
        path = folder / f"client_{number}.safetensors"
        save(path, tensors, Metadata("model", spec=spec.to_json(), client=ClientInfo(number, class_counts=counts)))
        files.append(open_checkpoint(path))
    return gather(Given(files), companion=None, equal_widths=False)


def merged_tensors(merged: Any) -> dict[str, Array]:
    """Return a merge's tensors as arrays."""
    return {
        name: np.concatenate(list(tensor.chunks()), axis=None).reshape(tensor.layout.shape)
        for name, tensor in merged.tensors.items()
    }
