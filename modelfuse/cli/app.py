"""The Typer application: global options, the table of commands, and how failures end."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer

from modelfuse import __version__
from modelfuse.cli.render import Screen
from modelfuse.errors import ModelfuseError, OptionError

__all__ = ["COMMANDS", "app", "run"]

COMMANDS: dict[str, str] = {
    "init": "modelfuse.cli.init:init",
    "partition": "modelfuse.cli.partition:partition",
    "train-client": "modelfuse.cli.train_client:train_client",
    "fisher": "modelfuse.cli.fisher:fisher",
    "gram": "modelfuse.cli.gram:gram",
    "prototypes": "modelfuse.cli.prototypes:prototypes",
    "quantize": "modelfuse.cli.quantize:quantize",
    "merge": "modelfuse.cli.merge:merge",
    "localize": "modelfuse.cli.localize:localize",
    "distill": "modelfuse.cli.distill:distill",
    "eval": "modelfuse.cli.eval:evaluate",
    "inspect": "modelfuse.cli.inspect:inspect",
    "run": "modelfuse.cli.run:run",
    "report": "modelfuse.cli.report:report",
    "plot": "modelfuse.cli.plot:plot",
}
"""Every subcommand, in the order of a federation: its name and where its function (or Typer of its own) is."""

app = typer.Typer(
    name="modelfuse",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"modelfuse {__version__}\n")
        raise typer.Exit


@app.callback()
def modelfuse(
    context: typer.Context,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks, only results.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of a failure.")] = False,
    version: Annotated[  # noqa: ARG001  (eager: its callback has printed and left before we get here)
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Merge checkpoints trained by clients that never share data.

    Every command reads and writes safetensors files, so that a federation is a pipeline of files:

    \b
      init ─→ train-client ─→ fisher / gram / prototypes ─→ merge ─→ eval
                ↑                                             │
                └───────────────── next round ────────────────┘

    \b
    Example, six clients in one shot:
      modelfuse init --architecture mlp:in=64,hidden=100,out=10 -o init.safetensors
      modelfuse partition --data digits --scheme dirichlet-client -K 6 --alpha 0.1 -o split.safetensors
      modelfuse train-client init.safetensors --data digits --partition split.safetensors --client all -o clients/
      modelfuse fisher clients/*.safetensors --data digits --partition split.safetensors --client all -o fishers/
      modelfuse merge --method fedfiot clients/*.safetensors fishers/*.safetensors -o global.safetensors
      modelfuse eval clients/*.safetensors global.safetensors --data digits

    Exit status: 0 done; 1 failed; 2 the input was at fault, and the message says what, where and how to fix it.
    """
    context.obj = Screen(quiet=quiet, debug=debug)


def _register() -> None:
    for name, place in COMMANDS.items():
        module, _, function = place.partition(":")
        command = getattr(importlib.import_module(module), function)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)


_register()


@cache
def _program() -> Callable[..., Any]:
    """Return the command line, built once: ``modelfuse run`` uses it hundreds of times."""
    return typer.main.get_command(app)


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse empty files and outputs: a path from an unset variable would stand for the current folder."""
    for before, word in zip(("", *arguments), arguments, strict=False):
        if not word and (before in ("-o", "--output") or not before.startswith("-")):
            raise OptionError(f"the word behind {before or 'modelfuse'}", "it is empty", "Is a shell variable not set?")


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Args:
        arguments: The words after the program's name.

    Returns:
        The exit status: 0 done, 1 failed, 2 the user's input was at fault.
    """
    try:
        _refuse_empty(arguments)
        outcome = _program()(list(arguments), standalone_mode=True)
    except SystemExit as leave:
        return leave.code if isinstance(leave.code, int) else 1
    except ModelfuseError as error:
        if "--debug" in arguments:
            raise
        sys.stderr.write(f"modelfuse: {error}\n")
        return error.exit_status
    except OSError as error:  # a path that the system refuses before a command gets to open it
        if "--debug" in arguments or error.filename is None:
            raise
        sys.stderr.write(f"modelfuse: {error.filename}: {error.strerror}. Check the path and its permissions.\n")
        return 2
    return outcome if isinstance(outcome, int) else 0
