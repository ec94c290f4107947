"""Accuracy, loss and ensembles against numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from networks import CHARACTERS, data_of, dataset_of, linear, network_of
from torch.nn import functional

from modelfuse.client.data import Dataset
from modelfuse.client.evaluate import ClassAccuracy, evaluate, judge
from modelfuse.errors import ContentError

LOG3 = math.log(3.0)


@pytest.fixture
def dataset() -> Dataset:
    """Return three examples (1), (−1), (1) of classes a, a, b; class c has none."""
    made = data_of(torch.tensor([[1.0], [-1], [1]]), torch.tensor([0, 0, 1]), 3)
    return Dataset(made.name, made.inputs, made.labels, ("a", "b", "c"), made.normalisation)


def test_figures_worked_by_hand(dataset: Dataset) -> None:
    evaluation = evaluate(linear([[LOG3], [0.0], [-100]]), dataset)  # p = (¾, ¼, 0), then (0, 0, 1), then (¾, ¼, 0)
    assert evaluation.accuracy == pytest.approx(1 / 3)
    assert evaluation.count == 3
    assert evaluation.non_finite == 0
    losses = [-math.log(3 / 4), 100 + LOG3, -math.log(1 / 4)]
    assert evaluation.loss == pytest.approx(sum(losses) / 3, rel=1e-6)
    assert evaluation.per_class == {
        "a": ClassAccuracy(0.5, 2),
        "b": ClassAccuracy(0.0, 1),
        "c": ClassAccuracy(None, 0),
    }


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_the_batch_size_changes_nothing(dataset: Dataset, batch_size: int) -> None:
    network = linear([[LOG3], [0.0], [-100]])
    assert evaluate(network, dataset, batch_size) == evaluate(network, dataset)


def test_an_ensemble_is_the_mean_of_probabilities(dataset: Dataset) -> None:
    sure, unsure = linear([[LOG3], [0.0], [-100]]), linear([[0.0], [0.0], [-100]])
    outcomes = judge([sure, unsure], dataset, weights=[1, 3])
    assert len(outcomes) == 3
    mean = [(0.75 + 3 * 0.5) / 4, (0.25 + 3 * 0.5) / 4]
    expected = [-math.log(mean[0]), outcomes[-1].losses[1], -math.log(mean[1])]
    assert outcomes[-1].losses == pytest.approx(expected)
    assert len(judge([sure, unsure], dataset)) == 2


def test_an_ensemble_of_one_is_the_model(dataset: Dataset) -> None:
    alone, together = judge([linear([[LOG3], [0.0], [-1]])], dataset, weights=[7])
    assert together.losses == pytest.approx(alone.losses)


def test_a_part_of_the_examples(dataset: Dataset) -> None:
    (outcomes,) = judge([linear([[LOG3], [0.0], [-100]])], dataset)
    part = outcomes.summary(np.array([2, 0]))
    assert (part.accuracy, part.count) == (0.5, 2)
    with pytest.raises(ContentError, match="no examples"):
        outcomes.summary(np.array([], dtype=np.intp))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_outputs_that_are_not_finite_count_as_wrong(dataset: Dataset, value: float) -> None:
    evaluation = evaluate(linear([[value], [0.0], [-100]]), dataset)
    assert evaluation.accuracy == 0
    assert evaluation.non_finite >= 2
    assert evaluation.loss == math.inf


def test_sequences_count_every_step() -> None:
    network, dataset = network_of(CHARACTERS), dataset_of(CHARACTERS, 4)
    evaluation = evaluate(network, dataset, 3)
    with torch.no_grad():
        logits = network(dataset.inputs)
    assert evaluation.count == dataset.labels.numel()
    assert evaluation.accuracy == pytest.approx(float((logits.argmax(2) == dataset.labels).float().mean()))
    expected = functional.cross_entropy(logits.flatten(0, 1), dataset.labels.flatten())
    assert evaluation.loss == pytest.approx(float(expected), rel=1e-5)


def test_dropout_is_off_and_the_mode_comes_back(dataset: Dataset) -> None:
    network = torch.nn.Sequential(torch.nn.Dropout(0.9), linear([[LOG3], [0.0], [-100]])).train()
    assert evaluate(network, dataset) == evaluate(linear([[LOG3], [0.0], [-100]]), dataset)
    assert network.training


def test_progress_counts_examples(dataset: Dataset) -> None:
    seen: list[int] = []
    judge([linear([[0.0]] * 3)], dataset, 2, advance=seen.append)
    assert seen == [2, 1]


def test_data_that_does_not_fit_is_refused(dataset: Dataset) -> None:
    with pytest.raises(ContentError, match="it has 3 classes and the network 2 outputs"):
        evaluate(linear([[0.0], [0.0]]), dataset)
    with pytest.raises(ContentError, match="no examples"):
        evaluate(linear([[0.0]] * 3), dataset.subset(torch.arange(0)))
