"""Files that cannot be read: each error names the file and the remedy."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save as library_bytes

from modelfuse.errors import ContentError, FileError
from modelfuse.files import header
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.header import encode_header
from modelfuse.files.layout import TensorLayout


def raw(rows: dict[str, Any] | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """Return the bytes of a file with any header at all."""
    text = rows if isinstance(rows, bytes) else json.dumps(rows).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def row(shape: list[int], start: int, stop: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def archive() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, w=np.ones(3))
    return buffer.getvalue()


WHOLE = library_bytes({"w": np.arange(6, dtype=np.float32).reshape(2, 3)})  # (6,) -> (2, 3)
NOT_WHOLE = "not a whole safetensors file"
AGAIN = "Write, copy or download it again."


@pytest.mark.parametrize(
    ("content", "what", "fix"),
    [
        pytest.param(b"", "the file is empty", "Write or copy it again.", id="empty"),
        pytest.param(WHOLE[:5], NOT_WHOLE, AGAIN, id="cut in the length"),
        pytest.param(WHOLE[:40], NOT_WHOLE, AGAIN, id="cut in the header"),
        pytest.param(WHOLE[:-1], NOT_WHOLE, AGAIN, id="cut in the data"),
        pytest.param(WHOLE + b"\0", NOT_WHOLE, AGAIN, id="longer than it says"),
        pytest.param(raw({}, length=10**6), NOT_WHOLE, AGAIN, id="header beyond the file"),
        pytest.param(raw({}, length=2**64 - 1), NOT_WHOLE, AGAIN, id="header beyond all files"),
        pytest.param(raw(b"{garbage"), NOT_WHOLE, AGAIN, id="garbage JSON"),
        pytest.param(raw(b"[" * 10**5), NOT_WHOLE, AGAIN, id="JSON too deep"),
        pytest.param(raw(b'{"w\xff": 1}'), NOT_WHOLE, AGAIN, id="not UTF-8"),
        pytest.param(raw({"a": row([1], 0, 4), "b": row([1], 2, 6)}, b"\0" * 6), NOT_WHOLE, AGAIN, id="overlap"),
        pytest.param(raw({"a": row([1], 0, 4), "b": row([1], 6, 10)}, b"\0" * 10), NOT_WHOLE, AGAIN, id="hole"),
        pytest.param(raw({"a": row([2], 0, 4)}, b"\0" * 4), NOT_WHOLE, AGAIN, id="shape against offsets"),
        pytest.param(raw({"a": row([2**40, 2**40], 0, 4)}, b"\0" * 4), NOT_WHOLE, AGAIN, id="shape overflows"),
        pytest.param(raw({"a": row([-1], 0, 4)}, b"\0" * 4), NOT_WHOLE, AGAIN, id="negative shape"),
        pytest.param(raw({"a": row([1], 0, 4, "F99")}, b"\0" * 4), NOT_WHOLE, AGAIN, id="unknown dtype"),
        pytest.param(raw({"__metadata__": {"format": 1}}), NOT_WHOLE, AGAIN, id="metadata not text"),
        pytest.param(
            raw({"a": row([0, 2**62], 0, 0)}), "tensor a has an impossible shape", "Write the file again.", id="huge"
        ),
        pytest.param(
            raw({"a": row([1] * 65, 0, 4)}, b"\0" * 4), "tensor a has an impossible shape", "again.", id="65 axes"
        ),
        pytest.param(
            raw({"a": row([2], 0, 1, "F4")}, b"\0"), "tensor a has the packed dtype F4", "Convert it to", id="packed"
        ),
        pytest.param(
            raw(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"I32","shape":[1],'
                b'"data_offsets":[0,4]}}', b"\0" * 4),
            "its header cannot be read (a name occurs twice)", AGAIN, id="name twice",
        ),
        pytest.param(pickle.dumps({"w": [1.0]}), "a pickle, and only safetensors are read", "Convert it", id="pickle"),
        pytest.param(archive(), "a zip archive as torch.save", "Convert it where it is trusted", id="zip"),
        pytest.param(
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer", "git lfs pull", id="lfs"
        ),
    ],
)  # fmt: skip
def test_bad_file_is_named_with_the_remedy(tmp_path: Path, content: bytes, what: str, fix: str) -> None:
    path = tmp_path / "c3.safetensors"
    path.write_bytes(content)
    with pytest.raises(FileError, match=re.escape(what)) as caught:
        open_checkpoint(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert fix in str(caught.value)


def test_pickle_is_never_executed(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
            return os.mkdir, (str(tmp_path / "executed"),)

    path = tmp_path / "model.pt"
    path.write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(FileError, match="only safetensors are read"):
        open_checkpoint(path)
    assert not (tmp_path / "executed").exists()


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"c3\.safetensors: there is no such file. Check the path."):
        open_checkpoint(tmp_path / "c3.safetensors")


def test_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="pipe: not a regular file"):
        open_checkpoint(tmp_path / "pipe")


def test_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "c3.safetensors"
    path.write_bytes(WHOLE)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(FileError, match=r"c3\.safetensors: cannot be read \(Permission denied\)"):
        open_checkpoint(path)


@given(data=st.data())
def test_any_damage_is_read_whole_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    damaged = bytearray(WHOLE)
    for position in data.draw(st.lists(st.integers(0, len(WHOLE) - 1), min_size=1, max_size=4)):
        damaged[position] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "c3.safetensors"
    path.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))])
    with suppress(FileError):
        checkpoint = open_checkpoint(path)
        for name, tensor in checkpoint.read_all().items():
            assert tensor.shape == checkpoint.layout[name].shape


def test_header_is_aligned_and_the_same_for_any_order_of_tensors() -> None:
    layout = {"n": TensorLayout("BOOL", (3,)), "b": TensorLayout("F32", (2,)), "a": TensorLayout("F32", ())}
    block, found = encode_header(layout, {"format": "pt"}, "f")
    again, _ = encode_header(dict(reversed(layout.items())), {"format": "pt"}, "f")
    assert block == again
    assert len(block) % 8 == 0
    assert [(name, entry.offset - len(block)) for name, entry in found.entries.items()] == [
        ("a", 0),
        ("b", 4),
        ("n", 12),
    ]


def test_reserved_name_of_a_tensor_is_refused() -> None:
    with pytest.raises(ContentError, match="out: a tensor is called __metadata__"):
        encode_header({"__metadata__": TensorLayout("F32", ())}, {}, "out")


def test_header_beyond_the_limit_of_the_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header, "MOST_BYTES", 100)
    with pytest.raises(ContentError, match=r"out: its header would take 112 bytes\. The format allows 100"):
        encode_header({}, {"modelfuse": "x" * 73}, "out")
