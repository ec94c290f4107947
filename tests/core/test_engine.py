"""The engine: which coordinates count, and that every axis of a group moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from modelfuse.core.engine import Matching, Schedule, Units, align, cost_places, outgoing_places
from modelfuse.spec.axes import PermutationSpec, Place, carry, consume, match

SPEC = PermutationSpec(
    {
        "stem.weight": (match("stream"), None),
        "inner.weight": (match("inner"), consume("stream")),
        "back.weight": (match("stream"), consume("inner")),
        "stem.mean": (carry("stream"),),
        "out.weight": (None, consume("stream")),
    }
)


def test_a_tensor_counts_once_what_it_reads_is_aligned() -> None:
    assert [place.tensor for place in cost_places(SPEC, "stream", {})] == ["stem.weight"]
    assert [place.tensor for place in cost_places(SPEC, "stream", {"inner": 0})] == ["stem.weight", "back.weight"]


def test_a_group_that_only_reads_the_unaligned_still_counts() -> None:
    assert [place.tensor for place in cost_places(SPEC, "inner", {})] == ["inner.weight"]


def test_all_axes_of_a_group_move_before_the_next_is_solved() -> None:
    first = {
        "stem.weight": np.array([[1.0], [2.0]]),
        "inner.weight": np.array([[10.0, 20.0]]),
        "back.weight": np.array([[5.0], [6.0]]),
        "stem.mean": np.array([7.0, 8.0]),
        "out.weight": np.array([[3.0, 4.0]]),
    }
    swapped = {name: array[::-1] if name != "inner.weight" else array for name, array in first.items()}
    swapped["inner.weight"], swapped["out.weight"] = np.array([[20.0, 10.0]]), np.array([[4.0, 3.0]])
    seen: list[list[list[float]]] = []

    def by_value(places: Sequence[Place], units: Sequence[Units]) -> Matching:
        seen.append([client.values.tolist() for client in units])
        orders = tuple(np.argsort(np.argsort(client.values[:, 0])) for client in units)
        return Matching(orders, len(orders[0]), {})

    aligned = align([first, swapped], None, SPEC, by_value)
    assert seen == [[[[1], [2]], [[2], [1]]], [[[10, 20]], [[10, 20]]]]
    for name in first:
        assert np.array_equal(aligned.values[0][name], aligned.values[1][name]), name
    assert aligned.widths() == {"stream": 2, "inner": 1}
    assert aligned.orders(1)["stream"].tolist() == [1, 0]


def test_a_schedule_aligns_its_groups_only_and_takes_others_for_aligned() -> None:
    model = {name: np.ones((2, 2)) for name in ("stem.weight", "inner.weight", "back.weight", "out.weight")}
    model["stem.mean"] = np.ones(2)
    seen: list[list[str]] = []

    def as_it_is(places: Sequence[Place], units: Sequence[Units]) -> Matching:
        seen.append([place.tensor for place in places])
        assert units[0].shapes == {place.tensor: (2, 2) for place in places}
        return Matching((np.arange(2),), 3, {})

    aligned = align([model], None, SPEC, as_it_is, Schedule(("stream",), frozenset({"inner"})))
    assert seen == [["stem.weight", "back.weight"]]
    assert aligned.widths() == {"stream": 3}
    assert aligned.values[0]["inner.weight"].shape == (2, 3)


def test_from_the_output_down_a_unit_is_known_by_what_reads_it() -> None:
    layers = PermutationSpec(
        {
            "fc1.weight": (match("fc1"), None),
            "fc1.bias": (match("fc1"),),
            "fc2.weight": (match("fc2"), consume("fc1")),
            "fc2.bias": (match("fc2"),),
            "fc3.weight": (None, consume("fc2")),
        }
    )
    named = [place.tensor for place in outgoing_places(layers, "fc2", ())]
    assert named == ["fc2.bias", "fc3.weight"]
    named = [place.tensor for place in outgoing_places(layers, "fc1", ("fc2",))]
    assert named == ["fc1.weight", "fc1.bias", "fc2.weight"]
