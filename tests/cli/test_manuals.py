"""The examples in the manuals: every option that they show exists, and every option says what it is for."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer

from modelfuse.cli.app import COMMANDS, app

OPTION = re.compile(r"(?<=\s)--?[a-zA-Z][\w-]*")


def _family(name: str) -> list[Any]:
    """Return a command and, where it has some, its subcommands."""
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    return [command, *getattr(command, "commands", {}).values()]


def _examples(manual: str) -> list[tuple[str, str]]:
    """Return each example's command and the text behind it, up to the next example, pipe or blank line."""
    return re.findall(r"modelfuse (?:-q |--quiet )?([\w-]+)((?:(?!modelfuse |\n\s*\n|[|;&]).)*)", manual, re.DOTALL)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_in_examples_exist(name: str) -> None:
    found = [example for each in _family(name) for example in _examples(each.help or "")]
    shown = [(command, text) for command, text in found if command in COMMANDS]
    assert any(command == name for command, _ in shown)
    for command, text in shown:
        known = {flag for each in _family(command) for option in each.params for flag in option.opts}
        assert set(OPTION.findall(text)) <= known, (command, text)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    for command in _family(name):
        silent = [option.opts for option in command.params if not getattr(option, "help", None)]
        assert silent == []
