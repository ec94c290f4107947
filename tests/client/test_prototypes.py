"""Prototypes of networks: which layer, which mode, and which class is nearest."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from modelfuse.client.data import Dataset
from modelfuse.client.embedding import Embedding
from modelfuse.client.models import create
from modelfuse.client.prototypes import embed, local_prototypes, nearest
from modelfuse.client.sources.source import Normalisation
from modelfuse.errors import ContentError, OptionError
from modelfuse.files.prototypes import Prototypes

CLASSES = ("a", "b", "c")


def data(inputs: Tensor, labels: list[int] | Tensor) -> Dataset:
    return Dataset("made", inputs, torch.as_tensor(labels), CLASSES, Normalisation((0.0,), (1.0,)))


class Convolution(nn.Module):
    """A user's own network: its embedding is the map of ``body``."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Identity(), nn.Dropout(0.5))
        self.head = nn.Linear(1, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(inputs).mean((1, 2, 3))[:, None])
        return logits


MAPS = torch.arange(12.0).reshape(3, 2, 2, 1)  # three examples of two channels of two pixels


def test_the_mean_of_each_class_by_hand_one_example_or_many() -> None:
    embedded = embed(Convolution(), data(MAPS, [2, 0, 0]), Embedding("body"))
    found = local_prototypes(embedded, 3)
    np.testing.assert_array_equal(found.classes, [0, 2])  # nobody is of class 1
    np.testing.assert_array_equal(found.counts, [2, 1])
    # evaluation mode: no dropout
    np.testing.assert_allclose(found.vectors, [[6.0, 7.0, 8.0, 9.0], [0.0, 1.0, 2.0, 3.0]])


def test_a_map_is_flattened_or_averaged_by_name() -> None:
    _, flat = Embedding("body").run(Convolution().eval(), MAPS)
    _, mean = Embedding("body", "mean").run(Convolution().eval(), MAPS)
    assert flat.tolist()[1] == [4.0, 5.0, 6.0, 7.0]
    assert mean.tolist()[1] == [4.5, 6.5]


def test_the_zoo_marks_its_embedding_before_the_dropout_of_the_head() -> None:
    network = create("fedproto-cnn", 0)
    images = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    logits, vectors = Embedding().run(network.eval(), images)
    assert vectors.shape == (4, 50)
    assert (vectors >= 0).all()
    torch.testing.assert_close(network.get_submodule("fc2")(vectors), logits)
    _, named = Embedding("fc1").run(network, images)
    torch.testing.assert_close(named.relu(), vectors)


@pytest.mark.parametrize("strides", ["stride=1,pool=4", "stride=2,pool=2"])
def test_resnets_of_either_strides_have_embeddings_of_one_width(strides: str) -> None:
    network = create(f"resnet18:{strides}", 0).eval()
    with torch.no_grad():
        logits, vectors = Embedding().run(network, torch.zeros(1, 3, 32, 32))
    assert (logits.shape, vectors.shape) == ((1, 10), (1, 512))


def test_the_size_of_batches_changes_nothing() -> None:
    inputs = torch.rand(7, 4, generator=torch.Generator().manual_seed(0))
    network, dataset = create("mlp:in=4,hidden=5,out=3", 0), data(inputs, [0, 1, 2, 0, 1, 2, 0])
    whole, parts = (local_prototypes(embed(network, dataset, Embedding(), size), 3) for size in (7, 2))
    np.testing.assert_allclose(whole.vectors, parts.vectors, rtol=1e-6)


def test_the_nearest_prototype_by_hand() -> None:
    two = Prototypes(np.array([[0.0, 0.0], [4.0, 0.0]]), np.array([0, 2]), np.array([1, 1]))
    vectors = torch.tensor([[1.0, 1.0], [3.0, -5.0], [2.0, 0.0], [1e4, 1.0]])
    assert nearest(vectors, two).tolist() == [0, 2, 0, 2]  # the third is as far from both


def test_a_network_that_marks_nothing_needs_a_name() -> None:
    with pytest.raises(OptionError, match="your own network does not mark its embedding. Name the module"):
        Embedding().run(Convolution(), MAPS)
    with pytest.raises(OptionError, match="--embedding neck: the network has no such module. It has body, body.0"):
        Embedding("neck").run(Convolution(), MAPS)


class Recurrent(nn.Module):
    """Runs its body twice, and folds the batch away in its tail."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.tail = nn.Identity(), nn.Flatten(0)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.tail(self.body(self.body(inputs)))
        return logits


def test_a_module_must_give_one_embedding_for_each_example() -> None:
    with pytest.raises(ContentError, match="--embedding body: it gave 2 outputs for a batch"):
        Embedding("body").run(Recurrent(), MAPS)
    with pytest.raises(ContentError, match="3 examples give an output of shape 12"):
        Embedding("tail").run(Recurrent(), MAPS)


def test_examples_need_one_label_each_and_finite_embeddings() -> None:
    network = create("mlp:in=4,hidden=5,out=3", 0)
    with pytest.raises(ContentError, match="a label at each step"):
        embed(network, data(torch.zeros(2, 4), torch.zeros(2, 3, dtype=torch.int64)), Embedding())
    with pytest.raises(ContentError, match="no examples to embed"):
        embed(network, data(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)), Embedding())
    with pytest.raises(ContentError, match="an embedding is NaN or infinite"):
        local_prototypes(embed(network, data(torch.full((1, 4), torch.inf), [0]), Embedding()), 3)
