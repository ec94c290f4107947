"""FedProto from the command line: rounds of files, judged client by client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from modelfuse.cli.app import run
from modelfuse.client.data import load_data
from modelfuse.client.models import load_network
from modelfuse.client.partition import read_partition
from modelfuse.files.artifacts import open_kind
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.prototypes import Prototypes, read_prototypes
from modelfuse.files.writer import save
from modelfuse.types import ClientInfo, Metadata

CLASSES = tuple("0123456789")
RECIPE = ["-E", "1", "--lr", "0.05", "--batch-size", "16", "--jobs", "1"]


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("split") / "split.safetensors"
    words = ["--scheme", "nway-kshot", "-K", "3", "--ways", "3", "--shots", "20", "--test-shots", "6"]
    assert run(["-q", "partition", "--data", "digits", *words, "-o", str(path)]) == 0
    return path


def does(split: Path, command: str, *words: object, quiet: bool = True) -> int:
    flags = ["-q"] if quiet else []
    return run([*flags, command, *map(str, words), "--data", "digits", "--partition", str(split)])


@pytest.fixture(scope="module")
def first(split: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a first round of two unlike architectures: models in own, prototypes in p, global g."""
    folder = tmp_path_factory.mktemp("first")
    for hidden, clients in ((9, "0,2"), (14, "1")):
        start = ["--architecture", f"mlp:in=64,hidden={hidden}-7,out=10", "--init-seed", "5", "--client", clients]
        output = folder / "own" if "," in clients else folder / "own" / "client_1.safetensors"
        assert does(split, "train-client", *start, *RECIPE, "-o", output) == 0
    assert does(split, "prototypes", folder / "own", "--client", "all", "-o", folder / "p") == 0
    assert run(["-q", "merge", "-m", "fedproto", str(folder / "p"), "-o", str(folder / "g.safetensors")]) == 0
    return folder


def test_prototypes_are_the_mean_embeddings_of_a_clients_own_examples(split: Path, first: Path) -> None:
    file = open_kind(first / "p" / "prototypes_1.safetensors", "prototypes")
    model = open_kind(first / "own" / "client_1.safetensors", "model")
    assert file.metadata is not None
    assert file.metadata.model_id == model.model_id()
    mine = load_data("digits", "train").subset(read_partition(split).clients[1])
    network = load_network(model, None, torch.device("cpu"))
    with torch.no_grad():
        vectors = network.represent(mine.batch(slice(None))).numpy()  # type: ignore[operator]
    found = read_prototypes(file)
    assert found.counts.tolist() == [20, 20, 20]
    for vector, number in zip(found.vectors, found.classes, strict=True):
        np.testing.assert_allclose(vector, vectors[mine.labels.numpy() == number].mean(0), rtol=1e-4, atol=1e-6)


def test_one_model_may_be_everybodys(split: Path, first: Path, tmp_path: Path) -> None:
    model = first / "own" / "client_0.safetensors"
    assert does(split, "prototypes", model, "--client", "0,1", "-o", tmp_path / "p") == 0
    names = {path.name for path in (tmp_path / "p").iterdir()}
    assert names == {"prototypes_0.safetensors", "prototypes_1.safetensors"}
    assert (tmp_path / "p" / "prototypes_0.safetensors").read_bytes() == (
        first / "p" / "prototypes_0.safetensors"
    ).read_bytes()


def test_a_second_round_goes_on_from_each_clients_own_model(split: Path, first: Path, tmp_path: Path) -> None:
    pulled = ["--prototypes", first / "g.safetensors", "--proto-weight", "3", "--client", "all", *RECIPE]
    assert does(split, "train-client", first / "own", *pulled, "-o", tmp_path / "pulled") == 0
    assert does(split, "train-client", first / "own", "--client", "all", *RECIPE, "-o", tmp_path / "plain") == 0
    ours = read_prototypes(open_kind(first / "g.safetensors", "prototypes"))
    distances: dict[str, list[float]] = {"pulled": [], "plain": []}
    for name, kept in distances.items():
        assert does(split, "prototypes", tmp_path / name, "--client", "all", "-o", tmp_path / f"p-{name}") == 0
        for client in range(3):
            theirs = read_prototypes(
                open_kind(tmp_path / f"p-{name}" / f"prototypes_{client}.safetensors", "prototypes")
            )
            there = np.isin(ours.classes, theirs.classes)
            kept.append(float(np.square(theirs.vectors - ours.vectors[there]).mean()))
    assert all(near < far for near, far in zip(distances["pulled"], distances["plain"], strict=True))
    written = open_checkpoint(tmp_path / "pulled" / "client_1.safetensors").metadata
    assert written is not None
    assert written.architecture == "mlp:in=64,out=10,hidden=14-7"
    step = written.history[-1]
    assert (step.options["proto_weight"], step.options["proto_distance"]) == (3.0, "mse")
    own = open_checkpoint(first / "own" / "client_1.safetensors").model_id()
    assert step.inputs == (own, open_checkpoint(first / "g.safetensors").model_id())


