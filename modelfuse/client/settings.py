"""How a client trains, as plain data; without torch, so that the command line can show the defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from modelfuse.errors import OptionError

__all__ = ["Augmentation", "Precision", "Schedule", "TrainSettings", "pick"]

Schedule: TypeAlias = Literal["constant", "cosine"]
Augmentation: TypeAlias = Literal["none", "flip", "crop", "crop-flip"]
Precision: TypeAlias = Literal["float32", "bf16"]


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """The recipe of local training: stochastic gradient descent on the cross-entropy.

    Args:
        epochs: Passes over the client's examples, at least 1.
        batch_size: Examples a step, at least 1; the last step of an epoch takes what is left.
        lr: Learning rate of the first epoch, positive.
        momentum: In [0, 1).
        weight_decay: At least 0.
        schedule: ``cosine`` anneals the rate from epoch to epoch, towards zero at the end; ``constant`` keeps it.
        augment: ``crop`` pads each image by 4 black pixels and crops it at random, ``flip`` mirrors half of them.
        precision: ``bf16`` computes in bfloat16 where that is safe, with float32 weights.
        prox_mu: FedProx's μ: adds μ/2 ‖w − w_global‖² to the loss; 0 leaves it out.
        clip_norm: Longest gradient, over all parameters together, positive; longer ones are scaled down. None: any.
        seed: Seed of the order of examples, the augmentation and dropout.
    """

    epochs: int = 10
    batch_size: int = 64
    lr: float = 0.02
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: Schedule = "constant"
    augment: Augmentation = "none"
    precision: Precision = "float32"
    prox_mu: float = 0.0
    clip_norm: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            OptionError: A setting is out of its range.
        """
        _require(self.epochs >= 1, "-E", self.epochs, "at least 1")
        _require(1 <= self.batch_size <= 1 << 30, "--batch-size", self.batch_size, "at least 1, and no more than 2³⁰")
        _require(0 < self.lr < math.inf, "--lr", self.lr, "positive")
        _require(0 <= self.momentum < 1, "--momentum", self.momentum, "at least 0 and below 1")
        _require(0 <= self.weight_decay < math.inf, "--weight-decay", self.weight_decay, "at least 0")
        _require(0 <= self.prox_mu < math.inf, "--prox-mu", self.prox_mu, "at least 0")
        if self.clip_norm is not None:
            _require(0 < self.clip_norm < math.inf, "--clip-norm", self.clip_norm, "positive")

    def rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0.

        Source: FedFiOT app. C.1 (cosine annealing over the local epochs).
        """
        if self.schedule == "constant":
            return self.lr
        return self.lr * (1 + math.cos(math.pi * epoch / self.epochs)) / 2


def pick(value: str, choices: Any, option: str) -> Any:
    """Return the value if it is one of a Literal's choices.

    Args:
        value: What the user typed.
        choices: The Literal.
        option: The option's name, for the message.

    Raises:
        OptionError: It is none of them.
    """
    if value not in get_args(choices):
        raise OptionError(option, f"{value!r} is unknown", f"Choose {', '.join(get_args(choices))}.")
    return value


def _require(holds: bool, option: str, value: float, wanted: str) -> None:
    if not holds:
        raise OptionError(option, f"{value} is out of range", f"It must be {wanted}.")
