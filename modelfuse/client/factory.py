"""A user's own code: ``python:PKG.MOD:FACTORY`` strings, imported only where the user typed one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from modelfuse.errors import OptionError

__all__ = ["PREFIX", "call_factory", "load_factory"]

PREFIX = "python:"


def load_factory(text: str, where: str) -> Callable[..., Any]:
    """Import the function that a ``python:`` string names; the current folder is on the path.

    Args:
        text: ``python:PKG.MOD:FACTORY``.
        where: The option that the string was given to, for messages.

    Raises:
        OptionError: The string has another form, or the module or the factory is not there.
    """
    module_name, _, name = text.removeprefix(PREFIX).partition(":")
    if not text.startswith(PREFIX) or not module_name or not name:
        raise OptionError(where, f"{text!r} names no factory", "Write python:PKG.MOD:FACTORY.")
    try:
        with _current_folder_first():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise OptionError(
            where, f"{error.name} cannot be imported", "Run from the folder that holds it, or install it."
        ) from error
    factory: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(factory):
        raise OptionError(where, f"{module_name} has no function {name}", "Name one that it has.")
    return factory


def call_factory(text: str, where: str, *arguments: Any) -> Any:
    """Return what the function that a ``python:`` string names returns.

    Args:
        text: ``python:PKG.MOD:FACTORY``.
        where: The option that the string was given to, for messages.
        arguments: What the factory is called with.

    Raises:
        OptionError: There is no such function, or it fails.
    """
    factory = load_factory(text, where)
    try:
        return factory(*arguments)
    except Exception as error:  # the user's own code may fail in any way
        called = ", ".join(map(repr, arguments))
        raise OptionError(
            where,
            f"{text.removeprefix(PREFIX)}({called}) failed with {type(error).__name__} ({error})",
            "Call it so in Python; --debug shows where it fails.",
        ) from error


@contextmanager
def _current_folder_first() -> Iterator[None]:
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
