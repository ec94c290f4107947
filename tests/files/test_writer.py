from __future__ import annotations

import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from modelfuse.errors import ContentError, FileError, ModelfuseError, OptionError
from modelfuse.files.artifacts import model_id
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.layout import DTYPES, TensorLayout, layout_of, numpy_dtype
from modelfuse.files.writer import StreamingWriter, check_output, save, save_json
from modelfuse.types import ClientInfo, Metadata, Step

TENSORS = {
    "w": np.arange(12, dtype=np.float32).reshape(3, 4) - 5,  # (12,) -> (3, 4)
    "h": np.array([1.5, -2.0], ml_dtypes.bfloat16),
    "zero": np.zeros((2, 2), np.float64),
    "steps": np.array(7),
    "codes": np.array([3, 4], np.int16),
}
MODEL = Metadata("model", architecture="mlp:in=4,out=3", client=ClientInfo(id=3), history=(Step("init", "0", {}),))
INDEX = "model.safetensors.index.json"


def test_written_file_reads_back(tmp_path: Path) -> None:
    identity = save(tmp_path / "c3", TENSORS, MODEL)
    checkpoint = open_checkpoint(tmp_path / "c3")
    assert identity == model_id(TENSORS) == checkpoint.model_id()
    assert checkpoint.metadata is not None
    assert (checkpoint.metadata.architecture, checkpoint.metadata.client) == (MODEL.architecture, MODEL.client)
    assert checkpoint.metadata.model_id == identity
    for name, tensor in checkpoint.read_all().items():
        np.testing.assert_array_equal(tensor, TENSORS[name], strict=True)


def test_the_safetensors_library_reads_the_file(tmp_path: Path) -> None:
    tensors = {name: array for name, array in TENSORS.items() if name != "h"}
    save(tmp_path / "c3", tensors, MODEL)
    for name, tensor in load_file(tmp_path / "c3").items():
        np.testing.assert_array_equal(tensor, tensors[name], strict=True)


def test_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    save(tmp_path / "a", TENSORS, MODEL)
    save(tmp_path / "b", dict(reversed(TENSORS.items())), MODEL)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_byte_order_and_strides_do_not_reach_the_file(tmp_path: Path) -> None:
    save(tmp_path / "a", {"w": TENSORS["w"]}, MODEL)
    save(tmp_path / "b", {"w": np.asfortranarray(TENSORS["w"]).astype(">f4")}, MODEL)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@st.composite
def tensors(draw: st.DrawFn) -> np.ndarray:
    """Return any bytes at all under any dtype and shape."""
    dtype = numpy_dtype(draw(st.sampled_from(sorted(DTYPES))))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    count = int(np.prod(shape)) * dtype.itemsize
    most = 1 if dtype.kind == "b" else 255
    values = np.array(draw(st.lists(st.integers(0, most), min_size=count, max_size=count)), np.uint8)
    return values.view(dtype).reshape(shape)  # (size,) -> shape


@given(st.dictionaries(st.text(max_size=5), tensors(), max_size=4), st.none() | st.integers(1, 60))
def test_any_tensors_survive(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, np.ndarray], shard_bytes: int | None
) -> None:
    path = tmp_path_factory.mktemp("any") / ("f" if shard_bytes is None else INDEX)
    identity = save(path, content, MODEL, shard_bytes=shard_bytes)
    checkpoint = open_checkpoint(path)
    assert identity == checkpoint.model_id() == model_id(content)
    assert checkpoint.layout.keys() == content.keys()
    for name, tensor in checkpoint.read_all().items():
        assert layout_of(tensor) == layout_of(content[name])
        assert tensor.tobytes() == content[name].tobytes()


