"""Even logits: sizes read off a Fisher, and the nearest output layer that prefers no class at them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfuse.core.logits import even, input_scale

CLASSES = {"fc.weight": 0, "fc.bias": 0}


def test_the_sizes_of_inputs_are_read_off_the_fisher() -> None:
    rng = np.random.default_rng(0)
    inputs, slopes = rng.random((500, 4)), rng.normal(size=(500, 3))
    # E[g_c² h_j²] of examples whose slopes have nothing to do with their inputs
    fisher = {
        "fc.weight": np.mean(slopes**2, axis=0)[:, None] * np.mean(inputs**2, axis=0)[None],
        "fc.bias": np.mean(slopes**2, axis=0),
    }
    scale = input_scale(fisher, CLASSES)
    assert scale["fc.weight"].shape == (3, 4)
    relative = scale["fc.weight"][0] / scale["fc.bias"][0]
    np.testing.assert_allclose(relative, np.sqrt(np.mean(inputs**2, axis=0)))


def test_a_hand_made_layer_is_evened() -> None:
    tensors = {"fc.weight": np.array([[1.0, 2.0], [3.0, -1.0]]), "fc.bias": np.array([1.0, 0.0])}
    inputs = {"fc.weight": np.array([[1.0, 2.0], [1.0, 2.0]]), "fc.bias": np.ones(2)}
    precisions = {"fc.weight": np.array([[1.0, 1.0], [1.0, 4.0]]), "fc.bias": np.array([1.0, 1.0])}
    found = even(tensors, precisions, inputs, CLASSES)
    # class 0: logit 1 + 4 + 1 = 6, length 1 + 4 + 1 = 6, so one step of (1, 2, 1)
    # class 1: logit 3 − 2 + 0 = 1, length 1 + 4/4 + 1 = 3, so a third of a step of (1, 1/2, 1)
    np.testing.assert_allclose(found["fc.weight"], [[0, 0], [3 - 1 / 3, -1 - 1 / 6]])
    np.testing.assert_allclose(found["fc.bias"], [0, -1 / 3])


@given(st.integers(0, 2**32 - 1))
def test_it_is_the_nearest_layer_with_even_logits(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight, inputs, precision = rng.normal(size=(3, 5)), rng.random((3, 5)), 10 ** rng.uniform(-3, 1, (3, 5))
    found = even({"w": weight}, {"w": precision}, {"w": inputs}, {"w": 0})["w"]
    np.testing.assert_allclose(np.sum(found * inputs, axis=1), 0, atol=1e-9)
    direction = rng.normal(size=(3, 5))
    direction -= (np.sum(direction * inputs, axis=1) / np.sum(inputs**2, axis=1))[:, None] * inputs
    other = found + 0.1 * direction  # even as well
    assert np.sum(precision * (other - weight) ** 2) >= np.sum(precision * (found - weight) ** 2)
    again = even({"w": found}, {"w": precision}, {"w": inputs}, {"w": 0})["w"]
    np.testing.assert_allclose(again, found, atol=1e-9)


def test_the_class_axis_may_come_last() -> None:
    rng = np.random.default_rng(1)
    weight, inputs, precision = rng.normal(size=(4, 3)), rng.random((4, 3)), rng.random((4, 3)) + 0.1
    found = even({"w": weight}, {"w": precision}, {"w": inputs}, {"w": 1})["w"]
    turned = even({"w": weight.T}, {"w": precision.T}, {"w": inputs.T}, {"w": 0})["w"]
    np.testing.assert_allclose(found, turned.T)
    fisher = rng.random((4, 3))
    np.testing.assert_allclose(input_scale({"w": fisher}, {"w": 1})["w"], input_scale({"w": fisher.T}, {"w": 0})["w"].T)


def test_inputs_that_no_fisher_sees_leave_the_layer_as_it_is() -> None:
    weight = np.array([[1.0, 2.0]])
    found = even({"w": weight}, {"w": np.ones((1, 2))}, {"w": np.zeros((1, 2))}, {"w": 0})["w"]
    assert found.tolist() == weight.tolist()


@pytest.mark.parametrize("shift", [-3.0, 5.0])
def test_a_client_that_refuses_a_class_whatever_the_input_does_so_no_more(shift: float) -> None:
    inputs = {"fc.weight": np.ones((3, 4)), "fc.bias": np.ones(3)}
    ones = {name: np.ones_like(array) for name, array in inputs.items()}
    rng = np.random.default_rng(2)
    fair = even({"fc.weight": rng.normal(size=(3, 4)), "fc.bias": np.zeros(3)}, ones, inputs, CLASSES)
    skewed = {"fc.weight": fair["fc.weight"].copy(), "fc.bias": fair["fc.bias"].copy()}
    skewed["fc.weight"][1] += shift
    skewed["fc.bias"][1] += shift
    for name, array in even(skewed, ones, inputs, CLASSES).items():
        np.testing.assert_allclose(array, fair[name], atol=1e-12)
