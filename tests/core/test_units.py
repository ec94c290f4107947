"""Unit matrices and realignment, against hand-made arrays and by their inverses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfuse.core.units import invert, local_part, presence, realign, realign_tensor, unit_matrix, write_units
from modelfuse.spec.axes import PermutationSpec, Place, consume, match


def test_a_row_holds_weights_then_bias() -> None:
    tensors = {"w": np.array([[1.0, 2.0], [3.0, 4.0]]), "b": np.array([5.0, 6.0])}
    places = [Place("w", 0, match("g")), Place("b", 0, match("g"))]
    assert unit_matrix(tensors, places).tolist() == [[1, 2, 5], [3, 4, 6]]


def test_stacked_gates_lie_side_by_side() -> None:
    gates = np.arange(8.0).reshape(4, 2)  # two stacked copies of two units, two inputs
    assert unit_matrix({"w": gates}, [Place("w", 0, match("h", stack=2))]).tolist() == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_blocks_of_an_input_axis_move_whole() -> None:
    row = np.array([[0.0, 1, 2, 3, 4, 5]])  # three units of two entries
    moved = realign_tensor(row, (None, consume("c", block=2)), {"c": np.array([2, 0, 1])}, {})
    assert moved.tolist() == [[2, 3, 4, 5, 0, 1]]


def test_a_wider_group_leaves_zeros() -> None:
    moved = realign_tensor(np.array([1.0, 2.0]), (match("g"),), {"g": np.array([3, 1])}, {"g": 4})
    assert moved.tolist() == [0, 2, 0, 1]


def test_presence_marks_what_a_client_has() -> None:
    axes = (match("h", stack=2), consume("c", block=2), None)
    masks = presence(axes, {"h": np.array([1]), "c": np.array([0, 1])}, {"h": 2, "c": 2})
    assert masks[0] is not None
    assert masks[0].tolist() == [False, True, False, True]
    assert masks[1:] == (None, None)


def test_tensors_outside_the_spec_stay() -> None:
    spec = PermutationSpec({"w": (match("g"),)})
    moved = realign({"w": np.array([1.0, 2.0]), "x": np.array([3.0])}, spec, {"g": np.array([1, 0])})
    assert moved["w"].tolist() == [2, 1]
    assert moved["x"].tolist() == [3]


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(0, 2), st.integers(0, 2**32 - 1))
def test_units_written_back_are_the_tensor(stack: int, n: int, block: int, dimension: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = [2, 3]
    shape.insert(dimension, stack * n * block)
    array = rng.normal(size=shape)
    places = [Place("w", dimension, match("g", stack, block)), Place("b", 0, match("g"))]
    tensors = {"w": array, "b": rng.normal(size=n)}
    matrix = unit_matrix(tensors, places)
    assert matrix.shape == (n, stack * block * 6 + 1)
    back = write_units(matrix, places, {name: tensor.shape for name, tensor in tensors.items()})
    assert all(np.array_equal(back[name], tensors[name]) for name in tensors)


@given(st.integers(1, 3), st.integers(1, 6), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_an_order_and_its_inverse_cancel(stack: int, n: int, block: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    array = rng.normal(size=(2, stack * n * block))
    axes = (None, match("g", stack, block))
    order = rng.permutation(n)
    moved = realign_tensor(array, axes, {"g": order}, {})
    assert np.array_equal(realign_tensor(moved, axes, {"g": invert(order)}, {}), array)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_a_local_unit_lands_where_its_order_says(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    place = [Place("w", 0, match("g"))]
    array = rng.normal(size=(n, 3))
    moved = unit_matrix({"w": realign_tensor(array, (match("g"), None), {"g": order}, {})}, place)
    for unit in range(n):
        assert moved[order[unit]] == pytest.approx(array[unit])


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_a_clients_part_of_the_global_order_is_what_it_sent(
    stack: int, n: int, block: int, more: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    spec = PermutationSpec({"w": (None, match("g", stack, block)), "v": (consume("g", stack, block), match("g"))})
    tensors = {"w": rng.normal(size=(2, stack * n * block)), "v": rng.normal(size=(stack * n * block, n))}
    order = rng.permutation(n + more)[:n]
    moved = realign(tensors, spec, {"g": order}, {"g": n + more})
    assert moved["w"].shape == (2, stack * (n + more) * block)
    for name, array in local_part(moved, spec, {"g": order}).items():
        np.testing.assert_array_equal(array, tensors[name])
