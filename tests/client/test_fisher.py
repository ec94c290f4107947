"""The diagonal Fisher against hand-worked numbers, stored vectors, and one backward pass an example."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from networks import ARCHITECTURES, data_of, dataset_of, linear, narrow, network_of
from safetensors.numpy import load_file
from torch import Tensor, nn
from torch.nn import functional

from modelfuse.client.data import Dataset
from modelfuse.client.fisher import Estimator, diagonal_fisher
from modelfuse.client.models import build, create, load_tensors
from modelfuse.errors import ContentError, OptionError
from modelfuse.spec.architectures import Architecture, parse_architecture
from modelfuse.spec.layers import Conv2d, Flatten, Layer, Linear, MaxPool2d, ReLU
from modelfuse.types import FloatArray

Fisher = dict[str, FloatArray]
REFERENCES = ("mlp_bias", "cnn_bias", "cnn_nobias")


def example_by_example(network: nn.Module, dataset: Dataset, estimator: Estimator = "empirical") -> Fisher:
    """Return the Fisher by definition: one backward pass for each example and label, nothing shared."""
    network.eval()
    totals = {name: torch.zeros_like(parameter) for name, parameter in network.named_parameters()}
    for number in range(len(dataset)):
        inputs = dataset.batch(slice(number, number + 1))
        for label, weight in _labels(network, inputs, dataset.labels[number], estimator):
            network.zero_grad()
            log_p = functional.log_softmax(network(_like(network, inputs)), -1)[0]
            log_p.gather(-1, label[..., None]).sum().backward()
            for name, parameter in network.named_parameters():
                if parameter.grad is not None:
                    totals[name] += weight * parameter.grad.square()
    network.zero_grad()
    return {name: (total / len(dataset)).numpy() for name, total in totals.items()}


def _labels(network: nn.Module, inputs: Tensor, observed: Tensor, estimator: Estimator) -> list[tuple[Tensor, float]]:
    if estimator == "empirical":
        return [(observed, 1.0)]
    with torch.no_grad():
        p = network(_like(network, inputs)).softmax(-1)[0]
    return [(torch.tensor(label), float(share)) for label, share in enumerate(p)]


def _like(network: nn.Module, inputs: Tensor) -> Tensor:
    return inputs.to(next(network.parameters()).dtype) if inputs.is_floating_point() else inputs


def assert_equal(ours: Fisher, expected: Fisher, tolerance: float = 1e-9) -> None:
    """Assert equality entry by entry, up to a part of each tensor's largest entry."""
    assert ours.keys() == expected.keys()
    for name, array in expected.items():
        assert np.abs(ours[name] - array).max() <= tolerance * np.abs(array).max(), name


def two_examples() -> tuple[nn.Linear, Dataset]:
    """Return a linear classifier that finds every class equally likely, and examples whose gradients point apart."""
    return linear([[0, 0], [0, 0]], [0, 0]), data_of(torch.tensor([[1.0, 2], [1, 4]]), torch.tensor([0, 1]), 2)


def test_a_case_worked_by_hand() -> None:
    network, dataset = two_examples()
    # ∂log p(y)/∂logits = onehot(y) − (½, ½) = ±(½, −½), so each squared weight gradient is ¼ x²
    fisher = diagonal_fisher(network, dataset)
    assert fisher["weight"].tolist() == [[0.25, 0.25 * (4 + 16) / 2]] * 2
    assert fisher["bias"].tolist() == [0.25, 0.25]


def test_it_is_neither_the_square_of_the_sum_nor_of_the_mean() -> None:
    network, dataset = two_examples()
    loss = functional.cross_entropy(network(dataset.inputs), dataset.labels, reduction="sum")
    (summed,) = torch.autograd.grad(loss, [network.weight])
    fisher = diagonal_fisher(network, dataset)["weight"]
    assert summed[:, 0].tolist() == [0, 0]  # the examples' gradients cancel: both mistakes would say 0
    for mistake in (summed.square(), summed.square() / 2, (summed / 2).square()):
        assert not np.allclose(fisher, mistake.numpy())


def test_the_true_fisher_worked_by_hand() -> None:
    network = linear([[np.log(3.0)], [0.0]])
    dataset = data_of(torch.tensor([[1.0]]), torch.tensor([0]), 2)
    # p = (¾, ¼); E over y of (1[y = c] − p_c)² x² = p_c (1 − p_c)
    assert diagonal_fisher(network, dataset, estimator="true")["weight"].ravel() == pytest.approx([3 / 16] * 2)
    assert diagonal_fisher(network, dataset)["weight"].ravel() == pytest.approx([1 / 16] * 2)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_against_one_pass_an_example(name: str) -> None:
    architecture = narrow(ARCHITECTURES[name], 5)
    network, dataset = network_of(architecture).double(), dataset_of(architecture, 5)
    assert_equal(diagonal_fisher(network, dataset, batch_size=3), example_by_example(network, dataset))


