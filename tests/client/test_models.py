"""Modules from layer records, their initialisation, and tensors in and out."""

from __future__ import annotations

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from networks import ARCHITECTURES, CHARACTERS, RESIDUAL, inputs_of, network_of
from safetensors.numpy import save_file
from torch import nn

from modelfuse.client.models import build, create, initialize, load_network, load_tensors, tensors_of
from modelfuse.errors import ContentError, OptionError
from modelfuse.files.checkpoint import open_checkpoint
from modelfuse.files.writer import save
from modelfuse.spec.architectures import parse_architecture
from modelfuse.types import Metadata

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("fednet", 939_616),  # FedFiOT §5.1
        ("vgg9", 3_491_530),  # FedMA tab. 1
        ("char-lstm", 293_584),  # FedMA tab. 7
        ("lenet", 431_080),
        ("fedproto-cnn", 21_840),
        ("fedproto-cnn:width=18", 10 * 25 + 10 + 18 * 250 + 18 + 50 * 18 * 16 + 50 + 510),
        ("mlp:in=64,hidden=100-50,out=10,bias=false", 64 * 100 + 100 * 50 + 50 * 10),
    ],
)
def test_numbers_of_parameters(text: str, count: int) -> None:
    assert sum(parameter.numel() for parameter in build(parse_architecture(text)).parameters()) == count


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_tensors_are_the_rows_of_the_spec(name: str) -> None:
    architecture = ARCHITECTURES[name]
    assert set(build(architecture).state_dict()) == set(architecture.spec().axes)


def test_resnet18_is_torchvisions() -> None:
    from torchvision.models import resnet18

    theirs = resnet18(num_classes=10).eval()
    ours = network_of(ARCHITECTURES["resnet18"])
    theirs.load_state_dict(ours.state_dict())
    images = inputs_of(ARCHITECTURES["resnet18"], 2)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=1e-4, atol=1e-4)


def test_an_mlp_takes_images() -> None:
    network = create("mlp:in=12,hidden=3,out=2", 0)
    images = torch.randn(5, 3, 2, 2)
    assert torch.equal(network(images), network(images.reshape(5, 12)))


def test_images_of_another_size_are_refused() -> None:
    with pytest.raises(ContentError, match=r"shape 3×32×32 and the network reads 1×28×28"):
        build(parse_architecture("lenet"))(torch.zeros(1, 3, 32, 32))


def test_every_time_step_is_decoded() -> None:
    network = network_of(CHARACTERS)
    tokens = inputs_of(CHARACTERS, 3)
    logits = network(tokens)
    assert logits.shape == (3, 7, 11)
    changed = tokens.clone()
    changed[:, 4] = (tokens[:, 4] + 1) % 11
    same = (network(changed) == logits).all(2).all(0)
    assert same.tolist() == [True] * 4 + [False] * 3


@pytest.mark.parametrize(("text", "width"), [("fednet", 128), ("fedproto-cnn", 50), ("mlp:in=4,hidden=7-6,out=2", 6)])
def test_the_representation_is_what_the_classifier_reads(text: str, width: int) -> None:
    network = create(text, 0).eval()
    inputs = torch.randn(3, *network.architecture.input_shape)
    representation = network.represent(inputs)
    assert representation.shape == (3, width)
    assert (representation >= 0).all()
    assert torch.equal(network.classify(representation), network(inputs))


def test_without_a_marker_the_representation_is_what_the_last_layer_reads() -> None:
    assert network_of(RESIDUAL).represent(inputs_of(RESIDUAL, 2)).shape == (2, 9)


@pytest.mark.parametrize("scheme", ["xavier", "torch"])
def test_initialisation_depends_on_the_seed_alone(scheme: str) -> None:
    state = torch.random.get_rng_state()
    first, again, other = (create("fednet", seed, scheme).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)


def test_xavier_fills_its_bounds_and_biases_are_zero() -> None:
    network = create("lenet", 0)
    bounds = {"conv1": 6 / (25 + 500), "conv2": 6 / (500 + 1250), "fc1": 6 / (800 + 500), "fc2": 6 / (500 + 10)}
    for name, square in bounds.items():
        weight = network.get_parameter(f"{name}.weight")
        assert weight.abs().max() <= math.sqrt(square)
        assert weight.abs().max() >= 0.98 * math.sqrt(square)
        assert not network.get_parameter(f"{name}.bias").any()


def test_xavier_takes_the_gates_of_an_lstm_one_by_one() -> None:
    network = build(CHARACTERS)
    initialize(network, 0)
    bound = math.sqrt(6 / (6 + 8))
    for gate in network.get_parameter("lstm1.weight_ih_l0").chunk(4):
        assert 0.9 * bound <= gate.abs().max() <= bound
    assert not network.get_parameter("lstm1.bias_hh_l0").any()


