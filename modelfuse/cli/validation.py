"""Scoring merge candidates on the server's hold-out; the only part of a merge that needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from modelfuse.client.data import Dataset, load_data
from modelfuse.client.device import pick_device
from modelfuse.client.evaluate import evaluate
from modelfuse.client.models import build, load_tensors
from modelfuse.client.partition import read_partition
from modelfuse.errors import ContentError, OptionError
from modelfuse.methods.contract import Merged
from modelfuse.spec.architectures import parse_architecture

__all__ = ["Judge"]


@dataclass(frozen=True, slots=True)
class Judge:
    """Tells how well a merge does on examples that no client has.

    Args:
        holdout: The server's validation examples.
        device: Where to evaluate.
    """

    holdout: Dataset
    device: torch.device

    @classmethod
    def prepare(cls, data: str, partition: Path, device: str, download: bool) -> Judge:
        """Load the hold-out of a partition.

        Args:
            data: The data string.
            partition: The partition's file.
            device: The name of the device.
            download: Fetch the data if it is missing.

        Raises:
            ContentError: The partition holds nothing out.
        """
        split = read_partition(partition)
        if split.validation is None or not len(split.validation):
            raise ContentError(str(partition), "it holds out no examples", "Make it with --server-holdout 500.")
        return cls(load_data(data, "train", download=download).subset(split.validation), pick_device(device))

    def accuracy(self, merged: Merged, architecture: str | None) -> float:
        """Return the accuracy of a merge in [0, 1].

        Args:
            merged: The merge.
            architecture: The clients' architecture string.

        Raises:
            OptionError: The architecture is not known.
        """
        if architecture is None:
            raise OptionError(
                "--validate",
                "the files do not say which network they are",
                "Pass the --architecture it was trained with.",
            )
        tensors = {
            name: np.concatenate(list(tensor.chunks())).reshape(tensor.layout.shape)
            if tensor.layout.shape
            else np.concatenate(list(tensor.chunks())).reshape(())
            for name, tensor in merged.tensors.items()
        }
        shapes = {name: tensor.layout.shape for name, tensor in merged.tensors.items()}
        network = build(parse_architecture(architecture).resized(shapes))
        load_tensors(network, tensors, "the merge")
        return float(evaluate(network.to(self.device), self.holdout).accuracy)
