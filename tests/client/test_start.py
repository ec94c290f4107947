"""Where local training starts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from modelfuse.client.models import create, tensors_of
from modelfuse.client.start import open_start
from modelfuse.errors import ContentError, FileError, OptionError
from modelfuse.files.artifacts import model_id
from modelfuse.files.writer import save
from modelfuse.spec.architectures import parse_architecture
from modelfuse.spec.axes import PermutationSpec, read_spec
from modelfuse.types import Metadata, Step

ARCHITECTURE = "mlp:in=4,out=2,hidden=3"
MADE = Step("init", "0", {"seed": 0})


def broadcast(folder: Path, metadata: bool = True) -> Path:
    tensors = tensors_of(create(ARCHITECTURE, 7))
    path = folder / "init.safetensors"
    if metadata:
        spec = parse_architecture(ARCHITECTURE).spec().to_json()
        save(path, tensors, Metadata("model", ARCHITECTURE, spec, history=(MADE,)))
    else:
        safetensors.numpy.save_file(tensors, path)
    return path


def test_all_clients_share_a_broadcast_model_and_none_trains_anothers(tmp_path: Path) -> None:
    start = open_start(broadcast(tmp_path), None, None, None)
    first, second = start.network(0), start.network(1)
    assert first is not second
    expected = tensors_of(create(ARCHITECTURE, 7))
    for network in (first, second):
        for name, array in tensors_of(network).items():
            np.testing.assert_array_equal(array, expected[name])
    assert (start.architecture, start.history, start.inputs) == (ARCHITECTURE, (MADE,), (model_id(expected),))
    assert start.spec == parse_architecture(ARCHITECTURE).spec().to_json()


def test_a_foreign_broadcast_model_needs_its_architecture(tmp_path: Path) -> None:
    path = broadcast(tmp_path, metadata=False)
    with pytest.raises(OptionError, match="does not say its architecture"):
        open_start(path, None, None, None)
    start = open_start(path, ARCHITECTURE, None, None)
    assert start.spec == parse_architecture(ARCHITECTURE).spec().to_json()


def test_an_init_seed_gives_every_client_weights_of_its_own(tmp_path: Path) -> None:
    from_text = open_start(None, "mlp:out=2,hidden=3,in=4", 5, None)
    from_file = open_start(broadcast(tmp_path), None, 5, None)
    assert from_text.architecture == ARCHITECTURE
    assert from_file.inputs == ()  # nothing of the broadcast model but its architecture is left
    ids = [[model_id(tensors_of(start.network(client))) for client in (0, 1, 0)] for start in (from_text, from_file)]
    assert ids[0] == ids[1]
    assert ids[0][0] == ids[0][2] != ids[0][1]
    other = open_start(None, ARCHITECTURE, 6, None)
    assert model_id(tensors_of(other.network(0))) not in ids[0]


def test_there_must_be_something_to_start_from() -> None:
    for architecture, seed in ((None, None), (ARCHITECTURE, None), (None, 3)):
        with pytest.raises(OptionError, match="nothing to start from. Give a broadcast model, or --architecture and"):
            open_start(None, architecture, seed, None)


def test_a_spec_file_is_carried_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "linear_network.py").write_text("from torch import nn\ndef make(): return nn.Linear(4, 2)\n")
    monkeypatch.chdir(tmp_path)
    spec = {"axes": {"weight": [None, None], "bias": [None]}, "class_axis": {"weight": 0}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    start = open_start(None, "python:linear_network:make", 1, tmp_path / "spec.json")
    assert start.spec == PermutationSpec.from_json(spec, "spec.json").to_json()
    assert set(tensors_of(start.network(0))) == {"weight", "bias"}
    assert open_start(None, "python:linear_network:make", 1, None).spec is None


def test_faults_of_spec_files(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    with pytest.raises(FileError, match=r"spec.json: not a JSON file"):
        read_spec(path)
    for text in ("{", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(FileError, match=r"spec.json: not a JSON file"):
            read_spec(path)
    path.write_text('{"axes": 3}')
    with pytest.raises(ContentError, match=r"spec.json: not a permutation spec"):
        read_spec(path)
