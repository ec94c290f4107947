"""Sorting out the files of a merge: one broken input a message, and an earlier output untouched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from federation import ARCHITECTURE, metadata, random_fisher, random_model, write_client, write_federation

from modelfuse.cli.app import run
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.writer import save
from modelfuse.methods.gather import Given, gather
from modelfuse.types import ClientInfo, Metadata


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a generator of fixed seed."""
    return np.random.default_rng(0)


def _fails(capfd: pytest.CaptureFixture[str], tmp_path: Path, *arguments: object) -> str:
    """Run a merge over an earlier output, check that it ends in exit status 2 and leaves it, and return the message."""
    output = tmp_path / "out" / "global.safetensors"
    output.parent.mkdir(exist_ok=True)
    output.write_bytes(b"earlier")
    before = sorted(tmp_path.rglob("*"))
    assert run(["merge", *map(str, arguments), "-o", str(output)]) == 2
    assert output.read_bytes() == b"earlier"
    assert sorted(tmp_path.rglob("*")) == before
    message = capfd.readouterr().err
    assert "Traceback" not in message
    return message


def test_clients_come_in_the_order_of_their_numbers(tmp_path: Path, rng: np.random.Generator) -> None:
    paths = [write_client(tmp_path, number, random_model(rng), random_model(rng))[0] for number in (10, 9, 2)]
    uploads = gather(Given([open_checkpoint(path) for path in paths]), companion=None)
    assert [client.info.id for client in uploads.clients] == [2, 9, 10]


def test_foreign_clients_come_in_the_natural_order_of_their_names(tmp_path: Path, rng: np.random.Generator) -> None:
    paths = [tmp_path / f"site{number}.safetensors" for number in (10, 9)]
    for path in paths:
        save(path, random_model(rng), Metadata(kind="model"))
    uploads = gather(Given([open_checkpoint(path) for path in paths], num_examples=[1, 2]), companion=None)
    assert [client.model.path.name for client in uploads.clients] == ["site9.safetensors", "site10.safetensors"]
    assert uploads.examples() == [2, 1]


def test_a_missing_fisher_names_its_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models, fishers = write_federation(tmp_path)
    message = _fails(capfd, tmp_path, "--method", "fisher", *models, *fishers[:2])
    assert f"{models[2]}: no Fisher of it is among the files" in message
    assert "modelfuse fisher" in message


def test_the_fisher_of_another_model_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models, fishers = write_federation(tmp_path)
    message = _fails(capfd, tmp_path, "--method", "fisher", *models[:2], *fishers)
    assert f"{fishers[2]}: the Fisher of another model" in message


def test_fishers_in_the_wrong_order_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models, fishers = write_federation(tmp_path)
    swapped = ["--fisher", fishers[1], "--fisher", fishers[0]]
    assert f"{fishers[1]}: not the Fisher of {models[0]}" in _fails(
        capfd, tmp_path, "--method", "fisher", *models[:2], *swapped
    )


