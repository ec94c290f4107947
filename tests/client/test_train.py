"""The training loop, against steps computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from modelfuse.client.data import Dataset
from modelfuse.client.models import create
from modelfuse.client.seeds import derived_seed
from modelfuse.client.settings import TrainSettings
from modelfuse.client.sources.source import Normalisation
from modelfuse.client.train import Trainer, cross_entropy
from modelfuse.errors import OptionError

CPU = torch.device("cpu")
MLP = "mlp:in=4,hidden=5,out=3"


def data(count: int = 12, shape: tuple[int, ...] = (4,)) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, *shape, generator=generator)
    labels = torch.randint(3, (count,), generator=generator)
    return Dataset("made", inputs, labels, ("a", "b", "c"), Normalisation((0.0,), (1.0,)))


def trainer(architecture: str = MLP, dataset: Dataset | None = None, **settings: Any) -> Trainer:
    return Trainer(create(architecture, 0), dataset or data(), TrainSettings(**settings), 0, CPU)


class Scalar(nn.Module):
    """One weight w; the objective below makes its loss w²/2 for every batch, so the gradient is w."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([2.0]))
        self.still = nn.Parameter(torch.tensor([5.0]))


def half_square(network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    w: Tensor = network.get_parameter("w")
    return (w**2).sum() / 2


def scalar_trainer(**settings: Any) -> Trainer:
    recipe = TrainSettings(batch_size=12, **settings)
    return Trainer(Scalar(), data(), recipe, 0, CPU, half_square, lambda name: name == "w")


def test_the_proximal_gradient_against_steps_by_hand() -> None:
    training = scalar_trainer(lr=0.1, momentum=0.0, prox_mu=0.5)
    w = anchor = 2.0
    for _ in range(3):
        training.run_epoch()
        w -= 0.1 * (w + 0.5 * (w - anchor))
    assert training.weights()["w"] == pytest.approx(w)


def test_long_gradients_are_scaled_down_to_the_norm() -> None:
    training = scalar_trainer(lr=0.1, momentum=0.0, prox_mu=0.5, clip_norm=1.5)
    w = anchor = 2.0
    lengths = []
    for _ in range(6):
        training.run_epoch()
        gradient = w + 0.5 * (w - anchor)
        lengths.append(gradient)
        w -= 0.1 * min(gradient, 1.5)
    assert max(lengths) > 1.5 > min(lengths)
    assert training.weights()["w"] == pytest.approx(w, rel=1e-5)


def test_momentum_decay_and_schedule_against_steps_by_hand() -> None:
    recipe = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "prox_mu": 0.5, "schedule": "cosine", "epochs": 3}
    training = scalar_trainer(**recipe)
    w, anchor, velocity = 2.0, 2.0, 0.0
    for epoch in range(3):
        assert training.run_epoch() == pytest.approx(w**2 / 2)
        velocity = 0.9 * velocity + w + 0.5 * (w - anchor) + 0.01 * w
        w -= 0.1 * (1 + np.cos(np.pi * epoch / 3)) / 2 * velocity
    assert training.weights()["w"] == pytest.approx(w)
    assert training.momenta()["w"] == pytest.approx(velocity)


def test_what_does_not_train_stays_exactly() -> None:
    training = scalar_trainer(weight_decay=0.1)
    training.run_epoch()
    assert training.weights()["still"] == 5.0
    assert set(training.momenta()) == {"w"}


