"""What the clients of a merge have in common: the part of their histories that the global model inherits."""

from __future__ import annotations

from collections.abc import Sequence

from modelfuse.types import Step

__all__ = ["common_history"]


def common_history(histories: Sequence[Sequence[Step]]) -> tuple[Step, ...]:
    """Return the steps that all clients took, each with the options on which they agree.

    A global model thereby still says on what data, with which recipe and from which split its clients were trained.

    Args:
        histories: Each client's steps, oldest first.
    """
    common: list[Step] = []
    for steps in zip(*histories, strict=False):
        first = steps[0]
        if any((step.command, step.version) != (first.command, first.version) for step in steps):
            break
        options = {
            name: value
            for name, value in first.options.items()
            if all(name in step.options and step.options[name] == value for step in steps)
        }
        inputs = tuple(sorted({identity for step in steps for identity in step.inputs}))
        common.append(Step(first.command, first.version, options, inputs))
    return tuple(common)
