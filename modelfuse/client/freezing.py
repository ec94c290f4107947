"""Retraining behind layers that are global already (FedMA): what stays, and by which rules the rest trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from modelfuse.client.settings import TrainSettings
from modelfuse.errors import OptionError
from modelfuse.spec.axes import PermutationSpec

__all__ = ["FreezeRule", "Freezing", "frozen_through"]

FreezeRule: TypeAlias = Literal["plain", "fedma"]

LAST_LAYER_RATE, LAST_LAYER_EPOCHS = 1 / 10, 3  # FedMA app. A


@dataclass(frozen=True, slots=True)
class Freezing:
    """Which tensors stay as they are; none by default.

    Args:
        frozen: Their names.
        only_output: Nothing but the output layer trains.
    """

    frozen: frozenset[str] = frozenset()
    only_output: bool = False

    def trains(self, name: str) -> bool:
        """Return whether a parameter trains."""
        return name not in self.frozen

    def recipe(self, settings: TrainSettings, rule: FreezeRule) -> TrainSettings:
        """Return the recipe by which the rest trains.

        Args:
            settings: The recipe as it is given.
            rule: ``plain``: that recipe. ``fedma``: without weight decay, except where only the output layer trains:
                that one keeps its weight decay, and trains at a tenth of the rate for three times as many epochs.

        Raises:
            OptionError: There is a rule and nothing is frozen.

        Source: FedMA app. A; its code, main.py (local_retrain).
        """
        if rule == "plain":
            return settings
        if not self.frozen:
            raise OptionError(f"--freeze-rule {rule}", "no layer is frozen", "Pass --freeze-through GROUP too.")
        if not self.only_output:
            return replace(settings, weight_decay=0.0)
        return replace(settings, lr=settings.lr * LAST_LAYER_RATE, epochs=settings.epochs * LAST_LAYER_EPOCHS)


def frozen_through(group: str | None, plain_spec: Mapping[str, Any] | None, where: str) -> Freezing:
    """Return what stays when all groups up to one are global.

    A tensor stays if it makes units of these groups and reads only units of these groups. The next layer, whose inputs
    are global already, trains.

    Args:
        group: The last group, in merge order, that is global; None: none is.
        plain_spec: The permutation spec as plain JSON data.
        where: Whose it is, for messages.

    Raises:
        OptionError: There is no such group, or nobody knows the groups.
    """
    if group is None:
        return Freezing()
    if plain_spec is None:
        raise OptionError("--freeze-through", f"{where} does not say its groups", "Pass its permutation --spec.")
    spec = PermutationSpec.from_json(plain_spec, where)
    groups = spec.groups()
    if group not in groups:
        raise OptionError(
            f"--freeze-through {group}", f"{where} has no such group", f"It has, in merge order, {', '.join(groups)}."
        )
    done = set(groups[: groups.index(group) + 1])
    frozen = frozenset(
        tensor
        for tensor, row in spec.axes.items()
        if {axis.group for axis in row if axis} <= done and any(axis.role != "input" for axis in row if axis)
    )
    rest = spec.axes.keys() - frozen
    return Freezing(frozen, only_output=bool(spec.class_axis) and rest <= spec.class_axis.keys())
