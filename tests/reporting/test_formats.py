"""One small table in every format, to the letter."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from result_documents import evaluated

from modelfuse.reporting.formats import caption, grid, to_csv, to_json, to_latex, to_markdown
from modelfuse.reporting.records import records_of
from modelfuse.reporting.reference import Published, Reference, read_reference
from modelfuse.reporting.table import Layout, Table, tabulate

RUNS = (("fedavg", 1, 0.30), ("fedavg", 2, 0.32), ("fedfiot_x", 1, 0.43), ("fedfiot_x", 2, 0.45))
PAPER = Reference(
    "paper.csv", "paper", {("fedavg", "alpha=0.1"): Published(30.3, 1.0), ("regmean", "0.1"): Published(33)}
)


def _table(*, references: tuple[Reference, ...] = (PAPER,), show: tuple[str, ...] = (), extra: bool = False) -> Table:
    records = [
        record
        for method, seed, accuracy in (*RUNS, *([("fedavg", 3, 0.31)] if extra else []))
        for record in records_of(
            evaluated(accuracy, method=method, labels={"seed": seed, "alpha": 0.1}), f"{method}-{seed}.json"
        )
    ]
    return tabulate(records, Layout(("method",), ("alpha",), show=show), references)


def test_the_terminal_stars_the_best_of_a_column() -> None:
    assert grid(_table(), 1) == (
        ["method", "alpha=0.1  ", "alpha=0.1 (paper)  "],
        [
            ["fedavg", "31.0 ± 1.4  ", "30.3 ± 1.0  "],
            ["regmean", "–  ", "33.0  "],
            ["fedfiot_x", "44.0 ± 1.4 *", "–  "],
        ],
    )


def test_markdown() -> None:
    assert to_markdown(_table(), 1) == (
        "| method    |      alpha=0.1 | alpha=0.1 (paper) |\n"
        "| --------- | -------------: | ----------------: |\n"
        "| fedavg    |     31.0 ± 1.4 |        30.3 ± 1.0 |\n"
        "| regmean   |              – |              33.0 |\n"
        "| fedfiot_x | **44.0 ± 1.4** |                 – |\n"
        "\n"
        "accuracy in %, mean ± sample std over seed, n = 2\n"
    )


def test_latex() -> None:
    assert to_latex(_table(), 2) == (
        "% accuracy in %, mean ± sample std over seed, n = 2; needs \\usepackage{booktabs}\n"
        "\\begin{tabular}{lrr}\n"
        "  \\toprule\n"
        "  method     &              $\\alpha=0.1$ & $\\alpha=0.1$ (paper) \\\\\n"
        "  \\midrule\n"
        "  fedavg     &          $31.00 \\pm 1.41$ &     $30.30 \\pm 1.00$ \\\\\n"
        "  regmean    &                        -- &              $33.00$ \\\\\n"
        "  fedfiot\\_x & $\\mathbf{44.00 \\pm 1.41}$ &                   -- \\\\\n"
        "  \\bottomrule\n"
        "\\end{tabular}\n"
    )


def test_csv_has_one_line_a_cell_with_all_digits() -> None:
    assert to_csv(_table()) == (
        "row,column,value,std,n,best,paper,paper_std\n"
        "fedavg,alpha=0.1,31.0,1.4142135624,2,false,30.3,1.0\n"
        "regmean,alpha=0.1,,,0,false,33,\n"
        "fedfiot_x,alpha=0.1,44.0,1.4142135624,2,true,,\n"
    )


def test_a_csv_is_a_reference_for_another_table(tmp_path: Path) -> None:
    path = tmp_path / "before.csv"
    path.write_text(to_csv(_table(references=())), encoding="utf-8")
    lines = list(csv.DictReader(io.StringIO(to_csv(_table(references=(read_reference(path),))))))
    assert all(float(line["value"]) == float(line["before"]) for line in lines)


def test_json_traces_every_figure_to_files_models_and_settings() -> None:
    data = to_json(_table())
    first, second = data["cells"]
    assert (data["kind"], data["unit"], data["rows"]) == ("report", "%", ["fedavg", "regmean", "fedfiot_x"])
    assert {key: first[key] for key in ("row", "column", "mean", "n", "best")} == {
        "row": "fedavg",
        "column": "alpha=0.1",
        "mean": 31.0,
        "n": 2,
        "best": False,
    }
    assert [(run["file"], run["model_ids"], run["value"]) for run in second["runs"]] == [
        ("fedfiot_x-1.json", ["id-0.43"], 43.0),
        ("fedfiot_x-2.json", ["id-0.45"], 45.0),
    ]
    assert second["runs"][0]["fields"]["rho"] == "1"
    assert data["references"][0] == {"name": "paper", "row": "fedavg", "column": "alpha=0.1", "value": 30.3, "std": 1.0}


def test_counts_stand_in_the_cells_where_they_differ() -> None:
    table = _table(extra=True)
    assert caption(table) == "accuracy in %, mean ± sample std over seed, n in brackets"
    _, rows = grid(table, 1)
    assert [row[1] for row in rows] == ["31.0 ± 1.0 (3)  ", "–  ", "44.0 ± 1.4 (2) *"]
    assert r"$31.0 \pm 1.0\,(3)$" in to_latex(table, 1)


def test_what_was_picked_stands_beside_the_figure() -> None:
    table = _table(show=("rho",))
    assert grid(table, 1)[1][0][1] == "31.0 ± 1.4   [rho=1]"
    assert r"$31.0 \pm 1.4$ [$\rho=1$]" in to_latex(table, 1)
    assert to_csv(table).splitlines()[1] == "fedavg,alpha=0.1,31.0,1.4142135624,2,false,1,30.3,1.0"


def test_other_quantities_show_significant_digits_and_no_unit() -> None:
    records = records_of(evaluated(0.5, loss=0.000123456), "r.json")
    table = tabulate(records, Layout(("method",), value="loss"))
    assert grid(table, 1)[1] == [["fedavg", "0.0001235 *"]]
    assert caption(table) == "loss, single runs"


@pytest.mark.parametrize(("text", "shown"), [("a|b", r"a\|b"), ("50%", "50%")])
def test_markdown_escapes_what_would_end_a_cell(text: str, shown: str) -> None:
    table = tabulate(records_of(evaluated(0.5, method=text), "r.json"), Layout(("method",)))
    assert f"| {shown}" in to_markdown(table, 1)


def test_latex_escapes_its_special_characters() -> None:
    table = tabulate(records_of(evaluated(0.5, method=r"a&b%c\d~{e}"), "r.json"), Layout(("method",)))
    assert r"a\&b\%c\textbackslash{}d\textasciitilde{}\{e\}" in to_latex(table, 1)
