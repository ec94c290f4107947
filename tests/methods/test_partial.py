"""Merges of a part of the network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from federation import random_fisher, random_model, write_client, write_federation
from safetensors.numpy import load_file

from modelfuse.cli.app import run
from modelfuse.errors import OptionError
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.patterns import Patterns


def merge(output: Path, *words: object) -> dict[str, np.ndarray]:
    assert run(["-q", "merge", *map(str, words), "-o", str(output)]) == 0
    return load_file(output)


def test_only_and_except_choose_what_is_merged(tmp_path: Path) -> None:
    models, _ = write_federation(tmp_path)
    whole = merge(tmp_path / "whole.safetensors", "-m", "fedavg", *models)
    body = merge(tmp_path / "a.safetensors", "-m", "fedavg", *models, "--only", "fc1.*", "--only", "fc2*")
    same = merge(tmp_path / "b.safetensors", "-m", "fedavg", *models, "--except", "fc3.*")
    assert set(body) == set(same) == {f"{layer}.{kind}" for layer in ("fc1", "fc2") for kind in ("weight", "bias")}
    for name in body:
        np.testing.assert_array_equal(body[name], whole[name])
        np.testing.assert_array_equal(same[name], whole[name])


def test_the_rest_comes_from_a_named_model(tmp_path: Path) -> None:
    models, _ = write_federation(tmp_path)
    part = merge(tmp_path / "a.safetensors", "-m", "fedavg", *models, "--except", "fc3.*")
    whole = merge(tmp_path / "b.safetensors", "-m", "fedavg", *models, "--except", "fc3.*", "--rest", models[1])
    own = load_file(models[1])
    assert set(whole) == set(own)
    for name in whole:
        np.testing.assert_array_equal(whole[name], part.get(name, own[name]))
    metadata = open_checkpoint(tmp_path / "b.safetensors").metadata
    assert metadata is not None
    assert metadata.history[-1].options["except"] == ["fc3.*"]
    assert metadata.history[-1].options["rest"] == open_checkpoint(models[1]).model_id()


def test_what_is_left_out_may_differ_between_clients(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    models = []
    for client, classes in enumerate((2, 5)):
        model = random_model(rng)
        model["fc3.weight"] = np.ones((classes, 4), np.float32)
        model["fc3.bias"] = np.ones(classes, np.float32)
        models.append(write_client(tmp_path, client, model, random_fisher(rng, model))[0])
    assert run(["-q", "merge", "-m", "fedavg", *map(str, models), "-o", str(tmp_path / "out.safetensors")]) == 2
    assert "fc1.weight" in merge(tmp_path / "out.safetensors", "-m", "fedavg", *models, "--except", "fc3.*")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-m", "fedavg", "--only", "conv*"], "--only conv*: no tensor of"),
        (["-m", "fedavg", "--except", "*"], "nothing of"),
        (["-m", "fedavg", "--rest", "{model}"], "--rest: everything is merged"),
        (["-m", "fedfiot", "--only", "fc1.*", "{fishers}"], "fedfiot moves units"),
    ],
)
def test_a_part_that_cannot_be_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    models, fishers = write_federation(tmp_path)
    filled = [str(models[0]) if word == "{model}" else word for word in words if word != "{fishers}"]
    filled += map(str, fishers if "{fishers}" in words else [])
    assert run(["merge", *map(str, models), *filled, "-o", str(tmp_path / "out.safetensors")]) == 2
    assert message in capfd.readouterr().err
    assert not (tmp_path / "out.safetensors").exists()


def test_the_rest_must_be_of_the_same_shapes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    models, _ = write_federation(tmp_path)
    other = random_model(rng)
    other["fc1.bias"] = np.zeros(7, np.float32)
    rest, _ = write_client(tmp_path / "other", 0, other, random_fisher(rng, other))
    words = ["-m", "fedavg", "--only", "fc1.*", "--rest", str(rest), "-o", str(tmp_path / "out.safetensors")]
    assert run(["merge", *map(str, models), *words]) == 2
    assert f"{rest}: fc1.bias is [7], merged it is [6]" in capfd.readouterr().err


def test_patterns_say_which_option_was_wrong() -> None:
    patterns = Patterns(("fc*",), ("fc9.*",))
    with pytest.raises(OptionError, match=r"--except fc9.\*: no tensor of the model is called so. There are fc1, fc2"):
        patterns.check(("fc1", "fc2"), "the model")
    assert not Patterns()
    assert Patterns().holds("anything")
