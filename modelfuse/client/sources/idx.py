"""``mnist:ROOT`` and ``fashion-mnist:ROOT``: idx files, unzipped or as .gz, read without unpacking them."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.client.sources.source import NORMALISATIONS, Source, SplitName, check_labels
from modelfuse.errors import ContentError, FileError
from modelfuse.types import IndexArray

__all__ = ["open_fashion_mnist", "open_mnist", "read_idx"]

UNSIGNED_BYTE = 8
DIGITS = tuple("0123456789")
CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


def open_mnist(argument: str, split: SplitName, download: bool) -> Source:
    """Return a split of MNIST; arguments and errors as :func:`open_fashion_mnist`."""
    return _open("mnist", "MNIST", DIGITS, argument, split, download)


def open_fashion_mnist(argument: str, split: SplitName, download: bool) -> Source:
    """Return a split of Fashion-MNIST.

    Args:
        argument: torchvision's root (the files lie in ``ROOT/FashionMNIST/raw``), or the folder of the files itself.
        split: ``train`` or ``test``.
        download: Fetch the files through torchvision if they are not there.

    Raises:
        FileError: A file is missing.
        ContentError: A file is not an idx file of bytes, or images and labels differ in number.
    """
    return _open("fashion-mnist", "FashionMNIST", CLOTHES, argument, split, download)


def _open(name: str, folder: str, classes: tuple[str, ...], argument: str, split: SplitName, download: bool) -> Source:
    part = "train" if split == "train" else "t10k"
    stems = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
    found = [_find(argument, folder, stem) for stem in stems]
    if None in found and download:
        import torchvision

        getattr(torchvision.datasets, folder)(argument, download=True)
        found = [_find(argument, folder, stem) for stem in stems]
    images, labels = found
    if images is None or labels is None:
        raise FileError(
            f"--data {name}:{argument}",
            f"there is no {stems[0]} or {stems[1]}, with or without .gz, in {folder}/raw",
            "Name the folder that holds them, or pass --download.",
        )

    values = check_labels(read_idx(labels, axes=1), len(classes), str(labels))

    def read(indices: IndexArray | None) -> NDArray[Any]:
        pixels = read_idx(images, axes=3)
        if len(pixels) != len(values):
            raise ContentError(str(images), f"{len(pixels)} images, {len(values)} labels", "Fetch the files again.")
        return (pixels if indices is None else pixels[indices])[:, None]  # (n, 28, 28) -> (n, 1, 28, 28)

    return Source(name, values, classes, read, NORMALISATIONS[name])


def _find(root: str, folder: str, stem: str) -> Path | None:
    places = (Path(root, folder, "raw"), Path(root)) if root else ()
    candidates = (place / f"{stem}{suffix}" for suffix in ("", ".gz") for place in places)
    return next(filter(Path.is_file, candidates), None)


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """Return the array of an idx file of unsigned bytes.

    Args:
        path: The file; ``.gz`` is decompressed on the way.
        axes: How many axes it must have.

    Raises:
        ContentError: It is damaged, or holds something else.
    """
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise ContentError(str(path), f"it cannot be read ({error})", "Fetch the file again.") from error
    header = 4 * (1 + axes)
    shape = tuple(np.frombuffer(data[4:header], dtype=">u4").tolist()) if len(data) >= header else ()
    if data[:4] != bytes([0, 0, UNSIGNED_BYTE, axes]) or len(data) != header + math.prod(shape):
        raise ContentError(str(path), f"not a whole idx file of bytes with {axes} axes", "Fetch the file again.")
    return np.frombuffer(data, dtype=np.uint8, offset=header).reshape(shape)
