"""A file that exists is whole, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from modelfuse.errors import FileError
from modelfuse.files.atomic import StagedFile
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.layout import TensorLayout
from modelfuse.files.writer import StreamingWriter, check_output, save, save_json
from modelfuse.types import Metadata

MODEL = Metadata("model")
INDEX = "model.safetensors.index.json"
ONES, TWOS = {"w": np.ones(40, np.float32)}, {"w": np.full(40, 2, np.float32)}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(params=["c3.safetensors", INDEX])
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return an output, single or sharded, that an earlier run left."""
    path = tmp_path / request.param
    save(path, ONES, MODEL)
    return path


@pytest.mark.parametrize(
    ("code", "what", "fix"),
    [
        (errno.ENOSPC, "the disk is full", "Free some space"),
        (errno.EDQUOT, "your disk quota is used up", "Free some space"),
        (errno.EIO, r"cannot be written \(Input/output error\)", "Choose another place"),
    ],
)
def test_failing_disk_leaves_the_earlier_output(
    earlier: Path, monkeypatch: pytest.MonkeyPatch, code: int, what: str, fix: str
) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    before = contents(earlier.parent)
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(FileError, match=f"{what}. {fix}") as caught:
        save(earlier, TWOS, MODEL)
    assert str(earlier.parent) in caught.value.where
    assert contents(earlier.parent) == before


@pytest.fixture
def file_size_limit() -> Iterator[None]:
    """Let the system itself refuse any file beyond 64 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.usefixtures("file_size_limit")
def test_file_that_outgrows_the_limit_leaves_the_earlier_output(earlier: Path) -> None:
    before = contents(earlier.parent)
    with pytest.raises(FileError, match="larger than its disk or your limits allow"):
        save(earlier, {"w": np.ones(1 << 16, np.float32)}, MODEL)
    assert contents(earlier.parent) == before


def test_interrupt_while_streaming_leaves_the_earlier_output(earlier: Path) -> None:
    before = contents(earlier.parent)
    writer = StreamingWriter(earlier, {"w": TensorLayout("F32", (40,))}, MODEL)

    def half() -> None:
        with writer:
            writer.write("w", TWOS["w"][:20])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert contents(earlier.parent) == before


def test_interrupt_while_committing_leaves_the_earlier_output(earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    before = contents(earlier.parent)
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(earlier, TWOS, MODEL)
    assert contents(earlier.parent) == before


def test_json_that_fails_leaves_the_earlier_one(tmp_path: Path) -> None:
    save_json(tmp_path / "r.json", {"a": 1})
    with pytest.raises(TypeError):
        save_json(tmp_path / "r.json", {"a": object()})
    assert contents(tmp_path) == {"r.json": b'{\n  "a": 1\n}\n'}


def test_folder_that_may_not_be_written_to_is_named(earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = contents(earlier.parent)
    monkeypatch.setattr(os, "access", lambda *_: False)
    for attempt in (lambda: save(earlier, TWOS, MODEL), lambda: check_output(earlier, [])):
        with pytest.raises(FileError, match=r"its folder cannot be written to\. Choose a folder that you may write to"):
            attempt()
    assert contents(earlier.parent) == before


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("missing/c3", "its folder does not exist. Create the folder first"),
        ("file/c3", "its folder is a file"),
        ("folder", "it is a folder. Give the path of a file to write"),
        ("pipe", "it is not a regular file"),
        ("x" * 256, "its name is too long"),
    ],
)
def test_place_that_cannot_hold_a_file_is_named(tmp_path: Path, place: str, what: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match=what) as caught:
        save(tmp_path / place, ONES, MODEL)
    assert caught.value.where == str(tmp_path / place)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder", "pipe"}


def test_new_file_has_the_mode_that_the_umask_gives(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        save(tmp_path / "c3", ONES, MODEL)
    finally:
        os.umask(before)
    assert (tmp_path / "c3").stat().st_mode & 0o777 == 0o640


def test_what_a_killed_process_left_disturbs_nothing(earlier: Path) -> None:
    left = earlier.with_name(".modelfuse-0badcafe.tmp")
    left.write_bytes(b"half a file")
    save(earlier, TWOS, MODEL)
    np.testing.assert_array_equal(open_checkpoint(earlier).read("w"), TWOS["w"])
    np.testing.assert_array_equal(open_checkpoint(earlier.parent).read("w"), TWOS["w"])
    assert left.read_bytes() == b"half a file"


def test_interrupt_between_shards_leaves_no_index_above_a_mixture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / INDEX
    first, second = ({"a": np.full(4, value), "b": np.full(4, value)} for value in (1.0, 2.0))
    save(path, first, MODEL, shard_bytes=32)
    publish = StagedFile.publish

    def interrupt(file: StagedFile) -> None:
        if "00002" in file.path.name:
            raise KeyboardInterrupt
        publish(file)

    monkeypatch.setattr(StagedFile, "publish", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(path, second, MODEL, shard_bytes=32)
    assert not path.exists()
    assert list(tmp_path.glob("*.tmp")) == []


WRITE_FOREVER = """
import itertools, sys
from pathlib import Path
import numpy as np
from modelfuse.files.writer import save
from modelfuse.types import Metadata
path = Path(sys.argv[1])
print("ready", flush=True)
for value in itertools.count():
    tensors = {name: np.full(1 << 20, value, np.float32) for name in "abcd"}
    save(path, tensors, Metadata("model"), shard_bytes=1 << 23 if path.suffix == ".json" else None)
"""


@pytest.mark.parametrize("name", ["c3.safetensors", INDEX])
def test_killed_process_leaves_no_output_or_a_whole_one(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    rounds = 0
    for seconds in (0.0, 0.01, 0.03, 0.08, 0.15, 0.25):
        with subprocess.Popen([sys.executable, "-c", WRITE_FOREVER, path], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(seconds)
            process.send_signal(signal.SIGKILL)
        if not path.exists():
            continue
        rounds += 1
        checkpoint = open_checkpoint(path)
        tensors = checkpoint.read_all()
        assert sorted(tensors) == ["a", "b", "c", "d"]
        assert len({value for tensor in tensors.values() for value in (tensor.min(), tensor.max())}) == 1
        assert checkpoint.metadata is not None
    assert rounds > 0