def test_model_id_is_computed_from_the_content_alone(tmp_path: Path) -> None:
    stale = Metadata("model", model_id="f" * 64)
    assert save(tmp_path / "a", TENSORS, stale) == save(tmp_path / "b", TENSORS, MODEL)
    changed = TENSORS | {"w": TENSORS["w"] + 1}
    assert save(tmp_path / "c", changed, MODEL) != save(tmp_path / "a", TENSORS, MODEL)
    counted = TENSORS | {"steps": np.array(8)}
    assert save(tmp_path / "d", counted, MODEL) == save(tmp_path / "a", TENSORS, MODEL)


def test_fisher_keeps_the_model_it_belongs_to(tmp_path: Path) -> None:
    assert save(tmp_path / "f3", TENSORS, Metadata("fisher", model_id="ab" * 32), bits=16) == "ab" * 32
    assert open_checkpoint(tmp_path / "f3").model_id() == "ab" * 32


def test_partition_is_identified_by_its_indices(tmp_path: Path) -> None:
    first, second = {"client_0": np.array([1, 2])}, {"client_0": np.array([1, 3])}
    identity = save(tmp_path / "p", first, Metadata("partition"))
    assert identity == open_checkpoint(tmp_path / "p").model_id() == model_id(first)
    assert identity != model_id(second)


@pytest.mark.parametrize(("bits", "entry_bytes"), [(16, 2), (8, 1)])
def test_quantised_file_takes_two_bytes_or_one_an_entry(tmp_path: Path, bits: int, entry_bytes: int) -> None:
    weights = {"w": np.linspace(-1, 1, 100_000, dtype=np.float32), "v": np.zeros(50_000, np.float32)}
    save(tmp_path / "c3", weights, Metadata("model"), bits=bits)
    assert 0 < (tmp_path / "c3").stat().st_size - 150_000 * entry_bytes < 600


@pytest.mark.parametrize("bits", [16, 8])
def test_quantised_model_reads_as_float32_and_keeps_its_identity(tmp_path: Path, bits: int) -> None:
    assert save(tmp_path / "c3", TENSORS, MODEL, bits=bits) == model_id(TENSORS)
    checkpoint = open_checkpoint(tmp_path / "c3")
    assert checkpoint.model_id() == model_id(TENSORS)
    assert checkpoint.layout["h"] == TensorLayout("F32", (2,))
    levels = 2 ** (bits - 1) - 1
    np.testing.assert_allclose(checkpoint.read("w"), TENSORS["w"], atol=6 * 0.5 / levels * (1 + 1e-6))
    np.testing.assert_array_equal(checkpoint.read("h")[1], np.float32(-2), strict=True)
    np.testing.assert_array_equal(checkpoint.read("zero"), np.zeros((2, 2), np.float32), strict=True)
    np.testing.assert_array_equal(checkpoint.read_flat("w", 3, 7), checkpoint.read("w").ravel()[3:7])
    for name in ("steps", "codes"):
        np.testing.assert_array_equal(checkpoint.read(name), TENSORS[name], strict=True)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_values_beyond_a_scale_are_not_quantised(tmp_path: Path, value: float) -> None:
    with pytest.raises(ContentError, match="c3: tensor w has entries that no 32-bit scale holds"):
        save(tmp_path / "c3", {"w": np.array([1.0, value])}, MODEL, bits=16)
    assert list(tmp_path.iterdir()) == []


def test_other_bits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="4 bits an entry are not offered"):
        save(tmp_path / "c3", TENSORS, MODEL, bits=4)


def test_shards_carry_the_metadata_and_the_index_all_names(tmp_path: Path) -> None:
    identity = save(tmp_path / INDEX, TENSORS, MODEL, shard_bytes=40)
    index = json.loads((tmp_path / INDEX).read_text())
    # by name: codes 4 + h 4 + steps 8 bytes, w 48 alone, zero 32
    names = {f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)}
    assert {path.name for path in tmp_path.iterdir()} == {INDEX, *names}
    assert index["metadata"] == {"total_size": 96}
    assert index["weight_map"].keys() == TENSORS.keys()
    for name in names:
        shard = open_checkpoint(tmp_path / name)
        assert shard.metadata == open_checkpoint(tmp_path / INDEX).metadata
        assert shard.model_id() == identity


