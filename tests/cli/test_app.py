"""The program as a whole: help, version, exit statuses, and where output goes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from modelfuse import __version__
from modelfuse.cli.app import COMMANDS, run


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"modelfuse {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_manual_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    manual = capsys.readouterr().out.split("\n", 1)[1]  # what follows the usage line
    assert f"modelfuse {command}" in manual.split("Options:")[0]


def test_the_module_is_the_program() -> None:
    done = subprocess.run([sys.executable, "-m", "modelfuse", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"modelfuse {__version__}\n"


def test_a_wrong_option_ends_in_two_with_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["merge", "--methode", "fedavg"]) == 2
    assert "--methode" in capsys.readouterr().err


def test_a_fault_is_one_line_without_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["merge", "-m", "fedavg", str(tmp_path / "absent"), "-o", str(tmp_path / "out.safetensors")]) == 2
    message = capsys.readouterr().err
    assert message.startswith("modelfuse: ")
    assert message.count("\n") == 1
    assert "Traceback" not in message


@pytest.mark.parametrize("words", [["inspect"], ["quantize", "init.safetensors", "-o"]])
def test_a_path_that_the_system_refuses_is_a_fault(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    path = "x" * 300
    assert run([*words, path]) == 2
    assert capsys.readouterr().err == f"modelfuse: {path}: File name too long. Check the path and its permissions.\n"


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    from modelfuse.errors import FileError

    with pytest.raises(FileError):
        run(["--debug", "inspect", str(tmp_path / "absent")])


@pytest.mark.parametrize("words", [["merge", "-m", "fedavg", "", "-o", "z"], ["inspect", ""], ["report", "-o", ""]])
def test_an_empty_word_is_an_unset_variable(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert "it is empty. Is a shell variable not set?" in capsys.readouterr().err


def test_an_option_may_be_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(tmp_path / "absent.json"), "--columns", ""]) == 2
    assert "is empty" not in capsys.readouterr().err
