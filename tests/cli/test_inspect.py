"""The inspect command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from federation import ARCHITECTURE, write_federation
from safetensors.numpy import save_file

from modelfuse.cli.app import run
from modelfuse.spec.architectures import parse_architecture


def test_json_says_what_is_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models, _ = write_federation(tmp_path)
    assert run(["inspect", str(models[1]), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["kind"] == "model"
    assert said["architecture"] == ARCHITECTURE
    assert said["groups"] == {"fc1": 6, "fc2": 4}
    assert said["client"]["num_examples"] == 30
    assert said["entries"] == 6 * 3 + 6 + 4 * 6 + 4 + 2 * 4 + 2
    assert said["tensors"]["fc2.weight"]["shape"] == [4, 6]
    assert said["bytes"] == models[1].stat().st_size


def test_a_person_reads_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models, _ = write_federation(tmp_path)
    assert run(["inspect", str(models[0])]) == 0
    text = capsys.readouterr().out
    for words in ("model_id", "fc1 6, fc2 4", "cat, dog", "fc1.weight", "6×3"):
        assert words in text


def test_a_foreign_file_is_shown_and_can_be_given_a_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"w": np.float32([[3, 4]])}, path)
    assert run(["inspect", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["foreign"]
    assert said["tensors"]["w"] == {"dtype": "F32", "shape": [1, 2], "norm": 5}
    assert run(["inspect", str(path), "--spec"]) == 2
    assert "Pass the --architecture" in capsys.readouterr().err


def test_the_spec_printed_is_the_architectures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models, _ = write_federation(tmp_path)
    assert run(["inspect", str(models[0]), "--spec"]) == 0
    assert json.loads(capsys.readouterr().out) == parse_architecture(ARCHITECTURE).spec().to_json()


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(tmp_path / "absent.safetensors")]) == 2
    assert "absent.safetensors: there is no such file" in capsys.readouterr().err


def test_nan_becomes_null_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file({"w": np.float32([np.nan])}, tmp_path / "nan.safetensors")
    assert run(["inspect", str(tmp_path / "nan.safetensors"), "--json"]) == 0
    text = capsys.readouterr().out
    assert "NaN" not in text
    assert json.loads(text)["tensors"]["w"]["norm"] is None
