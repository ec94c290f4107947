"""Profiled matching and refinement as a user gets them: files in, report and orders out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation import ARCHITECTURE, random_fisher, random_model, shuffled, write_client, write_federation
from safetensors.numpy import load_file

from modelfuse.cli.app import run
from modelfuse.core.units import realign
from modelfuse.errors import OptionError
from modelfuse.methods.fedfiot import FedFiOT
from modelfuse.spec.architectures import parse_architecture

SWITCHES = {
    "profiled": ["--matching", "profiled"],
    "profiled, refined": ["--matching", "profiled", "--refine"],
    "fisher, refined": ["--refine"],
    "euclidean, refined": ["--matching", "euclidean", "--refine"],
}


def _merge(folder: Path, files: list[Path], *options: str) -> dict[str, Any]:
    outputs = ["-o", str(folder / "out.safetensors"), "--report", str(folder / "report.json")]
    orders = ["--orders", str(folder / "orders.safetensors")]
    assert run(["--quiet", "merge", "--method", "fedfiot", *map(str, files), *outputs, *orders, *options]) == 0
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


@pytest.mark.parametrize("switches", SWITCHES.values(), ids=SWITCHES)
def test_a_shuffle_is_undone(tmp_path: Path, switches: list[str]) -> None:
    rng = np.random.default_rng(2)
    model = random_model(rng)
    fisher = random_fisher(rng, model)
    files = list(write_client(tmp_path, 0, model, fisher, 20))
    for client in (1, 2):
        other, other_fisher = shuffled(rng, model, fisher)
        files += write_client(tmp_path, client, other, other_fisher)
    report = _merge(tmp_path, files, *switches)
    assert report["objective"]["aligned"] == pytest.approx(0, abs=1e-12)
    assert report["objective"]["chosen"] == "aligned"
    for name, array in load_file(tmp_path / "out.safetensors").items():
        np.testing.assert_allclose(array, model[name], rtol=1e-6)
    orders = load_file(tmp_path / "orders.safetensors")
    spec = parse_architecture(ARCHITECTURE).spec()
    back = realign(load_file(files[2]), spec, {group: orders[f"{group}.client_1"] for group in ("fc1", "fc2")})
    for name, array in back.items():
        np.testing.assert_array_equal(array, model[name])


def test_refining_clients_by_index_makes_an_alignment_of_them(tmp_path: Path) -> None:
    models, fishers = write_federation(tmp_path)
    by_index = _merge(tmp_path, models + fishers, "--matching", "identity")
    assert by_index["objective"]["chosen"] == "identity"
    report = _merge(tmp_path, models + fishers, "--matching", "identity", "--refine", "--refine-seed", "3")
    refinement = report["refinement"]
    assert refinement["seed"] == 3
    assert refinement["objective_at_start"] == pytest.approx(by_index["objective"]["identity"], rel=1e-9)
    assert refinement["sweeps"][-1]["objective"] == pytest.approx(report["objective"]["aligned"], rel=1e-9)
    assert report["objective"]["aligned"] < report["objective"]["identity"]
    assert report["objective"]["chosen"] == "aligned"
    assert len(report["groups"]["fc1"]["permuted_fraction"]) == 3
    assert load_file(tmp_path / "orders.safetensors").keys() == {
        f"{group}.client_{client}" for group in ("fc1", "fc2") for client in range(3)
    }


def test_refining_lowers_what_the_layers_left(tmp_path: Path) -> None:
    models, fishers = write_federation(tmp_path)
    layers = _merge(tmp_path, models + fishers, "--matching", "profiled")
    refined = _merge(tmp_path, models + fishers, "--matching", "profiled", "--refine")
    assert refined["refinement"]["objective_at_start"] == pytest.approx(layers["objective"]["aligned"], rel=1e-9)
    assert refined["objective"]["aligned"] < layers["objective"]["aligned"]
    assert layers["groups"]["fc1"]["iterations"] == _without_times(refined, layers)


def test_a_reference_from_outside_seeds_profiled_matching(tmp_path: Path) -> None:
    models, fishers = write_federation(tmp_path)
    other = write_client(tmp_path / "other", 9, random_model(np.random.default_rng(9)), {})[0]
    report = _merge(tmp_path, models + fishers, "--matching", "profiled", "--reference", str(other))
    assert Path(report["reference"]).name == other.name
    assert report["groups"]["fc1"]["iterations"]


def test_a_negative_seed_is_an_error() -> None:
    with pytest.raises(OptionError, match="--refine-seed: -1 is negative"):
        FedFiOT(refine=True, refine_seed=-1)
    with pytest.raises(OptionError, match="--refine-seed: nothing is refined"):
        FedFiOT(refine_seed=4)


def _without_times(report: dict[str, Any], like: dict[str, Any]) -> list[dict[str, float]]:
    """Return the first group's steps with the other run's seconds."""
    pairs = zip(report["groups"]["fc1"]["iterations"], like["groups"]["fc1"]["iterations"], strict=True)
    return [step | {key: other[key] for key in ("cost_seconds", "lap_seconds")} for step, other in pairs]


@pytest.mark.parametrize("switches", [[], ["--refine"], ["--matching", "identity"], ["--average", "uniform"]])
def test_even_logits_reach_the_merged_output_layer(tmp_path: Path, switches: list[str]) -> None:
    models, fishers = write_federation(tmp_path)
    _merge(tmp_path, models + fishers, "--even-logits", "--no-safeguard", *switches)
    merged, orders = load_file(tmp_path / "out.safetensors"), load_file(tmp_path / "orders.safetensors")
    spec = parse_architecture(ARCHITECTURE).spec()
    weight, bias = np.zeros((2, 4)), np.zeros(2)
    for client, path in enumerate(fishers):
        moved = {key.split(".")[0]: order for key, order in orders.items() if key.endswith(f"client_{client}")}
        fisher = realign(load_file(path), spec, moved)
        weight += np.sqrt(fisher["fc3.weight"].mean(axis=0))
        bias += np.sqrt(fisher["fc3.bias"].mean())
    logits = np.sum(merged["fc3.weight"] * weight, axis=1) + merged["fc3.bias"] * bias
    np.testing.assert_allclose(logits, 0, atol=1e-5)


def test_even_logits_change_no_layer_below(tmp_path: Path) -> None:
    models, fishers = write_federation(tmp_path)
    _merge(tmp_path, models + fishers, "--no-safeguard")
    plain = load_file(tmp_path / "out.safetensors")
    _merge(tmp_path, models + fishers, "--no-safeguard", "--even-logits")
    evened = load_file(tmp_path / "out.safetensors")
    assert {name for name in plain if not np.array_equal(plain[name], evened[name])} == {"fc3.weight", "fc3.bias"}


def test_even_logits_need_to_know_the_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models, fishers = write_federation(tmp_path)
    spec = parse_architecture(ARCHITECTURE).spec().to_json() | {"class_axis": {}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    files = [
        *map(str, models + fishers),
        "--spec",
        str(tmp_path / "spec.json"),
        "-o",
        str(tmp_path / "out.safetensors"),
    ]
    assert run(["merge", "--method", "fedfiot", "--even-logits", *files]) == 2
    assert "--even-logits: the spec does not say which tensors write the classes" in capsys.readouterr().err
    assert not (tmp_path / "out.safetensors").exists()