def test_an_epoch_meets_every_example_once() -> None:
    met = []

    def objective(network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        met.append(inputs)
        return cross_entropy(network, inputs, labels)

    training = Trainer(create(MLP, 0), data(), TrainSettings(batch_size=5), 0, CPU, objective)
    training.run_epoch()
    assert [len(inputs) for inputs in met] == [5, 5, 2]
    seen, stored = torch.cat(met), data().inputs
    assert not torch.equal(seen, stored)
    assert torch.equal(seen[seen[:, 0].argsort()], stored[stored[:, 0].argsort()])
    first = torch.cat(met)
    training.run_epoch()
    assert not torch.equal(torch.cat(met[3:]), first)  # every epoch has its own order


def test_a_batch_is_one_gradient_step_of_its_mean_loss() -> None:
    network, dataset = create(MLP, 0), data()
    loss = cross_entropy(network, dataset.inputs, dataset.labels)
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    expected = [p - 0.1 * g for p, g in zip(network.parameters(), gradients, strict=True)]
    training = trainer(batch_size=12, lr=0.1)
    assert training.run_epoch() == pytest.approx(loss.item())
    for new, wanted in zip(training.network.parameters(), expected, strict=True):
        torch.testing.assert_close(new, wanted)


@pytest.mark.parametrize(
    ("architecture", "shape", "options"),
    [
        (MLP, (4,), {}),
        ("fedproto-cnn:size=16,out=3", (1, 16, 16), {"augment": "crop-flip"}),
        ("fednet:size=16,out=3", (3, 16, 16), {"precision": "bf16", "schedule": "cosine"}),
    ],
)
def test_resuming_between_any_two_epochs_changes_no_bit(
    architecture: str, shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    def fresh() -> Trainer:
        return trainer(architecture, data(30, shape), batch_size=8, epochs=4, **options)

    whole = fresh()
    for _ in range(4):
        whole.run_epoch()
    cut = fresh()
    for _ in range(4):
        cut.run_epoch()
        following = fresh()
        following.resume(cut.epoch, cut.weights(), cut.momenta(), "state")
        torch.rand(3)  # whatever else draws random numbers between the tries
        cut = following
    assert cut.epoch == 4
    for name, array in whole.weights().items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(cut.weights()[name], array)


def test_running_statistics_and_their_counter_are_resumed_too() -> None:
    def fresh() -> Trainer:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
        return Trainer(network, data(), TrainSettings(batch_size=4), 0, CPU)

    whole, cut, following = fresh(), fresh(), fresh()
    cut.run_epoch()
    following.resume(1, cut.weights(), cut.momenta(), "state")
    following.run_epoch()
    for _ in range(2):
        whole.run_epoch()
    assert whole.weights()["1.num_batches_tracked"] == 6
    for name, array in whole.weights().items():
        np.testing.assert_array_equal(following.weights()[name], array)
        assert following.weights()[name].shape == array.shape


def test_the_global_random_state_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    trainer("fedproto-cnn:size=16,out=3", data(4, (1, 16, 16))).run_epoch()
    assert torch.equal(torch.rand(1), expected)


def test_clients_and_seeds_have_streams_of_their_own() -> None:
    def trained(client: int, seed: int) -> bytes:
        training = Trainer(create(MLP, 0), data(), TrainSettings(batch_size=2, seed=seed), client, CPU)
        training.run_epoch()
        return b"".join(array.tobytes() for array in training.weights().values())

    assert trained(0, 0) == trained(0, 0)
    assert len({trained(0, 0), trained(1, 0), trained(0, 1)}) == 3
    assert derived_seed(1, 23) != derived_seed(12, 3)
    assert 0 <= derived_seed(0) < 2**63


def test_large_data_is_normalised_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = trainer(batch_size=5)
    monkeypatch.setattr("modelfuse.client.train.PREPARED_BYTES", 0)
    by_batch = trainer(batch_size=5)
    assert at_once.run_epoch() == by_batch.run_epoch()


def test_a_diverging_run_is_the_learning_rates_fault() -> None:
    training = trainer(lr=1e30, batch_size=1)
    with pytest.raises(OptionError, match=r"--lr 1e\+30: client 0 diverged: its loss is .* in epoch 1. Lower"):
        training.run_epoch()


def test_only_images_are_augmented() -> None:
    with pytest.raises(OptionError, match="--augment flip: the examples are no images"):
        trainer(augment="flip")


def test_one_example_is_enough() -> None:
    assert np.isfinite(trainer(dataset=data(1)).run_epoch())
