"""Choosing tensors by name, with patterns as a shell has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from modelfuse.errors import OptionError
from modelfuse.files.checkpoint import Checkpoint

__all__ = ["Patterns", "part_of"]


@dataclass(frozen=True, slots=True)
class Patterns:
    """Which tensors are meant: those that match one of ``only`` (none given: all) and none of ``excepted``.

    Args:
        only: Patterns such as ``conv*`` or ``fc2.*``.
        excepted: Patterns of names that are left out.
        options: The names of the two options on the command line, for messages.
    """

    only: tuple[str, ...] = ()
    excepted: tuple[str, ...] = ()
    options: tuple[str, str] = ("--only", "--except")

    def __bool__(self) -> bool:
        """Return whether there is any pattern."""
        return bool(self.only or self.excepted)

    def holds(self, name: str) -> bool:
        """Return whether a tensor is meant."""
        included = not self.only or any(fnmatchcase(name, pattern) for pattern in self.only)
        return included and not any(fnmatchcase(name, pattern) for pattern in self.excepted)

    def check(self, names: Iterable[str], where: str) -> None:
        """Check that every pattern names something, and that something is meant.

        Args:
            names: The tensors there are.
            where: Whose they are, for messages.

        Raises:
            OptionError: A pattern matches no tensor, or all tensors are left out.
        """
        known = tuple(names)
        for option, patterns in zip(self.options, (self.only, self.excepted), strict=True):
            for pattern in patterns:
                if not any(fnmatchcase(name, pattern) for name in known):
                    raise OptionError(
                        f"{option} {pattern}", f"no tensor of {where} is called so", f"There are {', '.join(known)}."
                    )
        if not any(map(self.holds, known)):
            raise OptionError(self.options[1], f"nothing of {where} is left", "Let a tensor be meant.")


def part_of(checkpoint: Checkpoint, patterns: Patterns) -> Checkpoint:
    """Return a checkpoint that shows only the tensors that the patterns mean; the others are not there to be read.

    Raises:
        OptionError: As :meth:`Patterns.check`.
    """
    patterns.check(checkpoint.layout, checkpoint.label)
    return replace(
        checkpoint, layout={name: layout for name, layout in checkpoint.layout.items() if patterns.holds(name)}
    )
