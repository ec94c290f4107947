"""Prototype files: one mean embedding for each class that somebody holds, and nothing for the others.

Three tensors, row by row alike: ``prototypes`` (P, d) float32, ``classes`` (P,) int64, the ascending positions of the
rows' classes in the label order, and ``counts`` (P,) int64, the examples behind each row. A class without a row is
absent: no zero stands for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.errors import ContentError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.types import FloatArray, IndexArray

__all__ = ["Prototypes", "check_classes", "read_prototypes"]

VECTORS, CLASSES, COUNTS = "prototypes", "classes", "counts"


@dataclass(frozen=True, slots=True, eq=False)
class Prototypes:
    """The prototypes of the classes that are present.

    Args:
        vectors: (P, d), C^(j) of each present class.
        classes: (P,) their positions in the label order, ascending.
        counts: (P,) examples behind each, at least 1.

    Source: FedProto eq. 3 (a client's), eq. 6 (global).
    """

    vectors: FloatArray
    classes: IndexArray
    counts: IndexArray

    @property
    def width(self) -> int:
        """The embedding's width d."""
        return int(self.vectors.shape[1])

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the tensors of the file."""
        return {
            VECTORS: self.vectors.astype(np.float32),
            CLASSES: self.classes.astype(np.int64),
            COUNTS: self.counts.astype(np.int64),
        }

    def only(self, classes: Collection[int]) -> Prototypes:
        """Return the prototypes of some classes, as far as they are present."""
        kept = np.isin(self.classes, list(classes))
        return Prototypes(self.vectors[kept], self.classes[kept], self.counts[kept])

    def table(self, num_classes: int) -> FloatArray:
        """Return (C, d): row j is the prototype of class j, NaN where it is absent."""
        rows = np.full((num_classes, self.width), np.nan)
        rows[self.classes] = self.vectors
        return rows


def read_prototypes(file: Checkpoint) -> Prototypes:
    """Return the prototypes that an open file of that kind holds.

    Raises:
        ContentError: A tensor is missing or does not go with the others, or a value is not finite.
    """
    vectors, classes, counts = (file.read(name) for name in (VECTORS, CLASSES, COUNTS))
    rows = len(vectors) if vectors.ndim == 2 else -1
    if any(array.shape != (rows,) or array.dtype.kind not in "iu" for array in (classes, counts)):
        raise ContentError(
            file.label,
            f"prototypes {vectors.shape}, classes {classes.shape} and counts {counts.shape} do not go together",
            "Give (P, d) numbers and, for each row, a class and a count of examples.",
        )
    if (np.diff(classes) <= 0).any() or (rows and classes[0] < 0) or (counts < 1).any():
        raise ContentError(
            file.label, "its classes do not ascend from 0, or one has no examples", "Leave absent classes out."
        )
    if not np.isfinite(vectors.astype(np.float64)).all():
        raise ContentError(file.label, "a prototype is NaN or infinite", "Train that client at a lower learning rate.")
    return Prototypes(vectors.astype(np.float64), classes.astype(np.intp), counts.astype(np.intp))


def check_classes(file: Checkpoint, classes: tuple[str, ...], whose: str) -> None:
    """Check that a prototype file's classes are those of somebody who is to use it.

    Args:
        file: The prototype file.
        classes: The other's label order.
        whose: Who that is, for messages.

    Raises:
        ContentError: The label orders differ, or the file speaks of a class beyond them.
    """
    info = file.metadata.client if file.metadata else None
    known = info.classes if info else None
    fix = "Make the prototypes on data with one order of classes."
    if known is not None and known != classes:
        raise ContentError(file.label, f"its label order is not that of {whose}", fix)
    present = file.read(CLASSES)
    if present.size and present.max() >= len(classes):
        raise ContentError(
            file.label,
            f"it has a prototype of class {present.max()}, and {whose} has {len(classes)} classes",
            fix,
        )
