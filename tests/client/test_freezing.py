"""What stays and how the rest trains when the first layers are global."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from networks import RESIDUAL, dataset_of, network_of

from modelfuse.client.freezing import Freezing, frozen_through
from modelfuse.client.models import tensors_of
from modelfuse.client.settings import TrainSettings
from modelfuse.client.train import Trainer
from modelfuse.errors import OptionError
from modelfuse.spec.architectures import Architecture, parse_architecture

GIVEN = TrainSettings(epochs=20, lr=0.01, weight_decay=1e-4)


def frozen(architecture: Architecture | str, group: str | None) -> Freezing:
    network = parse_architecture(architecture) if isinstance(architecture, str) else architecture
    return frozen_through(group, network.spec().to_json(), "the model")


@pytest.mark.parametrize(
    ("architecture", "group", "layers"),
    [
        ("lenet", "conv2", {"conv1", "conv2"}),
        ("mlp:in=4,hidden=3-3,out=2", "fc1", {"fc1"}),
        ("char-lstm", "encoder", {"encoder"}),
        ("char-lstm", "rnn", {"encoder", "rnn"}),
    ],
)
def test_layers_up_to_the_group_stay(architecture: str, group: str, layers: set[str]) -> None:
    spec = parse_architecture(architecture).spec()
    freezing = frozen(architecture, group)
    assert freezing.frozen == {tensor for tensor in spec.axes if tensor.partition(".")[0] in layers}
    assert all(freezing.trains(tensor) == (tensor not in freezing.frozen) for tensor in spec.axes)


def test_what_reads_a_group_that_is_not_global_trains() -> None:
    """The last convolution of a block makes units of the stream, from units of its own block."""
    freezing = frozen(RESIDUAL, "stem")
    assert "stem.weight" in freezing.frozen
    assert "one.conv2.bias" in freezing.frozen
    assert freezing.trains("one.conv2.weight")


def test_training_leaves_the_frozen_layers_and_moves_the_others() -> None:
    architecture = parse_architecture("char-lstm:hidden=5")
    freezing, network = frozen(architecture, "encoder"), network_of(architecture)
    before = tensors_of(network)
    recipe = TrainSettings(batch_size=2, weight_decay=0.1)
    training = Trainer(network, dataset_of(architecture, 4), recipe, 0, torch.device("cpu"), trainable=freezing.trains)
    training.run_epoch()
    for name, array in training.weights().items():
        assert np.array_equal(array, before[name]) == (name in freezing.frozen), name


def test_frozen_running_statistics_stay() -> None:
    freezing, network = frozen(RESIDUAL, "stem"), network_of(RESIDUAL)
    before = tensors_of(network)
    training = Trainer(
        network, dataset_of(RESIDUAL, 4), TrainSettings(), 0, torch.device("cpu"), trainable=freezing.trains
    )
    training.run_epoch()
    after = training.weights()
    np.testing.assert_array_equal(after["bn0.running_mean"], before["bn0.running_mean"])
    assert not np.array_equal(after["two.bn.running_mean"], before["two.bn.running_mean"])


def test_fedmas_rule_takes_weight_decay_off_hidden_layers() -> None:
    recipe = frozen("vgg9", "conv3").recipe(GIVEN, "fedma")
    assert (recipe.epochs, recipe.lr, recipe.weight_decay) == (20, 0.01, 0.0)


def test_fedmas_rule_trains_the_last_layer_slower_and_longer() -> None:
    freezing = frozen("vgg9", "fc8")
    assert freezing.only_output
    recipe = freezing.recipe(GIVEN, "fedma")
    assert (recipe.epochs, recipe.weight_decay) == (60, 1e-4)
    assert recipe.lr == pytest.approx(0.001)
    assert freezing.recipe(GIVEN, "plain") == GIVEN


def test_nothing_stays_unless_it_is_asked_for() -> None:
    assert frozen("lenet", None).trains("conv1.weight")
    with pytest.raises(OptionError, match="--freeze-rule fedma: no layer is frozen"):
        frozen("lenet", None).recipe(GIVEN, "fedma")


def test_faults() -> None:
    with pytest.raises(
        OptionError, match="--freeze-through fc2: the model has no such group. It has, in merge order, co"
    ):
        frozen("lenet", "fc2")
    with pytest.raises(OptionError, match="--freeze-through: the model does not say its groups. Pass"):
        frozen_through("fc1", None, "the model")
