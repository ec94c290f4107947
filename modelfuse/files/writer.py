"""Atomic writing of safetensors files, whole or in a stream, single or sharded, and of JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.errors import ContentError, FileError, ModelfuseError
from modelfuse.files.atomic import StagedFile, check_place, resolved
from modelfuse.files.checkpoint import INDEX_SUFFIX, METADATA_KEY, open_checkpoint
from modelfuse.files.header import Entry, encode_header
from modelfuse.files.identity import IdentityDigest, bytes_of, model_id
from modelfuse.files.layout import TensorLayout, code_of, is_float, layout_of
from modelfuse.files.metadata import json_text, metadata_to_json
from modelfuse.files.quantize import quantize
from modelfuse.types import Metadata, Tensors

__all__ = ["StreamingWriter", "check_output", "check_outputs", "save", "save_json"]

SHARD_BYTES = 5_000_000_000


def save(
    path: Path, tensors: Tensors, metadata: Metadata, *, bits: int | None = None, shard_bytes: int | None = None
) -> str:
    """Write tensors and metadata to a file, in one step: it is there whole, or not at all.

    Args:
        path: The output; a name ending in ``.safetensors.index.json`` makes a sharded checkpoint.
        tensors: Arrays by name.
        metadata: What the file says of itself; a model's ``model_id`` and the scales are filled in.
        bits: 16 or 8 to quantise the float tensors (FedFiOT eq. 107), None to write them as they are.
        shard_bytes: At most so many bytes of tensors a shard, where the output is sharded (a larger tensor is alone).

    Returns:
        The ``model_id`` of the model that the file holds or belongs to; without one, the identity of the content.

    Raises:
        FileError: The file cannot be written; an earlier file of the name is as it was.
        ContentError: A tensor cannot be quantised.
        OptionError: ``bits`` is neither 16 nor 8.
    """
    metadata = replace(metadata, bits=None, scales={})
    if bits is not None:
        identity = model_id(tensors) if metadata.kind == "model" else metadata.model_id
        tensors, scales = _quantized(tensors, bits, str(path))
        metadata = replace(metadata, bits=bits, scales=scales, model_id=identity)
    layout = {name: layout_of(array) for name, array in tensors.items()}
    with StreamingWriter(path, layout, metadata, shard_bytes=shard_bytes) as writer:
        for name, array in tensors.items():
            writer.write(name, array)
    return writer.model_id


def _quantized(tensors: Tensors, bits: int, where: str) -> tuple[Tensors, dict[str, float]]:
    """Return the tensors with codes in the place of floats, and the scales."""
    found: dict[str, NDArray[Any]] = {}
    scales: dict[str, float] = {}
    for name, array in tensors.items():
        if not is_float(layout_of(array).dtype):
            found[name] = array
            continue
        with np.errstate(over="ignore"):
            finite = np.isfinite(array.astype(np.float32)).all()
        if not finite:
            raise ContentError(
                where, f"tensor {name} has entries that no 32-bit scale holds (NaN or infinity)", "Do not quantise it."
            )
        found[name], scale = quantize(array, bits)
        scales[name] = float(scale)
    return found, scales


@dataclass(frozen=True, slots=True)
class Target:
    """Where a tensor is being written: its file, its place there, and the shard's number."""

    shard: int
    entry: Entry


