"""The merge command: the paper's worked example to the digit, grids, reports."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from federation import write_federation
from safetensors.numpy import load_file, save_file

from modelfuse.cli.app import run
from modelfuse.files.writer import save
from modelfuse.types import ClientInfo, Metadata


@pytest.fixture
def appendix_g(tmp_path: Path) -> list[str]:
    """Write FedFiOT's appendix G as foreign files and return the arguments that merge them by hand."""
    save_file({"w": np.float32([[0], [4], [8]])}, tmp_path / "one.safetensors")
    save_file({"w": np.float32([[10], [2], [6]])}, tmp_path / "two.safetensors")
    save_file({"w": np.float32([[2], [0], [2]])}, tmp_path / "fisher_one.safetensors")
    save_file({"w": np.float32([[0], [0], [2]])}, tmp_path / "fisher_two.safetensors")
    (tmp_path / "spec.json").write_text(json.dumps({"axes": {"w": [["hidden", "match", 1, 1], None]}}))
    clients = [str(tmp_path / "one.safetensors"), str(tmp_path / "two.safetensors")]
    fishers = [
        "--fisher",
        str(tmp_path / "fisher_one.safetensors"),
        "--fisher",
        str(tmp_path / "fisher_two.safetensors"),
    ]
    output = ["-o", str(tmp_path / "out.safetensors"), "--spec", str(tmp_path / "spec.json"), "--num-examples", "2,1"]
    return [*clients, *fishers, *output]


def _merged(tmp_path: Path) -> list[float]:
    return load_file(tmp_path / "out.safetensors")["w"].ravel().tolist()


def test_appendix_g_to_the_digit(tmp_path: Path, appendix_g: list[str]) -> None:
    report = tmp_path / "report.json"
    options = ["--method", "fedfiot", "--rho", "1", "--lam", "1", "--report", str(report)]
    assert run(["-q", "merge", *options, *appendix_g]) == 0
    assert _merged(tmp_path) == [0.5, 5.5, 8.5]
    said = json.loads(report.read_text())
    group = said["groups"]["hidden"]
    assert group["objective_at_reference"] == 116
    assert [step["objective"] for step in group["iterations"]] == [9, 9]
    assert group["stop"] == "unchanged"
    assert group["permuted_fraction"] == [0, 1]
    assert said["objective"] == {"aligned": 9, "identity": 83, "chosen": "aligned"}


@pytest.mark.parametrize(
    ("options", "merged", "objective"),
    [
        (["--matching", "identity"], [2.5, 3, 7], 83),
        (["--matching", "identity", "--average", "uniform"], [5, 3, 7], 108),
        (["--average", "uniform", "--no-safeguard"], [1, 5, 9], 12),
    ],
)
def test_appendix_g_comparisons(
    tmp_path: Path, appendix_g: list[str], options: list[str], merged: list[float], objective: float
) -> None:
    report = tmp_path / "report.json"
    told = ["--method", "fedfiot", "--rho", "1", "--lam", "1", "--report", str(report), *options]
    assert run(["-q", "merge", *told, *appendix_g]) == 0
    assert _merged(tmp_path) == merged
    assert json.loads(report.read_text())["objective"]["aligned"] == objective


def test_a_reference_file_decides_the_order_of_the_units(tmp_path: Path, appendix_g: list[str]) -> None:
    told = ["--method", "fedfiot", "--rho", "1", "--lam", "1", "--reference", str(tmp_path / "two.safetensors")]
    assert run(["-q", "merge", *told, *appendix_g]) == 0
    assert sorted(_merged(tmp_path)) == [0.5, 5.5, 8.5]
    assert _merged(tmp_path) != [0.5, 5.5, 8.5]


def test_json_goes_to_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models, _ = write_federation(tmp_path)
    told = ["-o", str(tmp_path / "out.safetensors"), "--json", "--label", "alpha=0.1"]
    assert run(["merge", "--method", "fedavg", *map(str, models), *told]) == 0
    streams = capsys.readouterr()
    said = json.loads(streams.out)
    assert said["kind"] == "merge"
    assert said["labels"] == {"alpha": "0.1"}
    assert [entry["num_examples"] for entry in said["inputs"]] == [10, 30, 20]
    assert "fedavg of 3 clients" in streams.err


def test_a_merge_of_merges_weighs_all_examples(tmp_path: Path) -> None:
    models, _ = write_federation(tmp_path)
    first, second, both = (str(tmp_path / name) for name in ("a.safetensors", "b.safetensors", "c.safetensors"))
    assert run(["-q", "merge", "-m", "fedavg", str(models[0]), str(models[1]), "-o", first]) == 0
    assert run(["-q", "merge", "-m", "fedavg", first, str(models[2]), "-o", second]) == 0
    assert run(["-q", "merge", "-m", "fedavg", *map(str, models), "-o", both]) == 0
    one, other = load_file(second), load_file(both)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6)


