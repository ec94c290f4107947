"""``npz:FILE`` and ``python:PKG.MOD:FACTORY``: a user's own arrays."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.client.factory import PREFIX, call_factory
from modelfuse.client.sources.source import LabelArray, Normalisation, Source, SplitName, channels_first, check_labels
from modelfuse.errors import ContentError, FileError
from modelfuse.types import IndexArray

__all__ = ["open_npz", "open_python"]

MOST_CLASSES = 100_000
"""Classes that may go without names."""


def open_npz(
    argument: str,
    split: SplitName,
    download: bool,  # noqa: ARG001  (one signature for all)
    labelled: bool = True,
) -> Source:
    """Return a split of an .npz file.

    Args:
        argument: The file. It holds ``x_train``, ``y_train``, ``x_test``, ``y_test``, and may hold ``classes`` (names),
            ``mean`` and ``std`` (one number a channel).
        split: ``train`` or ``test``.
        download: Ignored: there is nowhere to fetch from.
        labelled: Labels must be there; without them every example has the label 0, of no class.

    Raises:
        FileError: There is no such file, or it is no .npz file.
        ContentError: An array is missing or cannot be used.
    """
    path = Path(argument)
    if not path.is_file():
        raise FileError(f"--data npz:{argument}", "there is no such file", "Write npz:FILE.")
    labels = _array(path, f"y_{split}", needed=labelled)
    if labels is None:
        labels = np.zeros(len(_array(path, f"x_{split}")), dtype=np.int64)
    names = _array(path, "classes", needed=False)
    if names is None:
        other = _array(path, "y_test" if split == "train" else "y_train", needed=False)
        every = check_labels(labels if other is None else np.append(labels, other), None, argument)
        classes = _numbered(every, argument)
    else:
        classes = tuple(map(str, names))
    values = check_labels(labels, len(classes), f"{argument}, y_{split}")
    mean, std = _array(path, "mean", needed=False), _array(path, "std", needed=False)
    own = None if mean is None or std is None else Normalisation(_numbers(mean), _numbers(std))

    def read(indices: IndexArray | None) -> NDArray[Any]:
        inputs = _array(path, f"x_{split}")
        _same_length(inputs, values, f"{argument}, x_{split}")
        return channels_first(inputs if indices is None else inputs[indices], f"{argument}, x_{split}")

    return Source(path.stem, values, classes, read, own)


def open_python(argument: str, split: SplitName, download: bool) -> Source:  # noqa: ARG001
    """Return a split that a user's own function makes.

    Args:
        argument: ``PKG.MOD:FACTORY``. ``FACTORY(split)`` returns ``(inputs, labels)``, ``(inputs, labels, classes)``,
            or a sequence of ``(input, label)`` pairs such as a torch data set.
        split: ``train`` or ``test``.
        download: Ignored.

    Raises:
        OptionError: There is no such function.
        ContentError: It returned something else.
    """
    where = f"--data {PREFIX}{argument}"
    made = call_factory(PREFIX + argument, "--data", split)
    if not isinstance(made, tuple):
        try:
            pairs = [made[number] for number in range(len(made))]
            made = np.stack([np.asarray(pair[0]) for pair in pairs]), np.asarray([int(pair[1]) for pair in pairs])
        except (TypeError, ValueError, IndexError) as error:
            raise ContentError(
                where, f"it returned {type(made).__name__}", "Return (inputs, labels), or a sequence of such pairs."
            ) from error
    if len(made) not in (2, 3):
        raise ContentError(where, f"it returned {len(made)} values", "Return (inputs, labels) or add the classes.")
    inputs, labels = np.asarray(made[0]), check_labels(np.asarray(made[1]), None, where)
    classes = tuple(map(str, made[2])) if len(made) == 3 else _numbered(labels, where)
    check_labels(labels, len(classes), where)
    _same_length(inputs, labels, where)

    def read(indices: IndexArray | None) -> NDArray[Any]:
        return channels_first(inputs if indices is None else inputs[indices], where)

    return Source(argument.rpartition(":")[2], labels, classes, read)


def _array(path: Path, key: str, needed: bool = True) -> Any:
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as archive:
            if key in archive:
                return archive[key]
            keys = ", ".join(archive)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise FileError(str(path), f"not an .npz file that can be read ({error})", "Write it with np.savez.") from error
    if needed:
        raise ContentError(str(path), f"there is no array {key}", f"It holds {keys}; add {key} with np.savez.")
    return None


def _same_length(inputs: NDArray[Any], labels: LabelArray, where: str) -> None:
    if inputs.ndim < 1 or len(inputs) != len(labels):
        raise ContentError(
            where, f"inputs have shape {inputs.shape} for {len(labels)} labels", "Give one label an input."
        )


def _numbered(labels: LabelArray, where: str) -> tuple[str, ...]:
    """Return names for classes without any: an identifier in a label's place would make billions of them."""
    last = int(labels.max())
    if last >= MOST_CLASSES:
        raise ContentError(where, f"labels run to {last}", f"Number the classes from 0 to at most {MOST_CLASSES - 1}.")
    return tuple(map(str, range(last + 1)))


def _numbers(values: NDArray[Any]) -> tuple[float, ...]:
    return tuple(map(float, np.atleast_1d(values)))
