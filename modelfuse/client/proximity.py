"""FedProto's local objective: cross-entropy, and a pull of each embedding towards its class's global prototype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from modelfuse.client.embedding import Embedding
from modelfuse.client.prototypes import ClassSums
from modelfuse.errors import ContentError
from modelfuse.files.prototypes import Prototypes

__all__ = ["Denominator", "Distance", "PrototypeObjective", "Pull", "TrainingPass"]

Distance: TypeAlias = Literal["mse", "l2", "l1"]
Denominator: TypeAlias = Literal["all", "covered"]


class Pull:
    """The regulariser λ L_R of a batch; a class without a global prototype adds no term.

    Args:
        prototypes: The global prototypes.
        num_classes: C.
        weight: λ, at least 0.
        distance: Of an embedding h to its class's prototype c. ``mse``: ‖h − c‖² / d (the authors' code, which the
            published λ belong to); ``l2``: ‖h − c‖; ``l1``: the sum of the absolute differences.
        denominator: What the sum over the batch is divided by: ``all`` its examples (the authors' code, where λ in
            effect falls with the share of examples whose class has no prototype), ``covered``: those that have one.
        names: The file of the prototypes and that of the model, for messages.

    Source: FedProto eq. 7 and app. B, sample by sample.
    """

    def __init__(
        self,
        prototypes: Prototypes,
        num_classes: int,
        weight: float = 1.0,
        distance: Distance = "mse",
        denominator: Denominator = "all",
        names: tuple[str, str] = ("the prototypes", "the model"),
    ) -> None:
        table = prototypes.table(num_classes)  # (C, d)
        self._covered = torch.from_numpy(~np.isnan(table).any(1)) if prototypes.width else torch.zeros(num_classes) > 0
        self._targets = torch.from_numpy(np.nan_to_num(table).astype(np.float32))
        self._weight, self._distance, self._denominator, self._names = weight, distance, denominator, names

    def __call__(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Return λ L_R.

        Args:
            vectors: (n, d) embeddings.
            labels: (n,) their classes.

        Raises:
            ContentError: The embeddings are of another width than the prototypes.
        """
        if vectors.shape[1] != self._targets.shape[1]:
            raise ContentError(
                self._names[1],
                f"its embedding has {vectors.shape[1]} entries, the prototypes of {self._names[0]} "
                f"{self._targets.shape[1]}",
                "Clients may differ in everything before the embedding, not in its width.",
            )
        if self._targets.device != vectors.device:
            self._targets, self._covered = self._targets.to(vectors.device), self._covered.to(vectors.device)
        covered = self._covered[labels].to(vectors.dtype)  # (n,): 1 where the class has a prototype
        difference = (vectors - self._targets[labels]) * covered[:, None]  # (n, d)
        match self._distance:
            case "mse":
                distances = difference.square().mean(1)
            case "l2":
                distances = torch.linalg.vector_norm(difference, dim=1)  # its gradient at 0 is 0
            case _:
                distances = difference.abs().sum(1)
        terms = covered.sum().clamp(min=1) if self._denominator == "covered" else len(vectors)
        return self._weight * distances.sum() / terms


class TrainingPass:
    """Collects the embeddings that training meets, epoch by epoch, for prototypes as the authors' code makes them.

    They come from a network that changes from step to step, with dropout on: not eq. 3, which ``modelfuse prototypes``
    computes.

    Args:
        num_classes: C.
        num_examples: Examples an epoch: when more are met, a new epoch begins and what was collected is forgotten.

    Source: FedProto's code, lib/update.py.
    """

    def __init__(self, num_classes: int, num_examples: int) -> None:
        self._num_classes, self._num_examples = num_classes, num_examples
        self._sums, self._met = ClassSums(num_classes), 0

    def add(self, vectors: Tensor, labels: Tensor) -> None:
        """Count a batch in; arguments as :meth:`ClassSums.add`."""
        if self._met == self._num_examples:
            self._sums, self._met = ClassSums(self._num_classes), 0
        self._sums.add(vectors, labels)
        self._met += len(labels)

    def prototypes(self) -> Prototypes:
        """Return the mean embedding of each class over the last epoch."""
        return self._sums.prototypes()


@dataclass(frozen=True, slots=True, eq=False)
class PrototypeObjective:
    """The loss of a batch, L_S + λ L_R, from one forward pass.

    Args:
        embedding: Which layer's outputs are meant.
        pull: λ L_R, or None for plain training (round 1 has no global prototypes).
        training_pass: Collects the embeddings, or None.

    Source: FedProto eq. 7.
    """

    embedding: Embedding
    pull: Pull | None = None
    training_pass: TrainingPass | None = None

    def __call__(self, network: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        logits, vectors = self.embedding.run(network, inputs)
        vectors = vectors.float()
        if self.training_pass is not None:
            self.training_pass.add(vectors, labels)
        loss = functional.cross_entropy(logits.float(), labels)
        return loss if self.pull is None else loss + self.pull(vectors, labels)
