"""Refinement: every sweep lowers the whole objective, orders compose, and no kind of layer is in its way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfuse.core.engine import Alignment, Matching, align
from modelfuse.core.units import realign
from modelfuse.solvers.profiled import ProfiledTransport
from modelfuse.solvers.refinement import profiled_objective, refine
from modelfuse.spec.axes import PermutationSpec, carry, consume, match
from modelfuse.types import Tensors

MLP = PermutationSpec(
    {
        "fc1.weight": (match("fc1"), None),
        "fc1.bias": (match("fc1"),),
        "fc2.weight": (match("fc2"), consume("fc1", block=2)),
        "fc3.weight": (None, consume("fc2")),
    }
)
RESIDUAL = PermutationSpec(
    {
        "stem.weight": (match("stream"), None),
        "norm.weight": (match("stream"),),
        "norm.running_mean": (carry("stream"),),
        "norm.num_batches_tracked": (),
        "inner.weight": (match("inner"), consume("stream"), None),
        "back.weight": (match("stream"), consume("inner"), None),
        "out.weight": (None, consume("stream")),
    }
)
LSTM = PermutationSpec(
    {
        "embed.weight": (None, match("embed")),
        "lstm.weight_ih_l0": (match("lstm", stack=4), consume("embed")),
        "lstm.weight_hh_l0": (carry("lstm", stack=4), consume("lstm")),
        "lstm.bias_hh_l0": (carry("lstm", stack=4),),
        "out.weight": (None, consume("lstm")),
    }
)
SPECS = {"mlp": MLP, "residual": RESIDUAL, "lstm": LSTM}
FREE = 3  # entries of an axis that no group moves


def _random(spec: PermutationSpec, rng: np.random.Generator, clients: int, width: int) -> Alignment:
    """Return clients of random tensors, in orders of their own."""
    shapes = {
        name: tuple(FREE if axis is None else axis.stack * width * axis.block for axis in axes)
        for name, axes in spec.axes.items()
    }
    values: list[Tensors] = [
        {name: rng.normal(size=shape) if shape else np.array(7) for name, shape in shapes.items()}
        for _ in range(clients)
    ]
    precisions: list[Tensors] = [
        {
            name: 10 ** rng.uniform(-6, 1, size=shape) + 1e-4
            for name, shape in shapes.items()
            if "running" not in name and shape
        }
        for _ in range(clients)
    ]
    return _unaligned(spec, values, precisions, width)


def _unaligned(
    spec: PermutationSpec, values: Sequence[Tensors], precisions: Sequence[Tensors], width: int
) -> Alignment:
    orders = tuple(np.arange(width) for _ in values)
    matchings = {group: Matching(orders, width, {"stop": "identity"}) for group in spec.groups()}
    return Alignment(tuple(values), tuple(precisions), matchings)


@pytest.mark.parametrize("name", SPECS)
@given(seed=st.integers(0, 2**32 - 1), clients=st.integers(1, 4), width=st.integers(1, 5))
def test_no_sweep_raises_the_objective_and_orders_compose(name: str, seed: int, clients: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    spec = SPECS[name]
    start = _random(spec, rng, clients, width)
    refined, trace = refine(start, spec, rng, sweeps=20)
    objectives = [trace["objective_at_start"], *(sweep["objective"] for sweep in trace["sweeps"])]
    assert all(after <= before * (1 + 1e-12) for before, after in itertools.pairwise(objectives))
    assert objectives[-1] == profiled_objective(refined.values, refined.precisions or ())
    for client in range(clients):
        for before, after in ((start.values, refined.values), (start.precisions, refined.precisions)):
            moved = realign(before[client], spec, refined.orders(client))
            for tensor, array in after[client].items():
                np.testing.assert_array_equal(array, moved[tensor], err_msg=tensor)


def test_refinement_goes_on_from_an_alignment() -> None:
    rng = np.random.default_rng(0)
    clients = _random(MLP, rng, 3, 6)
    aligned = align(clients.values, clients.precisions, MLP, ProfiledTransport(0, [1.0] * 3))
    refined, trace = refine(aligned, MLP, rng, sweeps=20)
    assert trace["objective_at_start"] == profiled_objective(aligned.values, aligned.precisions or ())
    assert trace["sweeps"][-1]["objective"] < trace["objective_at_start"]
    for client, tensors in enumerate(clients.values):
        for tensor, array in realign(tensors, MLP, refined.orders(client)).items():
            np.testing.assert_array_equal(array, refined.values[client][tensor])
    fractions = refined.matchings["fc1"].trace["permuted_fraction"]
    assert fractions == [float(np.mean(order != np.arange(6))) for order in refined.matchings["fc1"].orders]
    assert "iterations" in refined.matchings["fc1"].trace


def test_a_refined_alignment_stays_as_it_is() -> None:
    rng = np.random.default_rng(1)
    refined, trace = refine(_random(MLP, rng, 4, 6), MLP, rng, sweeps=100)
    assert trace["stop"] == "unchanged"
    again, once_more = refine(refined, MLP, rng, sweeps=100)
    assert [sweep["accepted"] for sweep in once_more["sweeps"]] == [0]
    assert once_more["sweeps"][0]["visited"] == 8
    assert [order.tolist() for order in again.matchings["fc2"].orders] == [
        order.tolist() for order in refined.matchings["fc2"].orders
    ]


def test_the_sweeps_are_bounded() -> None:
    rng = np.random.default_rng(2)
    _, trace = refine(_random(MLP, rng, 4, 6), MLP, rng, sweeps=1)
    assert len(trace["sweeps"]) == 1
    assert trace["stop"] == "S"


def test_the_generator_decides_the_result() -> None:
    start = _random(MLP, np.random.default_rng(3), 4, 6)
    one, two, other = (refine(start, MLP, np.random.default_rng(seed), sweeps=20)[1] for seed in (0, 0, 1))
    objectives = [[sweep["objective"] for sweep in trace["sweeps"]] for trace in (one, two, other)]
    assert objectives[0] == objectives[1]
    assert objectives[0] != objectives[2]


def test_units_that_only_their_outgoing_weights_tell_apart_are_matched() -> None:
    rng = np.random.default_rng(4)
    width = 5
    model = {
        "fc1.weight": np.ones((width, FREE)),
        "fc1.bias": np.zeros(width),
        "fc2.weight": rng.normal(size=(width, 2 * width)),
        "fc3.weight": rng.normal(size=(FREE, width)),
    }
    precision = {name: np.ones_like(array) for name, array in model.items()}
    shuffle = rng.permutation(width)
    other = realign(model, MLP, {"fc1": shuffle})
    start = _unaligned(MLP, [model, other], [precision, precision], width)
    refined, trace = refine(start, MLP, rng, sweeps=20)
    assert trace["objective_at_start"] > 1
    assert trace["sweeps"][-1]["objective"] == pytest.approx(0, abs=1e-20)
    for array, expected in zip(refined.values[0].values(), refined.values[1].values(), strict=True):
        np.testing.assert_array_equal(array, expected)


def _two_states(hidden: float) -> Alignment:
    """Two clients whose other weights ask for a swap, and whose hidden-to-hidden weights ask for none."""
    rng = np.random.default_rng(5)
    model = {
        name: rng.normal(size=shape)
        for name, shape in {
            "embed.weight": (FREE, 2),
            "lstm.weight_ih_l0": (8, 2),
            "lstm.weight_hh_l0": (8, 2),
            "lstm.bias_hh_l0": (8,),
            "out.weight": (FREE, 2),
        }.items()
    }
    swapped = realign(model, LSTM, {"lstm": np.array([1, 0])})
    other = {**swapped, "lstm.weight_hh_l0": model["lstm.weight_hh_l0"]}
    precision = {name: np.full_like(array, hidden if "weight_hh" in name else 1.0) for name, array in model.items()}
    return _unaligned(LSTM, [model, other], [precision, precision], 2)


def test_hidden_to_hidden_weights_veto_what_would_raise_the_objective() -> None:
    start = _two_states(hidden=1e3)
    refined, trace = refine(start, LSTM, np.random.default_rng(0), sweeps=5)
    assert trace["sweeps"][-1]["objective"] <= trace["objective_at_start"]
    assert refined.orders(0)["lstm"].tolist() == refined.orders(1)["lstm"].tolist()
    lenient, _ = refine(_two_states(hidden=1e-3), LSTM, np.random.default_rng(0), sweeps=5)
    assert lenient.orders(0)["lstm"].tolist() != lenient.orders(1)["lstm"].tolist()


def test_biases_that_only_move_along_are_counted() -> None:
    flat = {"fc.weight": np.ones((2, FREE)), "fc.shift": np.array([0.0, 5.0])}
    spec = PermutationSpec({"fc.weight": (match("fc"), None), "fc.shift": (carry("fc"),)})
    other = {**flat, "fc.shift": np.array([5.0, 0.0])}
    precision = {name: np.ones_like(array) for name, array in flat.items()}
    refined, trace = refine(
        _unaligned(spec, [flat, other], [precision, precision], 2), spec, np.random.default_rng(0), sweeps=5
    )
    assert trace["sweeps"][-1]["objective"] == 0
    assert refined.values[0]["fc.shift"].tolist() == refined.values[1]["fc.shift"].tolist()
