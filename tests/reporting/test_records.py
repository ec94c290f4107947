"""Result documents become records: keys, figures, and what each broken field gets."""

from __future__ import annotations

import math
from typing import Any

import pytest
from result_documents import evaluated, merged

from modelfuse.errors import ContentError, FileError
from modelfuse.reporting.records import records_of


def test_the_last_step_that_has_an_option_decides() -> None:
    document = evaluated(0.5, options={"seed": 3, "local-epochs": 25, "rho": 0.1, "momentum": None})
    (record,) = records_of(document, "r.json")
    assert record.fields["method"] == "fedavg"
    assert record.fields["rho"] == "1"
    assert record.fields["train_client.rho"] == "0.1"
    assert (record.fields["seed"], record.fields["local_epochs"]) == ("3", "25")
    assert "momentum" not in record.fields


def test_labels_beat_the_result_and_the_result_beats_the_history() -> None:
    document = evaluated(0.5, options={"data": "npz:elsewhere", "split": "train"}, labels={"data": "mine"})
    (record,) = records_of(document, "r.json")
    assert (record.fields["data"], record.fields["dataset"], record.fields["split"]) == ("mine", "digits", "test")


def test_figures_keep_the_unit_of_the_file_and_name_their_model() -> None:
    (record,) = records_of(evaluated(0.25), "r.json")
    assert record.values == {"accuracy": 0.25, "loss": 1.5, "count": 10.0}
    assert record.model_ids == ("id-0.25",)
    assert record.place == "r.json (global.safetensors)"


def test_an_ensemble_is_a_method_of_its_own_and_names_its_members() -> None:
    document = evaluated(0.25, method=None)
    document["ensemble"] = {"accuracy": 0.75, "loss": 1.0, "count": 10, "per_class": {}}
    client, ensemble = records_of(document, "r.json")
    assert "method" not in client.fields
    assert (ensemble.fields["method"], ensemble.fields["ensemble"]) == ("ensemble", "true")
    assert ensemble.model_ids == ("id-0.25",)


def test_classes_are_records_of_finer_detail_and_one_without_examples_has_no_accuracy() -> None:
    per_class = {"cat": {"accuracy": 0.5, "count": 4}, "dog": {"accuracy": None, "count": 0}}
    whole, cat, dog = records_of(evaluated(0.5, per_class=per_class), "r.json")
    assert (whole.detail, cat.detail, cat.fields["class"]) == (None, "class", "cat")
    assert (cat.values, dog.values) == ({"accuracy": 0.5, "count": 4.0}, {"count": 0.0})


def test_a_loss_that_json_cannot_hold_is_not_taken_for_an_absent_one() -> None:
    (record,) = records_of(evaluated(0.1, loss=None), "r.json")
    assert math.isnan(record.values["loss"])


def test_a_merge_sums_seconds_and_weighs_groups_by_their_width() -> None:
    whole, conv1, fc1 = records_of(merged(), "m.json")
    assert conv1.values == {
        "width": 10,
        "iterations": 2,
        "objective": 8,
        "cost_seconds": 0.75,
        "lap_seconds": 0.75,
        "seconds": 1.5,
        "permuted": 0.25,
    }
    assert whole.values == {
        "cost_seconds": 1.75,
        "lap_seconds": 2.75,
        "seconds": 4.5,
        "permuted": (0.25 * 10 + 0.5 * 30) / 40,
        "objective": 9,
        "objective_aligned": 9,
        "objective_identity": 116,
    }
    assert fc1.fields["group"] == "fc1"
    assert {key: whole.fields[key] for key in ("chosen", "reference", "rho")} == {
        "chosen": "aligned",
        "reference": "c0.safetensors",
        "rho": "0.5",
    }


def test_a_label_for_the_members_method_is_not_their_ensembles() -> None:
    document = evaluated(0.25) | {"labels": {"method": "local", "seed": 1}}
    document["ensemble"] = {"accuracy": 0.75, "loss": 1.0, "count": 10, "per_class": {}}
    client, ensemble = records_of(document, "r.json")
    assert (client.fields["method"], ensemble.fields["method"]) == ("local", "ensemble")
    assert client.fields["seed"] == ensemble.fields["seed"] == "1"


def test_a_merge_that_grew_says_how_far() -> None:
    grown = {"groups": {"conv1": {"width": 47, "growth": 47 / 32}}, "parameters": {"global": 300, "growth": 1.5}}
    whole, conv1 = records_of(merged(**grown), "m.json")
    assert (whole.values["parameters"], whole.values["growth"]) == (300, 1.5)
    assert conv1.values == {"width": 47, "growth": 47 / 32}


def test_the_candidate_that_was_picked_is_known() -> None:
    tried = [
        {"settings": {"rho": rho, "lam": 0.001}, "validation_accuracy": 0.5 + rho, "objective": {"chosen": 7.0}}
        for rho in (0.25, 0.5)
    ]
    *_, first, second = records_of(merged(candidates=tried), "m.json")
    assert [(each.fields["rho"], each.fields["picked"]) for each in (first, second)] == [
        ("0.25", "false"),
        ("0.5", "true"),
    ]
    assert second.values == {"validation_accuracy": 1.0, "candidate_objective": 7.0}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (evaluated(43.3), "r.json (global.safetensors): 'accuracy' is 43.3, outside 0 to 1. Store fractions"),
        (evaluated(0.5, accuracy=None), "'accuracy' is None, which is no number"),
        (evaluated(0.5, accuracy=True), "'accuracy' is True, which is no number"),
        (evaluated(0.5, model=None), "r.json: has no 'model'"),
        (evaluated(0.5, history={"a": 1}), "'history' is {'a': 1}, which is no list"),
        (evaluated(0.5, history=["merge"]), "has no 'command'"),
        (evaluated(0.5, per_class={"cat": 0.5}), "class cat: 0.5 is no object"),
        (evaluated(0.5) | {"results": None}, "r.json: has no 'results'"),
        (evaluated(0.5) | {"labels": ["seed=1"]}, "'labels' is ['seed=1'], which is no object"),
        (merged(method=3), "'method' is 3, which is no text"),
        (merged(groups={"conv1": {"permuted_fraction": [2]}}), "group conv1: 'permuted' is 2, outside 0 to 1"),
        (merged(candidates=[{}]), "fedfiot, candidate 1): has no 'settings'"),
    ],
)
def test_a_broken_field_is_named(document: dict[str, Any], message: str) -> None:
    with pytest.raises(ContentError) as caught:
        records_of(document, "r.json")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"kind": "report"}, "r.json: is of kind 'report', which is no result"),
        ({"a": 1}, "does not say what kind of result it is"),
        ([1], "does not say what kind of result it is"),
    ],
)
def test_other_documents_are_refused(document: Any, message: str) -> None:
    with pytest.raises(FileError) as caught:
        records_of(document, "r.json")
    assert message in str(caught.value)