def test_torchs_scheme_is_what_torch_does() -> None:
    network = build(parse_architecture("mlp:in=4,hidden=3,out=2"))
    initialize(network, 5, "torch")
    torch.manual_seed(5)
    expected = [nn.Linear(4, 3), nn.Linear(3, 2)]
    assert torch.equal(network.get_parameter("fc1.weight"), expected[0].weight)
    assert torch.equal(network.get_parameter("fc2.bias"), expected[1].bias)


def test_tensors_go_out_and_in(tmp_path: Path) -> None:
    network = network_of(RESIDUAL).to(memory_format=torch.channels_last)
    tensors = tensors_of(network)
    assert all(array.flags.c_contiguous for array in tensors.values())
    other = build(RESIDUAL)
    load_tensors(other, tensors, "file")
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in network.state_dict().items())
    tensors["fc.weight"][:] = 0
    assert network.get_parameter("fc.weight").any()  # it was a copy


def test_bfloat16_goes_out_and_in() -> None:
    layer = nn.Linear(3, 2).to(torch.bfloat16)
    array = tensors_of(layer)["weight"]
    assert array.dtype == ml_dtypes.bfloat16
    wide = nn.Linear(3, 2)
    load_tensors(wide, tensors_of(layer), "file")
    assert torch.equal(wide.weight, layer.weight.float())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc2.bias": None}, r"c\.safetensors: tensor fc2\.bias is missing\. Pass the --architecture"),
        ({"fc9.bias": np.zeros(2)}, r"c\.safetensors: the architecture has no tensor fc9\.bias\. Pass"),
        ({"fc2.bias": np.zeros(3)}, r"c\.safetensors: fc2\.bias has shape \(3,\) and the architecture \(2,\)\. Pass"),
        ({"fc2.bias": np.array([0, np.nan])}, r"c\.safetensors: fc2\.bias holds NaN or infinity\. Train"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change: dict[str, np.ndarray | None], message: str) -> None:
    network = create("mlp:in=4,hidden=3,out=2", 0)
    tensors = {name: array for name, array in {**tensors_of(network), **change}.items() if array is not None}
    with pytest.raises(ContentError, match=message):
        load_tensors(network, tensors, "c.safetensors")


def test_a_file_brings_its_architecture_and_its_widths(tmp_path: Path) -> None:
    wide = create("mlp:in=4,hidden=6,out=2", 0)
    save(tmp_path / "c.safetensors", tensors_of(wide), Metadata("model", "mlp:in=4,hidden=3,out=2"))
    network = load_network(open_checkpoint(tmp_path / "c.safetensors"), None, CPU)
    inputs = torch.randn(2, 4)
    assert not network.training
    assert torch.equal(network(inputs), wide(inputs))


def test_a_foreign_file_needs_an_architecture(tmp_path: Path) -> None:
    network = create("mlp:in=4,hidden=3,out=2", 0)
    path = tmp_path / "foreign.safetensors"
    save_file(tensors_of(network), path)
    with pytest.raises(OptionError, match=r"does not say its architecture\. Pass --architecture"):
        load_network(open_checkpoint(path), None, CPU)
    inputs = torch.randn(2, 4)
    loaded = load_network(open_checkpoint(path), "mlp:in=4,hidden=3,out=2", CPU)
    assert torch.equal(loaded(inputs), network(inputs))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module of one's own into the current folder and return its architecture string."""
    (tmp_path / "own_network.py").write_text(
        "import torch\nfrom pathlib import Path\n\n\ndef make():\n    Path('ran').touch()\n"
        "    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))\n\n\n"
        "def number():\n    return 3\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    return "python:own_network:make"


def test_a_users_own_module_is_drawn_by_its_factory_from_the_seed(own: str) -> None:
    first, again, other = (create(own, seed).state_dict()["0.weight"] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not create(own, 1, "xavier").state_dict()["0.bias"].any()


def test_a_file_alone_never_runs_code(own: str, tmp_path: Path) -> None:
    path = tmp_path / "own.safetensors"
    save(path, tensors_of(create(own, 0)), Metadata("model", own))
    Path("ran").unlink()
    with pytest.raises(OptionError, match=r"runs your own code.*Pass --architecture python:own_network:make"):
        load_network(open_checkpoint(path), None, CPU)
    assert not Path("ran").exists()
    assert isinstance(load_network(open_checkpoint(path), own, CPU), nn.Sequential)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("python:own_network", "names no factory"),
        ("python:no_such_module:make", "no_such_module cannot be imported"),
        ("python:own_network:absent", "has no function absent"),
        ("python:own_network:number", "returned int. Let it return a torch.nn.Module"),
    ],
)
def test_a_factory_that_cannot_be_used(own: str, text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        create(text, 0)
