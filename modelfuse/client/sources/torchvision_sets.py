"""``cifar10:ROOT``, ``cifar100:ROOT`` and ``svhn:ROOT``: torchvision's readers, which check the files' digests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.client.sources.source import NORMALISATIONS, Source, SplitName, check_labels
from modelfuse.errors import FileError
from modelfuse.types import IndexArray

__all__ = ["open_cifar10", "open_cifar100", "open_svhn"]


def open_cifar10(argument: str, split: SplitName, download: bool) -> Source:
    """Return a split of CIFAR-10; arguments and errors as :func:`open_svhn`."""
    from torchvision.datasets import CIFAR10

    data = _fetch("cifar10", argument, lambda: CIFAR10(argument, train=split == "train", download=download))
    return _cifar("cifar10", data)


def open_cifar100(argument: str, split: SplitName, download: bool) -> Source:
    """Return a split of CIFAR-100; arguments and errors as :func:`open_svhn`."""
    from torchvision.datasets import CIFAR100

    data = _fetch("cifar100", argument, lambda: CIFAR100(argument, train=split == "train", download=download))
    return _cifar("cifar100", data)


def open_svhn(argument: str, split: SplitName, download: bool) -> Source:
    """Return a split of SVHN.

    Args:
        argument: torchvision's root.
        split: ``train`` or ``test``.
        download: Fetch the files if they are not there.

    Raises:
        FileError: The files are missing, damaged, or cannot be fetched.
    """
    from torchvision.datasets import SVHN

    data = _fetch("svhn", argument, lambda: SVHN(argument, split=split, download=download))
    labels = check_labels(np.asarray(data.labels), 10, f"--data svhn:{argument}")
    return Source("svhn", labels, tuple("0123456789"), _taker(data.data), NORMALISATIONS["svhn"])


def _cifar(name: str, data: Any) -> Source:
    images = data.data.transpose(0, 3, 1, 2)  # (N, 32, 32, 3) -> (N, 3, 32, 32)
    labels = np.asarray(data.targets, dtype=np.int64)
    return Source(name, labels, tuple(data.classes), _taker(images), NORMALISATIONS[name])


def _taker(images: NDArray[Any]) -> Callable[[IndexArray | None], NDArray[Any]]:
    return lambda indices: images if indices is None else images[indices]


def _fetch(name: str, root: str, load: Callable[[], Any]) -> Any:
    if not root:
        raise FileError(f"--data {name}:", "the folder is missing", f"Write {name}:ROOT.")
    try:
        return load()
    except (RuntimeError, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(". ") if str(error) else type(error).__name__
        raise FileError(
            f"--data {name}:{root}", f"not found, or damaged ({reason})", "Name torchvision's root, or pass --download."
        ) from error