def test_quantised_shards_read_as_one_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "single", TENSORS, MODEL, bits=16)
    save(tmp_path / INDEX, TENSORS, MODEL, bits=16, shard_bytes=10)
    whole = open_checkpoint(tmp_path / "single").read_all()
    for name, tensor in open_checkpoint(tmp_path / INDEX).read_all().items():
        np.testing.assert_array_equal(tensor, whole[name], strict=True)


def test_shards_of_a_file_not_named_as_index_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"Let the name end in \.safetensors\.index\.json\."):
        save(tmp_path / "c3.safetensors", TENSORS, MODEL, shard_bytes=40)


def test_stream_writes_the_bytes_of_save(tmp_path: Path) -> None:
    save(tmp_path / "whole", TENSORS, MODEL)
    layout = {name: layout_of(array) for name, array in TENSORS.items()}
    with StreamingWriter(tmp_path / "stream", layout, MODEL) as writer:
        for start in range(0, 12, 5):
            for name, array in TENSORS.items():
                writer.write(name, array.reshape(-1)[start : start + 5])  # shape -> (size,)
    assert writer.model_id == model_id(TENSORS)
    assert (tmp_path / "stream").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize(
    ("chunk", "what"),
    [
        (np.zeros(11, np.float32), "w was not written to its end"),
        (np.zeros(13, np.float32), "w was announced as"),
        (np.zeros(12, np.float16), "w was announced as"),
    ],
)
def test_stream_that_breaks_its_announcement_leaves_nothing(tmp_path: Path, chunk: np.ndarray, what: str) -> None:
    layout = {"w": TensorLayout("F32", (3, 4))}

    def stream() -> None:
        with StreamingWriter(tmp_path / "f", layout, MODEL) as writer:
            writer.write("w", chunk)

    with pytest.raises(ModelfuseError, match=what):
        stream()
    assert list(tmp_path.iterdir()) == []


def test_link_stays_a_link_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    for name in ("c3.safetensors", INDEX):
        (tmp_path / name).symlink_to(tmp_path / "far" / name)
        save(tmp_path / name, TENSORS, MODEL)
        assert (tmp_path / name).is_symlink()
        assert open_checkpoint(tmp_path / "far" / name).model_id() == model_id(TENSORS)


def test_output_that_is_an_input_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "c3", TENSORS, MODEL)
    (tmp_path / "soft").symlink_to("c3")
    os.link(tmp_path / "c3", tmp_path / "hard")
    check_output(tmp_path / "new", [tmp_path / "c3", tmp_path / "missing"])
    for name in ("c3", "soft", "hard"):
        with pytest.raises(FileError, match=r"the output is also an input \(.*c3\). Write to another file."):
            check_output(tmp_path / name, [tmp_path / "new", tmp_path / "c3"])


def test_output_among_the_shards_of_an_input_is_refused(tmp_path: Path) -> None:
    save(tmp_path / INDEX, TENSORS, MODEL, shard_bytes=40)
    for output in (INDEX, "model-00002-of-00003.safetensors"):
        for given_as in (tmp_path, tmp_path / INDEX):
            with pytest.raises(FileError, match="the output is also an input"):
                check_output(tmp_path / output, [given_as])
    with pytest.raises(FileError, match="the output is also an input"):
        check_output(tmp_path / INDEX, [tmp_path / "model-00001-of-00003.safetensors"])
    check_output(tmp_path / "merged.safetensors.index.json", [tmp_path])


def test_json_is_written_in_one_form(tmp_path: Path) -> None:
    save_json(tmp_path / "r.json", {"b": np.float32(0.5), "a": [float("nan"), (1, 2)]})
    assert (tmp_path / "r.json").read_text() == (
        '{\n  "a": [\n    null,\n    [\n      1,\n      2\n    ]\n  ],\n  "b": 0.5\n}\n'
    )
