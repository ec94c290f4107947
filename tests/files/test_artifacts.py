from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from modelfuse.errors import FileError
from modelfuse.files.artifacts import model_id, open_kind
from modelfuse.files.writer import save
from modelfuse.types import Kind, Metadata

WEIGHTS = {"w": np.ones((2, 3), np.float32), "b": np.zeros(2, np.float32)}


def test_file_of_the_kind_is_opened(tmp_path: Path) -> None:
    save(tmp_path / "f3", WEIGHTS, Metadata("fisher"))
    assert open_kind(tmp_path / "f3", "fisher").shapes() == {"b": (2,), "w": (2, 3)}


def test_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    save(tmp_path / "f3", WEIGHTS, Metadata("fisher"))
    with pytest.raises(FileError, match=r"f3: a fisher file where a model file is needed. Give a model file."):
        open_kind(tmp_path / "f3", "model")


@pytest.mark.parametrize("kind", ["model", "fisher", "partition"])
def test_foreign_file_is_taken_at_its_word(tmp_path: Path, kind: Kind) -> None:
    save_file(WEIGHTS, tmp_path / "theirs")
    assert open_kind(tmp_path / "theirs", kind).metadata is None


@pytest.mark.parametrize("kind", ["prototypes", "orders"])
def test_foreign_file_of_a_kind_that_only_we_write_is_refused(tmp_path: Path, kind: Kind) -> None:
    save_file(WEIGHTS, tmp_path / "theirs")
    with pytest.raises(FileError, match=f"theirs: no {kind} file: it has no modelfuse metadata. Make the {kind} file"):
        open_kind(tmp_path / "theirs", kind)


def test_identity_depends_on_names_dtypes_shapes_and_bytes_and_on_no_order() -> None:
    identity = model_id(WEIGHTS)
    assert identity == model_id(dict(reversed(WEIGHTS.items())))
    others = [
        {"w": WEIGHTS["w"], "bias": WEIGHTS["b"]},
        {"w": WEIGHTS["w"].T, "b": WEIGHTS["b"]},
        {"w": WEIGHTS["w"].astype(np.float64), "b": WEIGHTS["b"]},
        {"w": WEIGHTS["w"] * 2, "b": WEIGHTS["b"]},
        {"w": WEIGHTS["w"]},
    ]
    assert len({identity, *map(model_id, others)}) == 6


def test_identity_passes_integer_buffers_over() -> None:
    assert model_id(WEIGHTS | {"steps": np.array(3)}) == model_id(WEIGHTS)


def test_identity_is_the_documented_digest() -> None:
    """Files in the world name models by it, so it must never change."""
    digests = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in WEIGHTS.items()}
    text = f'[["b","F32",[2],"{digests["b"]}"],["w","F32",[2,3],"{digests["w"]}"]]'
    assert model_id(WEIGHTS) == hashlib.sha256(text.encode()).hexdigest()
