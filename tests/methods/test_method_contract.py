"""What every method owes its users, run over the whole table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from federation import random_fisher, random_model, shuffled, write_client, write_federation, write_gram
from safetensors.numpy import load_file

from modelfuse.cli.app import run
from modelfuse.core.units import realign
from modelfuse.errors import OptionError
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.methods import METHODS, load
from modelfuse.methods.contract import from_options
from modelfuse.spec.architectures import parse_architecture

MODEL_METHODS = [name for name in METHODS if name != "fedproto"]
"""Methods that merge models; fedproto merges prototypes and has its own tests."""


def _merge(method: str, output: Path, files: list[Path], *options: str) -> dict[str, np.ndarray]:
    companion = str(load(method).companion)
    used = [file for file in files if file.name.startswith(("client", companion))]
    assert run(["--quiet", "merge", "--method", method, *map(str, used), "-o", str(output), *options]) == 0
    return load_file(output)


def _federation(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the paths of the models, and of their Fishers and Gram matrices."""
    models, fishers = write_federation(folder)
    return models, [*fishers, *(write_gram(folder, number, load_file(path)) for number, path in enumerate(models))]


@pytest.mark.parametrize("method", MODEL_METHODS)
def test_the_order_of_the_files_does_not_matter(tmp_path: Path, method: str) -> None:
    models, others = _federation(tmp_path)
    _merge(method, tmp_path / "a.safetensors", models + others)
    _merge(method, tmp_path / "b.safetensors", others[::-1] + models[::-1])
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.parametrize("method", MODEL_METHODS)
def test_the_same_inputs_give_the_same_bytes(tmp_path: Path, method: str) -> None:
    models, others = _federation(tmp_path / "here")
    again, others_again = _federation(tmp_path / "there")
    _merge(method, tmp_path / "a.safetensors", models + others)
    _merge(method, tmp_path / "b.safetensors", again + others_again)
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


@pytest.mark.parametrize("method", MODEL_METHODS)
def test_the_output_says_how_it_was_made(tmp_path: Path, method: str) -> None:
    models, others = _federation(tmp_path)
    _merge(method, tmp_path / "a.safetensors", models + others)
    written = open_checkpoint(tmp_path / "a.safetensors")
    assert written.metadata is not None
    step = written.metadata.history[-1]
    assert step.options["method"] == method
    assert set(step.inputs) == {open_checkpoint(model).model_id() for model in models}
    assert written.metadata.client is not None
    assert written.metadata.client.num_examples == 60
    assert written.metadata.client.class_counts == (30, 30)
    assert str(tmp_path) not in (tmp_path / "a.safetensors").read_bytes().decode("latin-1")


@pytest.mark.parametrize("method", [name for name in MODEL_METHODS if not load(name).needs_spec])
def test_clients_that_agree_are_their_own_merge(tmp_path: Path, method: str) -> None:
    rng = np.random.default_rng(1)
    model = random_model(rng)
    files: list[Path] = []
    for client in range(3):
        files += write_client(tmp_path, client, model, random_fisher(rng, model))
        files.append(write_gram(tmp_path, client, model))
    for name, array in _merge(method, tmp_path / "out.safetensors", files).items():
        np.testing.assert_allclose(array, model[name], rtol=1e-6)


def test_fedfiot_undoes_a_shuffle(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    model = random_model(rng)
    fisher = random_fisher(rng, model)
    files = list(write_client(tmp_path, 0, model, fisher, 20))
    for client in (1, 2):
        other, other_fisher = shuffled(rng, model, fisher)
        files += write_client(tmp_path, client, other, other_fisher)
    for name, array in _merge("fedfiot", tmp_path / "out.safetensors", files, "--lam", "1e-5").items():
        np.testing.assert_allclose(array, model[name], rtol=1e-6)


def test_shuffling_clients_beforehand_does_not_change_what_fedfiot_computes(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    bundles = [(model := random_model(rng), random_fisher(rng, model)) for _ in range(3)]
    plain: list[Path] = []
    moved: list[Path] = []
    for client, (model, fisher) in enumerate(bundles):
        size = 30 if client == 1 else 10
        plain += write_client(tmp_path / "plain", client, model, fisher, size)
        moved += write_client(tmp_path / "moved", client, *shuffled(rng, model, fisher), num_examples=size)
    # the safeguard compares with the identity, which a shuffle does change
    one = _merge("fedfiot", tmp_path / "a.safetensors", plain, "--no-safeguard")
    two = _merge("fedfiot", tmp_path / "b.safetensors", moved, "--no-safeguard")
    inputs = rng.normal(size=(20, 3))
    np.testing.assert_allclose(_outputs(one, inputs), _outputs(two, inputs), rtol=1e-4, atol=1e-5)


def test_orders_map_each_client_onto_the_merge(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    model = random_model(rng)
    fisher = random_fisher(rng, model)
    files = list(write_client(tmp_path, 0, model, fisher, 20))
    files += write_client(tmp_path, 1, *shuffled(rng, model, fisher))
    _merge("fedfiot", tmp_path / "out.safetensors", files, "--orders", str(tmp_path / "orders.safetensors"))
    orders = load_file(tmp_path / "orders.safetensors")
    spec = parse_architecture("mlp:in=3,hidden=6-4,out=2").spec()
    aligned = realign(load_file(files[2]), spec, {group: orders[f"{group}.client_1"] for group in ("fc1", "fc2")})
    for name, array in aligned.items():
        np.testing.assert_array_equal(array, model[name])


def test_an_option_of_another_method_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"--rho: method fedavg does not know it. Leave it out; fedavg has --weight"):
        from_options(load("fedavg"), "fedavg", {"rho": 0.5})


def test_an_unknown_method_is_an_error() -> None:
    with pytest.raises(OptionError, match="no method is called 'average'. There are fedavg"):
        load("average")


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("fedfiot", {"rho": 0.0}, r"0.0 is outside \(0, 1\]"),
        ("fedfiot", {"rho": 1.5}, r"1.5 is outside \(0, 1\]"),
        ("fedfiot", {"lam": 0.0}, "no cost"),
        ("fedfiot", {"lam": -1.0}, "negative"),
        ("fedfiot", {"inner_iters": 0}, "not at least 1"),
        ("fedfiot", {"matching": "best"}, "'best' is not a choice. There are fisher, profiled, euclidean"),
        ("fedfiot", {"average": "median"}, "'median' is not a choice"),
        ("fisher", {"lam": float("nan")}, "negative"),
        ("fisher", {"fisher_floor": -1.0}, "negative"),
        ("regmean", {"off_diagonal": 1.5}, r"1.5 is outside \[0, 1\]"),
        ("fedavg", {"weighting": "loss"}, "'loss' is not a choice"),
    ],
)
def test_an_option_out_of_range_is_an_error(method: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        from_options(load(method), method, options)


def _outputs(model: dict[str, np.ndarray], inputs: np.ndarray) -> np.ndarray:
    for layer in ("fc1", "fc2"):
        inputs = np.maximum(inputs @ model[f"{layer}.weight"].T + model[f"{layer}.bias"], 0)
    return inputs @ model["fc3.weight"].T + model["fc3.bias"]
