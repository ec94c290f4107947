"""The one-liners of examples/oneliners.md: they run as they stand, and name only options that there are."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from modelfuse.cli.app import COMMANDS, app

ONELINERS = Path(__file__).parents[2] / "examples" / "oneliners.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", ONELINERS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"--?[a-zA-Z][\w-]*")


def test_there_are_a_dozen_and_each_is_one_line() -> None:
    assert len(BLOCKS) >= 12
    assert all(block.count("\n") == 1 for block in BLOCKS)


def _calls(block: str) -> list[list[str]]:
    """Return the words of every modelfuse command, those echoed into ``run -`` too, up to the shell's next word."""
    pattern = rf"(?:modelfuse(?: -q| --quiet)?|echo \"?)\s+({'|'.join(COMMANDS)})\b([^|;&)\"]*)"
    return [[name, *shlex.split(rest.replace("'", ""))] for name, rest in re.findall(pattern, block)]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_option_is_one_that_the_command_has(block: str) -> None:
    program = typer.main.get_command(app)
    for name, *words in _calls(block):
        command = program.commands[name]  # type: ignore[attr-defined]
        commands = [command, *getattr(command, "commands", {}).values()]
        known = {flag for each in commands for parameter in each.params for flag in parameter.opts}
        named = {match[0] for word in words if (match := OPTION.match(word))}
        assert named <= known, name


@pytest.mark.slow
def test_all_run_one_after_the_other(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None or shutil.which("jq") is None:
        pytest.skip("needs bash and jq")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    for block in BLOCKS:
        done = subprocess.run(
            [bash, "-euo", "pipefail", "-c", block],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