def test_without_weight_prototypes_change_nothing(split: Path, first: Path, tmp_path: Path) -> None:
    free = ["--prototypes", first / "g.safetensors", "--proto-weight", "0"]
    for name, words in (("free", free), ("plain", [])):
        assert does(split, "train-client", first / "own", *words, "--client", "0", *RECIPE, "-o", tmp_path / name) == 0
    ids = [open_checkpoint(tmp_path / name).model_id() for name in ("free", "plain")]
    assert ids[0] == ids[1]


def test_training_pass_prototypes_come_with_the_model(split: Path, first: Path, tmp_path: Path) -> None:
    words = ["--client", "all", *RECIPE, "-o", tmp_path / "own", "--prototypes-out", tmp_path / "p"]
    assert does(split, "train-client", first / "own", *words) == 0
    for client in range(3):
        file = open_kind(tmp_path / "p" / f"prototypes_{client}.safetensors", "prototypes")
        assert file.metadata is not None
        assert file.metadata.details["from"] == "training-pass"
        assert file.model_id() == open_checkpoint(tmp_path / "own" / f"client_{client}.safetensors").model_id()
        assert read_prototypes(file).counts.tolist() == [20, 20, 20]


def test_accuracy_is_counted_client_by_client(split: Path, first: Path, tmp_path: Path) -> None:
    output = tmp_path / "eval.json"
    words = ["--prototypes", first / "g.safetensors", "--label", "round=1", "-o", output]
    assert does(split, "eval", first / "own", *words) == 0
    document: dict[str, Any] = json.loads(output.read_text())
    assert [result["model"] for result in document["results"]] == ["classifier", "nearest prototype"]
    tests, ours = read_partition(split).tests, read_prototypes(open_kind(first / "g.safetensors", "prototypes"))
    for way, result in zip(("classifier", "prototype"), document["results"], strict=True):
        expected = []
        for client in range(3):
            mine = load_data("digits", "test").subset(tests[client])
            model = open_kind(first / "own" / f"client_{client}.safetensors", "model")
            network = load_network(model, None, torch.device("cpu"))
            with torch.no_grad():
                vectors = network.represent(mine.batch(slice(None)))  # type: ignore[operator]
                guessed = network.classify(vectors).argmax(1).numpy()  # type: ignore[operator]
            if way == "prototype":
                local = ours.only(np.unique(mine.labels.numpy()))  # test classes are the train classes
                distances = np.linalg.norm(vectors.numpy()[:, None] - local.vectors[None], axis=2)
                guessed = local.classes[distances.argmin(1)]
            expected.append(float((guessed == mine.labels.numpy()).mean()))
        assert [row["accuracy"] for row in result["per_client"]] == pytest.approx(expected)
        assert result["accuracy"] == pytest.approx(np.mean(expected))
        assert result["accuracy_std"] == pytest.approx(np.std(expected))
        assert result["count"] == 54
    assert document["labels"] == {"round": "1"}


