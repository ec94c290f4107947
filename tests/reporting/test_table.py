"""Tables by hand: means, deviations, order, best, and what does not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from result_documents import evaluated, merged

from modelfuse.errors import ContentError, OptionError
from modelfuse.reporting.records import Record, records_of
from modelfuse.reporting.reference import Published, Reference
from modelfuse.reporting.table import Layout, Table, tabulate


def _records(*runs: tuple[str, float, Mapping[str, object]]) -> list[Record]:
    found: list[Record] = []
    for number, (method, accuracy, labels) in enumerate(runs):
        found += records_of(evaluated(accuracy, method=method, labels=labels), f"{number}.json")
    return found


def _means(table: Table) -> dict[tuple[str, str], float]:
    return {(row.label, column.label): cell.mean for (row, column), cell in table.cells.items()}


BY_ALPHA = Layout(("method",), ("alpha",))


def test_a_cell_is_the_mean_and_the_sample_deviation_over_seeds() -> None:
    runs = [("fedavg", accuracy, {"seed": seed, "alpha": 0.1}) for seed, accuracy in ((2, 0.5), (1, 0.4), (10, 0.6))]
    table = tabulate(_records(*runs), BY_ALPHA)
    ((place, cell),) = table.cells.items()
    assert (place[0].label, place[1].label) == ("fedavg", "alpha=0.1")
    assert cell.mean == pytest.approx(0.5)
    assert cell.std == pytest.approx(0.1)  # sqrt((0.1² + 0 + 0.1²) / 2)
    assert [run.fields["seed"] for run in cell.runs] == ["1", "2", "10"]


def test_a_single_run_has_no_deviation_and_a_result_without_seed_counts_as_one() -> None:
    table = tabulate(_records(("fedavg", 0.5, {"alpha": 1})), BY_ALPHA)
    (cell,) = table.cells.values()
    assert (cell.mean, cell.std, len(cell.runs)) == (0.5, None, 1)


def test_numbers_are_ordered_as_numbers_and_before_words() -> None:
    runs = [("fedavg", 0.5, {"alpha": alpha}) for alpha in ("10", "iid", "9", "0.1")]
    assert [column.label for column in tabulate(_records(*runs), BY_ALPHA).columns] == [
        "alpha=0.1",
        "alpha=9",
        "alpha=10",
        "iid",
    ]


def test_several_keys_make_one_label_and_no_column_key_one_column() -> None:
    records = _records(("fedavg", 0.5, {"alpha": 0.1}))
    (column,) = tabulate(records, Layout(("method",), ("dataset", "alpha"))).columns
    assert column.label == "digits alpha=0.1"
    assert _means(tabulate(records, Layout(("method",)))) == {("fedavg", "accuracy"): 0.5}


def test_the_best_of_each_column_is_marked_and_ties_are_shared() -> None:
    records = _records(
        ("fedavg", 0.4, {"alpha": 1}), ("fedfiot", 0.5, {"alpha": 1}), ("fisher", 0.5, {"alpha": 1}),
        ("fedavg", 0.3, {"alpha": 2}),
    )  # fmt: skip
    best = {(row.label, column.label) for row, column in tabulate(records, BY_ALPHA).best}
    assert best == {("fedfiot", "alpha=1"), ("fisher", "alpha=1"), ("fedavg", "alpha=2")}


def test_the_lowest_loss_is_best_and_a_count_has_no_best() -> None:
    records = [
        record
        for method, loss in (("fedavg", 2.0), ("fedfiot", 1.0))
        for record in records_of(evaluated(0.5, method=method, loss=loss), f"{method}.json")
    ]
    ((row, _),) = tabulate(records, Layout(("method",), value="loss")).best
    assert row.label == "fedfiot"
    assert not tabulate(records, Layout(("method",), value="count")).best


def test_an_ensemble_is_shown_and_does_not_compete() -> None:
    document = evaluated(0.4) | {"ensemble": {"accuracy": 0.9, "per_class": {}}}
    table = tabulate(records_of(document, "r.json"), Layout(("method",)))
    assert [row.label for row in table.rows] == ["ensemble", "fedavg"]
    assert [row.label for row, _ in table.best] == ["fedavg"]


def test_two_results_of_one_cell_and_seed_name_both_files() -> None:
    records = _records(("fedavg", 0.4, {"seed": 1, "alpha": 1}), ("fedavg", 0.5, {"seed": 1, "alpha": 1, "round": 2}))
    with pytest.raises(ContentError) as caught:
        tabulate(records, BY_ALPHA)
    assert str(caught.value) == (
        "0.json (global.safetensors) and 1.json (global.safetensors): both are fedavg × alpha=1 with seed 1. "
        "Tell them apart by --rows, --columns, --where or --over: they differ in round."
    )


def test_the_same_file_twice_is_told_as_such() -> None:
    records = list(records_of(evaluated(0.5), "a.json"))
    with pytest.raises(ContentError, match=r"with seed not given\. Give each result once"):
        tabulate(records * 2, Layout(("method",)))


def test_runs_may_differ_in_other_keys_than_the_seed() -> None:
    records = _records(("fedavg", 0.4, {"client": 0}), ("fedavg", 0.6, {"client": 1}))
    (cell,) = tabulate(records, Layout(("method",), over=("seed", "client"))).cells.values()
    assert (cell.mean, len(cell.runs)) == (0.5, 2)


def test_a_filter_keeps_what_fits() -> None:
    records = _records(("fedavg", 0.4, {"alpha": 1}), ("fedavg", 0.6, {"alpha": 2}))
    layout = Layout(("method",), where=(("alpha", "2"),))
    assert _means(tabulate(records, layout)) == {("fedavg", "accuracy"): 0.6}


def test_results_without_a_key_are_left_out_and_counted() -> None:
    records = _records(("fedavg", 0.4, {"alpha": 1}), ("fedavg", 0.6, {}))
    table = tabulate(records, BY_ALPHA)
    assert (table.left_out, len(table.cells)) == (1, 1)


def test_classes_and_groups_count_only_where_they_are_named() -> None:
    per_class = {"cat": {"accuracy": 0.2, "count": 1}, "dog": {"accuracy": 0.8, "count": 1}}
    records = records_of(evaluated(0.5, per_class=per_class), "r.json")
    assert _means(tabulate(records, Layout(("method",)))) == {("fedavg", "accuracy"): 0.5}
    assert _means(tabulate(records, Layout(("class",), ("method",)))) == {
        ("cat", "fedavg"): 0.2,
        ("dog", "fedavg"): 0.8,
    }
    groups = tabulate(records_of(merged(), "m.json"), Layout(("group",), value="permuted"))
    assert _means(groups) == {("conv1", "permuted"): 0.25, ("fc1", "permuted"): 0.5}


def test_what_was_picked_is_listed_once_in_the_order_of_the_seeds() -> None:
    records = _records(*(("fedfiot", 0.5, {"seed": seed, "rho": rho}) for seed, rho in ((3, 1), (1, 0.5), (2, 1))))
    (cell,) = tabulate(records, Layout(("method",))).cells.values()
    assert cell.shown("rho") == "0.5|1"
    assert cell.shown("absent") == ""


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (
            Layout(("method",), value="acuracy"),
            "--value: there is no value 'acuracy'. There are accuracy, accuracy_std, loss",
        ),
        (Layout(("method",), value="permuted"), "no result has 'permuted'. The results hold accuracy, loss, count."),
        (Layout(("method",), ("lambda",)), "--rows and --columns: no result has lambda. The keys are data, dataset,"),
        (Layout(("method",), where=(("seed", "7"),)), "--where: no result has seed=7. The keys are data,"),
    ],
)
def test_a_question_without_an_answer_lists_what_there_is(layout: Layout, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        tabulate(_records(("fedavg", 0.5, {})), layout)
    assert message in str(caught.value)


def test_keys_that_no_result_has_together_are_an_error() -> None:
    records = _records(("fedavg", 0.5, {"a": "x"}), ("fedavg", 0.5, {"b": "y"}))
    with pytest.raises(OptionError, match="no result has all of a, b"):
        tabulate(records, Layout(("a",), ("b",)))


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_diverged_model_is_named_and_not_averaged(loss: float) -> None:
    records = records_of(evaluated(0.1, loss=loss), "r.json")
    with pytest.raises(ContentError, match=r"r\.json \(global\.safetensors\): loss is no finite number"):
        tabulate(records, Layout(("method",), value="loss"))


def test_rows_follow_the_reference_and_a_row_that_only_it_has_is_shown() -> None:
    records = _records(("fedavg", 0.4, {"alpha": 0.1}), ("extra", 0.4, {"alpha": 0.1}))
    reference = Reference("paper.csv", "paper", {(row, "0.1"): Published(1.0) for row in ("regmean", "fedavg")})
    table = tabulate(records, BY_ALPHA, [reference])
    assert [row.label for row in table.rows] == ["regmean", "fedavg", "extra"]


def test_a_reference_that_fits_no_column_is_an_error() -> None:
    reference = Reference("paper.csv", "paper", {("fedavg", "cifar10"): Published(1.0)})
    with pytest.raises(ContentError, match=r"paper\.csv: none of its columns \(cifar10\) .* The columns are alpha=1\."):
        tabulate(_records(("fedavg", 0.4, {"alpha": 1})), BY_ALPHA, [reference])
