"""Prototypes as files: one a client, and all clients' embeddings in one file to draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from modelfuse import __version__
from modelfuse.client.checks import require_label_order
from modelfuse.client.data import Dataset
from modelfuse.client.embedding import Embedding
from modelfuse.client.local import client_info
from modelfuse.client.models import load_network
from modelfuse.client.prototypes import Embedded, embed, local_prototypes
from modelfuse.errors import ContentError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.metadata import extended
from modelfuse.files.prototypes import Prototypes
from modelfuse.files.writer import save
from modelfuse.types import ClientInfo, Metadata, Step

__all__ = ["Extracted", "Extraction", "extract", "write_embeddings"]


@dataclass(frozen=True, slots=True)
class Extraction:
    """How prototypes are computed.

    Args:
        embedding: Which layer's outputs are meant.
        batch_size: Examples a pass.
        device: Where to compute.
        architecture: What the user typed for files that do not say theirs, or None.
    """

    embedding: Embedding
    batch_size: int
    device: torch.device
    architecture: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Extracted:
    """One client's part of the work.

    Args:
        model: The model's file.
        client: Its number, or None.
        classes: The label order.
        embedded: Every example's embedding.
        prototypes: Their means.
    """

    model: Checkpoint
    client: int | None
    classes: tuple[str, ...]
    embedded: Embedded
    prototypes: Prototypes


def extract(
    model: Checkpoint,
    dataset: Dataset,
    client: int | None,
    output: Path,
    extraction: Extraction,
    advance: Callable[[int], None] | None = None,
) -> Extracted:
    """Compute one client's prototypes and write them.

    Args:
        model: The model's file.
        dataset: The client's examples.
        client: The client's number, or None.
        output: The file to write.
        extraction: How to compute them.
        advance: Told the number of examples after each pass.

    Raises:
        InputError: The model cannot be loaded, does not fit the data, or the file cannot be written.
    """
    require_label_order(model, dataset.classes)
    network = load_network(model, extraction.architecture, extraction.device)
    embedded = embed(network, dataset, extraction.embedding, extraction.batch_size, advance)
    found = local_prototypes(embedded, len(dataset.classes))
    known = model.metadata or Metadata("model")
    said = {
        "from": "eval",
        "data": dataset.name,
        "client": client,
        "embedding": extraction.embedding.module,
        "pooling": extraction.embedding.pooling,
    }
    options = {key: value for key, value in said.items() if value is not None}
    metadata = Metadata(
        "prototypes",
        extraction.architecture or known.architecture,
        client=client_info(dataset, client),
        model_id=model.model_id(),
        history=extended(known.history, Step("prototypes", __version__, options, (model.model_id(),))),
        details={"from": "eval"},
    )
    save(output, found.tensors(), metadata)
    return Extracted(model, client, dataset.classes, embedded, found)


def write_embeddings(output: Path, parts: Sequence[Extracted]) -> None:
    """Write the embeddings of all clients' examples: ``embeddings`` (N, d), ``labels`` (N,), ``clients`` (N,).

    Args:
        output: The file.
        parts: The clients.

    Raises:
        ContentError: Two clients' embeddings are of unlike widths.
    """
    for part in parts:
        if part.prototypes.width != parts[0].prototypes.width:
            raise ContentError(
                part.model.label,
                f"its embedding has {part.prototypes.width} entries, that of {parts[0].model.label} "
                f"{parts[0].prototypes.width}",
                "Draw clients of one width together.",
            )
    owners = [
        np.full(len(part.embedded.labels), place if part.client is None else part.client, np.int64)
        for place, part in enumerate(parts)
    ]
    tensors = {
        "embeddings": np.concatenate([part.embedded.vectors.numpy().astype(np.float32) for part in parts]),
        "labels": np.concatenate([part.embedded.labels.numpy() for part in parts]),
        "clients": np.concatenate(owners),
    }
    inputs = tuple(part.model.model_id() for part in parts)
    step = Step("prototypes", __version__, {"embeddings": True}, inputs)
    save(output, tensors, Metadata("embeddings", client=ClientInfo(classes=parts[0].classes), history=(step,)))