def test_personal_results_can_be_reported(
    split: Path, first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "eval.json"
    assert does(split, "eval", first / "own", "--personal", "-o", output) == 0
    capsys.readouterr()
    assert run(["-q", "report", str(output), "--rows", "model", "--columns", "split", "--format", "csv"]) == 0
    assert "classifier" in capsys.readouterr().out


def test_all_prototypes_or_those_of_a_clients_classes(split: Path, first: Path, tmp_path: Path) -> None:
    accuracies = []
    for choice in ("local", "all"):
        output = tmp_path / f"{choice}.json"
        words = ["--prototypes", first / "g.safetensors", "--proto-classes", choice, "-o", output]
        assert does(split, "eval", first / "own", *words) == 0
        accuracies.append(json.loads(output.read_text())["results"][1]["accuracy"])
    assert accuracies[0] > accuracies[1]  # fewer to take it for


def foreign_classes(folder: Path, split: Path, client: int, width: int = 7) -> Path:
    """Write a prototype of a class that a client does not know."""
    mine = set(load_data("digits", "train").labels.numpy()[read_partition(split).clients[client]])
    other = next(number for number in range(10) if number not in mine)
    prototypes = Prototypes(np.ones((1, width)), np.array([other]), np.array([1]))
    path = folder / "other.safetensors"
    save(path, prototypes.tensors(), Metadata("prototypes", client=ClientInfo(classes=CLASSES)))
    return path


def test_a_client_none_of_whose_classes_has_a_prototype_is_warned_and_goes_on(
    split: Path, first: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = foreign_classes(tmp_path, split, 0)
    words = ["--prototypes", path, "--client", "0", *RECIPE, "-o", tmp_path / "out.safetensors"]
    assert does(split, "train-client", first / "own", *words, quiet=False) == 0
    assert "client 0: none of its classes has a prototype, so it trains without" in capfd.readouterr().err
    assert does(split, "train-client", first / "own", "--client", "0", *RECIPE, "-o", tmp_path / "plain") == 0
    assert open_checkpoint(tmp_path / "out.safetensors").model_id() == open_checkpoint(tmp_path / "plain").model_id()
    output = tmp_path / "eval.json"
    assert does(split, "eval", first / "own", "--prototypes", path, "-o", output, quiet=False) == 0
    assert "client 0: none of its classes has a prototype, so none is the nearest" in capfd.readouterr().err
    clients = [
        row["client"] for result in json.loads(output.read_text())["results"][1:] for row in result["per_client"]
    ]
    assert 0 not in clients


@pytest.mark.parametrize("command", ["train-client", "eval"])
def test_prototypes_of_another_width_name_both(
    split: Path, first: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    path = foreign_classes(tmp_path, split, 0, width=8)
    words = ["--client", "0", *RECIPE, "-o", tmp_path / "out.safetensors"] if command == "train-client" else []
    assert does(split, command, first / "own", "--prototypes", path, *words) == 2
    message = capfd.readouterr().err
    assert f"its embedding has 7 entries, the prototypes of {path} 8" in message
    assert ("client 0's model" if command == "train-client" else "client_0.safetensors") in message
    assert not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train-client", "{own}", "--prototypes", "{model}", "--client", "0"], "a model file where a prototypes file"),
        (["train-client", "{global}", "--client", "0"], "a prototypes file where a model file is needed"),
        (["train-client", "{own}", "--client", "0", "--proto-weight", "-1"], "--proto-weight: -1.0 is out of range"),
        (["train-client", "{own}", "--client", "0", "--proto-distance", "cosine"], "'cosine' is unknown"),
        (
            ["train-client", "{own}", "--client", "0", "--train-only", "conv*"],
            "--train-only conv*: no tensor of client",
        ),
        (["prototypes", "{global}", "--client", "0"], "a prototypes file where a model file is needed"),
        (
            ["prototypes", "{own}", "--client", "all", "--from", "training-pass"],
            "Pass --prototypes-out to train-client",
        ),
        (["eval", "{own}", "--prototypes", "{model}"], "a model file where a prototypes file is needed"),
        (["eval", "{own}", "--personal", "--ensemble"], "--ensemble: clients are judged one by one"),
    ],
)
def test_faults_end_in_two(
    split: Path, first: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    places = {
        "{own}": first / "own",
        "{model}": first / "own" / "client_1.safetensors",
        "{global}": first / "g.safetensors",
    }
    command, *rest = [str(places.get(word, word)) for word in words]
    output = tmp_path / "out"
    assert does(split, command, *rest, "-o", output) == 2
    assert message in capfd.readouterr().err
    assert not output.is_file()


def test_a_partial_broadcast_lies_over_a_clients_own_head(split: Path, first: Path, tmp_path: Path) -> None:
    body = tmp_path / "body.safetensors"
    own = [first / "own" / f"client_{client}.safetensors" for client in (0, 2)]
    assert run(["-q", "merge", "-m", "fedavg", "--except", "fc3.*", *map(str, own), "-o", str(body)]) == 0
    words = ["--overlay", body, "--train-only", "fc3.*", "--client", "0", *RECIPE, "-o", tmp_path / "out.safetensors"]
    assert does(split, "train-client", first / "own", *words) == 0
    before, shared, after = map(open_checkpoint, (own[0], body, tmp_path / "out.safetensors"))
    for name in before.layout:
        if name.startswith("fc3"):
            assert not np.array_equal(after.read(name), before.read(name))  # trained
        else:
            np.testing.assert_array_equal(after.read(name), shared.read(name))  # taken over, and left alone
    assert after.metadata is not None
    assert after.metadata.history[-1].inputs == (before.model_id(), shared.model_id())


def test_a_part_of_a_model_is_no_model(
    split: Path, first: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    part = tmp_path / "part.safetensors"
    model = first / "own" / "client_0.safetensors"
    assert run(["-q", "merge", "-m", "fedavg", "--only", "fc1.*", str(model), "-o", str(part)]) == 0
    assert does(split, "eval", part) == 2
    assert f"{part}: it holds a part of a model" in capfd.readouterr().err
    words = ["--overlay", part, "--client", "1", *RECIPE, "-o", tmp_path / "out.safetensors"]
    assert does(split, "train-client", first / "own", *words) == 2  # client 1's fc1 is wider
    assert "fc1" in capfd.readouterr().err


def test_embeddings_of_all_clients_can_be_drawn(split: Path, first: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file, picture = tmp_path / "embeddings.safetensors", tmp_path / "embeddings.png"
    words = ["--client", "all", "--embeddings", file, "-o", tmp_path / "p"]
    assert does(split, "prototypes", first / "own", *words) == 0
    written = open_kind(file, "embeddings")
    assert written.shapes() == {"embeddings": (180, 7), "labels": (180,), "clients": (180,)}
    drawn = ["plot", "embeddings", str(file), "--prototypes", str(first / "g.safetensors"), "-o", str(picture)]
    assert run(["-q", *drawn]) == 0
    assert picture.stat().st_size > 1000
