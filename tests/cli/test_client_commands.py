"""The commands init, fisher and eval, from files to files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from modelfuse.cli.app import run
from modelfuse.client.data import load_data
from modelfuse.client.fisher import diagonal_fisher
from modelfuse.client.models import create, tensors_of
from modelfuse.client.partition import read_partition
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.writer import save
from modelfuse.spec.architectures import parse_architecture
from modelfuse.types import ClientInfo, Metadata

ARCHITECTURE = "mlp:in=64,out=10,hidden=12"
CLASSES = tuple("0123456789")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fill the current folder with a split of digits over three clients and a model of each."""
    monkeypatch.chdir(tmp_path)
    words = ["--data", "digits", "-K", "3", "--alpha", "1", "--server-holdout", "100"]
    assert run(["-q", "partition", *words, "-o", "split.safetensors"]) == 0
    for client in range(3):
        own = ClientInfo(client, 10 * (client + 1), None, CLASSES)
        metadata = Metadata("model", ARCHITECTURE, parse_architecture(ARCHITECTURE).spec().to_json(), own)
        save(Path(f"c{client}.safetensors"), tensors_of(create(ARCHITECTURE, client)), metadata)
    return tmp_path


DIGITS = ["--data", "digits", "--partition", "split.safetensors"]
MODELS = ["c0.safetensors", "c1.safetensors", "c2.safetensors"]


def fisher(*words: str) -> int:
    return run(["-q", "fisher", *words, *DIGITS])


def evaluated(*words: str) -> dict[str, Any]:
    assert run(["-q", "eval", *words, "-o", "result.json"]) == 0
    said: dict[str, Any] = json.loads(Path("result.json").read_text(encoding="utf-8"))
    return said


def expected_fisher(model: int, client: int) -> dict[str, np.ndarray]:
    indices = read_partition(Path("split.safetensors")).clients[client]
    return diagonal_fisher(create(ARCHITECTURE, model), load_data("digits", "train").subset(indices))


def assert_fisher(path: str, model: int, client: int) -> None:
    """Assert that a file holds a model's Fisher on a client's examples, and says so."""
    tensors, metadata = load_file(path), open_checkpoint(Path(path)).metadata
    assert metadata is not None
    assert metadata.client is not None
    assert (metadata.kind, metadata.client.id) == ("fisher", client)
    assert metadata.model_id == open_checkpoint(Path(MODELS[model])).model_id()
    for name, array in expected_fisher(model, client).items():
        np.testing.assert_allclose(tensors[name], array, rtol=1e-4, atol=1e-6 * array.max())


# init


def test_init_writes_what_a_server_broadcasts(tmp_path: Path) -> None:
    path = tmp_path / "init.safetensors"
    assert run(["-q", "init", "--architecture", "mlp:in=64,hidden=12,out=10", "--seed", "3", "-o", str(path)]) == 0
    checkpoint = open_checkpoint(path)
    assert checkpoint.metadata is not None
    assert checkpoint.metadata.architecture == ARCHITECTURE
    assert checkpoint.metadata.spec == parse_architecture(ARCHITECTURE).spec().to_json()
    assert checkpoint.metadata.history[0].options == {"architecture": ARCHITECTURE, "seed": 3}
    for name, array in tensors_of(create(ARCHITECTURE, 3)).items():
        assert np.array_equal(checkpoint.read(name), array)


