"""Many command lines in one process."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from federation import write_federation

from modelfuse.cli.app import run
from modelfuse.files.checkpoint import open_checkpoint


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    write_federation(tmp_path / "my clients")
    return tmp_path


def script(folder: Path, *lines: str) -> Path:
    path = folder / "script.txt"
    path.write_text("\n".join(lines))
    return path


def test_lines_run_in_order_with_quotes_and_comments(federation: Path) -> None:
    clients, a, b = federation / "my clients", federation / "a.safetensors", federation / "b.safetensors"
    path = script(
        federation,
        "# a federation",
        "",
        f"modelfuse merge -m fedavg '{clients}' -o {a}  # the program's name may stand there",
        f'merge -m fedavg --only "fc1.*" "{clients}" --rest {a} -o {b}',
    )
    assert run(["-q", "run", str(path)]) == 0
    assert open_checkpoint(a).model_id() == open_checkpoint(b).model_id()


def test_the_first_failure_ends_the_run_and_is_named(federation: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = federation / "a.safetensors", federation / "b.safetensors"
    path = script(federation, f"merge -m median '{federation / 'my clients'}' -o {a}", f"inspect {a}", f"inspect {b}")
    assert run(["run", str(path)]) == 2
    message = capsys.readouterr().err
    assert "no method is called 'median'" in message
    assert f"{path}, line 1 failed with exit status 2: modelfuse merge -m median" in message
    assert str(b) not in message


def test_a_dry_run_shows_the_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "a b.safetensors"
    path = script(tmp_path, f"merge -m fedavg one two -o '{output}' # nothing of it is there")
    assert run(["run", "--dry-run", str(path)]) == 0
    assert capsys.readouterr().out == f"modelfuse merge -m fedavg one two -o '{output}'\n"


def test_standard_input_is_a_script_too(
    federation: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"\n\ninspect {federation / 'absent'}\n"))
    assert run(["run", "-"]) == 2
    assert "standard input, line 3 failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("merge 'a", "line 1: it cannot be split into words"),
        ("run other.txt", "line 1: a script cannot run scripts"),
        ("modelfuse --quiet run other.txt", "line 1: a script cannot run scripts"),
    ],
)
def test_what_is_no_script_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    assert run(["run", str(script(tmp_path, line))]) == 2
    assert message in capsys.readouterr().err


def test_a_script_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", str(tmp_path / "absent.txt")]) == 2
    assert "it cannot be read" in capsys.readouterr().err


def test_a_closed_standard_input_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert run(["run", "-"]) == 2
    assert "standard input: it is closed" in capsys.readouterr().err