@pytest.mark.parametrize("name", ["mlp", "fednet", "residual"])
def test_the_true_fisher_against_one_pass_an_example_and_label(name: str) -> None:
    architecture = narrow(ARCHITECTURES[name], 5)
    network, dataset = network_of(architecture).double(), dataset_of(architecture, 5)
    ours = diagonal_fisher(network, dataset, batch_size=3, estimator="true")
    assert_equal(ours, example_by_example(network, dataset, "true"))


def test_the_true_fisher_of_sequences_is_refused() -> None:
    network, dataset = network_of(ARCHITECTURES["characters"]), dataset_of(ARCHITECTURES["characters"], 2)
    with pytest.raises(OptionError, match="the network labels sequences"):
        diagonal_fisher(network, dataset, estimator="true")


@pytest.mark.parametrize("name", ["fednet", "lenet"])
def test_full_width_in_float32(name: str) -> None:
    architecture = ARCHITECTURES[name]
    network, dataset = network_of(architecture), dataset_of(architecture, 20)
    assert_equal(diagonal_fisher(network, dataset, 16), example_by_example(network, dataset), 1e-5)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_the_batch_size_changes_nothing(batch_size: int) -> None:
    architecture = narrow(ARCHITECTURES["fednet"], 5)
    network, dataset = network_of(architecture).double(), dataset_of(architecture, 7)
    assert_equal(diagonal_fisher(network, dataset, batch_size), diagonal_fisher(network, dataset, 7), 1e-12)


def _reference_architecture(said: dict[str, Any]) -> Architecture:
    layers: list[Layer] = []
    for number, layer in enumerate(said["layers"]):
        if layer["type"] == "conv":
            layers += [Conv2d(layer["name"], layer["out_units"], layer["kernel"][0], bias=layer["bias"])]
            layers += [ReLU(), MaxPool2d(2, 2)]
            continue
        if number and said["layers"][number - 1]["type"] == "conv":
            layers.append(Flatten())
        layers += [Linear(layer["name"], layer["out_units"], layer["bias"]), ReLU()]
    return Architecture("reference", tuple(said["input"]), tuple(layers[:-1]))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
@pytest.mark.parametrize("case", REFERENCES)
def test_stored_fishers(shared: Path, case: str, dtype: torch.dtype, tolerance: float) -> None:
    folder = shared / "reference" / "fedfiot" / "fisher" / case
    architecture = _reference_architecture(json.loads((folder / "case.json").read_text())["architecture"])
    network = build(architecture).to(dtype)
    load_tensors(network, load_file(folder / "model.safetensors"), "model")
    data = load_file(folder / "data.safetensors")
    classes = architecture.layers[-1].outputs  # type: ignore[union-attr]
    dataset = data_of(torch.from_numpy(data["x"]), torch.from_numpy(data["y"].astype(np.int64)), classes)
    ours, expected = diagonal_fisher(network, dataset, 4), load_file(folder / "fisher.safetensors")
    for name, array in expected.items():
        floor = 0 if dtype == torch.float64 else tolerance * array.max()
        np.testing.assert_allclose(ours[name], array, rtol=tolerance, atol=floor)


@pytest.mark.parametrize("client", [0, 1])
def test_the_true_fisher_of_the_authors_library(shared: Path, client: int) -> None:
    arrays = np.load(shared / "reference" / "fisher" / "fim_mlp_J2.npz")
    network = create("mlp:in=8,hidden=7,out=4,bias=false", 0).double()
    weights = {f"fc{number}.weight": arrays[f"client_{client}.fc{number}.weight"] for number in (1, 2)}
    load_tensors(network, weights, "npz")
    inputs = torch.from_numpy(arrays[f"data_{client}"])
    dataset = data_of(inputs, torch.zeros(len(inputs), dtype=torch.int64), 4)
    fisher = diagonal_fisher(network, dataset, estimator="true")
    ours = np.concatenate([fisher[name].ravel() for name in weights])
    np.testing.assert_allclose(ours, arrays[f"fisher_diag_{client}"], rtol=1e-4, atol=1e-7)


class Tied(nn.Module):
    """A decoder that is the embedding's transpose: neither module sees the whole gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.shift = nn.Parameter(torch.randn(6, generator=torch.Generator().manual_seed(0)))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of every step."""
        logits: Tensor = (self.table(tokens) + self.shift).tanh() @ self.table.weight.T
        return logits


class Twice(nn.Module):
    """A layer that runs twice, one that two names share, and one that folds time into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.fold, self.again, self.first, self.second = (nn.Linear(4, 4) for _ in range(4))
        self.second.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of (N, T, 4)."""
        x = self.fold(inputs.reshape(-1, 4)).reshape(inputs.shape).tanh()  # (N·T, 4) -> (N, T, 4)
        x = self.again(self.again(x).tanh()).mean(1)
        x = self.first(x).tanh()
        return self.second(x)  # type: ignore[no-any-return]


