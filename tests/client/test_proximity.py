"""FedProto's local loss, against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from modelfuse.client.embedding import Embedding
from modelfuse.client.models import create
from modelfuse.client.proximity import Denominator, Distance, PrototypeObjective, Pull, TrainingPass
from modelfuse.errors import ContentError
from modelfuse.files.prototypes import Prototypes

# class 0 at (0, 0), class 2 at (1, 1); class 1 has none
GLOBAL = Prototypes(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([0, 2]), np.array([4, 4]))
VECTORS = torch.tensor([[3.0, 4.0], [9.0, 9.0], [1.0, -1.0], [5.0, 5.0]])
LABELS = torch.tensor([0, 1, 2, 1])
# covered: example 0, off by (3, 4), and example 2, off by (0, −2); examples 1 and 3 are not


@pytest.mark.parametrize(
    ("distance", "total"),
    [
        ("mse", (9 + 16) / 2 + (0 + 4) / 2),
        ("l2", 5 + 2),
        ("l1", 7 + 2),
    ],
)
@pytest.mark.parametrize(("denominator", "terms"), [("all", 4), ("covered", 2)])
def test_each_distance_and_denominator_by_hand(
    distance: Distance, total: float, denominator: Denominator, terms: int
) -> None:
    pull = Pull(GLOBAL, 3, weight=0.5, distance=distance, denominator=denominator)
    assert float(pull(VECTORS, LABELS)) == pytest.approx(0.5 * total / terms)


def test_mse_over_all_is_what_the_authors_code_computes() -> None:
    targets = VECTORS.clone()  # a class without a prototype is its own target there
    targets[0], targets[2] = torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0])
    assert float(Pull(GLOBAL, 3)(VECTORS, LABELS)) == pytest.approx(float(torch.nn.MSELoss()(VECTORS, targets)))


@pytest.mark.parametrize("distance", ["mse", "l2", "l1"])
def test_an_example_without_a_prototype_feels_no_pull(distance: Distance) -> None:
    vectors = VECTORS.clone().requires_grad_()
    Pull(GLOBAL, 3, distance=distance)(vectors, LABELS).backward()
    assert vectors.grad is not None
    assert vectors.grad[[1, 3]].abs().sum() == 0
    assert (vectors.grad[[0, 2]].abs().sum(1) > 0).all()


@pytest.mark.parametrize("distance", ["mse", "l2", "l1"])
@pytest.mark.parametrize("denominator", ["all", "covered"])
def test_no_prototype_at_all_is_no_term(distance: Distance, denominator: Denominator) -> None:
    nothing = Prototypes(np.empty((0, 2)), np.empty(0, np.intp), np.empty(0, np.intp))
    vectors = VECTORS.clone().requires_grad_()
    loss = Pull(nothing, 3, distance=distance, denominator=denominator)(vectors, LABELS)
    loss.backward()
    assert float(loss.detach()) == 0
    assert vectors.grad is not None
    assert vectors.grad.abs().sum() == 0


@pytest.mark.parametrize("distance", ["mse", "l2", "l1"])
def test_at_the_prototype_itself_the_gradient_is_finite(distance: Distance) -> None:
    vectors = torch.tensor([[1.0, 1.0]], requires_grad=True)
    Pull(GLOBAL, 3, distance=distance)(vectors, torch.tensor([2])).backward()
    assert vectors.grad is not None
    assert torch.isfinite(vectors.grad).all()


def test_widths_that_differ_name_both_files() -> None:
    pull = Pull(GLOBAL, 3, names=("global.safetensors", "client 7's model"))
    with pytest.raises(ContentError, match="client 7's model: its embedding has 3 entries, the prototypes of global.s"):
        pull(torch.zeros(1, 3), torch.tensor([0]))


class Fixed(torch.nn.Module):
    """A network whose embedding is its input, and whose logits are twice the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * self.body(inputs)


def test_the_objective_is_cross_entropy_and_pull_of_one_forward_pass() -> None:
    inputs, labels = torch.tensor([[1.0, 0.0]]), torch.tensor([0])
    cross_entropy = math.log(1 + math.exp(-2))
    plain = PrototypeObjective(Embedding("body"))
    assert float(plain(Fixed(), inputs, labels)) == pytest.approx(cross_entropy)
    pulled = PrototypeObjective(Embedding("body"), Pull(GLOBAL, 3, weight=2.0))
    assert float(pulled(Fixed(), inputs, labels)) == pytest.approx(cross_entropy + 2 * (1 + 0) / 2)


def test_a_training_pass_keeps_the_last_epoch_alone() -> None:
    met = TrainingPass(3, num_examples=3)
    for vectors, labels in (
        ([[9.0, 9.0], [9.0, 9.0]], [0, 1]),
        ([[9.0, 9.0]], [1]),
        ([[1.0, 3.0], [2.0, 2.0]], [0, 1]),
        ([[4.0, 0.0]], [1]),
    ):
        met.add(torch.tensor(vectors), torch.tensor(labels))
    found = met.prototypes()
    np.testing.assert_array_equal(found.classes, [0, 1])
    np.testing.assert_array_equal(found.counts, [1, 2])
    np.testing.assert_allclose(found.vectors, [[1.0, 3.0], [3.0, 1.0]])


def test_the_zoos_embedding_is_pulled_where_it_is_marked() -> None:
    network = create("mlp:in=2,hidden=2,out=3", 0)
    objective = PrototypeObjective(Embedding(), Pull(GLOBAL, 3, weight=1.0))
    inputs, labels = torch.tensor([[1.0, 1.0]]), torch.tensor([0])
    vectors = network.get_submodule("fc1")(inputs).relu()
    expected = torch.nn.functional.cross_entropy(network(inputs), labels) + vectors.square().mean()
    assert objective(network, inputs, labels).item() == pytest.approx(expected.item())
