"""Lazy reading of checkpoints: one safetensors file, or a Hugging Face index and its shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.errors import ContentError, FileError, ModelfuseError
from modelfuse.files.header import Entry, Header, read_header
from modelfuse.files.identity import IdentityDigest
from modelfuse.files.layout import TensorLayout, code_of, numpy_dtype
from modelfuse.files.metadata import metadata_from_json
from modelfuse.files.quantize import code_dtype, dequantize
from modelfuse.types import Metadata

__all__ = ["INDEX_SUFFIX", "METADATA_KEY", "Checkpoint", "open_checkpoint"]

INDEX_SUFFIX = ".safetensors.index.json"
METADATA_KEY = "modelfuse"

CHUNK = 1 << 20
"""Entries read at a time where a whole pass over a file is needed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor and the file that holds it."""

    file: Path
    entry: Entry


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An open checkpoint: it knows every tensor's layout and reads values only when asked.

    Args:
        path: The file, or the index of a sharded checkpoint.
        label: The file as the user named it, for messages.
        metadata: What the file says of itself, or None where another program wrote it.
        layout: Every tensor as readers see it, after dequantisation, in the order of the data.
    """

    path: Path
    label: str
    metadata: Metadata | None
    layout: Mapping[str, TensorLayout]
    _stored: Mapping[str, Stored] = field(repr=False)

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that make up the checkpoint."""
        return tuple(dict.fromkeys([self.path, *(stored.file for stored in self._stored.values())]))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor."""
        return {name: tensor.shape for name, tensor in self.layout.items()}

    def read(self, name: str) -> NDArray[Any]:
        """Return a tensor in the file's dtype; one that is quantised as float32.

        Raises:
            ContentError: There is no such tensor.
            FileError: The file changed since it was opened.
        """
        tensor = self._tensor(name)
        return self.read_flat(name, 0, tensor.size).reshape(tensor.shape)  # (size,) -> shape

    def read_flat(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return entries ``start`` to ``stop`` of a flattened tensor, reading their bytes alone.

        Args:
            name: The tensor.
            start: The first entry, from 0.
            stop: The entry behind the last; past the end it stands for the end.

        Raises:
            ContentError: There is no such tensor.
            FileError: The file changed since it was opened.
        """
        stop = min(stop, self._tensor(name).size)
        stored = self._stored[name]
        dtype = numpy_dtype(stored.entry.layout.dtype)
        count = max(stop - start, 0)
        raw = np.empty(count * dtype.itemsize, np.uint8)
        try:
            with stored.file.open("rb", buffering=0) as file:
                file.seek(stored.entry.offset + start * dtype.itemsize)
                _fill(file, raw)
        except OSError as error:
            raise FileError(
                self.label, f"tensor {name} cannot be read ({error.strerror or error})", "Leave the file in place."
            ) from error
        values = raw.view(dtype)
        scales, bits = (self.metadata.scales, self.metadata.bits) if self.metadata else ({}, None)
        return values if bits is None or name not in scales else dequantize(values, scales[name], bits)

    def read_all(self) -> dict[str, NDArray[Any]]:
        """Return all tensors, as :meth:`read` returns each."""
        return {name: self.read(name) for name in self.layout}

    def model_id(self) -> str:
        """Return the ``model_id`` that the metadata holds, or compute it in one pass over the file."""
        if self.metadata is not None and self.metadata.model_id is not None:
            return self.metadata.model_id
        digest = IdentityDigest(self.layout)
        for name in digest.names:
            for start in range(0, self.layout[name].size, CHUNK):
                digest.update(name, self.read_flat(name, start, start + CHUNK))
        return digest.hexdigest()

    def _tensor(self, name: str) -> TensorLayout:
        try:
            return self.layout[name]
        except KeyError:
            raise ContentError(
                self.label, f"tensor {name} is missing", "See what the file holds with modelfuse inspect."
            ) from None


def _fill(file: Any, raw: NDArray[np.uint8]) -> None:
    """Read until the buffer is full: one call of the system reads at most 2 GiB."""
    filled = 0
    while filled < raw.size:
        count = file.readinto(raw.data[filled:])
        if not count:
            raise OSError("the file is shorter than when it was opened")
        filled += count


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a checkpoint without reading its values.

    Args:
        path: A safetensors file, a ``*.safetensors.index.json``, or a folder that holds one of these.

    Raises:
        FileError: It is missing, truncated, hostile, not safetensors, or its shards do not belong together.
    """
    label = str(path)
    if path.is_dir():
        path = _only_checkpoint_in(path, label)
    if path.name.endswith(".json"):
        stored, texts = _open_shards(path, label)
    else:
        header = read_header(path, label)
        stored, texts = {name: Stored(path, entry) for name, entry in header.entries.items()}, header.texts
    metadata = _metadata(texts, label)
    layout = {name: _logical(name, entry.entry.layout, metadata, label) for name, entry in stored.items()}
    return Checkpoint(path, label, metadata, layout, stored)


def _only_checkpoint_in(folder: Path, label: str) -> Path:
    """Return the one checkpoint in a folder: an index counts before the shards it lists."""
    for pattern in (f"*{INDEX_SUFFIX}", "*.safetensors"):
        found = sorted(folder.glob(pattern))
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(path.name for path in found[:5])
            raise FileError(label, f"the folder holds {len(found)} checkpoints ({names})", "Name the file itself.")
    raise FileError(label, "the folder holds no safetensors file", "Only safetensors are read: check the path.")


def _open_shards(index: Path, label: str) -> tuple[dict[str, Stored], Mapping[str, str]]:
    """Return where an index places every tensor, in the order of the shards, and the texts that all shards share."""
    weight_map = _weight_map(index, label)
    headers: dict[str, Header] = {}
    for shard in sorted(set(weight_map.values())):
        headers[shard] = read_header(index.parent / shard, f"{label} ({shard})")
    for name, shard in weight_map.items():
        if name not in headers[shard].entries:
            raise FileError(label, f"tensor {name} is not in {shard}", "Copy or download index and shards together.")
    spoken = [header.texts.get(METADATA_KEY) for header in headers.values()]
    if any(text != spoken[0] for text in spoken):
        raise FileError(
            label, "its shards come from different checkpoints", "Copy or download index and shards together."
        )
    stored = {
        name: Stored(index.parent / shard, entry)
        for shard, header in headers.items()
        for name, entry in header.entries.items()
        if weight_map.get(name) == shard
    }
    return stored, next(iter(headers.values())).texts if headers else {}


def _weight_map(index: Path, label: str) -> dict[str, str]:
    try:
        weight_map = json.loads(index.read_bytes())["weight_map"]
        shards = [PurePosixPath(shard) for shard in weight_map.values()]
    except FileNotFoundError as error:
        raise FileError(label, "there is no such file", "Check the path.") from error
    except OSError as error:
        raise FileError(label, f"cannot be read ({error.strerror})", "Check the path and its permissions.") from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileError(
            label,
            "not the index of a sharded checkpoint",
            'It is {"weight_map": {tensor: shard file, …}}: copy or download it again.',
        ) from error
    for shard in shards:
        if shard.is_absolute() or ".." in shard.parts:
            raise FileError(label, f"its shard {shard} lies outside its folder", "Place all shards beside the index.")
    return {str(name): str(shard) for name, shard in weight_map.items()}


def _metadata(texts: Mapping[str, str], label: str) -> Metadata | None:
    if METADATA_KEY not in texts:
        return None
    try:
        data = json.loads(texts[METADATA_KEY])
    except (ValueError, RecursionError) as error:
        raise FileError(label, f"its modelfuse metadata is damaged: {error}", "Write the file again.") from error
    return metadata_from_json(data, label)


def _logical(name: str, stored: TensorLayout, metadata: Metadata | None, label: str) -> TensorLayout:
    """Return the layout that readers see of a tensor: float32 where it is quantised."""
    if metadata is None or metadata.bits is None or name not in metadata.scales:
        return stored
    try:
        expected = code_of(code_dtype(metadata.bits))
    except ModelfuseError as error:
        raise FileError(label, f"it is quantised to {metadata.bits} bits", "Only 16 and 8 are read.") from error
    if stored.dtype != expected:
        raise FileError(label, f"quantised tensor {name} is {stored.dtype}, not {expected}", "Write the file again.")
    return TensorLayout("F32", stored.shape)
