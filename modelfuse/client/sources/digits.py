"""``digits``: scikit-learn's embedded 8×8 digits, 1,797 images, with a fixed split into train and test."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.client.sources.source import NORMALISATIONS, LabelArray, Source, SplitName
from modelfuse.errors import OptionError
from modelfuse.types import IndexArray

__all__ = ["open_digits"]

TEST_SHARE = 0.2
LEVELS = 16.0  # the images count dark pixels of 4×4 blocks
SPLIT_SEED = 0


def open_digits(argument: str, split: SplitName, download: bool) -> Source:  # noqa: ARG001  (one signature for all)
    """Return a split of the digits: of each class a fifth, drawn once and for all, is for testing.

    Args:
        argument: Nothing: the data set needs no place.
        split: ``train`` or ``test``.
        download: Ignored: the data set is part of scikit-learn.

    Raises:
        OptionError: The string names a place.
    """
    if argument:
        raise OptionError(f"--data digits:{argument}", "the embedded digits have no place", "Write --data digits.")
    from sklearn.datasets import load_digits  # half a second, and only this data set needs it

    bunch = load_digits()
    chosen = _split(bunch.target, split)

    def read(indices: IndexArray | None) -> NDArray[Any]:
        images = bunch.images[chosen] if indices is None else bunch.images[chosen][indices]
        scaled: NDArray[np.float32] = (images[:, None] / LEVELS).astype(np.float32)  # (n, 8, 8) -> (n, 1, 8, 8)
        return scaled

    labels: LabelArray = bunch.target[chosen].astype(np.int64)
    return Source("digits", labels, tuple(map(str, bunch.target_names)), read, NORMALISATIONS["digits"])


def _split(labels: NDArray[Any], split: SplitName) -> IndexArray:
    generator = np.random.default_rng(SPLIT_SEED)
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        held[members[: round(TEST_SHARE * len(members))]] = True
    return np.flatnonzero(held if split == "test" else ~held)
