"""RegMean: the least-squares solution, against pooled data, and what it does without Gram matrices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from federation import random_fisher, random_model, write_client, write_gram
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from modelfuse.cli.app import run
from modelfuse.core.average import plain_mean
from modelfuse.files.artifacts import model_id
from modelfuse.files.writer import save
from modelfuse.methods.regmean import least_squares
from modelfuse.types import ClientInfo, Metadata


@given(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_it_is_the_least_squares_fit_to_the_pooled_inputs(seed: int, clients: int, inputs: int, outputs: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.normal(size=(inputs + 3 + number, inputs)) for number in range(clients)]
    weights = [rng.normal(size=(outputs, inputs)) for _ in rows]
    fitted = least_squares(weights, [x.T @ x / len(x) for x in rows], [len(x) for x in rows])
    told = np.concatenate([x @ weight.T for x, weight in zip(rows, weights, strict=True)])
    expected, *_ = np.linalg.lstsq(np.concatenate(rows), told, rcond=None)
    np.testing.assert_allclose(fitted, expected.T, rtol=1e-3, atol=1e-4)


def test_without_off_diagonals_it_is_a_mean_weighted_input_by_input() -> None:
    weights = [np.array([[1.0, 2.0]]), np.array([[3.0, 6.0]])]
    grams = [np.array([[1.0, 0.5], [0.5, 3.0]]), np.array([[3.0, -1.0], [-1.0, 1.0]])]
    fitted = least_squares(weights, grams, [1, 1], off_diagonal=0)
    np.testing.assert_allclose(fitted, [[(1 + 9) / 4, (6 + 6) / 4]], rtol=1e-5)


def test_an_input_that_is_never_on_takes_the_weighted_mean() -> None:
    grams = [np.diag([1.0, 0.0]), np.diag([2.0, 0.0])]
    fitted = least_squares([np.array([[1.0, 1.0]]), np.array([[1.0, 4.0]])], grams, [1, 1])
    np.testing.assert_allclose(fitted, [[1.0, (1 + 4) / 2]], rtol=1e-5)
    silent = [np.zeros((2, 2))] * 2
    np.testing.assert_allclose(least_squares([np.ones((1, 2)), 3 * np.ones((1, 2))], silent, [1, 3]), [[2.5, 2.5]])


def test_layers_without_gram_matrices_are_averaged(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    models = [random_model(rng) for _ in range(2)]
    files: list[str] = []
    for client, model in enumerate(models):
        files.append(str(write_client(tmp_path, client, model, random_fisher(rng, model), 10 * (client + 1))[0]))
        files.append(str(write_gram(tmp_path, client, model)))
    output = tmp_path / "out.safetensors"
    assert run(["-q", "merge", "-m", "regmean", *files, "--off-diagonal", "1", "-o", str(output)]) == 0
    merged = load_file(output)
    grams = [load_file(tmp_path / f"gram_{client}.safetensors") for client in range(2)]
    for name, array in merged.items():
        values = [model[name].astype(np.float64) for model in models]
        expected = plain_mean(values, [10, 20])
        if name.endswith("weight"):
            expected = least_squares(values, [gram[name].astype(np.float64) for gram in grams], [10, 20])
        np.testing.assert_allclose(array, expected, rtol=1e-6)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["-q", "merge", "-m", "regmean", *words, "-o", "never.safetensors"]) == 2
    return capsys.readouterr().err


def test_what_does_not_fit_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    model = random_model(rng)
    path, fisher = map(str, write_client(tmp_path, 0, model, random_fisher(rng, model)))
    assert "no Gram file of it is among the files. Make one with modelfuse gram" in refused(capsys, path)
    assert "a fisher file where a model is needed" in refused(capsys, path, fisher)
    assert "Gram matrices are needed, not Fishers" in refused(capsys, path, "--fisher", fisher)
    gram = str(write_gram(tmp_path, 0, model))
    owner = Metadata("gram", client=ClientInfo(0), model_id="0" * 64)
    save(tmp_path / "other.safetensors", load_file(gram), owner)
    assert "the Gram matrices of another model (000000000000…)" in refused(capsys, path, "other.safetensors")
    names = load_file(gram)
    broken = {
        "negative": -names["fc1.weight"],
        "lopsided": np.triu(names["fc1.weight"]),
        "huge": np.full((3, 3), 3e38, np.float64) * 10,
        "too-far-apart": names["fc1.weight"] + np.where(np.eye(3), 0, 100),
    }
    for name, array in broken.items():
        owner = Metadata("gram", client=ClientInfo(0), model_id=model_id(model))
        save(tmp_path / f"{name}.safetensors", {**names, "fc1.weight": array}, owner)
        assert "fc1.weight is no mean of outer products" in refused(capsys, path, f"{name}.safetensors"), name
    assert "no tensor to merge comes with" in refused(capsys, path, gram, "--only", "fc1.bias")
    assert "--off-diagonal: 2 candidates" in refused(capsys, path, gram, *["--off-diagonal", "0.1"] * 2)
    narrow = {name: array[1:, 1:] for name, array in load_file(gram).items()}
    save(tmp_path / "narrow.safetensors", narrow, Metadata("gram", client=ClientInfo(0), model_id=model_id(model)))
    assert "fc1.weight is [2, 2]" in refused(capsys, path, "narrow.safetensors")
    other = random_model(rng)
    two = str(write_client(tmp_path, 1, other, random_fisher(rng, other))[0])
    fewer = {
        name: array for name, array in load_file(str(write_gram(tmp_path, 1, other))).items() if name != "fc2.weight"
    }
    save(tmp_path / "fewer.safetensors", fewer, Metadata("gram", client=ClientInfo(1), model_id=model_id(other)))
    assert "it has no Gram matrix of fc2.weight" in refused(capsys, path, gram, two, "fewer.safetensors")
    assert run(["-q", "merge", "-m", "fedavg", path, gram, "-o", "never.safetensors"]) == 2
    assert "a gram file where a model is needed" in capsys.readouterr().err
    assert not Path("never.safetensors").exists()
