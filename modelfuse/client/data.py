"""Data sets as torch tensors: stored as they came, normalised batch by batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from modelfuse.client.sources.source import Normalisation, Source, SplitName, parse_normalisation, usual_normalisation
from modelfuse.client.sources.strings import open_source
from modelfuse.errors import OptionError
from modelfuse.types import IndexArray

__all__ = ["Dataset", "load_data", "read_dataset"]

WHITE = 255.0


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Examples with their labels.

    Args:
        name: What the data set is called, without a path.
        inputs: (N, …) uint8 images (N, C, H, W), float32, or int64 tokens, as stored.
        labels: (N,) int64, or (N, T) for sequences with a label a step.
        classes: The label order.
        normalisation: What :meth:`batch` takes off and divides by, along axis 1.
    """

    name: str
    inputs: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    normalisation: Normalisation

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    def batch(self, indices: Tensor | slice) -> Tensor:
        """Return examples as a network reads them.

        Args:
            indices: Which examples.

        Returns:
            (n, …) float32, normalised; int64 tokens as they are.
        """
        chosen = self.inputs[indices]
        if chosen.dtype == torch.int64:
            return chosen
        white = WHITE if chosen.dtype == torch.uint8 else 1.0
        mean, std = self._constant(self.normalisation.mean), self._constant(self.normalisation.std)
        return chosen.to(torch.float32, copy=True).mul_(1 / (white * std)).sub_(mean / std)

    def black(self) -> Tensor:
        """Return what a black pixel becomes, in a shape that broadcasts over a batch (what a crop pads with)."""
        return -self._constant(self.normalisation.mean) / self._constant(self.normalisation.std)

    def subset(self, indices: IndexArray | Tensor | slice) -> Dataset:
        """Return the examples at the given indices, in that order; a slice copies nothing."""
        if isinstance(indices, slice):
            return replace(self, inputs=self.inputs[indices], labels=self.labels[indices])
        where = torch.as_tensor(indices, dtype=torch.int64, device=self.labels.device)
        return replace(self, inputs=self.inputs[where], labels=self.labels[where])

    def to(self, device: torch.device) -> Dataset:
        """Return the data set with its tensors on a device."""
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device))

    def class_counts(self) -> tuple[int, ...]:
        """Return the number of examples of each class; steps count each for themselves."""
        return tuple(torch.bincount(self.labels.flatten(), minlength=len(self.classes)).tolist())

    def _constant(self, values: tuple[float, ...]) -> Tensor:
        axes = (1,) * (self.inputs.dim() - 2)
        return torch.tensor(values, dtype=torch.float32, device=self.inputs.device).reshape(-1, *axes)  # (C, 1, …)


def load_data(
    text: str,
    split: SplitName,
    download: bool = False,
    normalize: str | None = None,
    indices: IndexArray | None = None,
) -> Dataset:
    """Return a split of the data set that a string names.

    Args:
        text: The data string, such as ``digits`` or ``imagefolder:ROOT``.
        split: ``train`` or ``test``.
        download: Fetch the data set if it is not there.
        normalize: What ``--normalize`` says, or None for the data set's own normalisation.
        indices: Read only these examples, in this order; None: all.

    Raises:
        OptionError: No data set has this name, or the normalisation does not fit its channels.
        FileError: Its files are not there.
        ContentError: Its files cannot be used.
    """
    return read_dataset(open_source(text, split, download), normalize, indices)


def read_dataset(source: Source, normalize: str | None = None, indices: IndexArray | None = None) -> Dataset:
    """Return the examples of an open source; arguments and errors as :func:`load_data`."""
    wanted = None if normalize is None else parse_normalisation(normalize)
    inputs = source.read(indices)
    labels = source.labels if indices is None else source.labels[indices]
    normalisation = wanted or source.normalisation or usual_normalisation(inputs)
    channels = inputs.shape[1]
    if len(normalisation.mean) not in (1, channels) or len(normalisation.std) != len(normalisation.mean):
        raise OptionError(
            "--normalize", f"{len(normalisation.mean)} numbers for {channels} channels", "Give one a channel, or one."
        )
    stored = np.ascontiguousarray(inputs)
    tensor = torch.from_numpy(stored if stored.flags.writeable else stored.copy())
    return Dataset(source.name, tensor, torch.from_numpy(labels.copy()), source.classes, normalisation)
