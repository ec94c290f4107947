"""A client's prototypes: the mean embedding of each class it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from modelfuse.client.data import Dataset
from modelfuse.client.embedding import Embedding
from modelfuse.errors import ContentError
from modelfuse.files.prototypes import Prototypes
from modelfuse.types import FloatArray

__all__ = ["ClassSums", "Embedded", "embed", "local_prototypes", "nearest"]


class ClassSums:
    """Sums of embeddings, class by class, in float64.

    Args:
        num_classes: C.
    """

    def __init__(self, num_classes: int) -> None:
        self._sums: FloatArray | None = None  # (C, d), once d is known
        self._counts = np.zeros(num_classes, dtype=np.intp)

    def add(self, vectors: Tensor, labels: Tensor) -> None:
        """Count examples in.

        Args:
            vectors: (n, d) embeddings.
            labels: (n,) their classes.
        """
        wide, owners = vectors.detach().cpu().double().numpy(), labels.cpu().numpy()
        if self._sums is None:
            self._sums = np.zeros((len(self._counts), wide.shape[1]))
        for number in np.unique(owners):
            self._sums[number] += wide[owners == number].sum(0)
        self._counts += np.bincount(owners, minlength=len(self._counts))

    def prototypes(self) -> Prototypes:
        """Return the mean embedding of every class that was met; the other classes are absent.

        Raises:
            ContentError: There were no examples, or an embedding is not finite.

        Source: FedProto eq. 3.
        """
        if self._sums is None:
            raise ContentError("--data", "there are no examples to embed", "Choose clients that have some.")
        present = np.flatnonzero(self._counts)
        vectors = self._sums[present] / self._counts[present, None]
        if not np.isfinite(vectors).all():
            raise ContentError("--data", "an embedding is NaN or infinite", "Train the model at a lower learning rate.")
        return Prototypes(vectors, present, self._counts[present])


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """What a network made of a data set, in its order.

    Args:
        vectors: (N, d) embeddings.
        labels: (N,).
        logits: (N, C).
    """

    vectors: Tensor
    labels: Tensor
    logits: Tensor


def embed(
    network: nn.Module,
    dataset: Dataset,
    embedding: Embedding,
    batch_size: int = 500,
    advance: Callable[[int], None] | None = None,
) -> Embedded:
    """Return the embeddings and logits of a data set, in evaluation mode.

    Args:
        network: The network; the data goes to its device.
        dataset: At least one example, one label each.
        embedding: Which layer's outputs are meant.
        batch_size: Examples a pass.
        advance: Told the number of examples after each pass.

    Raises:
        ContentError: There are no examples, or they are labelled step by step.
        OptionError: As :meth:`~modelfuse.client.embedding.Embedding.run`.
    """
    if not len(dataset):
        raise ContentError("--data", "there are no examples to embed", "Choose clients that have some.")
    if dataset.labels.dim() != 1:
        raise ContentError("--data", "its examples have a label at each step", "Prototypes need one label an example.")
    dataset = dataset.to(next(network.parameters()).device)
    network.eval()
    parts: list[tuple[Tensor, Tensor]] = []
    with torch.inference_mode():
        for start in range(0, len(dataset), batch_size):
            inputs = dataset.batch(slice(start, start + batch_size))
            if inputs.dim() == 4:
                inputs = inputs.contiguous(memory_format=torch.channels_last)
            logits, vectors = embedding.run(network, inputs)
            parts.append((logits.cpu(), vectors.cpu()))
            if advance is not None:
                advance(len(inputs))
    logits, vectors = (torch.cat(each) for each in zip(*parts, strict=True))
    return Embedded(vectors, dataset.labels.cpu(), logits)


def local_prototypes(embedded: Embedded, num_classes: int) -> Prototypes:
    """Return the prototypes of embedded examples.

    Args:
        embedded: Embeddings with their labels.
        num_classes: C.

    Source: FedProto eq. 3.
    """
    sums = ClassSums(num_classes)
    sums.add(embedded.vectors, embedded.labels)
    return sums.prototypes()


def nearest(vectors: Tensor, prototypes: Prototypes) -> Tensor:
    """Return the class of the nearest prototype of each embedding, in Euclidean distance.

    Args:
        vectors: (n, d) embeddings.
        prototypes: At least one, of the same width.

    Returns:
        (n,) classes; of prototypes at the same distance, the lower class.

    Source: FedProto eq. 4.
    """
    centres = torch.from_numpy(prototypes.vectors)  # (P, d) float64
    distances = torch.cdist(vectors.double(), centres, compute_mode="donot_use_mm_for_euclid_dist")  # (n, P)
    return torch.from_numpy(prototypes.classes)[distances.argmin(1)]
