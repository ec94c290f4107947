from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from modelfuse.errors import ContentError, FileError
from modelfuse.files.artifacts import model_id
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.header import encode_header
from modelfuse.files.layout import TensorLayout

FOREIGN = {
    "w": np.arange(12, dtype=np.float32).reshape(3, 4),  # (12,) -> (3, 4)
    "h": np.array([1.5, -2.0], ml_dtypes.bfloat16),
    "steps": np.array(7),
}


def write_index(folder: Path, weight_map: object, name: str = "model.safetensors.index.json") -> Path:
    (folder / name).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return folder / name


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Return the index of a checkpoint of two shards as other programs write it."""
    save_file({"w": FOREIGN["w"]}, tmp_path / "model-00001-of-00002.safetensors", {"format": "pt"})
    save_file({name: FOREIGN[name] for name in ("h", "steps")}, tmp_path / "model-00002-of-00002.safetensors")
    shards = {"w": 1, "h": 2, "steps": 2}
    return write_index(tmp_path, {name: f"model-0000{number}-of-00002.safetensors" for name, number in shards.items()})


def test_foreign_file_is_read_as_it_is(tmp_path: Path) -> None:
    save_file(FOREIGN, tmp_path / "theirs.safetensors", {"format": "pt"})
    checkpoint = open_checkpoint(tmp_path / "theirs.safetensors")
    assert checkpoint.metadata is None
    assert checkpoint.shapes() == {"w": (3, 4), "h": (2,), "steps": ()}
    assert checkpoint.layout["h"] == TensorLayout("BF16", (2,))
    for name, tensor in checkpoint.read_all().items():
        np.testing.assert_array_equal(tensor, FOREIGN[name], strict=True)
    assert checkpoint.model_id() == model_id(FOREIGN)


def test_shards_read_as_one_checkpoint(sharded: Path) -> None:
    checkpoint = open_checkpoint(sharded)
    assert (checkpoint.path, checkpoint.label) == (sharded, str(sharded))
    assert checkpoint.model_id() == model_id(FOREIGN)
    for name, tensor in checkpoint.read_all().items():
        np.testing.assert_array_equal(tensor, FOREIGN[name], strict=True)
    assert len(checkpoint.files) == 3


def test_folder_stands_for_the_index_in_it(sharded: Path) -> None:
    checkpoint = open_checkpoint(sharded.parent)
    assert (checkpoint.path, checkpoint.label) == (sharded, str(sharded.parent))


def test_folder_stands_for_the_only_file_in_it(tmp_path: Path) -> None:
    save_file(FOREIGN, tmp_path / "model.safetensors")
    (tmp_path / ".model.safetensors.0badcafe.tmp").write_bytes(b"what a killed process left")
    assert open_checkpoint(tmp_path).path == tmp_path / "model.safetensors"


def test_folder_of_several_checkpoints_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_file(FOREIGN, tmp_path / f"{name}.safetensors")
    with pytest.raises(FileError, match=r"holds 2 checkpoints \(a.safetensors, b.safetensors\). Name the file itself"):
        open_checkpoint(tmp_path)


def test_folder_without_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    with pytest.raises(FileError, match=r"the folder holds no safetensors file. Only safetensors are read"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("name", "start", "stop", "expected"),
    [("w", 3, 6, [3, 4, 5]), ("w", 10, 99, [10, 11]), ("w", 5, 5, []), ("h", 1, 2, [-2]), ("steps", 0, 1, [7])],
)
def test_slice_of_a_flattened_tensor(sharded: Path, name: str, start: int, stop: int, expected: list[float]) -> None:
    found = open_checkpoint(sharded).read_flat(name, start, stop)
    np.testing.assert_array_equal(found, np.array(expected, FOREIGN[name].dtype), strict=True)


def test_slices_of_a_big_file_leave_it_on_the_disk(tmp_path: Path) -> None:
    layout = {"w": TensorLayout("F32", (1 << 15, 1 << 14))}  # 2 GiB, a hole in the file system
    block, _ = encode_header(layout, {}, "big")
    path = tmp_path / "big.safetensors"
    with path.open("wb") as file:
        file.write(block)
        file.truncate(len(block) + layout["w"].nbytes)
    code = """
import resource, sys
from pathlib import Path
from modelfuse.files.checkpoint import open_checkpoint
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
checkpoint = open_checkpoint(Path(sys.argv[1]))
for start in range(0, 1 << 29, 1 << 22):
    assert not checkpoint.read_flat("w", start, start + 4096).any()
for start in range(0, 1 << 24, 1 << 18):
    checkpoint.read_flat("w", start, start + (1 << 18))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    grown = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True).stdout
    assert int(grown) < 8 << 10  # KiB


