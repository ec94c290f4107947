"""Clients that start from models of their own, under a partial broadcast or without one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modelfuse.client.models import create, tensors_of
from modelfuse.client.start import open_starts
from modelfuse.errors import ContentError, FileError
from modelfuse.files.folders import clients_files, own_model
from modelfuse.files.writer import save
from modelfuse.types import Metadata

NARROW, WIDE = "mlp:in=4,out=2,hidden=3", "mlp:in=4,out=2,hidden=5"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    for client, architecture in ((0, NARROW), (2, NARROW), (10, WIDE)):
        tensors = tensors_of(create(architecture, client))
        save(folder / f"client_{client}.safetensors", tensors, Metadata("model", architecture))
    return folder


def test_a_folder_gives_each_client_its_own_model(own: Path) -> None:
    starts = open_starts((10, 0), own, None, None, None)
    assert {client: start.architecture for client, start in starts.items()} == {0: NARROW, 10: WIDE}
    for client, start in starts.items():
        expected = tensors_of(create(start.architecture, client))
        for name, array in tensors_of(start.network(client)).items():
            np.testing.assert_array_equal(array, expected[name])
    assert len({start.inputs for start in starts.values()}) == 2


def test_one_model_is_everybodys(own: Path) -> None:
    starts = open_starts((0, 1, 2), own_model(own, 0), None, None, None)
    assert starts[0] is starts[1] is starts[2]


def test_a_client_without_a_model_is_named(own: Path) -> None:
    with pytest.raises(FileError, match=r"client_1.safetensors: there is no such file"):
        open_starts((0, 1), own, None, None, None)


def test_an_overlay_replaces_what_it_holds(own: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "body.safetensors"
    identity = save(overlay, {"fc2.bias": np.array([7.0, 8.0], np.float32)}, Metadata("model"))
    starts = open_starts((0, 10), own, None, None, None, overlay)
    for client, start in starts.items():
        found, before = tensors_of(start.network(client)), tensors_of(create(start.architecture, client))
        np.testing.assert_array_equal(found["fc2.bias"], [7.0, 8.0])
        np.testing.assert_array_equal(found["fc1.weight"], before["fc1.weight"])
        assert start.inputs[-1] == identity


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"fc9.bias": np.zeros(2, np.float32)}, "client 0's model has no tensor fc9.bias"),
        ({"fc1.bias": np.zeros(5, np.float32)}, r"fc1.bias has shape \(5,\) and the architecture \(3,\)"),
    ],
)
def test_an_overlay_must_fit(own: Path, tmp_path: Path, tensors: dict[str, np.ndarray], message: str) -> None:
    overlay = tmp_path / "body.safetensors"
    save(overlay, tensors, Metadata("model"))
    with pytest.raises(ContentError, match=message):
        open_starts((0,), own, None, None, None, overlay)[0].network(0)


def test_folders_stand_for_their_clients_files_by_number(own: Path, tmp_path: Path) -> None:
    found = clients_files([own, tmp_path / "alone.safetensors"])
    assert [path.name for path in found] == [
        "client_0.safetensors", "client_2.safetensors", "client_10.safetensors", "alone.safetensors",
    ]  # fmt: skip
    (tmp_path / "sharded").mkdir()
    assert clients_files([tmp_path / "sharded"]) == [tmp_path / "sharded"]
    assert own_model(tmp_path / "sharded", 3) == tmp_path / "sharded"
