"""Data strings: the table of what there is, and the way from a string to a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from modelfuse.client.sources.arrays import open_npz, open_python
from modelfuse.client.sources.digits import open_digits
from modelfuse.client.sources.idx import open_fashion_mnist, open_mnist
from modelfuse.client.sources.image_folder import open_image_folder
from modelfuse.client.sources.shakespeare import open_shakespeare
from modelfuse.client.sources.source import Source, SplitName
from modelfuse.client.sources.synthetic import open_synthetic
from modelfuse.client.sources.torchvision_sets import open_cifar10, open_cifar100, open_svhn
from modelfuse.errors import OptionError

__all__ = ["SOURCES", "data_files", "is_synthetic", "open_inputs", "open_source"]

SOURCES: Mapping[str, tuple[str, Callable[[str, SplitName, bool], Source]]] = {
    "digits": ("digits", open_digits),
    "mnist": ("mnist:ROOT", open_mnist),
    "fashion-mnist": ("fashion-mnist:ROOT", open_fashion_mnist),
    "cifar10": ("cifar10:ROOT", open_cifar10),
    "cifar100": ("cifar100:ROOT", open_cifar100),
    "svhn": ("svhn:ROOT", open_svhn),
    "imagefolder": ("imagefolder:ROOT", open_image_folder),
    "shakespeare": ("shakespeare:FOLDER", open_shakespeare),
    "npz": ("npz:FILE", open_npz),
    "python": ("python:PKG.MOD:FACTORY", open_python),
}
"""What a data string may begin with: its form, and the function that opens it (argument, split, download)."""

SYNTHETIC = "synthetic"
"""What a data string of images without labels begins with."""


def data_files(text: str) -> list[Path]:
    """Return the files that a data string names, which no output may replace: one for ``npz:FILE``, else none."""
    kind, _, argument = text.partition(":")
    return [Path(argument)] if kind == "npz" and argument else []


def is_synthetic(text: str) -> bool:
    """Return whether a data string names images of nobody."""
    return text.partition(":")[0] == SYNTHETIC


def open_inputs(text: str, split: SplitName, download: bool = False) -> Source:
    """Return the source that a string names, for whoever looks at inputs only: it may have no labels.

    Args:
        text: A data string as :func:`open_source` reads it, or ``synthetic:CxHxW``, which is one split.
        split: ``train`` or ``test``.
        download: Fetch the data set if it is not there.

    Raises:
        InputError: As :func:`open_source`.
    """
    kind, _, argument = text.partition(":")
    if kind == "npz":
        return open_npz(argument, split, download, labelled=False)
    return open_synthetic(argument) if is_synthetic(text) else open_source(text, split, download)


def open_source(text: str, split: SplitName, download: bool = False) -> Source:
    """Return the split of the data set that a string names, its labels read and its inputs not yet.

    Args:
        text: The data string, such as ``digits`` or ``mnist:ROOT``.
        split: ``train`` or ``test``.
        download: Fetch the data set if it is not there.

    Raises:
        OptionError: No data set has this name.
        FileError: Its files are not there.
        ContentError: Its files cannot be used.
    """
    kind, _, argument = text.partition(":")
    if kind == SYNTHETIC:
        raise OptionError(f"--data {text}", "the images have no labels", "Only distill takes them.")
    if kind not in SOURCES:
        forms = ", ".join(form for form, _ in SOURCES.values())
        raise OptionError("--data", f"no data set is called {kind!r}", f"There are {forms}.")
    return SOURCES[kind][1](argument, split, download)
