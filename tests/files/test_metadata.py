from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfuse.errors import FileError
from modelfuse.files.metadata import (
    LONGEST_HISTORY,
    SCHEMA,
    extended,
    json_text,
    metadata_from_json,
    metadata_to_json,
)
from modelfuse.types import ClientInfo, Metadata, Step

FULL = Metadata(
    kind="model",
    architecture="mlp:in=64,hidden=100-50,out=10",
    spec={"axes": {"fc1.weight": [["fc1", "match", 1, 1], None]}, "class_axis": {}},
    client=ClientInfo(id=3, num_examples=12, class_counts=(4, 8), classes=("cat", "dog")),
    model_id="ab" * 32,
    bits=16,
    scales={"fc1.weight": 0.5},
    history=(Step("init", "0.1.0", {"seed": 1}), Step("train-client", "0.1.0", {"lr": 0.02}, ("cd" * 32,))),
    details={"note": "ü"},
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_metadata_survives_json() -> None:
    assert metadata_from_json(json.loads(json_text(metadata_to_json(FULL))), "f") == FULL


def test_what_is_not_set_is_not_written() -> None:
    assert metadata_to_json(Metadata("fisher")) == {"schema": SCHEMA, "kind": "fisher"}
    assert metadata_to_json(Metadata("model", client=ClientInfo(id=0)))["client"] == {"id": 0}


def test_json_text_does_not_depend_on_key_order_or_number_types() -> None:
    ours = json_text({"b": np.float64(0.5), "a": (np.int64(1), np.array([2, 3]))})
    assert ours == json_text({"a": [1, [2, 3]], "b": 0.5}) == '{"a":[1,[2,3]],"b":0.5}'


def test_json_text_turns_what_json_does_not_know_into_null() -> None:
    assert json_text({"loss": float("nan"), "bounds": np.array([-np.inf, 1.0])}) == '{"bounds":[null,1.0],"loss":null}'


def test_newer_schema_is_refused_with_the_remedy() -> None:
    with pytest.raises(FileError, match=r"c3: written by a newer modelfuse \(schema 2\). Upgrade modelfuse"):
        metadata_from_json({"schema": SCHEMA + 1, "kind": "model"}, "c3")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": None}, "schema is None"),
        ({"schema": True}, "schema is True"),
        ({"kind": "recipe"}, "kind 'recipe' is none of model, fisher"),
        ({"kind": ["model"]}, "kind .* is none of"),
        ({"architecture": 3}, "architecture is 3, not of type str"),
        ({"client": {"num_examples": "many"}}, "num_examples is 'many'"),
        ({"client": {"class_counts": [1, "2"]}}, "a class count is '2'"),
        ({"quantized": {"bits": 16, "scales": {"w": -1.0}}}, "the scale of w is -1.0"),
        ({"quantized": {"bits": 16, "scales": {"w": float("inf")}}}, "the scale of w is inf"),
        ({"history": [{"command": "init"}]}, "'version'"),
        ({"details": []}, r"details is \[\], not of type dict"),
    ],
)
def test_damaged_metadata_names_file_and_field(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(FileError, match=f"c3: its modelfuse metadata is damaged: .*{reason}"):
        metadata_from_json(metadata_to_json(FULL) | change, "c3")


@given(json_values, st.sampled_from(["kind", "client", "quantized", "history", "spec", "details", "model_id"]))
def test_any_json_is_read_or_refused(value: Any, field: str) -> None:
    for data in (value, metadata_to_json(FULL) | {field: value}):
        with suppress(FileError):
            assert isinstance(metadata_from_json(data, "c3"), Metadata)


def test_a_long_history_keeps_its_first_step_and_the_latest() -> None:
    history: tuple[Step, ...] = ()
    for number in range(LONGEST_HISTORY + 5):
        history = extended(history, Step("merge", "1", {"round": number}))
    rounds = [step.options["round"] for step in history]
    assert rounds == [0, *range(6, LONGEST_HISTORY + 5)]
    assert len(history) == LONGEST_HISTORY
