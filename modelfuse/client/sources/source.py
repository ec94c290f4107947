"""What every reader of data returns: labels at once, inputs when somebody asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from modelfuse.errors import ContentError, OptionError
from modelfuse.types import IndexArray

__all__ = [
    "NORMALISATIONS",
    "LabelArray",
    "Normalisation",
    "Owners",
    "Source",
    "SplitName",
    "channels_first",
    "check_labels",
    "parse_normalisation",
    "usual_normalisation",
]

SplitName: TypeAlias = Literal["train", "test"]
LabelArray: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Normalisation:
    """What is taken off and divided by, channel by channel, once pixels lie between 0 and 1.

    Args:
        mean: One number a channel.
        std: One positive number a channel.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def text(self) -> str:
        """Return it as ``--normalize`` takes it: ``MEAN,…/STD,…``."""
        return "/".join(",".join(repr(float(number)) for number in numbers) for numbers in (self.mean, self.std))


NORMALISATIONS: Mapping[str, Normalisation] = {
    "none": Normalisation((0.0,), (1.0,)),
    "half": Normalisation((0.5,), (0.5,)),
    "digits": Normalisation((0.3053,), (0.3761,)),
    "mnist": Normalisation((0.1307,), (0.3081,)),
    "fashion-mnist": Normalisation((0.2860,), (0.3530,)),
    "cifar10": Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": Normalisation((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "svhn": Normalisation((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    "imagenet": Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """Who the examples of a split belong to, where a data set comes with clients of its own.

    Args:
        names: (R,) what the owners are called.
        characters: (R,) how many characters each speaks, in both splits together.
        of: (N,) the owner of each example.
    """

    names: tuple[str, ...]
    characters: IndexArray
    of: IndexArray

    def at(self, positions: IndexArray) -> Owners:
        """Return the owners of some of the examples, in that order."""
        return replace(self, of=self.of[positions])


@dataclass(frozen=True, slots=True)
class Source:
    """One split of a data set.

    Args:
        name: What the data set is called, without a path.
        labels: (N,): each example's class; (N, T): the class of each step of a sequence.
        classes: The label order.
        read: Returns the inputs of the examples at the given indices, or of all (None): (n, C, H, W) uint8 images,
            float32 arrays of any shape, or int64 tokens.
        normalisation: The data set's own, or None for the usual one of such inputs (:func:`usual_normalisation`).
        owners: Who the examples belong to, or None if the data set does not say.
    """

    name: str
    labels: LabelArray
    classes: tuple[str, ...]
    read: Callable[[IndexArray | None], NDArray[Any]]
    normalisation: Normalisation | None = None
    owners: Owners | None = None


def usual_normalisation(inputs: NDArray[Any]) -> Normalisation:
    """Return the normalisation of inputs whose data set names none.

    Colour images of 32×32 pixels take CIFAR-10's, other colour images ImageNet's, grey images 0.5 / 0.5; what is not
    uint8 is used as it is. It is a rule on shapes, so that clients who never see each other's data agree.

    Args:
        inputs: As :attr:`Source.read` returns them.
    """
    if inputs.dtype != np.uint8:
        return NORMALISATIONS["none"]
    if inputs.shape[1] != 3:
        return NORMALISATIONS["half"]
    return NORMALISATIONS["cifar10" if inputs.shape[2:] == (32, 32) else "imagenet"]


def parse_normalisation(text: str) -> Normalisation:
    """Return the normalisation that ``--normalize`` asks for.

    Args:
        text: A data set's name, ``half``, ``none``, or ``MEAN,…/STD,…`` with one number a channel (or one for all).

    Raises:
        OptionError: The text is neither.
    """
    if text in NORMALISATIONS:
        return NORMALISATIONS[text]
    try:
        mean, std = (tuple(map(float, part.split(","))) for part in text.split("/"))
    except ValueError:
        mean, std = (), ()
    if not mean or len(mean) != len(std) or not np.isfinite([*mean, *std]).all() or min(std) <= 0:
        raise OptionError(
            "--normalize",
            f"{text!r} is neither a name nor MEAN,…/STD,… with positive deviations",
            f"Write 0.5/0.5, 0.49,0.48,0.45/0.25,0.24,0.26, or one of {', '.join(NORMALISATIONS)}.",
        )
    return Normalisation(mean, std)


def channels_first(inputs: NDArray[Any], where: str) -> NDArray[Any]:
    """Return inputs in the layout and one of the dtypes that the client side reads.

    Args:
        inputs: (N, H, W) or (N, C, H, W) or (N, H, W, C) uint8 images, with C = 1 or 3; floating-point arrays of at
            least 2 axes; or integer tokens (N, T).
        where: The file or option that they come from, for messages.

    Returns:
        uint8 (N, C, H, W), float32, or int64.

    Raises:
        ContentError: The shape or the dtype is none of these, or a value is not finite.
    """
    if inputs.ndim == 4 and inputs.shape[1] not in (1, 3) and inputs.shape[3] in (1, 3):
        inputs = inputs.transpose(0, 3, 1, 2)  # (N, H, W, C) -> (N, C, H, W)
    if inputs.dtype == np.uint8:
        if inputs.ndim == 3:
            inputs = inputs[:, None]  # (N, H, W) -> (N, 1, H, W)
        if inputs.ndim != 4:
            raise ContentError(
                where, f"uint8 inputs have shape {inputs.shape}", "Give images (N, H, W) or (N, H, W, C), or floats."
            )
        return inputs
    if inputs.ndim < 2 or inputs.dtype.kind not in "fiu":
        raise ContentError(
            where,
            f"inputs have shape {inputs.shape} and dtype {inputs.dtype}",
            "Give one example a row, as uint8 images, floating-point numbers or integer tokens.",
        )
    if inputs.dtype.kind != "f":
        return inputs.astype(np.int64, copy=False)
    if not np.isfinite(inputs).all():
        raise ContentError(where, "the inputs hold NaN or infinity", "Clean the data first.")
    return inputs.astype(np.float32, copy=False)


def check_labels(labels: NDArray[Any], num_classes: int | None, where: str) -> LabelArray:
    """Return labels as int64.

    Args:
        labels: (N,) whole numbers from 0.
        num_classes: How many classes there are, or None if only the labels say so.
        where: The file or option that they come from, for messages.

    Raises:
        ContentError: They have another shape or type, a label is out of range, or there is none.
    """
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ContentError(
            where, f"labels have shape {labels.shape} and dtype {labels.dtype}", "Give one whole number an example."
        )
    if not labels.size:
        raise ContentError(where, "there are no examples", "Give at least one.")
    if labels.min() < 0 or (num_classes is not None and labels.max() >= num_classes):
        raise ContentError(
            where,
            f"labels run from {labels.min()} to {labels.max()}",
            f"Number the classes from 0{'' if num_classes is None else f' to {num_classes - 1}'}.",
        )
    return labels.astype(np.int64)
