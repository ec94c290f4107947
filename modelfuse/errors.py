"""The exception tree: every failure that a user can meet, with the exit status it ends in."""

from __future__ import annotations

__all__ = ["ContentError", "FileError", "InputError", "ModelfuseError", "OptionError"]


class ModelfuseError(Exception):
    """Root of the tree: the work failed, and not through the user's input (exit status 1)."""

    exit_status = 1


class InputError(ModelfuseError):
    """The user's input is at fault (exit status 2).

    Args:
        where: The file, option or tensor at fault, as the user knows it.
        what: What is wrong there, without a final full stop.
        fix: What the user can do about it, as a full sentence.
    """

    exit_status = 2

    def __init__(self, where: str, what: str, fix: str) -> None:
        super().__init__(f"{where}: {what}. {fix}")
        self.where = where
        self.what = what
        self.fix = fix

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str]]:
        """Travel between processes whole: by the three parts, not by the message."""
        return type(self), (self.where, self.what, self.fix)


class OptionError(InputError):
    """Options that do not go together, or that the chosen method does not know."""


class FileError(InputError):
    """A file that is missing, truncated, hostile, of the wrong kind, or cannot be written."""


class ContentError(InputError):
    """A file that reads well and holds values that cannot be used: shapes, NaN, negative Fisher, label orders."""