class StreamingWriter:
    """Writes tensors piece by piece, in any order of tensors; the file appears when the context ends well.

    Args:
        path: The output; a name ending in ``.safetensors.index.json`` makes a sharded checkpoint.
        layout: Every tensor that will be written.
        metadata: What the file says of itself. An unquantised model's ``model_id`` comes from what is written; a
            quantised one's was known before.
        shard_bytes: At most so many bytes of tensors a shard, where the output is sharded.

    Raises:
        FileError: From any method: the file cannot be written; an earlier file of the name is as it was.
        ModelfuseError: The pieces written are not the tensors announced.
    """

    def __init__(
        self, path: Path, layout: Mapping[str, TensorLayout], metadata: Metadata, *, shard_bytes: int | None = None
    ) -> None:
        self.path = path
        self._metadata = metadata
        self._shards = _plan(path, layout, shard_bytes)
        computed = metadata.model_id is None or (metadata.kind == "model" and metadata.bits is None)
        self._digest = IdentityDigest(layout) if computed else None
        self._targets: dict[str, Target] = {}
        for number, shard in enumerate(self._shards.values()):
            _, header = encode_header(shard, self._texts(), str(path))
            self._targets |= {name: Target(number, entry) for name, entry in header.entries.items()}
        self._written = dict.fromkeys(layout, 0)
        self._stack = ExitStack()
        self._files: list[StagedFile] = []

    @property
    def model_id(self) -> str:
        """The identity of the model, or of the content; final when everything is written."""
        if self._digest is not None:
            return self._digest.hexdigest()
        return self._metadata.model_id or ""

    def __enter__(self) -> StreamingWriter:
        with ExitStack() as stack:
            self._files = [stack.enter_context(StagedFile(path)) for path in self._paths()]
            self._stack = stack.pop_all()
        return self

    def write(self, name: str, chunk: NDArray[Any]) -> None:
        """Append the next entries of a tensor.

        Args:
            name: The tensor.
            chunk: Its next entries in C order, of any shape, in the dtype announced.
        """
        target = self._targets[name]
        data = bytes_of(chunk)
        done = self._written[name]
        announced = target.entry.layout
        if code_of(chunk.dtype) != announced.dtype or done + data.size > announced.nbytes:
            raise ModelfuseError(f"{self.path}: {name} was announced as {announced}, not as more or as {chunk.dtype}")
        self._files[target.shard].write_at(target.entry.offset + done, data)
        self._written[name] = done + data.size
        if self._digest is not None:
            self._digest.update(name, chunk)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if kind is None:
                self._commit()

    def _texts(self) -> dict[str, str]:
        """Return the header's free texts; their length is the same before the ``model_id`` is final and after."""
        metadata = self._metadata
        if metadata.kind == "model":
            metadata = replace(metadata, model_id=self.model_id)
        return {"format": "pt", METADATA_KEY: json_text(metadata_to_json(metadata))}

    def _commit(self) -> None:
        """Write headers and index, bring everything to the disk, and only then let any of it appear."""
        for name, target in self._targets.items():
            if self._written[name] != target.entry.layout.nbytes:
                raise ModelfuseError(f"{self.path}: {name} was not written to its end")
        texts = self._texts()
        starts = [encode_header(shard, texts, str(self.path))[0] for shard in self._shards.values()]
        if _is_index(self.path):
            starts.append(self._index().encode())
        for file, start in zip(self._files, starts, strict=True):
            file.write_at(0, start)
            file.seal()
        if _is_index(self.path) and any(shard.exists() for shard in self._shards):
            resolved(self.path).unlink(missing_ok=True)  # never an old index above new shards
        for file in self._files:
            file.publish()

    def _paths(self) -> list[Path]:
        """Return the files to write, an index last."""
        return [*self._shards, self.path] if _is_index(self.path) else [self.path]

    def _index(self) -> str:
        weight_map = {name: shard.name for shard, layout in self._shards.items() for name in layout}
        total = sum(tensor.nbytes for layout in self._shards.values() for tensor in layout.values())
        return json_text({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2) + "\n"


def _is_index(path: Path) -> bool:
    return path.name.endswith(INDEX_SUFFIX)


def _plan(
    path: Path, layout: Mapping[str, TensorLayout], shard_bytes: int | None
) -> dict[Path, dict[str, TensorLayout]]:
    """Return which file holds which tensors: a single file, or as few shards as the order of names allows."""
    if not _is_index(path):
        if shard_bytes is not None:
            raise FileError(
                str(path), "a sharded checkpoint is named by its index", f"Let the name end in {INDEX_SUFFIX}."
            )
        return {path: dict(layout)}
    shards: list[dict[str, TensorLayout]] = [{}]
    room = limit = SHARD_BYTES if shard_bytes is None else shard_bytes
    for name in sorted(layout):
        if layout[name].nbytes > room and shards[-1]:
            shards.append({})
            room = limit
        shards[-1][name] = layout[name]
        room -= layout[name].nbytes
    stem = path.name.removesuffix(INDEX_SUFFIX)
    place = resolved(path) if path.is_symlink() else path
    return {
        place.with_name(f"{stem}-{number:05d}-of-{len(shards):05d}.safetensors"): shard
        for number, shard in enumerate(shards, start=1)
    }


def check_output(path: Path, inputs: Iterable[Path]) -> None:
    """Check before any work that an output can be written and overwrites no input.

    Args:
        path: The output file.
        inputs: Every file, index or folder that is read.

    Raises:
        FileError: The output is one of the inputs or of their shards, or it cannot be written.
    """
    check_outputs((path,), inputs)


def check_outputs(paths: Iterable[Path], inputs: Iterable[Path]) -> None:
    """Check several outputs at once, also against each other; arguments and errors as :func:`check_output`."""
    read = [(given, file) for given in inputs for file in map(resolved, _files_of(given))]
    taken: set[Path] = set()
    for path in paths:
        check_place(path)
        target = resolved(path)
        if target in taken:
            raise FileError(str(path), "two outputs have this name", "Give each a name of its own.")
        taken.add(target)
        shards = re.compile(re.escape(target.name.removesuffix(INDEX_SUFFIX)) + r"-\d+-of-\d+\.safetensors")
        for given, file in read:
            replaced = _is_index(target) and file.parent == target.parent and shards.fullmatch(file.name)
            if replaced or file == target or (target.exists() and file.exists() and file.samefile(target)):
                raise FileError(str(path), f"the output is also an input ({given})", "Write to another file.")


def _files_of(given: Path) -> tuple[Path, ...]:
    """Return the files of a checkpoint, or the path itself where it is something else (data, a partition's folder)."""
    try:
        return open_checkpoint(given).files
    except FileError:
        return (given,)


def save_json(path: Path, data: Any) -> None:
    """Write data as JSON, in one step: sorted keys, two spaces a level, NaN and infinity as null.

    Args:
        path: The output file.
        data: Mappings, sequences, numpy arrays and scalars, strings, numbers.

    Raises:
        FileError: The file cannot be written; an earlier file of the name is as it was.
    """
    with StagedFile(path) as file:
        file.write_at(0, (json_text(data, indent=2) + "\n").encode())
        file.seal()
        file.publish()
