"""Data sets as tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from modelfuse.client.data import Dataset, load_data
from modelfuse.client.sources.source import Normalisation
from modelfuse.errors import OptionError


def images() -> Dataset:
    pixels = torch.tensor([[[[0, 255]], [[51, 102]]], [[[255, 0]], [[0, 0]]]], dtype=torch.uint8)  # (2, 2, 1, 2)
    return Dataset("two", pixels, torch.tensor([1, 0]), ("a", "b", "c"), Normalisation((0.5, 0.2), (0.5, 0.1)))


def test_a_batch_is_normalised_channel_by_channel() -> None:
    expected = torch.tensor([[[[-1.0, 1.0]], [[0.0, 2.0]]], [[[1.0, -1.0]], [[-2.0, -2.0]]]])
    torch.testing.assert_close(images().batch(slice(None)), expected)
    torch.testing.assert_close(images().batch(torch.tensor([1])), expected[1:])
    torch.testing.assert_close(images().black().flatten(), torch.tensor([-1.0, -2.0]))


def test_batching_leaves_floats_as_stored_and_tokens_as_they_are() -> None:
    features = torch.tensor([[1.0, 2.0]])
    data = Dataset("f", features, torch.tensor([0]), ("a",), Normalisation((1.0,), (2.0,)))
    torch.testing.assert_close(data.batch(slice(None)), torch.tensor([[0.0, 0.5]]))
    assert features.tolist() == [[1.0, 2.0]]
    tokens = Dataset("t", torch.tensor([[4, 5]]), torch.tensor([0]), ("a",), Normalisation((0.0,), (1.0,)))
    assert tokens.batch(slice(None)).dtype == torch.int64


def test_subsets_and_counts() -> None:
    assert images().class_counts() == (1, 1, 0)
    turned = images().subset(np.array([1, 0]))
    assert turned.labels.tolist() == [0, 1]
    torch.testing.assert_close(turned.inputs, images().inputs.flip(0))
    data = images()
    assert data.subset(slice(1, 2)).inputs.data_ptr() == data.inputs[1:].data_ptr()


def test_loading_chosen_examples_is_a_subset_of_all() -> None:
    chosen = np.array([3, 1, 9])
    part, whole = load_data("digits", "test", indices=chosen), load_data("digits", "test")
    torch.testing.assert_close(part.inputs, whole.inputs[chosen])
    assert part.labels.tolist() == whole.labels[chosen].tolist()


def test_normalisation_can_be_chosen_and_must_fit(tmp_path: Path) -> None:
    assert load_data("digits", "test", normalize="none").batch(slice(None)).max() == 1.0
    with pytest.raises(OptionError, match="3 numbers for 1 channels"):
        load_data("digits", "test", normalize="cifar10")