def test_init_gives_the_same_bytes_again_and_others_for_another_seed(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.safetensors" for number in range(3)]
    for path, seed in zip(files, ("1", "1", "2"), strict=True):
        assert run(["-q", "init", "--architecture", ARCHITECTURE, "--seed", seed, "-o", str(path)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()


def test_init_by_torchs_scheme(tmp_path: Path) -> None:
    path = tmp_path / "init.safetensors"
    assert run(["-q", "init", "--architecture", ARCHITECTURE, "--scheme", "torch", "-o", str(path)]) == 0
    assert load_file(path)["fc1.bias"].any()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--architecture", "vgg99"], "--architecture: no architecture is called 'vgg99'. There are mlp, "),
        (["--architecture", ARCHITECTURE, "--scheme", "zeros"], "--scheme: 'zeros' is unknown. Choose xavier, torch."),
        (["--architecture", "python:no_such:make"], "--architecture: no_such cannot be imported."),
    ],
)
def test_init_refuses(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "init.safetensors"
    path.write_bytes(b"earlier")
    assert run(["init", *words, "-o", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert path.read_bytes() == b"earlier"


# fisher


def test_the_fisher_of_one_client(folder: Path) -> None:
    assert fisher("c1.safetensors", "--client", "1", "-o", "f.safetensors") == 0
    assert_fisher("f.safetensors", 1, 1)


def test_a_model_knows_its_client(folder: Path) -> None:
    assert fisher("c2.safetensors", "-o", "f.safetensors") == 0
    assert_fisher("f.safetensors", 2, 2)


def test_all_clients_each_on_its_own_model_in_any_order(folder: Path) -> None:
    assert fisher(*reversed(MODELS), "--client", "all", "-o", "fishers") == 0
    assert sorted(path.name for path in Path("fishers").iterdir()) == [f"fisher_{k}.safetensors" for k in range(3)]
    for client in range(3):
        assert_fisher(f"fishers/fisher_{client}.safetensors", client, client)


def test_the_clients_that_took_part(folder: Path) -> None:
    assert fisher(MODELS[2], MODELS[0], "--client", "all", "-o", "fishers") == 0
    assert sorted(path.name for path in Path("fishers").iterdir()) == ["fisher_0.safetensors", "fisher_2.safetensors"]
    assert_fisher("fishers/fisher_2.safetensors", 2, 2)


def test_one_global_model_on_every_clients_examples(folder: Path) -> None:
    assert fisher(MODELS[0], "--client", "all", "-o", "fishers") == 0
    for client in range(3):
        assert_fisher(f"fishers/fisher_{client}.safetensors", 0, client)


def test_foreign_models_go_by_position(folder: Path) -> None:
    for client in (0, 1):
        save_file(load_file(MODELS[client]), f"foreign{client}.safetensors")
    files = ["foreign1.safetensors", "foreign0.safetensors"]
    assert fisher(*files, "--client", "2,0", "--architecture", ARCHITECTURE, "-o", "fishers") == 0
    assert_fisher("fishers/fisher_2.safetensors", 1, 2)
    assert_fisher("fishers/fisher_0.safetensors", 0, 0)


def test_without_a_partition_all_train_examples_count(folder: Path) -> None:
    assert run(["-q", "fisher", MODELS[0], "--data", "digits", "-o", "f.safetensors"]) == 0
    client = open_checkpoint(Path("f.safetensors")).metadata.client  # type: ignore[union-attr]
    assert client is not None
    assert client.num_examples == len(load_data("digits", "train"))


def test_quantised_models_and_fishers_pair_unseen(folder: Path) -> None:
    tensors, checkpoint = load_file(MODELS[0]), open_checkpoint(Path(MODELS[0]))
    assert checkpoint.metadata is not None
    save(Path("q0.safetensors"), tensors, checkpoint.metadata, bits=16)
    assert fisher("q0.safetensors", "--quantize", "8", "-o", "f.safetensors") == 0
    written = open_checkpoint(Path("f.safetensors"))
    assert written.metadata is not None
    assert (written.metadata.bits, written.metadata.model_id) == (8, checkpoint.model_id())
    for name, array in expected_fisher(0, 0).items():
        assert np.abs(written.read(name) - array).max() <= array.max() / 100


def test_the_true_fisher_differs_and_says_so(folder: Path) -> None:
    assert fisher(MODELS[0], "--estimator", "true", "-o", "true.safetensors") == 0
    assert fisher(MODELS[0], "-o", "empirical.safetensors") == 0
    metadata = open_checkpoint(Path("true.safetensors")).metadata
    assert metadata is not None
    assert metadata.history[-1].options["estimator"] == "true"
    assert not np.allclose(
        load_file("true.safetensors")["fc1.weight"], load_file("empirical.safetensors")["fc1.weight"]
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([MODELS[0], MODELS[1], "--client", "0"], "--client: 2 models for 1 clients. Give one model, or one for each"),
        ([MODELS[0], MODELS[1], "--client", "0,2"], "c1.safetensors: the model is client 1's. Choose its client"),
        ([MODELS[0], MODELS[0]], "c0.safetensors: a second model of client 0. Give one model a client."),
        ([MODELS[0], "--client", "7"], "--client: '7' names no set of clients."),
        ([MODELS[0], "--estimator", "mean"], "--estimator: 'mean' is unknown. Choose empirical, true."),
        (["split.safetensors"], "split.safetensors: a partition file where a model file is needed."),
        ([MODELS[0], "--architecture", "mlp:in=64,hidden=12-3,out=10"], "c0.safetensors: tensor fc3."),
    ],
)
def test_fisher_refuses(folder: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("out.safetensors").write_bytes(b"earlier")
    assert fisher(*words, "-o", "out.safetensors") == 2
    assert message in capsys.readouterr().err
    assert Path("out.safetensors").read_bytes() == b"earlier"


def test_fisher_never_writes_over_its_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(MODELS[0]).read_bytes()
    assert fisher(MODELS[0], "-o", MODELS[0]) == 2
    assert "the output is also an input" in capsys.readouterr().err
    assert Path(MODELS[0]).read_bytes() == before


def test_classes_in_another_order_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ClientInfo(0, 10, None, ("0", "2", "1", *CLASSES[3:]))
    save(Path("other.safetensors"), load_file(MODELS[0]), Metadata("model", ARCHITECTURE, client=own))
    for command in (["fisher", "--client", "0"], ["eval"]):
        assert run([*command, "other.safetensors", *DIGITS, "-o", "out"]) == 2
        assert "other.safetensors: its classes are not those of --data, from label 1 on." in capsys.readouterr().err


# eval


def test_eval_writes_figures_as_json(folder: Path) -> None:
    said = evaluated(*MODELS, "--data", "digits", "--label", "alpha=0.1", "--label", "round=2")
    assert (said["kind"], said["data"], said["split"]) == ("eval", "digits", "test")
    assert said["labels"] == {"alpha": "0.1", "round": "2"}
    assert said["ensemble"] is None
    assert [result["model"] for result in said["results"]] == MODELS
    first = said["results"][0]
    data = load_data("digits", "test")
    predicted = create(ARCHITECTURE, 0)(data.batch(slice(None))).argmax(1)
    assert first["accuracy"] == pytest.approx(float((predicted == data.labels).float().mean()))
    assert first["count"] == len(data) == sum(entry["count"] for entry in first["per_class"].values())
    assert first["model_id"] == open_checkpoint(Path(MODELS[0])).model_id()


def test_eval_shows_a_table_or_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["-q", "eval", *MODELS, "--data", "digits", "--ensemble"]) == 0
    table = capsys.readouterr().out
    assert all(word in table for word in (*MODELS, "ensemble", "accuracy %", "loss", "count"))
    assert run(["-q", "eval", *MODELS, "--data", "digits", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["results"]) == 3


def test_eval_judges_each_clients_own_examples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = evaluated(*MODELS, *DIGITS, "--split", "train")
    split = read_partition(Path("split.safetensors"))
    data = load_data("digits", "train")
    right = (create(ARCHITECTURE, 1)(data.batch(slice(None))).argmax(1) == data.labels).numpy()
    for part, indices in zip(said["results"][1]["per_client"], split.clients, strict=True):
        assert (part["accuracy"], part["count"]) == (pytest.approx(right[indices].mean()), len(indices))
    assert "own %" in capsys.readouterr().out
    own = evaluated(*MODELS, *DIGITS)["results"][0]["per_client"]
    assert [part["count"] for part in own] == [len(indices) for indices in split.tests]


def test_eval_on_the_servers_holdout(folder: Path) -> None:
    said = evaluated(MODELS[0], *DIGITS, "--split", "validation")
    assert said["split"] == "validation"
    assert said["results"][0]["count"] == 100


def test_eval_leaves_out_what_is_nobodys(folder: Path) -> None:
    tests = [np.array([4, 2]), np.array([5, 9, 7])]
    save_file({f"{name}_{k}": own for k, own in enumerate(tests) for name in ("client", "test")}, "few.safetensors")
    words = [MODELS[0], "--data", "digits", "--partition", "few.safetensors"]
    (among,), (all_,) = evaluated(*words, "--clients-only")["results"], evaluated(*words)["results"]
    assert (among["count"], all_["count"]) == (5, 359)
    for few, whole in zip(among["per_client"], all_["per_client"], strict=True):
        assert few == pytest.approx(whole)  # other batches, other rounding of the loss
    right = [part["accuracy"] * part["count"] for part in among["per_client"]]
    assert among["accuracy"] == pytest.approx(sum(right) / 5)


def test_an_ensemble_can_weigh_by_examples(folder: Path) -> None:
    uniform = evaluated(*MODELS, "--data", "digits", "--ensemble")["ensemble"]
    weighted = evaluated(*MODELS, "--data", "digits", "--ensemble", "--ensemble-weights", "examples")["ensemble"]
    assert uniform["count"] == weighted["count"]
    assert uniform["loss"] != weighted["loss"]


def test_files_of_one_name_are_told_apart(folder: Path) -> None:
    for name in ("a", "b"):
        Path(name).mkdir()
        Path(name, "m.safetensors").write_bytes(Path(MODELS[0]).read_bytes())
    said = evaluated("a/m.safetensors", "b/m.safetensors", "--data", "digits")
    assert [result["model"] for result in said["results"]] == ["a/m.safetensors", "b/m.safetensors"]


def test_outputs_that_are_not_finite_are_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = {name: np.full_like(array, 1e38) for name, array in load_file(MODELS[0]).items()}
    save(Path("huge.safetensors"), tensors, Metadata("model", ARCHITECTURE))
    assert run(["eval", "huge.safetensors", "--data", "digits", "-o", "result.json"]) == 0
    said = re.search(r"huge\.safetensors: NaN or infinity on (\d+) examples, counted as wrong", capsys.readouterr().err)
    assert said is not None
    result = json.loads(Path("result.json").read_text(encoding="utf-8"))["results"][0]
    assert (result["loss"], result["non_finite"]) == (None, int(said[1]))
    assert result["accuracy"] <= 1 - result["non_finite"] / result["count"] < 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([MODELS[0], "--data", "digits", "--clients-only"], "--clients-only: nobody says whose the examples are."),
        (
            [MODELS[0], "--data", "digits", "--split", "validation"],
            "nobody says what is held out. Pass the --partition",
        ),
        (
            [MODELS[0], "--data", "digits", "--split", "all"],
            "--split: 'all' is unknown. Choose train, test, validation",
        ),
        ([MODELS[0], "--data", "digits", "--label", "x"], "--label: 'x' is not KEY=VALUE."),
        (["split.safetensors", "--data", "digits"], "a partition file where a model file is needed."),
        (["nan.safetensors", "--data", "digits"], "nan.safetensors: fc1.bias holds NaN or infinity."),
        (["foreign.safetensors", "--data", "digits"], "foreign.safetensors: the file does not say its architecture."),
        (
            ["alone.safetensors", MODELS[0], "--data", "digits", "--ensemble", "--ensemble-weights", "examples"],
            "alone.safetensors: it does not say how many examples it was trained on.",
        ),
    ],
)
def test_eval_refuses(folder: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = load_file(MODELS[0])
    save_file(tensors, "foreign.safetensors")
    save(Path("alone.safetensors"), tensors, Metadata("model", ARCHITECTURE))
    save(Path("nan.safetensors"), {**tensors, "fc1.bias": np.full(12, np.nan)}, Metadata("model", ARCHITECTURE))
    Path("result.json").write_bytes(b"earlier")
    assert run(["-q", "eval", *words, "-o", "result.json"]) == 2
    assert message in capsys.readouterr().err
    assert Path("result.json").read_bytes() == b"earlier"


def test_a_partition_of_other_data_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(
        Path("far.safetensors"), {"client_0": np.array([0, 99999]), "test_0": np.array([99999])}, Metadata("partition")
    )
    words = ["--data", "digits", "--partition", "far.safetensors", "-o", "result.json"]
    for split in ("train", "test"):
        assert run(["-q", "eval", MODELS[0], "--split", split, *words]) == 2
        assert "far.safetensors: it speaks of more than" in capsys.readouterr().err
