"""Scoring merge candidates on the server's hold-out; the only part of a merge that needs torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from modelfuse.cli.selection import Validation
from modelfuse.client.data import Dataset, load_data
from modelfuse.client.device import pick_device
from modelfuse.client.evaluate import evaluate
from modelfuse.client.models import build, load_tensors
from modelfuse.client.normalisation import normalisation_of
from modelfuse.client.partition import read_partition
from modelfuse.errors import ContentError, OptionError
from modelfuse.files.checkpoint import Checkpoint
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
    def prepare(cls, validation: Validation, models: Sequence[Checkpoint] = ()) -> Judge:
        """Load the hold-out of a partition.

        Args:
            validation: Which data, which partition, and where to evaluate.
            models: The clients' models, which may say how their data was normalised.

        Raises:
            ContentError: The partition holds nothing out.
        """
        held = read_partition(validation.partition).validation
        if held is None or not len(held):
            raise ContentError(
                str(validation.partition), "it holds out no examples", "Make it with --server-holdout 500."
            )
        white = normalisation_of(models, validation.normalize)
        data = load_data(validation.data, "train", download=validation.download, normalize=white, indices=held)
        return cls(data, pick_device(validation.device))

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
        shapes = {name: tensor.layout.shape for name, tensor in merged.tensors.items()}
        tensors = {
            name: np.concatenate(list(tensor.chunks()), axis=None).reshape(shapes[name])
            for name, tensor in merged.tensors.items()
        }
        network = build(parse_architecture(architecture).resized(shapes))
        load_tensors(network, tensors, "the merge")
        return float(evaluate(network.to(self.device), self.holdout).accuracy)
