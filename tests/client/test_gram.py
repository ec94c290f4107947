"""Gram matrices against sums over rows and patches, one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from networks import ARCHITECTURES, CHARACTERS, data_of, dataset_of, linear, network_of
from torch import nn

from modelfuse.client.gram import gram_matrices
from modelfuse.errors import ContentError


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_it_is_the_mean_of_outer_products(batch_size: int) -> None:
    inputs = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    data = data_of(inputs, torch.zeros(10, dtype=torch.int64), 1)
    found = gram_matrices(linear([[1.0, 2.0, 3.0]]), data, batch_size)
    expected = sum(np.outer(x, x) for x in inputs.numpy().astype(float)) / 10
    assert list(found) == ["weight"]
    np.testing.assert_allclose(found["weight"], expected, rtol=1e-5, atol=1e-6)


def test_a_convolution_reads_patches() -> None:
    network = nn.Sequential(nn.Conv2d(2, 3, (2, 3), stride=(2, 1), padding=1), nn.Flatten(), nn.Linear(54, 2))
    inputs = torch.randn(4, 2, 4, 6, generator=torch.Generator().manual_seed(0))
    data = data_of(inputs, torch.zeros(4, dtype=torch.int64), 2)
    found = gram_matrices(network, data, convolutions=True)
    assert list(gram_matrices(network, data)) == ["2.weight"]
    padded = np.pad(inputs.numpy().astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    patches = [image[:, y : y + 2, x : x + 3].ravel() for image in padded for y in (0, 2, 4) for x in range(6)]
    np.testing.assert_allclose(found["0.weight"], np.mean([np.outer(p, p) for p in patches], 0), rtol=1e-4, atol=1e-6)
    outputs = network[0](inputs).flatten(1).detach().numpy().astype(float)
    np.testing.assert_allclose(found["2.weight"], outputs.T @ outputs / 4, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lenet", "resnet18", CHARACTERS.text])
def test_there_is_one_for_the_weight_of_each_layer(name: str) -> None:
    network = network_of(ARCHITECTURES[name])
    found = gram_matrices(network, dataset_of(ARCHITECTURES[name], 3), convolutions=True)
    shapes = {key: tensor.shape for key, tensor in network.state_dict().items()}
    layers = {f"{key}.weight" for key, module in network.named_modules() if isinstance(module, nn.Linear | nn.Conv2d)}
    assert set(found) == layers
    for key, gram in found.items():
        assert gram.shape == (shapes[key][1:].numel(),) * 2
        np.testing.assert_array_equal(gram, gram.T)


def test_what_has_no_gram_matrix() -> None:
    data = data_of(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), 1)
    with pytest.raises(ContentError, match="no linear layer"):
        gram_matrices(nn.PReLU(), data)
    with pytest.raises(ContentError, match="no examples"):
        gram_matrices(linear([[1.0, 1.0]]), data.subset(slice(0, 0)))
    with pytest.raises(ContentError, match="NaN or infinity"):
        gram_matrices(linear([[1.0, 1.0]]), data_of(torch.full((1, 2), 1e30), data.labels, 1))