def test_a_grid_keeps_the_candidate_that_validates_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(40, 3)).astype(np.float32)
    first = {"fc1.weight": np.float32([[5, 0, 0], [-5, 0, 0]])}  # decides by the sign of the first feature
    second = {"fc1.weight": np.float32([[0, 5, 0], [0, -5, 0]])}  # by the second
    labels = (inputs[:, 0] < 0).astype(np.int64)
    np.savez(tmp_path / "data.npz", x_train=inputs, y_train=labels, x_test=inputs, y_test=labels)
    files = []
    for client, (model, scale) in enumerate(((first, 1.0), (second, 1e-6))):
        info = ClientInfo(client, 20, (10, 10), ("0", "1"))
        path = tmp_path / f"client_{client}.safetensors"
        spec = {"axes": {"fc1.weight": [None, None]}, "class_axis": {"fc1.weight": 0}}
        identity = save(path, model, Metadata("model", "mlp:in=3,out=2,bias=false", spec, info))
        fisher = tmp_path / f"fisher_{client}.safetensors"
        save(fisher, {"fc1.weight": np.full((2, 3), scale, np.float32)}, Metadata("fisher", model_id=identity))
        files += [str(path), str(fisher)]
    split = {"client_0": np.arange(20), "client_1": np.arange(20, 30), "validation": np.arange(30, 40)}
    save(tmp_path / "split.safetensors", split, Metadata("partition"))
    report = tmp_path / "report.json"
    grid = ["--rho", "0.001", "--rho", "1", "--validate", f"npz:{tmp_path / 'data.npz'}", "--normalize", "0,0,0/1,1,1"]
    told = ["--partition", str(tmp_path / "split.safetensors"), "--report", str(report), "--device", "cpu"]
    output = ["-o", str(tmp_path / "out.safetensors")]
    assert run(["-q", "merge", "-m", "fisher", *files, *grid[:6], *told, *output]) == 0
    said = json.loads(report.read_text())
    assert said["settings"]["rho"] == 1
    assert [line["settings"]["rho"] for line in said["candidates"]] == [0.001, 1]
    assert said["validation_accuracy"] == max(line["validation_accuracy"] for line in said["candidates"]) == 1
    assert said["candidates"][0]["validation_accuracy"] < 1
    np.testing.assert_allclose(load_file(tmp_path / "out.safetensors")["fc1.weight"], first["fc1.weight"], atol=1e-4)
    assert "validation %" in capsys.readouterr().out


def test_a_partition_without_hold_out_cannot_choose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models, fishers = write_federation(tmp_path)
    save(tmp_path / "split.safetensors", {"client_0": np.arange(20)}, Metadata("partition"))
    told = ["--validate", "digits", "--partition", str(tmp_path / "split.safetensors"), "--rho", "0.2", "--rho", "0.3"]
    files = [*map(str, models), *map(str, fishers), "-o", str(tmp_path / "out.safetensors")]
    assert run(["merge", "-m", "fisher", *files, *told]) == 2
    assert "it holds out no examples. Make it with --server-holdout" in capsys.readouterr().err


def test_references_are_part_of_the_grid(tmp_path: Path) -> None:
    models, fishers = write_federation(tmp_path)
    rng = np.random.default_rng(1)
    inputs, labels = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(0, 2, size=40)
    np.savez(tmp_path / "data.npz", x_train=inputs, y_train=labels, x_test=inputs, y_test=labels)
    save(
        tmp_path / "split.safetensors",
        {"client_0": np.arange(9), "validation": np.arange(9, 40)},
        Metadata("partition"),
    )
    chosen = ["--validate", f"npz:{tmp_path / 'data.npz'}", "--partition", str(tmp_path / "split.safetensors")]
    told = ["--reference", "largest", "--reference", str(models[0]), "--lam", "1e-3", "--lam", "1e-4", "--no-safeguard"]
    report = tmp_path / "report.json"
    output = ["-o", str(tmp_path / "out.safetensors"), "--report", str(report)]
    assert run(["-q", "merge", "-m", "fedfiot", *map(str, [*models, *fishers]), *told, *chosen, *output]) == 0
    said = json.loads(report.read_text())
    tried = [(line["settings"]["reference"], line["settings"]["lam"]) for line in said["candidates"]]
    assert tried == [("largest", 1e-3), ("largest", 1e-4), (str(models[0]), 1e-3), (str(models[0]), 1e-4)]
    accuracies = [line["validation_accuracy"] for line in said["candidates"]]
    assert said["settings"] == said["candidates"][accuracies.index(max(accuracies))]["settings"]
    alone = ["--reference", said["settings"]["reference"], "--lam", str(said["settings"]["lam"]), "--no-safeguard"]
    again = ["-o", str(tmp_path / "again.safetensors")]
    assert run(["-q", "merge", "-m", "fedfiot", *map(str, [*models, *fishers]), *alone, *again]) == 0
    one, other = load_file(tmp_path / "out.safetensors"), load_file(tmp_path / "again.safetensors")
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_two_references_need_something_to_choose_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models, fishers = write_federation(tmp_path)
    told = ["--reference", "largest", "--reference", str(models[0]), "-o", str(tmp_path / "out.safetensors")]
    assert run(["merge", "-m", "fedfiot", *map(str, [*models, *fishers]), *told]) == 2
    assert "2 candidates and nothing to choose by. Pass --validate" in capsys.readouterr().err


def test_a_reference_that_the_method_ignores_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models, _ = write_federation(tmp_path)
    told = ["--reference", str(models[0]), "-o", str(tmp_path / "out.safetensors")]
    assert run(["merge", "-m", "fedavg", *map(str, models), *told]) == 2
    assert "--reference: method fedavg does not know it" in capsys.readouterr().err
