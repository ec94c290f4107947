"""The command distill, from clients' files to one model, without data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelfuse.cli.app import run
from modelfuse.files.artifacts import open_kind
from modelfuse.files.writer import save
from modelfuse.types import ClientInfo, Metadata, Step

SYNTHETIC = ["--data", "synthetic:1x8x8,count=600"]
RECIPE = ["-E", "8", "--lr", "0.05", "--batch-size", "16"]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three clients trained on skewed digits, of two architectures."""
    folder = tmp_path_factory.mktemp("federation")
    split, init = folder / "split.safetensors", folder / "init.safetensors"
    words = ["--data", "digits", "-K", "3", "--alpha", "0.3", "--server-holdout", "100"]
    assert run(["-q", "partition", *words, "-o", str(split)]) == 0
    assert run(["-q", "init", "--architecture", "mlp:in=64,hidden=30,out=10", "-o", str(init)]) == 0
    training = ["--data", "digits", "--partition", str(split), "-E", "15", "--lr", "0.05", "--batch-size", "16"]
    assert run(["-q", "train-client", str(init), *training, "--client", "0,1", "-o", str(folder / "clients")]) == 0
    other = ["--architecture", "mlp:in=64,hidden=40-20,out=10", "--init-seed", "1", "--client", "2"]
    assert run(["-q", "train-client", *other, *training, "-o", str(folder / "other.safetensors")]) == 0
    return folder


def distilled(federation: Path, output: Path, *words: str) -> int:
    models = [str(federation / "clients"), str(federation / "other.safetensors")]
    return run(["-q", "distill", *models, *SYNTHETIC, *RECIPE, *words, "-o", str(output)])


def accuracies(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, float]:
    capsys.readouterr()
    assert run(["-q", "eval", *words, "--data", "digits", "--json"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {result["model"]: result["accuracy"] for result in [*said["results"], *filter(None, [said["ensemble"]])]}


def test_images_of_nobody_tell_one_model_what_unlike_clients_know(
    federation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "one.safetensors"
    assert distilled(federation, output, "--start", str(federation / "clients/client_0.safetensors")) == 0
    clients = [str(federation / "clients"), str(federation / "other.safetensors")]
    (one,) = accuracies(capsys, str(output)).values()
    together = accuracies(capsys, *clients, "--ensemble")
    ensemble = together.pop("ensemble")
    assert one > max(together.values()) + 0.05
    assert one > ensemble - 0.15


def test_the_same_call_gives_the_same_bytes_and_says_how(federation: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    start = ["--start", str(federation / "clients/client_0.safetensors")]
    for output in (first, second):
        assert distilled(federation, output, *start, "--temperature", "2", "--seed", "3") == 0
    assert first.read_bytes() == second.read_bytes()
    metadata = open_kind(first, "model").metadata
    assert metadata is not None
    assert metadata.client is not None
    assert metadata.architecture == "mlp:in=64,out=10,hidden=30"
    assert metadata.spec is not None
    assert metadata.history[-1].options["split"] == "train"
    assert metadata.client.classes == tuple("0123456789")
    trained = [federation / "other.safetensors", *(federation / "clients").iterdir()]
    known = [open_kind(path, "model").metadata for path in trained]
    assert metadata.client.num_examples == sum(each.client.num_examples or 0 for each in known if each and each.client)
    step = metadata.history[-1]
    assert step.command == "distill"
    assert step.options["data"] == "synthetic:1x8x8,count=600,leaves=60,seed=0"
    assert step.options["temperature"] == 2
    assert step.options["normalize"] == "0.3053/0.3761"  # as the clients were trained
    own = open_kind(federation / "clients/client_0.safetensors", "model").model_id()
    assert len(step.inputs) == 4  # three clients and the start, which is one of them
    assert own == step.inputs[-1]
    assert own in step.inputs[:-1]


def test_a_student_may_start_from_nothing_and_learn_from_real_inputs(
    federation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "student.safetensors"
    fresh = ["--architecture", "mlp:in=64,hidden=16,out=10", "--init-seed", "0"]
    held = ["--data", "digits", "--partition", str(federation / "split.safetensors"), "--split", "validation"]
    assert distilled(federation, output, *fresh, *held, "-E", "60") == 0
    assert open_kind(output, "model").shapes()["fc1.weight"] == (16, 64)
    (accuracy,) = accuracies(capsys, str(output)).values()
    assert accuracy > 0.5


def refused(capsys: pytest.CaptureFixture[str], status: int) -> str:
    assert status == 2
    return capsys.readouterr().err


def test_what_it_cannot_do_and_why(federation: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "never.safetensors"
    start = ["--start", str(federation / "clients/client_0.safetensors")]
    assert "--start FILE" in refused(capsys, distilled(federation, output))
    split = ["--partition", str(federation / "split.safetensors")]
    assert "belong to nobody" in refused(capsys, distilled(federation, output, *start, *split))
    digits = ["--data", "digits", *split]
    assert "not divided here. Pass --split validation" in refused(
        capsys, distilled(federation, output, *start, *digits)
    )
    twice = str(federation / "clients/client_0.safetensors")
    assert "is given twice" in refused(capsys, distilled(federation, output, *start, twice))
    assert "7 bits" in refused(capsys, distilled(federation, output, *start, "--quantize", "7"))
    assert "are one split" in refused(capsys, distilled(federation, output, *start, "--split", "test"))
    wrong = ["--data", "synthetic:1x9x9"]
    assert "an example has shape 1×9×9" in refused(capsys, distilled(federation, output, *start, *wrong))
    other = tmp_path / "other.safetensors"
    tensors = open_kind(federation / "other.safetensors", "model").read_all()
    swapped = ClientInfo(2, 10, None, tuple("1023456789"))
    save(other, tensors, Metadata("model", "mlp:in=64,hidden=40-20,out=10", client=swapped))
    assert "classes are not the other models'" in refused(capsys, distilled(federation, output, *start, str(other)))
    white = Step("train-client", "0", {"normalize": "0.5/0.5"})
    save(other, tensors, Metadata("model", "mlp:in=64,hidden=40-20,out=10", history=(white,)))
    assert "Pass --normalize" in refused(capsys, distilled(federation, output, *start, str(other)))
    assert not output.exists()
    data = tmp_path / "inputs.npz"
    np.savez(data, x_train=np.zeros((9, 1, 8, 8), np.float32))  # labels are not asked for
    before = data.read_bytes()
    assert "is also an input" in refused(capsys, distilled(federation, data, *start, "--data", f"npz:{data}"))
    assert data.read_bytes() == before
    assert distilled(federation, output, *start, "--data", f"npz:{data}") == 0
    assert distilled(federation, output, *start, str(other), "--normalize", "digits") == 0