def test_two_fishers_of_one_model_are_refused_in_any_order(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models, fishers = write_federation(tmp_path)
    other = tmp_path / "other.safetensors"
    other.write_bytes(fishers[1].read_bytes())
    for files in ([*fishers, other], [other, *fishers]):
        message = _fails(capfd, tmp_path, "--method", "fisher", *models, *files)
        assert f"{models[1]} has another Fisher" in message
        assert str(other) in message
        assert str(fishers[1]) in message


def test_fishers_of_clients_of_equal_weights_go_by_number(
    tmp_path: Path, rng: np.random.Generator, capfd: pytest.CaptureFixture[str]
) -> None:
    model = random_model(rng)
    pairs = [write_client(tmp_path, client, model, random_fisher(rng, model)) for client in (0, 1)]
    files = [open_checkpoint(path) for path in (pairs[1][1], pairs[1][0], pairs[0][0], pairs[0][1])]
    uploads = gather(Given(files), companion="fisher")
    assert [client.companion and client.companion.path for client in uploads.clients] == [pairs[0][1], pairs[1][1]]
    message = _fails(capfd, tmp_path, "--method", "fisher", pairs[0][0], pairs[0][1], pairs[1][1])
    assert f"{pairs[1][1]}: no client among the models has it" in message


def test_a_file_given_twice_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models, fishers = write_federation(tmp_path)
    again = tmp_path / ".." / tmp_path.name / models[2].name
    message = _fails(capfd, tmp_path, "--method", "fisher", tmp_path, again)
    assert f"FILES: {again} is given twice. Name it once" in message
    assert f"FILES: {fishers[0]} is given twice" in _fails(capfd, tmp_path, "--method", "fisher", *fishers, fishers[0])


def test_a_fisher_count_that_differs_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models, fishers = write_federation(tmp_path)
    message = _fails(capfd, tmp_path, "--method", "fisher", *models, "--fisher", fishers[0])
    assert "--fisher: 1 Fishers for 3 models" in message


@pytest.mark.parametrize("value", [-1e-9, np.nan, np.inf])
def test_a_fisher_that_is_none_names_its_tensor(
    tmp_path: Path, rng: np.random.Generator, capfd: pytest.CaptureFixture[str], value: float
) -> None:
    model = random_model(rng)
    fisher = random_fisher(rng, model)
    fisher["fc2.weight"][1, 2] = value
    files = write_client(tmp_path, 0, model, fisher)
    for method in ("fisher", "fedfiot"):
        message = _fails(capfd, tmp_path, "--method", method, *files)
        assert f"{files[1]}: fc2.weight" in message
        assert "at entry 8" in message


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_diverged_name_their_tensor(
    tmp_path: Path, rng: np.random.Generator, capfd: pytest.CaptureFixture[str], value: float
) -> None:
    model = random_model(rng)
    model["fc1.bias"][4] = value
    files = write_client(tmp_path, 0, model, random_fisher(rng, random_model(rng)))
    for method in ("fedavg", "fedfiot"):
        used = files if method == "fedfiot" else files[:1]
        message = _fails(capfd, tmp_path, "--method", method, *used)
        assert f"{files[0]}: fc1.bias holds {value} at entry 4" in message
        assert "lower the learning rate" in message


def test_a_tensor_that_one_client_lacks_is_named(
    tmp_path: Path, rng: np.random.Generator, capfd: pytest.CaptureFixture[str]
) -> None:
    models, _ = write_federation(tmp_path)
    short = random_model(rng)
    del short["fc2.bias"]
    save(tmp_path / "short.safetensors", short, metadata("model", 7, 10))
    message = _fails(capfd, tmp_path, "--method", "fedavg", *models, tmp_path / "short.safetensors")
    assert "short.safetensors: tensor fc2.bias is missing" in message
    assert "client_0.safetensors has it" in message


def test_shapes_that_differ_are_both_shown(
    tmp_path: Path, rng: np.random.Generator, capfd: pytest.CaptureFixture[str]
) -> None:
    models, _ = write_federation(tmp_path)
    wide = random_model(rng) | {"fc3.weight": np.zeros((3, 4), np.float32)}
    save(tmp_path / "wide.safetensors", wide, metadata("model", 7, 10))
    message = _fails(capfd, tmp_path, "--method", "fedavg", *models, tmp_path / "wide.safetensors")
    assert "fc3.weight is [3, 4], in" in message
    assert "it is [2, 4]" in message


def test_label_orders_that_differ_are_refused(
    tmp_path: Path, rng: np.random.Generator, capfd: pytest.CaptureFixture[str]
) -> None:
    models, _ = write_federation(tmp_path)
    other = Metadata(kind="model", client=ClientInfo(7, 10, (5, 5), ("dog", "cat")))
    save(tmp_path / "other.safetensors", random_model(rng), other)
    message = _fails(capfd, tmp_path, "--method", "fedavg", *models, tmp_path / "other.safetensors")
    assert "other.safetensors: its label order is not that of" in message


def test_a_model_of_another_architecture_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models, fishers = write_federation(tmp_path)
    message = _fails(
        capfd, tmp_path, "--method", "fedfiot", *models, *fishers, "--architecture", "mlp:in=3,out=2,hidden=4"
    )
    assert "client_0.safetensors: tensor fc3.bias is not in the permutation spec" in message


def test_an_empty_client_is_refused(
    tmp_path: Path, rng: np.random.Generator, capfd: pytest.CaptureFixture[str]
) -> None:
    model = random_model(rng)
    files = write_client(tmp_path, 0, model, random_fisher(rng, model), num_examples=0)
    message = _fails(capfd, tmp_path, "--method", "fedavg", files[0])
    assert f"{files[0]}: it was trained on 0 examples" in message


def test_a_foreign_model_asks_for_what_it_does_not_say(
    tmp_path: Path, rng: np.random.Generator, capfd: pytest.CaptureFixture[str]
) -> None:
    from safetensors.numpy import save_file

    model = random_model(rng)
    paths = [tmp_path / name for name in ("model.safetensors", "fisher.safetensors")]
    save_file(model, paths[0])
    save_file(random_fisher(rng, model), paths[1])
    assert "Pass --num-examples N,N,…" in _fails(capfd, tmp_path, "--method", "fedavg", paths[0])
    fisher = ["--fisher", paths[1]]
    message = _fails(capfd, tmp_path, "--method", "fedfiot", paths[0], *fisher, "--num-examples", "5")
    assert "Pass the --architecture it was trained with, or --spec FILE." in message
    output = ["-o", str(tmp_path / "out.safetensors")]
    told = ["--architecture", ARCHITECTURE, "--num-examples", "5", *map(str, fisher), *output]
    assert run(["merge", "--method", "fedfiot", str(paths[0]), *told]) == 0
    assert run(["merge", "--method", "fedavg", str(paths[0]), "--weighting", "uniform", *output]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num-examples", "1,2"], "--num-examples: 2 numbers for 3 models"),
        (["--num-examples", "1,b,2"], "'1,b,2' is not made of whole numbers"),
        (["--orders", "orders.safetensors"], "--orders: method fedavg aligns nothing"),
        (["--rho", "0.5"], "--rho: method fedavg does not know it"),
        (["--validate", "digits"], "--validate: it needs the partition"),
        (["--label", "alpha"], "'alpha' is not KEY=VALUE"),
    ],
)
def test_options_that_do_not_go_with_the_files(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    models, _ = write_federation(tmp_path)
    assert message in _fails(capfd, tmp_path, "--method", "fedavg", *models, *arguments)


def test_a_grid_needs_something_to_choose_by(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models, fishers = write_federation(tmp_path)
    message = _fails(capfd, tmp_path, "--method", "fedfiot", *models, *fishers, "--rho", 0.2, "--rho", 0.3)
    assert "2 candidates and nothing to choose by. Pass --validate" in message


def test_only_fishers_are_no_merge(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, fishers = write_federation(tmp_path)
    assert "there is no model among them" in _fails(capfd, tmp_path, "--method", "fisher", *fishers)


def test_another_kind_of_file_is_refused(
    tmp_path: Path, rng: np.random.Generator, capfd: pytest.CaptureFixture[str]
) -> None:
    models, _ = write_federation(tmp_path)
    save(tmp_path / "split.safetensors", {"client_0": np.arange(3)}, Metadata(kind="partition"))
    message = _fails(capfd, tmp_path, "--method", "fedavg", *models, tmp_path / "split.safetensors")
    assert "split.safetensors: a partition file where a model is needed" in message


def test_an_output_that_is_an_input_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    models, _ = write_federation(tmp_path)
    before = models[1].read_bytes()
    assert run(["merge", "--method", "fedavg", *map(str, models), "-o", str(models[1])]) == 2
    assert models[1].read_bytes() == before
    assert "the output is also an input" in capfd.readouterr().err


@pytest.mark.parametrize("option", ["--report", "--orders"])
def test_two_outputs_of_one_name_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str], option: str) -> None:
    models, _ = write_federation(tmp_path)
    output = tmp_path / "out" / "global.safetensors"
    message = _fails(capfd, tmp_path, "--method", "pfnm", *models, option, output)
    assert f"{output}: two outputs have this name. Give each a name of its own." in message


def test_complex_tensors_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "c.safetensors", {"w": np.array([1j], np.complex64)}, Metadata("model"))
    message = _fails(capfd, tmp_path, "--method", "fedavg", tmp_path / "c.safetensors", "--weighting", "uniform")
    assert "c.safetensors: w is complex" in message
