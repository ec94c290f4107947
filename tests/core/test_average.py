"""Averages and the objective, by hand."""

from __future__ import annotations

import numpy as np

from modelfuse.core.average import members_mean, objective, plain_mean, weighted_mean


def test_each_entry_has_its_own_weights() -> None:
    mean, replaced = weighted_mean([np.array([0.0, 4.0]), np.array([8.0, 8.0])], [np.array([3.0, 1.0]), 1.0], [1, 1])
    assert mean.tolist() == [2, 6]
    assert replaced == 0


def test_shares_stand_in_where_nothing_weighs() -> None:
    weights = [np.array([0.0, 1.0]), np.array([0.0, 1.0])]
    mean, replaced = weighted_mean([np.array([1.0, 1.0]), np.array([5.0, 5.0])], weights, [3, 1])
    assert mean.tolist() == [2, 3]
    assert replaced == 1


def test_a_floor_says_which_sums_are_trusted() -> None:
    weights = [np.array([0.5, 0.4]), np.array([0.5, 0.5])]
    mean, replaced = weighted_mean([np.array([1.0, 1.0]), np.array([3.0, 3.0])], weights, [3, 1], floor=1.0)
    assert mean.tolist() == [2, 1.5]
    assert replaced == 1


def test_scalars_are_averaged_too() -> None:
    mean, _ = weighted_mean([np.array(1.0), np.array(3.0)], [1.0, 3.0], [1, 1])
    assert mean.shape == ()
    assert mean == 2.5
    assert plain_mean([np.array(1.0), np.array(3.0)], [1, 1]) == 2


def test_the_objective_of_appendix_g() -> None:
    merged = np.array([0.5, 5.5, 8.5])
    clients = [np.array([0.0, 4.0, 8.0]), np.array([2.0, 6.0, 10.0])]
    assert objective(merged, clients, [np.array([3.0, 1.0, 3.0]), np.array([1.0, 3.0, 1.0])]) == 9


def test_a_mean_over_members_leaves_out_who_lacks_an_entry() -> None:
    values = [np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([[5.0, 0.0], [0.0, 0.0]])]
    members = [np.array([[1.0], [0.0]]) * np.array([[1.0, 1.0]]), np.array([[3.0], [0.0]]) * np.array([[1.0, 0.0]])]
    mean, total = members_mean(values, members)
    assert mean.tolist() == [[4, 2], [0, 0]]
    assert total.tolist() == [[4, 1], [0, 0]]
