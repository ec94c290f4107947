"""The header of a safetensors file: read with distrust, written with the same bytes for the same content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from modelfuse.errors import ContentError, FileError
from modelfuse.files.layout import DTYPES, TensorLayout, numpy_dtype

__all__ = ["Entry", "Header", "encode_header", "read_header"]

LENGTH_BYTES = 8
ALIGNMENT = 8
MOST_BYTES = 100_000_000
TEXTS = "__metadata__"

OTHER_FORMATS: tuple[tuple[bytes, str, str], ...] = (
    (
        b"PK\x03\x04",
        "a zip archive as torch.save or numpy write them, and only safetensors are read",
        "Convert it where it is trusted: safetensors.torch.save_file(torch.load(FILE, weights_only=True), OUTPUT).",
    ),
    (
        b"\x80",
        "a pickle, and only safetensors are read",
        "Convert it where it is trusted: safetensors.torch.save_file(torch.load(FILE, weights_only=True), OUTPUT).",
    ),
    (b"version https://git-lfs", "a Git LFS pointer, not the data it points to", "Fetch the data with git lfs pull."),
    (b"GGUF", "a GGUF file, and only safetensors are read", "Take the model's safetensors files instead."),
    (b"\x89HDF", "an HDF5 file, and only safetensors are read", "Save the weights with safetensors instead."),
)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a file holds a tensor.

    Args:
        layout: The dtype and shape as stored.
        offset: The tensor's first byte, counted from the start of the file.
    """

    layout: TensorLayout
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a safetensors file says of itself.

    Args:
        entries: Every tensor, in the order of the data.
        texts: The free key-value pairs (``__metadata__``).
    """

    entries: Mapping[str, Entry]
    texts: Mapping[str, str]


def read_header(path: Path, label: str) -> Header:
    """Read and check the header of a file; the data stays where it is.

    Args:
        path: The file.
        label: The file as the user named it, for messages.

    Returns:
        The header: its tensors lie inside the file, without holes or overlaps.

    Raises:
        FileError: The file is missing, unreadable, truncated, hostile, or not a safetensors file.
    """
    try:
        if path.exists() and not path.is_file():
            raise FileError(label, "not a regular file", "Give the path of a .safetensors file.")
        with path.open("rb") as file:
            start = file.read(LENGTH_BYTES + 16)
            _validate(path, label, start)
            length = int.from_bytes(start[:LENGTH_BYTES], "little")
            file.seek(LENGTH_BYTES)
            text = file.read(length)
    except FileNotFoundError as error:
        raise FileError(label, "there is no such file", "Check the path.") from error
    except OSError as error:
        raise FileError(
            label, f"cannot be read ({error.strerror or error})", "Check the path and its permissions."
        ) from error
    return _parse(text, label)


def _validate(path: Path, label: str, start: bytes) -> None:
    """Let the safetensors library judge the file, and name the other formats that people pass by mistake."""
    try:
        with safe_open(path, framework="numpy"):
            return
    except SafetensorError as error:
        if not start:
            raise FileError(label, "the file is empty", "Write or copy it again.") from error
        for magic, what, fix in OTHER_FORMATS:
            if start.startswith(magic):
                raise FileError(label, what, fix) from error
        reason = str(error).removeprefix("Error while deserializing header: ")
        raise FileError(
            label, f"not a whole safetensors file ({reason})", "Write, copy or download it again."
        ) from error


def _parse(text: bytes, label: str) -> Header:
    """Return the header behind a text that the safetensors library accepts."""
    try:
        rows: dict[str, Any] = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise FileError(label, f"its header cannot be read ({error})", "Write, copy or download it again.") from error
    texts = rows.pop(TEXTS, None) or {}
    data_start = LENGTH_BYTES + len(text)
    entries = {name: _entry(name, row, data_start, label) for name, row in rows.items()}
    return Header(dict(sorted(entries.items(), key=lambda item: item[1].offset)), texts)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name given twice: readers differ on which of the two counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _entry(name: str, row: Mapping[str, Any], data_start: int, label: str) -> Entry:
    code, shape = row["dtype"], tuple(row["shape"])
    if code not in DTYPES:
        raise FileError(label, f"tensor {name} has the packed dtype {code}", "Convert it to BF16 or F32.")
    try:
        np.broadcast_to(np.empty((), numpy_dtype(code)), shape)  # numpy's own limits, at no cost in memory
    except ValueError as error:
        raise FileError(label, f"tensor {name} has an impossible shape ({error})", "Write the file again.") from error
    return Entry(TensorLayout(code, shape), data_start + row["data_offsets"][0])


def encode_header(layout: Mapping[str, TensorLayout], texts: Mapping[str, str], where: str) -> tuple[bytes, Header]:
    """Return the first bytes of a file that holds these tensors, and the header they encode.

    Wider dtypes come first, then names in order: every tensor is aligned, and the order given changes no byte.

    Args:
        layout: The tensors.
        texts: The free key-value pairs.
        where: The file's name, for messages.

    Raises:
        ContentError: A tensor has the one name that the format reserves, or the header exceeds the format's limit.
    """
    if TEXTS in layout:
        raise ContentError(where, f"a tensor is called {TEXTS}", "The format reserves this name: rename the tensor.")
    rows: dict[str, Any] = {TEXTS: dict(sorted(texts.items()))}
    stop = 0
    starts: dict[str, int] = {}
    for name in sorted(layout, key=lambda name: (-numpy_dtype(layout[name].dtype).itemsize, name)):
        tensor = layout[name]
        starts[name], stop = stop, stop + tensor.nbytes
        rows[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": (starts[name], stop)}
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    if len(text) > MOST_BYTES:
        raise ContentError(
            where, f"its header would take {len(text):,} bytes", f"The format allows {MOST_BYTES:,}: record less in it."
        )
    block = len(text).to_bytes(LENGTH_BYTES, "little") + text
    return block, Header({name: Entry(layout[name], len(block) + start) for name, start in starts.items()}, texts)
