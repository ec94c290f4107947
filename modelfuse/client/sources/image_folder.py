"""``imagefolder:ROOT``: ``ROOT/{train,test}/CLASS/*.jpg``, in the order of torchvision's ImageFolder."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from modelfuse.client.sources.source import Source, SplitName
from modelfuse.errors import ContentError, FileError
from modelfuse.types import IndexArray

__all__ = ["open_image_folder"]

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # as torchvision's
CHUNK = 512  # images that one thread decodes before it asks for more


def open_image_folder(argument: str, split: SplitName, download: bool) -> Source:  # noqa: ARG001
    """Return a split of a folder of images; labels come from the folders' names, without opening an image.

    Args:
        argument: The folder that holds ``train/`` and ``test/``, each with one folder a class.
        split: ``train`` or ``test``.
        download: Ignored: there is nowhere to fetch from.

    Raises:
        FileError: A folder is missing or holds no class.
        ContentError: A class has no image.
    """
    root = Path(argument)
    folder = root / split
    if not argument or not folder.is_dir():
        raise FileError(
            f"--data imagefolder:{argument}",
            f"there is no folder {split}/ in it",
            "Name a folder that holds train/ and test/, each with one folder a class.",
        )
    classes = _classes(folder)
    other = root / ("test" if split == "train" else "train")
    if other.is_dir() and _classes(other) != classes:
        raise ContentError(argument, "train/ and test/ hold other classes", "Give both the same folders.")
    files: list[str] = []
    counts: list[int] = []
    for name in classes:
        members = _images(folder / name)
        if not members:
            raise ContentError(str(folder / name), "it holds no image", f"Put images here ({', '.join(SUFFIXES)}).")
        files += members
        counts.append(len(members))

    def read(indices: IndexArray | None) -> NDArray[Any]:
        return _decode(files if indices is None else [files[index] for index in indices])

    labels = np.repeat(np.arange(len(classes), dtype=np.int64), counts)
    return Source(root.resolve().name, labels, tuple(classes), read)


def _classes(folder: Path) -> list[str]:
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not names:
        raise FileError(str(folder), "it holds no folder of a class", "Put each class's images into its own folder.")
    return names


def _images(folder: Path) -> list[str]:
    return [
        os.path.join(place, name)  # noqa: PTH118  (60,000 Path objects cost a third of a second)
        for place, _, names in sorted(os.walk(folder, followlinks=True))
        for name in sorted(names)
        if name.lower().endswith(SUFFIXES)
    ]


def _decode(files: list[str]) -> NDArray[np.uint8]:
    if not files:
        return np.empty((0, 3, 1, 1), dtype=np.uint8)
    first = _pixels(files[0], None)
    images = np.empty((len(files), *first.shape), dtype=np.uint8)  # (n, H, W, C)

    def fill(start: int) -> None:
        for number, file in enumerate(files[start : start + CHUNK], start):
            images[number] = _pixels(file, first.shape)

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:  # decoding releases the interpreter lock
        list(threads.map(fill, range(0, len(files), CHUNK)))
    channels_first: NDArray[np.uint8] = images.transpose(0, 3, 1, 2)  # (n, H, W, C) -> (n, C, H, W), a view
    return channels_first


def _pixels(file: str, shape: tuple[int, ...] | None) -> NDArray[np.uint8]:
    """Return one image, (H, W, C); the first one decides the size, and whether all are grey or in colour."""
    try:
        with Image.open(file) as image:
            grey = image.mode in ("1", "L") if shape is None else shape[-1] == 1
            pixels = np.array(image.convert("L" if grey else "RGB"), dtype=np.uint8)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ContentError(file, "it cannot be decoded as an image", "Replace or remove it.") from error
    height, width = pixels.shape[:2]
    pixels = pixels.reshape(height, width, 1 if grey else 3)  # (H, W) -> (H, W, 1)
    if shape is not None and pixels.shape != shape:
        raise ContentError(
            file,
            f"it has {width}×{height} pixels and the first image {shape[1]}×{shape[0]}",
            "Bring all images to one size first.",
        )
    return pixels
