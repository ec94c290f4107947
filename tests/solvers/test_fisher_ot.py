"""Fisher transport: the paper's worked example, stored vectors, and what theorem 1 promises."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfuse.core.average import objective, weighted_mean
from modelfuse.core.engine import Matching, Units
from modelfuse.core.units import invert
from modelfuse.solvers.fisher_ot import FisherTransport

DATA = Path(__file__).resolve().parents[1] / "data"
LAYERS = [
    *("k2_rho1", "k3_rho05", "k3_wide_rho1_small_damping", "k4_euclidean_match", "k4_euclidean_uniform"),
    *("k4_external_reference", "k4_stopped_at_s1", "k4_stopped_at_s2", "k4_uniform_aggregate"),
    *("k5_wide_fisher_zeros", "k6_rho03"),
]


def _run(case: dict[str, Any], arrays: Any) -> Matching:
    units = [
        Units(arrays[f"client{k}"], arrays[f"fisher{k}"] ** case["rho"] + case["damping"]) for k in range(case["K"])
    ]
    external = case["reference"] == "external"
    solver = FisherTransport(
        lambda _, clients: arrays["reference"] if external else clients[case["reference"]].values,
        iterations=case["max_iters"],
        fisher_cost=case["match"] == "fisher",
        fisher_average=case["aggregate"] == "fisher",
    )
    return solver([], units)


def _check(case: dict[str, Any], matching: Matching) -> None:
    expected, trace = case["expected"], matching.trace
    assert trace["objective_at_reference"] == pytest.approx(expected["J0"], rel=1e-12)
    steps = trace["iterations"]
    assert [step["objective"] for step in steps] == pytest.approx(expected["J"], rel=1e-9)
    assert [step["objective_after_alignment"] for step in steps] == pytest.approx(
        expected["J_after_alignment"], rel=1e-9
    )
    assert trace["stop"] == expected["stop"]
    assert [invert(order).tolist() for order in matching.orders] == expected["assignments"][-1]


def test_appendix_g_to_the_digit() -> None:
    case = json.loads((DATA / "appendix_g.json").read_text())
    matching = _run(case, np.load(DATA / "appendix_g.npz"))
    _check(case, matching)
    assert matching.trace["objective_at_reference"] == 116
    assert [step["objective"] for step in matching.trace["iterations"]] == [9, 9]
    assert matching.orders[1].tolist() == [2, 0, 1]
    assert matching.trace["permuted_fraction"] == [0, 1]


@pytest.mark.parametrize("name", LAYERS)
def test_stored_vectors(shared: Path, name: str) -> None:
    folder = shared / "reference" / "fedfiot" / "layer"
    case = json.loads((folder / f"{name}.json").read_text())
    _check(case, _run(case, np.load(folder / f"{name}.npz")))


def test_the_stored_output_layer_is_one_average(shared: Path) -> None:
    folder = shared / "reference" / "fedfiot" / "layer"
    case = json.loads((folder / "k3_output_layer.json").read_text())
    arrays = np.load(folder / "k3_output_layer.npz")
    values = [arrays[f"client{k}"] for k in range(case["K"])]
    precisions = [arrays[f"fisher{k}"] ** case["rho"] + case["damping"] for k in range(case["K"])]
    merged, replaced = weighted_mean(values, precisions, [1.0] * case["K"])
    np.testing.assert_allclose(merged, arrays["merged"], rtol=1e-10)
    assert replaced == 0
    assert objective(merged, values, precisions) == pytest.approx(case["expected"]["J"][-1], rel=1e-9)


@st.composite
def _clients(draw: st.DrawFn, most_units: int = 6) -> list[Units]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(1, most_units)), draw(st.integers(1, 5)))
    # a Fisher spans many decades and has zeros: theorem 1 must hold there too
    fishers = [
        10 ** rng.uniform(-12, 2, size=shape) * (rng.random(shape) < 0.8) for _ in range(draw(st.integers(1, 4)))
    ]
    return [Units(rng.normal(size=shape), fisher + draw(st.sampled_from([1e-5, 1e-3, 1.0]))) for fisher in fishers]


@given(_clients())
def test_the_objective_never_increases(clients: list[Units]) -> None:
    trace = FisherTransport(lambda _, units: units[0].values)([], clients).trace
    values = [trace["objective_at_reference"]]
    for step in trace["iterations"]:
        values += [step["objective_after_alignment"], step["objective"]]
    assert all(after <= before * (1 + 1e-12) + 1e-12 for before, after in itertools.pairwise(values))


@given(_clients(most_units=4))
def test_the_first_assignment_is_the_cheapest_of_all(clients: list[Units]) -> None:
    reference = clients[0].values
    matching = FisherTransport(lambda *_: reference, iterations=1)([], clients)
    for client, order in zip(clients, matching.orders, strict=True):
        costs = {
            columns: sum(
                float(np.sum(client.precision[column] * (reference[row] - client.values[column]) ** 2))
                for row, column in enumerate(columns)
            )
            for columns in itertools.permutations(range(len(reference)))
        }
        assert costs[tuple(invert(order).tolist())] == pytest.approx(min(costs.values()))


@given(_clients(), st.integers(0, 2**32 - 1))
def test_shuffling_a_client_changes_only_its_order(clients: list[Units], seed: int) -> None:
    rng = np.random.default_rng(seed)
    shuffles = [np.arange(len(clients[0].values))] + [rng.permutation(len(client.values)) for client in clients[1:]]
    shuffled = [
        Units(client.values[shuffle], client.precision[shuffle])
        for client, shuffle in zip(clients, shuffles, strict=True)
    ]
    solver = FisherTransport(lambda _, units: units[0].values)
    one, two = solver([], clients), solver([], shuffled)
    assert one.trace["iterations"][0]["objective"] == pytest.approx(two.trace["iterations"][0]["objective"], rel=1e-9)
    for order, moved, shuffle in zip(one.orders, two.orders, shuffles, strict=True):
        assert moved.tolist() == order[shuffle].tolist()


@given(_clients())
def test_one_client_stays_as_it_is(clients: list[Units]) -> None:
    matching = FisherTransport(lambda _, units: units[0].values)([], clients[:1])
    assert matching.orders[0].tolist() == list(range(matching.width))
    assert matching.trace["iterations"][-1]["objective"] == pytest.approx(0, abs=1e-24)