def test_missing_tensor_is_named(sharded: Path) -> None:
    with pytest.raises(ContentError, match=r"index\.json: tensor fc9\.weight is missing"):
        open_checkpoint(sharded).read("fc9.weight")


def test_file_cut_after_opening_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c3.safetensors"
    save_file(FOREIGN, path)
    checkpoint = open_checkpoint(path)
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(FileError, match=r"c3\.safetensors: tensor h cannot be read \(the file is shorter"):
        checkpoint.read_all()


def test_file_removed_after_opening_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c3.safetensors"
    save_file(FOREIGN, path)
    checkpoint = open_checkpoint(path)
    path.unlink()
    with pytest.raises(FileError, match=r"tensor w cannot be read .*Leave the file in place"):
        checkpoint.read("w")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="no JSON"),
        pytest.param("[]", id="no object"),
        pytest.param('{"metadata": {}}', id="no map"),
        pytest.param('{"weight_map": ["a"]}', id="map is a list"),
        pytest.param('{"weight_map": {"w": 1}}', id="shard is a number"),
        pytest.param("[" * 10**5, id="too deep"),
    ],
)
def test_index_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(FileError, match=r"index\.json: not the index of a sharded checkpoint.*weight_map"):
        open_checkpoint(tmp_path / "model.safetensors.index.json")


def test_missing_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"model\.safetensors\.index\.json: there is no such file"):
        open_checkpoint(tmp_path / "model.safetensors.index.json")


def test_missing_shard_is_named(sharded: Path) -> None:
    (sharded.parent / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileError, match=r"index\.json \(model-00002-of-00002\.safetensors\): there is no such file"):
        open_checkpoint(sharded)


def test_tensor_that_its_shard_lacks_is_named(sharded: Path) -> None:
    write_index(sharded.parent, {"w": "model-00002-of-00002.safetensors"})
    with pytest.raises(FileError, match=r"tensor w is not in model-00002-of-00002\.safetensors"):
        open_checkpoint(sharded)


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/secret.safetensors"])
def test_shard_outside_the_folder_is_refused(tmp_path: Path, shard: str) -> None:
    index = write_index(tmp_path, {"w": shard})
    with pytest.raises(FileError, match=r"lies outside its folder"):
        open_checkpoint(index)


def test_index_without_tensors_is_an_empty_checkpoint(tmp_path: Path) -> None:
    assert open_checkpoint(write_index(tmp_path, {})).layout == {}


def write_ours(path: Path, text: str, dtype: type = np.int16) -> Path:
    save_file({"w": np.zeros(2, dtype)}, path, {"modelfuse": text})
    return path


@pytest.mark.parametrize("text", ["{", "3", "[" * 10**5, '{"schema": 1}', ""])
def test_damaged_metadata_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(FileError, match=r"c3\.safetensors: its modelfuse metadata is damaged"):
        open_checkpoint(write_ours(tmp_path / "c3.safetensors", text))


def test_file_of_a_newer_modelfuse_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"c3\.safetensors: written by a newer modelfuse \(schema 9\). Upgrade"):
        open_checkpoint(write_ours(tmp_path / "c3.safetensors", '{"schema": 9, "kind": "telepathy"}'))


def test_scale_of_a_tensor_that_holds_no_codes_is_refused(tmp_path: Path) -> None:
    text = '{"schema": 1, "kind": "model", "quantized": {"bits": 16, "scales": {"w": 1.0}}}'
    with pytest.raises(FileError, match="quantised tensor w is F32, not I16"):
        open_checkpoint(write_ours(tmp_path / "c3.safetensors", text, np.float32))


def test_other_bits_are_refused(tmp_path: Path) -> None:
    text = '{"schema": 1, "kind": "model", "quantized": {"bits": 4, "scales": {"w": 1.0}}}'
    with pytest.raises(FileError, match=r"quantised to 4 bits. Only 16 and 8 are read"):
        open_checkpoint(write_ours(tmp_path / "c3.safetensors", text))


def test_shards_of_different_checkpoints_are_refused(tmp_path: Path) -> None:
    for number, client in ((1, "a"), (2, "b")):
        text = f'{{"schema": 1, "kind": "model", "model_id": "{client}"}}'
        save_file({f"w{number}": np.ones(2)}, tmp_path / f"{number}.safetensors", {"modelfuse": text})
    index = write_index(tmp_path, {"w1": "1.safetensors", "w2": "2.safetensors"})
    with pytest.raises(FileError, match="its shards come from different checkpoints"):
        open_checkpoint(index)


def test_real_clients_open_with_their_shapes(shared: Path) -> None:
    folder = shared / "data" / "fednet-cifar10-k6"
    sizes = [
        sum(tensor.size for tensor in open_checkpoint(folder / f"client_{k}.safetensors").layout.values())
        for k in range(6)
    ]
    assert sizes == [939_616] * 6
