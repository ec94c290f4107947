"""Choosing by validation: what a report keeps of results that the hold-out has to decide between."""

from __future__ import annotations

from typing import Any

import pytest
from result_documents import evaluated, merged

from modelfuse.errors import ContentError
from modelfuse.reporting.records import Record, records_of
from modelfuse.reporting.table import Layout, Table, tabulate


def _result(accuracy: float, epochs: int, seed: int = 0) -> list[Record]:
    labels = {"epochs": epochs, "seed": seed}
    return list(records_of(evaluated(accuracy, labels=labels), f"{accuracy}.json"))


def _validated(accuracy: float, validation: float) -> list[Record]:
    tried: list[dict[str, Any]] = [
        {"settings": {"rho": 0.5, "lam": 0.001}, "validation_accuracy": validation},
        {"settings": {"rho": 0.2, "lam": 0.001}, "validation_accuracy": 0.0},
    ]
    return list(records_of(merged(model_id=f"id-{accuracy}", candidates=tried), f"merge-{accuracy}.json"))


def _table(*records: list[Record]) -> Table:
    layout = Layout(rows=("method",), columns=(), pick=("epochs",), show=("epochs",))
    return tabulate([record for each in records for record in each], layout)


def test_the_hold_out_decides_and_not_the_test_set() -> None:
    table = _table(_result(0.5, 25), _result(0.4, 100), _validated(0.5, 0.3), _validated(0.4, 0.6))
    (cell,) = table.cells.values()
    assert cell.mean == 0.4
    assert cell.shown("epochs") == "100"


def test_every_seed_is_decided_for_itself() -> None:
    first = [_result(0.5, 25), _result(0.4, 100), _validated(0.5, 0.3), _validated(0.4, 0.6)]
    second = [_result(0.7, 25, seed=1), _result(0.8, 100, seed=1), _validated(0.7, 0.2), _validated(0.8, 0.1)]
    (cell,) = _table(*first, *second).cells.values()
    assert [run.values["accuracy"] for run in cell.runs] == [0.4, 0.7]
    assert cell.shown("epochs") == "100|25"


def test_what_has_no_rival_needs_no_validation() -> None:
    (cell,) = _table(_result(0.5, 25)).cells.values()
    assert cell.mean == 0.5


def test_a_rival_without_validation_is_an_error() -> None:
    with pytest.raises(ContentError, match=r"0\.4\.json.*nothing says how it validated"):
        _table(_result(0.5, 25), _result(0.4, 100), _validated(0.5, 0.3))


def test_two_results_of_one_choice_still_clash() -> None:
    records = [_result(0.5, 25), _result(0.6, 25), _result(0.4, 100)]
    reports = [_validated(0.5, 0.7), _validated(0.6, 0.7), _validated(0.4, 0.1)]
    with pytest.raises(ContentError, match="both are"):
        _table(*records, *reports)
