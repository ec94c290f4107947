"""``modelfuse report`` and ``modelfuse plot`` from the command line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from result_documents import evaluated, merged, write

from modelfuse.cli.app import run


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of four result files in the current folder: two methods, two seeds, two rounds."""
    monkeypatch.chdir(tmp_path)
    for method, seed, accuracy in (
        ("fedavg", 1, 0.30),
        ("fedavg", 2, 0.32),
        ("fedfiot", 1, 0.43),
        ("fedfiot", 2, 0.45),
    ):
        document = evaluated(accuracy, method=method, options={"seed": seed}, labels={"round": 1})
        write(tmp_path / f"{method}-{seed}.json", document)
    return sorted(path.name for path in tmp_path.glob("*.json"))


def test_a_table_on_the_terminal(results: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", *results]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["fedavg", "31.0", "±", "1.4"] in lines
    assert ["fedfiot", "44.0", "±", "1.4", "*"] in lines
    assert " ".join(lines[-1]) == "accuracy in %, mean ± sample std over seed, n = 2, * best of its column"


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("t.md", "| method  |"),
        ("t.csv", "row,column,value,std,n,best\nfedavg,digits,31.0,"),
        ("t.tex", "% accuracy in %"),
        ("t.json", '{\n  "kind": "report",'),
    ],
)
def test_the_suffix_of_the_output_is_the_format(results: list[str], name: str, start: str) -> None:
    assert run(["report", *results, "-o", name]) == 0
    assert Path(name).read_text(encoding="utf-8").startswith(start)


def test_standard_input_filters_digits_and_keys_with_dashes(
    results: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(Path(name).read_text(encoding="utf-8") for name in results)))
    arguments = ["--rows", "merge.method", "--columns", "train-client.seed", "--where", "seed=2", "--digits", "2"]
    assert run(["report", "-", *arguments, "--format", "csv"]) == 0
    assert capsys.readouterr().out == (
        "row,column,value,std,n,best\n"
        "fedavg,train_client.seed=2,32.0,,1,false\n"
        "fedfiot,train_client.seed=2,45.0,,1,true\n"
    )


def test_what_does_not_fit_is_said_unless_quiet(results: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("client.json"), evaluated(0.1, method=None))
    assert run(["report", *results, "client.json"]) == 0
    assert capsys.readouterr().err == "results left out because they lack one of method, dataset: 1\n"
    assert run(["--quiet", "report", *results, "client.json"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "t.txt"], "modelfuse: --output: t.txt does not say the format of the table. Name --format, or end"),
        (["-o", "t.md", "--format", "terminal"], "modelfuse: --output: the terminal format is not for files."),
        (["--format", "html"], "modelfuse: --format: there is no format 'html'. There are terminal, markdown, csv,"),
        (["--where", "seed"], "modelfuse: --where: 'seed' is not KEY=VALUE. Write --where alpha=0.1."),
        (["--rows", ","], "modelfuse: --rows: no key is given. Write --rows method."),
        (
            ["--over", "round", "-o", "t.md"],
            "fedavg-2.json (global.safetensors): both are fedavg × digits with round 1.",
        ),
    ],
)
def test_an_error_is_one_line_exit_two_and_no_file(
    results: list[str], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", *results, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(Path().glob("t.*"))


def test_a_merge_report_lists_its_grid_and_its_groups(results: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    tried = [{"settings": {"rho": rho, "lam": 0.001}, "validation_accuracy": rho} for rho in (0.25, 0.5)]
    write(Path("m.json"), merged(candidates=tried))
    csv = ["--format", "csv"]
    assert (
        run(["report", "m.json", "--rows", "rho", "--columns", "picked", "--value", "validation_accuracy", *csv]) == 0
    )
    assert "rho=0.5,true,50.0,,1,true\n" in capsys.readouterr().out
    assert run(["report", "m.json", "--rows", "group", "--columns", "method", "--value", "permuted", *csv]) == 0
    assert "conv1,fedfiot,25.0,,1,false\nfc1,fedfiot,50.0,,1,false\n" in capsys.readouterr().out


def test_json_of_a_report_is_readable_by_programs(results: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", *results, "--format", "json"]) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [[run["file"] for run in cell["runs"]] for cell in cells] == [results[:2], results[2:]]
