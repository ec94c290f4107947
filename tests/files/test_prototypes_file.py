"""Prototype files: absent classes stay absent, and what does not go together is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from modelfuse.errors import ContentError, FileError
from modelfuse.files.artifacts import open_kind
from modelfuse.files.prototypes import Prototypes, check_classes, read_prototypes
from modelfuse.files.writer import save
from modelfuse.types import ClientInfo, Metadata

CLASSES = ("cat", "dog", "eel", "fox")
TWO = Prototypes(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 3]), np.array([5, 1]))


def write(folder: Path, tensors: dict[str, NDArray[np.generic]]) -> Path:
    path = folder / "p.safetensors"
    save(path, tensors, Metadata("prototypes", client=ClientInfo(classes=CLASSES)))
    return path


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    read = read_prototypes(open_kind(write(tmp_path, TWO.tensors()), "prototypes"))
    np.testing.assert_array_equal(read.vectors, TWO.vectors)
    np.testing.assert_array_equal(read.classes, [1, 3])
    np.testing.assert_array_equal(read.counts, [5, 1])
    assert read.width == 2


def test_an_absent_class_is_no_zero() -> None:
    table = TWO.table(4)
    assert np.isnan(table[[0, 2]]).all()
    np.testing.assert_array_equal(table[[1, 3]], TWO.vectors)


def test_only_some_classes_prototypes() -> None:
    kept = TWO.only({0, 3})
    np.testing.assert_array_equal(kept.classes, [3])
    np.testing.assert_array_equal(kept.vectors, [[3.0, 4.0]])
    assert TWO.only([]).vectors.shape == (0, 2)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"counts": np.array([5])}, "do not go together"),
        ({"classes": np.array([1.0, 3.0])}, "do not go together"),
        ({"prototypes": np.zeros(2, np.float32)}, "do not go together"),
        ({"classes": np.array([3, 1])}, "do not ascend"),
        ({"classes": np.array([-1, 1])}, "do not ascend"),
        ({"counts": np.array([5, 0])}, "has no examples"),
        ({"prototypes": np.array([[1, np.nan], [0, 0]], np.float32)}, "NaN or infinite"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, changed: dict[str, NDArray[np.generic]], message: str
) -> None:
    path = write(tmp_path, {**TWO.tensors(), **changed})
    with pytest.raises(ContentError, match=message):
        read_prototypes(open_kind(path, "prototypes"))


def test_label_orders_must_agree(tmp_path: Path) -> None:
    file = open_kind(write(tmp_path, TWO.tensors()), "prototypes")
    check_classes(file, CLASSES, "the data")
    with pytest.raises(ContentError, match="its label order is not that of the data"):
        check_classes(file, CLASSES[::-1], "the data")


def test_a_foreign_file_of_prototypes_is_refused(tmp_path: Path) -> None:
    import safetensors.numpy

    path = tmp_path / "foreign.safetensors"
    safetensors.numpy.save_file(TWO.tensors(), path)
    with pytest.raises(FileError, match="no prototypes file"):
        open_kind(path, "prototypes")
