"""Distillation against numbers worked by hand, and what it leaves alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from networks import CHARACTERS, RESIDUAL, data_of, dataset_of, linear, network_of

from modelfuse.client.distill import distill, divergence
from modelfuse.client.evaluate import mixture
from modelfuse.client.models import create, tensors_of
from modelfuse.client.settings import TrainSettings
from modelfuse.errors import ContentError, OptionError

LOG3 = math.log(3.0)
SETTINGS = TrainSettings(epochs=3, batch_size=16, lr=0.1)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_the_loss_worked_by_hand(temperature: float) -> None:
    student = linear([[temperature * LOG3], [0.0]])  # p = (¾, ¼) at the temperature
    targets = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    loss = divergence(temperature)(student, torch.tensor([[1.0], [1.0]]), targets)
    first, second = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25), -math.log(0.75)
    assert float(loss.detach()) == pytest.approx(temperature**2 * (first + second) / 2, rel=1e-6)


def test_the_ensemble_is_a_weighted_mean_of_probabilities_at_the_temperature() -> None:
    data = data_of(torch.tensor([[1.0], [-1]]), torch.tensor([0, 0]), 2)
    sure, unsure = linear([[2 * LOG3], [0.0]]), linear([[0.0], [0.0]])
    told = mixture([sure, unsure], data, [1, 3], temperature=2)
    np.testing.assert_allclose(told, [[(0.75 + 1.5) / 4, (0.25 + 1.5) / 4], [(0.25 + 1.5) / 4, (0.75 + 1.5) / 4]])


def test_a_student_that_says_what_its_teacher_says_stays() -> None:
    network = create("mlp:in=64,hidden=8,out=10", 0)
    data = data_of(
        torch.randn(20, 64, generator=torch.Generator().manual_seed(0)), torch.zeros(20, dtype=torch.int64), 1
    )
    before = tensors_of(network)
    loss = distill(network, [create("mlp:in=64,hidden=8,out=10", 0)], [1], data, SETTINGS)
    assert loss == pytest.approx(0, abs=1e-6)
    for name, array in tensors_of(network).items():
        np.testing.assert_allclose(array, before[name], atol=1e-5)


def test_a_student_of_other_widths_learns_what_its_teachers_say() -> None:
    inputs = torch.randn(400, 64, generator=torch.Generator().manual_seed(0))
    data = data_of(inputs, torch.zeros(400, dtype=torch.int64), 1)
    teachers = [create(f"mlp:in=64,hidden={width},out=10", width) for width in (9, 20)]
    student = create("mlp:in=64,hidden=30,out=10", 5)
    told = mixture(teachers, data, [1, 1]).argmax(1)
    before = (student(inputs).argmax(1) == told).float().mean()
    met: list[int] = []
    first = distill(student, teachers, [1, 1], data, replace(SETTINGS, epochs=1), advance=met.append)
    last = distill(student, teachers, [1, 1], data, replace(SETTINGS, epochs=30))
    assert last < first / 3
    assert (student(inputs).argmax(1) == told).float().mean() > max(0.7, float(before))
    assert sum(met) == 2 * len(data)
    assert not student.training


def test_running_statistics_stay_as_they_are_and_scales_learn() -> None:
    student, teacher = network_of(RESIDUAL, 0), network_of(RESIDUAL, 1)
    data = dataset_of(RESIDUAL, 32)
    before = tensors_of(student)
    distill(student, [teacher], [1], data, SETTINGS)
    for name, array in tensors_of(student).items():
        statistic = name.endswith(("running_mean", "running_var", "num_batches_tracked"))
        assert np.array_equal(array, before[name]) == statistic, name


def test_sequences_are_distilled_step_by_step() -> None:
    student, teacher = network_of(CHARACTERS, 0), network_of(CHARACTERS, 1)
    data = dataset_of(CHARACTERS, 40)
    assert mixture([teacher], data, [1]).shape == (*data.labels.shape, 11)
    start = float(divergence(1)(student, data.batch(slice(None)), mixture([teacher], data, [1])).detach())
    assert distill(student, [teacher], [1], data, replace(SETTINGS, epochs=20, lr=0.5)) < start


@pytest.mark.parametrize("temperature", [0.0, -1.0, 1e-3, 1e4, math.inf, math.nan])
def test_the_temperature_is_within_what_float32_bears(temperature: float) -> None:
    data = data_of(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), 1)
    with pytest.raises(OptionError, match="--temperature"):
        distill(linear([[1.0]]), [linear([[1.0]])], [1], data, SETTINGS, temperature)


def test_models_of_other_classes_inputs_that_do_not_fit_and_none_at_all() -> None:
    one = torch.zeros(1, dtype=torch.int64)
    data = data_of(torch.zeros(1, 1), one, 1)
    with pytest.raises(ContentError, match="the student has 2 outputs and the clients 2, 3"):
        distill(linear([[1.0]] * 2), [linear([[1.0]] * 2), linear([[1.0]] * 3)], [1, 1], data, SETTINGS)
    with pytest.raises(ContentError, match="cannot read an example of shape 5"):
        distill(linear([[1.0]]), [linear([[1.0]])], [1], data_of(torch.zeros(1, 5), one, 1), SETTINGS)
    with pytest.raises(ContentError, match="no examples"):
        distill(linear([[1.0]]), [linear([[1.0]])], [1], data.subset(slice(0, 0)), SETTINGS)
    with pytest.raises(ContentError, match="overflow"):
        distill(
            linear([[1.0]] * 2), [linear([[1e30], [-1e30]])], [1], data_of(torch.full((1, 1), 1e30), one, 1), SETTINGS
        )
    with pytest.raises(OptionError, match="--augment flip"):
        distill(linear([[1.0]]), [linear([[1.0]])], [1], data, replace(SETTINGS, augment="flip"))


def test_a_student_that_diverges_says_so() -> None:
    data = data_of(torch.full((8, 1), 1e20), torch.zeros(8, dtype=torch.int64), 1)
    for epochs in (1, 5):  # after one, only the weights tell
        with pytest.raises(OptionError, match="the network diverged"):
            distill(linear([[1.0], [0]]), [linear([[0.0], [0]])], [1], data, replace(SETTINGS, lr=1e38, epochs=epochs))


def test_tokens_that_a_network_does_not_know_are_named() -> None:
    data = dataset_of(CHARACTERS, 9)
    data.inputs[7, 3] = 11
    with pytest.raises(ContentError, match="cannot read an example of shape 7"):
        distill(network_of(CHARACTERS, 0), [network_of(CHARACTERS, 1)], [1], data, SETTINGS)