class TimeFirst(nn.Module):
    """A layer that reads (T, N, ·): with T = N nothing in the shapes gives it away."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of (N, T, 4)."""
        return self.layer(inputs.transpose(0, 1)).mean(0)  # type: ignore[no-any-return]


class Zoo(nn.Module):
    """Whatever else has a rule, writes into its input, or has none."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(4, 6, 3, padding=1, groups=2), nn.ReLU(inplace=True), nn.GroupNorm(3, 6))
        self.reflect = nn.Conv2d(6, 6, 3, padding=1, padding_mode="reflect")
        self.line = nn.Sequential(nn.Conv1d(6, 4, 2, stride=2, dilation=2), nn.BatchNorm1d(4), nn.ReLU(inplace=True))
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm = nn.LayerNorm(4)
        self.recurrent = nn.LSTM(4, 3, num_layers=2, bidirectional=True, batch_first=True)
        self.unused = nn.Linear(3, 3)
        self.head = nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits of (N, 4, 5, 5)."""
        x = self.line(self.reflect(self.conv(inputs)).flatten(2)).mT  # (N, 6, 25) -> (N, T, 4)
        x = self.norm(x + self.attention(x, x, x, need_weights=False)[0])
        return self.head(self.recurrent(x)[0].mean(1))  # type: ignore[no-any-return]


def _vectors(steps: int) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    return data_of(torch.randn(6, steps, 4, generator=generator), torch.arange(6) % 4, 4)


@pytest.mark.parametrize("estimator", ["empirical", "true"])
@pytest.mark.parametrize(
    ("make", "dataset"),
    [
        (Twice, _vectors(3)),
        (TimeFirst, _vectors(6)),
        (TimeFirst, _vectors(2)),
        (Zoo, data_of(torch.randn(3, 4, 5, 5, generator=torch.Generator().manual_seed(0)), torch.arange(3), 3)),
    ],
)
def test_networks_that_no_rule_covers(make: Callable[[], nn.Module], dataset: Dataset, estimator: Estimator) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = make().double()
    assert_equal(diagonal_fisher(network, dataset, 4, estimator), example_by_example(network, dataset, estimator))


def test_tied_weights() -> None:
    dataset = dataset_of(ARCHITECTURES["characters"], 5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Tied().double()
    assert_equal(diagonal_fisher(network, dataset, 2), example_by_example(network, dataset))


def test_the_network_is_left_as_it_was() -> None:
    network, dataset = create("fedproto-cnn", 0).train(), dataset_of(ARCHITECTURES["fedproto-cnn"], 4)
    network.get_parameter("conv1.bias").requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    first, again = diagonal_fisher(network, dataset), diagonal_fisher(network, dataset)
    assert_equal(first, again, 0)  # dropout is off
    assert network.training
    assert {name for name, p in network.named_parameters() if not p.requires_grad} == {"conv1.bias"}
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())


def test_progress_counts_every_example() -> None:
    network, dataset = two_examples()
    seen: list[int] = []
    diagonal_fisher(network, dataset, batch_size=1, advance=seen.append)
    assert seen == [1, 1]


def test_what_cannot_be_computed_is_refused() -> None:
    network, dataset = two_examples()
    with pytest.raises(ContentError, match="there are no examples"):
        diagonal_fisher(network, dataset.subset(torch.arange(0)))
    with pytest.raises(ContentError, match="it has 3 classes and the network 2 outputs"):
        diagonal_fisher(network, data_of(dataset.inputs, dataset.labels, 3))
    with torch.no_grad():
        network.weight.fill_(torch.inf)
    with pytest.raises(ContentError, match=r"weight: its Fisher is not finite\. Train"):
        diagonal_fisher(network, dataset)


@pytest.fixture(scope="session")
def cifar10(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the JPEG copy of CIFAR-10."""
    import tarfile

    folder = tmp_path_factory.mktemp("data")
    with tarfile.open(shared / "data" / "cifar10-jpeg.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "cifar10-jpeg"


@pytest.mark.slow
def test_a_real_clients_fisher(shared: Path, cifar10: Path) -> None:
    from modelfuse.client.data import load_data

    folder = shared / "data" / "fednet-cifar10-k6"
    network = build(parse_architecture("fednet"))
    load_tensors(network, load_file(folder / "client_5.safetensors"), "client_5")
    indices = load_file(folder / "partition.safetensors")["client_5"].astype(np.intp)
    dataset = load_data(f"imagefolder:{cifar10}", "train", normalize="cifar10", indices=indices)
    assert len(dataset) == 3901
    assert_equal(diagonal_fisher(network, dataset), load_file(folder / "fisher_5.safetensors"), 1e-4)
