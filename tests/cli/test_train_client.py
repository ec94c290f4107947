"""The commands partition and train-client, from data to files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from modelfuse.cli.app import run
from modelfuse.client.models import create, tensors_of
from modelfuse.client.partition import read_partition
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.writer import save
from modelfuse.types import Metadata

ARCHITECTURE = "mlp:in=64,out=10,hidden=12"


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("split") / "split.safetensors"
    words = ["--data", "digits", "-K", "3", "--alpha", "0.5", "--seed", "1", "--server-holdout", "100"]
    assert run(["-q", "partition", *words, "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def init(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("init") / "init.safetensors"
    save(path, tensors_of(create(ARCHITECTURE, 0)), Metadata("model", ARCHITECTURE))
    return path


def train(split: Path, output: Path, *words: str) -> int:
    return run(["-q", "train-client", *words, "--data", "digits", "--partition", str(split), "-o", str(output)])


def test_a_partition_says_how_it_was_made(split: Path) -> None:
    metadata = open_checkpoint(split).metadata
    assert metadata is not None
    said = metadata.details
    assert (said["scheme"], said["num_clients"], said["alpha"], said["seed"]) == ("dirichlet-client", 3, 0.5, 1)
    assert said["classes"] == list("0123456789")
    partition = read_partition(split)
    assert [sum(row) for row in said["class_counts"]] == [len(indices) for indices in partition.clients]
    assert sum(map(len, partition.clients)) == 1438 - 100
    assert metadata.history[-1].command == "partition"


def test_a_partition_that_cannot_be_leaves_the_earlier_one(split: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = split.read_bytes()
    words = ["--data", "digits", "-K", "3", "--alpha", "0.5", "--min-examples", "475"]
    assert run(["partition", *words, "-o", str(split)]) == 2
    assert "--min-examples: none of 100 draws" in capsys.readouterr().err
    assert split.read_bytes() == before


def test_the_bytes_do_not_depend_on_how_many_train_at_once(split: Path, init: Path, tmp_path: Path) -> None:
    assert train(split, tmp_path / "two", str(init), "--client", "all", "--jobs", "2") == 0
    assert train(split, tmp_path / "one", str(init), "--client", "all", "--jobs", "1") == 0
    assert train(split, tmp_path / "c2.safetensors", str(init), "--client", "2") == 0
    names = [f"client_{number}.safetensors" for number in range(3)]
    assert sorted(path.name for path in (tmp_path / "two").iterdir()) == names
    for name in names:
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert (tmp_path / "c2.safetensors").read_bytes() == (tmp_path / "one" / names[2]).read_bytes()


def test_a_client_learns_its_own_examples(split: Path, init: Path, tmp_path: Path) -> None:
    from modelfuse.client.models import load_network
    from modelfuse.client.shares import client_datasets

    assert train(split, tmp_path / "c.safetensors", str(init), "--client", "1", "-E", "30") == 0
    import torch

    network = load_network(open_checkpoint(tmp_path / "c.safetensors"), None, torch.device("cpu"))
    own = client_datasets("digits", split, "1")[1]
    with torch.no_grad():
        hits = network(own.batch(slice(None))).argmax(1) == own.labels
    assert hits.float().mean() > 0.95


def test_independent_starts_and_epochs_on_the_way(split: Path, tmp_path: Path) -> None:
    words = ["--architecture", ARCHITECTURE, "--init-seed", "3", "--client", "0,2", "--save-at", "1,2", "-E", "2"]
    assert train(split, tmp_path / "clients", *words) == 0
    made = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.safetensors")}
    folders = ("clients", "clients-epoch1", "clients-epoch2")
    assert made == {f"{folder}/client_{number}.safetensors" for folder in folders for number in (0, 2)}
    metadata = open_checkpoint(tmp_path / "clients" / "client_2.safetensors").metadata
    assert metadata is not None
    assert metadata.spec is not None
    assert metadata.history[-1].options["init_seed"] == 3


def test_retraining_behind_a_global_layer(split: Path, init: Path, tmp_path: Path) -> None:
    start = tmp_path / "start.safetensors"
    said = {"fedma": {"through": "fc1"}}
    save(start, tensors_of(create(ARCHITECTURE, 0)), Metadata("model", ARCHITECTURE, details=said))
    words = ["--freeze-through", "fc1", "--freeze-rule", "fedma", "-E", "2", "--lr", "0.1", "--client", "1"]
    assert train(split, tmp_path / "c.safetensors", str(start), *words) == 0
    before, after = open_checkpoint(start), open_checkpoint(tmp_path / "c.safetensors")
    changed = {name for name in before.layout if not np.array_equal(before.read(name), after.read(name))}
    assert changed == {"fc2.weight", "fc2.bias"}
    assert after.metadata is not None
    assert after.metadata.details == said
    options = after.metadata.history[-1].options
    assert (options["epochs"], options["freeze_through"], options["freeze_rule"]) == (6, "fc1", "fedma")
    assert options["lr"] == pytest.approx(0.01)


def test_a_client_without_a_partition_has_all_examples(init: Path, tmp_path: Path) -> None:
    words = ["--data", "digits", "--client", "7", "-E", "1", "-o", str(tmp_path / "c.safetensors")]
    assert run(["-q", "train-client", str(init), *words]) == 0
    metadata = open_checkpoint(tmp_path / "c.safetensors").metadata
    assert metadata is not None
    assert metadata.client is not None
    assert (metadata.client.id, metadata.client.num_examples) == (7, 1438)


def test_a_network_of_the_users_own(split: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_network.py").write_text(
        "from torch import nn\ndef make(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["--architecture", "python:my_network:make", "--init-seed", "0", "--client", "0", "-E", "1"]
    assert train(split, tmp_path / "c.safetensors", *words) == 0
    checkpoint = open_checkpoint(tmp_path / "c.safetensors")
    assert set(checkpoint.layout) == {"1.weight", "1.bias"}
    assert checkpoint.metadata is not None
    assert checkpoint.metadata.architecture == "python:my_network:make"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--client", "0"], "train-client: there is nothing to start from"),
        (["INIT"], "--client: the partition has several clients. Pass --client all"),
        (
            ["INIT", "--client", "3"],
            "--client: '3' names no set of clients. Write all, or different numbers from 0 to 2",
        ),
        (["INIT", "--client", "0", "--save-at", "x"], "--save-at: 'x' is no list of epochs"),
        (["INIT", "--client", "0", "--schedule", "step"], "--schedule: 'step' is unknown"),
        (["INIT", "--client", "0", "--lr", "1e30"], "--lr 1e+30: client 0 diverged"),
        (["INIT", "--client", "all", "--lr", "1e30"], "diverged"),
        (["INIT", "--client", "0", "--device", "tpu"], "--device: there is no device 'tpu'"),
        (["INIT", "--client", "0", "--quantize", "4"], "--quantize: 4 bits"),
        (["INIT", "--client", "0", "--normalize", "svhn"], "--normalize: 3 numbers for 1 channels"),
        (["INIT", "--client", "0", "--freeze-through", "fc2"], "--freeze-through fc2: client 0's model has no such"),
        (["INIT", "--client", "0", "--freeze-rule", "fedma"], "--freeze-rule fedma: no layer is frozen"),
        (["INIT", "--client", "0", "--clip-norm", "0"], "--clip-norm: 0.0 is out of range"),
        (["SPLIT", "--client", "0"], "a partition file where a model file is needed"),
        (["INIT", "--client", "0", "--architecture", "fednet"], "init.safetensors: "),
    ],
)
def test_faults_end_in_two_and_leave_an_earlier_file(
    split: Path, init: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    output = tmp_path / "out"
    if "all" in words:
        output.mkdir()
    else:
        output.write_text("earlier")
    files = {"INIT": str(init), "SPLIT": str(split)}
    assert train(split, output, *(files.get(word, word) for word in words)) == 2
    assert message in capsys.readouterr().err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == ([] if "all" in words else [output])
    assert "all" in words or output.read_text() == "earlier"


def test_an_output_is_never_an_input(split: Path, init: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(split, init, str(init), "--client", "0") == 2
    assert "the output is also an input" in capsys.readouterr().err


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(split: Path, init: Path, tmp_path: Path) -> None:
    words = [str(init), "--client", "all", "-E", "20", "--batch-size", "8"]
    command = [sys.executable, "-m", "modelfuse", "train-client", *words, "--data", "digits", "--partition", str(split)]
    folder = tmp_path / "cut"
    process = subprocess.Popen(
        [*command, "-o", str(folder), "--resume-every", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list(folder.glob("*.resume")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert list(folder.glob("*.resume"))
    assert len(list(folder.glob("client_?.safetensors"))) < 3
    assert train(split, folder, *words) == 0
    assert train(split, tmp_path / "whole", *words) == 0
    assert sorted(path.name for path in folder.iterdir() if not path.name.endswith(".tmp")) == [
        f"client_{number}.safetensors" for number in range(3)
    ]
    for number in range(3):
        name = f"client_{number}.safetensors"
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        np.testing.assert_equal(open_checkpoint(folder / name).layout, open_checkpoint(init).layout)
