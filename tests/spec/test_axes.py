"""The permutation spec as plain data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from modelfuse.errors import ContentError, FileError
from modelfuse.spec.axes import Axis, PermutationSpec, carry, consume, match, read_spec

SPEC = PermutationSpec(
    {
        "conv.weight": (match("conv"), None, None, None),
        "conv.running_mean": (carry("conv"),),
        "fc.weight": (match("fc"), consume("conv", block=4)),
        "lstm.weight_ih": (match("h", stack=4), consume("fc")),
        "out.weight": (None, consume("h")),
    },
    {"out.weight": 0},
)
SHAPES = {
    "conv.weight": (3, 1, 2, 2),
    "conv.running_mean": (3,),
    "fc.weight": (5, 12),
    "lstm.weight_ih": (8, 5),
    "out.weight": (10, 2),
}


def test_groups_come_in_merge_order() -> None:
    assert SPEC.groups() == ("conv", "fc", "h")


def test_widths_come_from_the_shapes() -> None:
    assert SPEC.widths(SHAPES, "a.safetensors") == {"conv": 3, "fc": 5, "h": 2}


def test_places_are_found_by_group_and_role() -> None:
    places = [(place.tensor, place.dimension) for place in SPEC.places("conv")]
    assert places == [("conv.weight", 0), ("conv.running_mean", 0), ("fc.weight", 1)]
    assert [place.tensor for place in SPEC.places("conv", "input")] == ["fc.weight"]


def test_json_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(SPEC.to_json()))
    assert read_spec(path) == SPEC


def test_the_merge_order_survives_sorted_keys(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(SPEC.to_json(), sort_keys=True))
    assert list(read_spec(path).axes) == list(SPEC.axes)


def test_a_person_may_write_the_rows_as_an_object(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text('{"axes": {"w": [["g", "match", 1, 1], null]}}')
    assert read_spec(path) == PermutationSpec({"w": (match("g"), None)})


def test_a_length_that_does_not_divide_names_tensor_group_and_remedy() -> None:
    with pytest.raises(ContentError, match=r"a.safetensors: fc.weight has 13 .*multiple of 4 \(group conv\).*--arch"):
        SPEC.widths(SHAPES | {"fc.weight": (5, 13)}, "a.safetensors")


def test_two_tensors_that_disagree_are_both_named() -> None:
    with pytest.raises(ContentError, match=r"conv.running_mean has 4 .* 4 units, but conv.weight gives it 3"):
        SPEC.widths(SHAPES | {"conv.running_mean": (4,)}, "a.safetensors")


def test_a_missing_tensor_is_named() -> None:
    with pytest.raises(ContentError, match=r"tensor out.weight is missing"):
        SPEC.widths({name: shape for name, shape in SHAPES.items() if name != "out.weight"}, "a.safetensors")


def test_another_number_of_axes_is_named() -> None:
    with pytest.raises(ContentError, match=r"fc.weight has 1 axes where its spec describes 2"):
        SPEC.widths(SHAPES | {"fc.weight": (5,)}, "a.safetensors")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"axes": {"w": [["g", "input", 1, 1]]}}, "no match axis"),
        ({"axes": {"w": [["g", "moves", 1, 1]]}}, "role 'moves'"),
        ({"axes": {"w": [["g", "match", 0, 1]]}}, "at least 1"),
        ({"axes": {"w": [["g", "match"]]}}, "not a permutation spec"),
        ({"axes": [1]}, "not a permutation spec"),
        ({}, "not a permutation spec"),
        ({"axes": {"w": [["g", "match", 1, 1]]}, "class_axis": {"w": 0}}, "not a free axis"),
        ({"axes": {"w": [None]}, "class_axis": {"v": 0}}, "not a free axis"),
    ],
)
def test_data_that_is_no_spec_is_refused(data: dict[str, object], message: str) -> None:
    with pytest.raises(ContentError, match=message):
        PermutationSpec.from_json(data, "spec.json")


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text("{")
    with pytest.raises(FileError, match="not JSON"):
        read_spec(path)
    with pytest.raises(FileError, match="cannot be read"):
        read_spec(tmp_path / "absent.json")


def test_axis_units() -> None:
    assert Axis("g", "match", stack=4, block=2).units(24) == 3
    assert Axis("g", "match", stack=4, block=2).units(23) is None
    assert Axis("g", "match").units(0) is None
