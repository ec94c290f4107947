"""Clients' own examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modelfuse.client.data import load_data
from modelfuse.client.shares import classes_known, client_datasets
from modelfuse.errors import ContentError, OptionError
from modelfuse.files.writer import save
from modelfuse.types import Metadata


def split(folder: Path, largest: int = 9, classes: str = "0123456789") -> Path:
    tensors = {"client_0": np.array([4, largest]), "client_1": np.array([], dtype=np.int64), "client_2": np.array([0])}
    path = folder / "split.safetensors"
    save(path, tensors, Metadata("partition", details={"classes": list(classes)}))
    return path


def test_each_client_has_its_own_examples(tmp_path: Path) -> None:
    whole = load_data("digits", "train")
    shares = client_datasets("digits", split(tmp_path), "2,0,1")
    assert list(shares) == [2, 0, 1]
    assert [len(shares[number]) for number in range(3)] == [2, 0, 1]
    np.testing.assert_array_equal(shares[0].inputs, whole.inputs[[4, 9]])
    np.testing.assert_array_equal(shares[2].labels, whole.labels[[0]])
    assert list(client_datasets("digits", split(tmp_path), "all")) == [0, 1, 2]


def test_without_a_partition_all_is_one_clients() -> None:
    assert list(client_datasets("digits", None, None)) == [0]
    shares = client_datasets("digits", None, "12")
    assert list(shares) == [12]
    assert len(shares[12]) == 1438
    with pytest.raises(OptionError, match="--client: 'all' without a partition"):
        client_datasets("digits", None, "all")


def test_a_partition_must_be_of_this_data(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--client: the partition has several clients"):
        client_datasets("digits", split(tmp_path), None)
    with pytest.raises(ContentError, match=r"split.safetensors: client_0 speaks of example 1438 and --data has 1438"):
        client_datasets("digits", split(tmp_path, largest=1438), "2")
    with pytest.raises(ContentError, match="made for other classes"):
        client_datasets("digits", split(tmp_path, classes="abcdefghij"), "0")


def test_a_partition_that_was_written_again_is_read_again(tmp_path: Path) -> None:
    before = client_datasets("digits", split(tmp_path), "0")
    assert client_datasets("digits", tmp_path / "split.safetensors", "0") is before  # still in memory
    after = client_datasets("digits", split(tmp_path, largest=8), "0")
    whole = load_data("digits", "train")
    np.testing.assert_array_equal(after[0].inputs, whole.inputs[[4, 8]])


def test_test_examples_need_a_partition_that_deals_them(tmp_path: Path) -> None:
    with pytest.raises(ContentError, match="it has no clients' test examples"):
        client_datasets("digits", split(tmp_path), "0", split="test")
    path = tmp_path / "both.safetensors"
    save(path, {"client_0": np.array([4]), "test_0": np.array([3, 1])}, Metadata("partition"))
    shares = client_datasets("digits", path, "0", split="test")
    np.testing.assert_array_equal(shares[0].labels, load_data("digits", "test").labels[[3, 1]])
    assert classes_known("digits", path, [0]) == {0: [int(load_data("digits", "train").labels[4])]}
