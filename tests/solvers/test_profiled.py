"""Profiled transport: its cost against a plain loop and against the objective, and that no sweep raises the latter."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfuse.core.average import objective, weighted_mean
from modelfuse.core.engine import Units
from modelfuse.core.units import invert
from modelfuse.solvers import profiled
from modelfuse.solvers.profiled import ProfiledTransport, cheapest, is_cheaper, profiled_cost
from modelfuse.types import FloatArray


@st.composite
def _clients(draw: st.DrawFn, most_units: int = 6, clients: int | None = None) -> list[Units]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(1, most_units)), draw(st.integers(1, 5)))
    count = draw(st.integers(1, 4)) if clients is None else clients
    fishers = [10 ** rng.uniform(-12, 2, size=shape) * (rng.random(shape) < 0.8) for _ in range(count)]
    return [Units(rng.normal(size=shape), fisher + draw(st.sampled_from([1e-5, 1e-3, 1.0]))) for fisher in fishers]


def _profiled_objective(clients: list[Units], members: list[tuple[int, ...]]) -> float:
    """J(π) = min_w J(w, π)."""
    values = [client.values[list(found)] for client, found in zip(clients, members, strict=True)]
    precisions = [client.weights()[list(found)] for client, found in zip(clients, members, strict=True)]
    return objective(weighted_mean(values, precisions, [1.0] * len(values))[0], values, precisions)


def _by_loop(rest_precision: FloatArray, mean: FloatArray, precision: FloatArray, values: FloatArray) -> FloatArray:
    cost = np.zeros((len(mean), len(values)))
    for i, j, c in np.ndindex(len(mean), *values.shape):
        p, f = rest_precision[i, c], precision[j, c]
        cost[i, j] += p * f / (p + f) * (mean[i, c] - values[j, c]) ** 2
    return cost


@given(_clients(clients=2))
def test_the_cost_is_what_a_plain_loop_sums(clients: list[Units]) -> None:
    rest, mine = clients
    cost = profiled_cost(rest.weights(), rest.values, mine.weights(), mine.values)
    expected = _by_loop(rest.weights(), rest.values, mine.weights(), mine.values)
    np.testing.assert_allclose(cost, expected, rtol=1e-4, atol=1e-5 * expected.max())


@given(_clients(most_units=4, clients=3))
def test_the_cost_is_what_a_client_adds_to_the_objective(clients: list[Units]) -> None:
    identity = tuple(range(len(clients[0].values)))
    first, second, third = clients
    weight = first.weights() + second.weights()
    mean = (first.weights() * first.values + second.weights() * second.values) / weight
    cost = _by_loop(weight, mean, third.weights(), third.values)
    without = _profiled_objective([first, second], [identity, identity])
    for found in itertools.permutations(identity):
        added = _profiled_objective(clients, [identity, identity, found]) - without
        assert cost[identity, found].sum() == pytest.approx(added, rel=1e-6, abs=1e-9)


def test_appendix_g_priced_at_the_best_average() -> None:
    cost = profiled_cost(*(np.array([column]).T for column in ([3.0, 1, 3], [0.0, 4, 8], [1.0, 1, 3], [10.0, 2, 6])))
    np.testing.assert_allclose(cost, [[75, 3, 54], [18, 2, 3], [3, 27, 6]], rtol=1e-6)
    assert cheapest(cost).tolist() == [1, 2, 0]


def test_a_mean_that_is_held_fixed_gives_the_cost_of_eq_4() -> None:
    rng = np.random.default_rng(0)
    fixed, values, precision = rng.normal(size=(3, 2)), rng.normal(size=(3, 2)), rng.random((3, 2))
    expected = np.einsum("jc,ijc->ij", precision, np.square(fixed[:, None] - values[None]))
    cost = profiled_cost(np.full((3, 2), np.inf), fixed, precision, values)
    np.testing.assert_allclose(cost, expected, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e100])
def test_the_cost_scales_with_precisions_and_values_of_any_size(scale: float) -> None:
    rng = np.random.default_rng(1)
    precisions, values = rng.random((2, 4, 3)) + 0.1, rng.normal(size=(2, 4, 3))
    plain = profiled_cost(precisions[0], values[0], precisions[1], values[1])
    scaled = profiled_cost(scale * precisions[0], values[0], scale * precisions[1], values[1])
    np.testing.assert_allclose(scaled, scale * plain, rtol=1e-5)
    stretched = profiled_cost(precisions[0], 1e20 * values[0], precisions[1], 1e20 * values[1])
    np.testing.assert_allclose(stretched, 1e40 * plain, rtol=1e-5)


def test_a_coordinate_without_precision_costs_nothing() -> None:
    cost = profiled_cost(np.array([[1.0, 0.0]]), np.array([[0.0, 9.0]]), np.array([[1.0, 2.0]]), np.array([[2.0, 5.0]]))
    np.testing.assert_allclose(cost, [[2.0]])


def test_blocks_and_threads_do_not_change_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    arrays = [10 ** rng.uniform(-4, 0, (7, 33)), rng.normal(size=(7, 33))] * 2
    alone = profiled_cost(*arrays)
    monkeypatch.setattr(profiled, "SHARE", 1)
    monkeypatch.setattr(profiled.os, "cpu_count", lambda: 5)
    assert np.array_equal(profiled_cost(*arrays), alone)
    monkeypatch.setattr(profiled, "COLUMNS", 10)
    monkeypatch.setattr(profiled, "ENTRIES", 25)
    np.testing.assert_allclose(profiled_cost(*arrays), alone, rtol=1e-5, atol=1e-6)


def test_a_proposal_that_is_no_cheaper_is_turned_down() -> None:
    rest, client = Units(np.array([[0.0], [1.0]]), None), Units(np.array([[1.0], [0.0]]), None)
    identity, swapped = np.array([0, 1]), np.array([1, 0])
    assert is_cheaper(rest, client, swapped, identity)  # 0 instead of 1
    assert not is_cheaper(rest, client, identity, swapped)
    assert not is_cheaper(rest, client, swapped, swapped)
    assert not is_cheaper(rest, client, swapped, identity, extra=1.0)


@given(_clients())
def test_the_objective_never_increases(clients: list[Units]) -> None:
    trace = ProfiledTransport(0, [1.0] * len(clients))([], clients).trace
    values = [step["objective"] for step in trace["iterations"]]
    assert all(after <= before * (1 + 1e-12) + 1e-12 for before, after in itertools.pairwise(values))


@given(_clients())
def test_the_trace_tells_the_objective_of_the_orders(clients: list[Units]) -> None:
    matching = ProfiledTransport(0, [1.0] * len(clients))([], clients)
    members = [tuple(invert(order).tolist()) for order in matching.orders]
    assert matching.trace["iterations"][-1]["objective"] == pytest.approx(
        _profiled_objective(clients, members), rel=1e-9, abs=1e-12
    )


@given(_clients(most_units=5, clients=2))
def test_two_clients_are_matched_as_well_as_can_be(clients: list[Units]) -> None:
    matching = ProfiledTransport(0, [2.0, 1.0])([], clients)
    identity = tuple(range(matching.width))
    best = min(_profiled_objective(clients, [identity, found]) for found in itertools.permutations(identity))
    # float32 decides between assignments that are equally good to six digits
    assert matching.trace["iterations"][-1]["objective"] == pytest.approx(best, rel=1e-4, abs=1e-6)


@given(_clients(), st.integers(0, 2**32 - 1))
def test_shuffling_clients_changes_only_their_orders(clients: list[Units], seed: int) -> None:
    rng = np.random.default_rng(seed)
    shuffles = [np.arange(len(clients[0].values))] + [rng.permutation(len(client.values)) for client in clients[1:]]
    shuffled = [
        Units(client.values[shuffle], client.weights()[shuffle])
        for client, shuffle in zip(clients, shuffles, strict=True)
    ]
    solver = ProfiledTransport(0, range(len(clients), 0, -1))
    one, two = solver([], clients), solver([], shuffled)
    for order, moved, shuffle in zip(one.orders, two.orders, shuffles, strict=True):
        assert moved.tolist() == order[shuffle].tolist()


@given(_clients(clients=1))
def test_one_client_stays_as_it_is(clients: list[Units]) -> None:
    matching = ProfiledTransport(0, [1.0])([], clients)
    assert matching.orders[0].tolist() == list(range(matching.width))
    assert matching.trace["permuted_fraction"] == [0.0]
    assert matching.trace["stop"] == "unchanged"


def test_clients_that_are_shuffles_of_one_are_found_out() -> None:
    rng = np.random.default_rng(3)
    model, fisher = rng.normal(size=(9, 4)), 10 ** rng.uniform(-6, 0, (9, 4))
    shuffles = [np.arange(9), rng.permutation(9), rng.permutation(9)]
    clients = [Units(model[shuffle], fisher[shuffle] + 1e-4) for shuffle in shuffles]
    matching = ProfiledTransport(0, [1.0, 3.0, 2.0])([], clients)
    assert [order.tolist() for order in matching.orders] == [shuffle.tolist() for shuffle in shuffles]
    assert matching.trace["iterations"][-1]["objective"] == pytest.approx(0, abs=1e-20)


def test_the_largest_client_joins_first() -> None:
    rng = np.random.default_rng(5)
    one, two, three = (Units(rng.normal(size=(6, 2)), rng.random((6, 2)) + 0.1) for _ in range(3))
    joined = [
        ProfiledTransport(0, sizes)([], clients).trace["iterations"][0]["objective"]
        for sizes, clients in (
            ([3, 2, 1], [one, two, three]),
            ([3, 1, 2], [one, two, three]),
            ([3, 2, 1], [one, three, two]),
        )
    ]
    assert joined[1] == pytest.approx(joined[2])
    assert joined[1] != pytest.approx(joined[0], rel=1e-3)


def test_a_model_from_outside_gives_the_first_matching_and_the_frame() -> None:
    rng = np.random.default_rng(4)
    outside = 10 * rng.normal(size=(6, 3))
    shuffles = [rng.permutation(6) for _ in range(3)]
    clients = [
        Units(outside[shuffle] + 0.01 * rng.normal(size=(6, 3)), rng.random((6, 3)) + 0.1) for shuffle in shuffles
    ]
    matching = ProfiledTransport(lambda _: outside, [1.0] * 3)([], clients)
    assert [order.tolist() for order in matching.orders] == [shuffle.tolist() for shuffle in shuffles]
    expected = sum(float(np.sum(c.weights() * np.square(outside - c.values))) for c in clients)
    assert matching.trace["objective_at_reference"] == pytest.approx(expected)
