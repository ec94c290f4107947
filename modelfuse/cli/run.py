"""``modelfuse run``: many command lines in one process."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["run"]


@dataclass(frozen=True, slots=True)
class Line:
    """One command of a script.

    Args:
        place: Its file and line number, for messages.
        words: Its words, without the program's name.
    """

    place: str
    words: tuple[str, ...]

    def text(self) -> str:
        """Return the command as a shell would take it."""
        return shlex.join(("modelfuse", *self.words))


def run(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="The script; - reads standard input.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the commands, and run none.")] = False,
) -> None:
    """Run a script of modelfuse commands, one a line, in one process.

    torch is imported once, and data sets that were read stay in memory, so that hundreds of short commands take seconds
    less each. A line is split as a shell splits it (quotes and # comments; no variables, globs or pipes: name folders
    instead); it may begin with the word modelfuse. The first line that fails ends the run with its exit status.

    \b
    Examples:
      modelfuse run rounds.txt
      for t in $(seq 100); do echo merge -m fedproto p$t/ -o g$t.safetensors; done | modelfuse run -
    """
    from modelfuse.cli.app import run as run_command
    from modelfuse.errors import OptionError

    lines = list(read_script(script))
    if dry_run:
        for line in lines:
            typer.echo(line.text())
        return
    flags = [flag for flag, given in (("--quiet", context.obj.quiet), ("--debug", context.obj.debug)) if given]
    for line in lines:
        if next((word for word in line.words if not word.startswith("-")), None) == "run":
            raise OptionError(line.place, "a script cannot run scripts", "Write that script's commands here.")
    for line in lines:
        status = run_command([*flags, *line.words])
        if status:
            sys.stderr.write(f"modelfuse: {line.place} failed with exit status {status}: {line.text()}\n")
            raise typer.Exit(status)


def read_script(script: Path) -> Iterator[Line]:
    """Yield the commands of a script.

    Args:
        script: The file, or ``-`` for standard input.

    Raises:
        FileError: It cannot be read, or standard input is closed.
        OptionError: A quote is not closed.
    """
    from modelfuse.errors import FileError, OptionError

    name = "standard input" if str(script) == "-" else str(script)
    if str(script) == "-" and sys.stdin is None:
        raise FileError(name, "it is closed", "Give a text file of commands.")
    try:
        text = sys.stdin.read() if str(script) == "-" else script.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(name, f"it cannot be read ({error})", "Give a text file of commands.") from error
    for number, row in enumerate(text.splitlines(), start=1):
        place = f"{name}, line {number}"
        try:
            words = shlex.split(row, comments=True)
        except ValueError as error:
            raise OptionError(place, f"it cannot be split into words ({error})", "Close the quotes.") from error
        if words[:1] == ["modelfuse"]:
            words = words[1:]
        if words:
            yield Line(place, tuple(words))
