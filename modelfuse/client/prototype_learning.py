"""What ``train-client`` is told about prototypes, and the loss and the file that follow for each client."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from modelfuse.client.data import Dataset
from modelfuse.client.embedding import Embedding
from modelfuse.client.proximity import Denominator, Distance, PrototypeObjective, Pull, TrainingPass
from modelfuse.client.train import Objective, cross_entropy
from modelfuse.errors import OptionError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.prototypes import check_classes, read_prototypes
from modelfuse.files.writer import save
from modelfuse.types import Metadata

__all__ = ["PrototypeLearning", "TrainingPassFile", "prototypes_path"]


@dataclass(frozen=True, slots=True)
class PrototypeLearning:
    """FedProto's part of a client's recipe.

    Args:
        prototypes: The open file of the global prototypes; None: train plainly, as in round 1.
        weight: λ, at least 0.
        distance: As :class:`~modelfuse.client.proximity.Pull`.
        denominator: As :class:`~modelfuse.client.proximity.Pull`.
        embedding: Which layer's outputs are the embedding.

    Raises:
        OptionError: λ is out of range.
    """

    prototypes: Checkpoint | None = None
    weight: float = 1.0
    distance: Distance = "mse"
    denominator: Denominator = "all"
    embedding: Embedding = field(default_factory=Embedding)

    def __post_init__(self) -> None:
        """Check λ."""
        if not 0 <= self.weight < math.inf:
            raise OptionError("--proto-weight", f"{self.weight} is out of range", "λ is at least 0; FedProto has 1.")

    def said(self) -> dict[str, Any]:
        """Return the settings that decide a client's result, for its history."""
        if self.prototypes is None:
            return {}
        where = {"embedding": self.embedding.module, "pooling": self.embedding.pooling}
        return {
            "proto_weight": self.weight,
            "proto_distance": self.distance,
            "proto_denominator": self.denominator,
            **{key: value for key, value in where.items() if value is not None},
        }

    def inputs(self) -> tuple[str, ...]:
        """Return the identity of the global prototypes, if there are any."""
        return () if self.prototypes is None else (self.prototypes.model_id(),)

    def objective(self, dataset: Dataset, model: str, training_pass: TrainingPass | None) -> Objective:
        """Return one client's loss.

        Args:
            dataset: Its examples.
            model: The file that it starts from, for messages.
            training_pass: Collects the embeddings that training meets, or None.

        Raises:
            ContentError: The prototypes cannot be used, or belong to another label order.
        """
        if self.prototypes is None:
            return cross_entropy if training_pass is None else PrototypeObjective(self.embedding, None, training_pass)
        check_classes(self.prototypes, dataset.classes, "the data")
        pull = Pull(
            read_prototypes(self.prototypes),
            len(dataset.classes),
            self.weight,
            self.distance,
            self.denominator,
            (self.prototypes.label, model),
        )
        return PrototypeObjective(self.embedding, pull, training_pass)

    def uncovered(self, dataset: Dataset) -> bool:
        """Return whether there are prototypes, and none of the client's classes has one."""
        if self.prototypes is None:
            return False
        present = read_prototypes(self.prototypes).classes
        return not np.asarray(dataset.class_counts())[present].any()


def prototypes_path(output: Path, client: int, together: bool) -> Path:
    """Return where a client's prototypes go: the output itself, or a file in that folder."""
    return output / f"prototypes_{client}.safetensors" if together else output


@dataclass(frozen=True, slots=True, eq=False)
class TrainingPassFile:
    """The prototypes of the last training epoch, and where they are written with the model.

    Args:
        training_pass: What training collects.
        path: The file.
        metadata: What it says of itself, except for the model's identity.
    """

    training_pass: TrainingPass
    path: Path
    metadata: Metadata

    def write(self, model_id: str) -> None:
        """Write the file.

        Args:
            model_id: The trained model's.
        """
        prototypes = self.training_pass.prototypes()
        metadata = Metadata(
            "prototypes",
            self.metadata.architecture,
            client=self.metadata.client,
            model_id=model_id,
            history=self.metadata.history,
            details={"from": "training-pass"},
        )
        save(self.path, prototypes.tensors(), metadata)
