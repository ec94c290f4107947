"""Personalised accuracy: each client's own model on the client's own test examples, counted client by client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from modelfuse import __version__
from modelfuse.client.checks import require_label_order, require_outputs
from modelfuse.client.data import Dataset
from modelfuse.client.embedding import Embedding
from modelfuse.client.models import load_network
from modelfuse.client.prototypes import embed, nearest
from modelfuse.errors import ContentError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.metadata import metadata_to_json
from modelfuse.files.prototypes import check_classes, read_prototypes

__all__ = ["ProtoClasses", "Yardstick", "document_of", "judge_clients"]

ProtoClasses: TypeAlias = Literal["local", "all"]


@dataclass(frozen=True, slots=True)
class Yardstick:
    """How clients are judged.

    Args:
        device: Where to compute.
        prototypes: The open file of prototypes to classify by as well, or None.
        classes: Which prototypes count for a client: ``local``: those of the classes it was trained on (the authors'
            code), ``all``: every one there is.
        embedding: Which layer's outputs are the embedding.
        architecture: What the user typed for files that do not say theirs, or None.
        batch_size: Examples a pass.
    """

    device: torch.device
    prototypes: Checkpoint | None = None
    classes: ProtoClasses = "local"
    embedding: Embedding = field(default_factory=Embedding)
    architecture: str | None = None
    batch_size: int = 500


def judge_clients(
    models: Mapping[int, Checkpoint],
    tests: Mapping[int, Dataset],
    known: Mapping[int, Sequence[int]],
    yardstick: Yardstick,
    advance: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Return what each client's model makes of the client's own test examples.

    The authors' code adds right answers and examples up over clients, and over its two ways of classifying, without
    ever starting anew: what it prints for a client is the mean over all clients up to it, whose spread is far smaller
    than that of clients. Here every client is counted by itself.

    Args:
        models: Each client's model; one model may be everybody's.
        tests: Each client's test examples.
        known: The classes that each client was trained on.
        yardstick: How to judge.
        advance: Told the number of examples after each pass.

    Returns:
        For each client ``client``, ``model``, ``model_id``, ``count``, ``classifier`` (accuracy in [0, 1]) and, with
        prototypes, ``prototypes`` (accuracy by the nearest one; None where none counts for the client).

    Raises:
        InputError: A model cannot be loaded, does not fit the data, or has another embedding than the prototypes.

    Source: FedProto eq. 4; its code's ``test_inference_new_het_lt``.
    """
    return [_judge(number, models[number], tests[number], known[number], yardstick, advance) for number in models]


def _judge(
    number: int,
    model: Checkpoint,
    tests: Dataset,
    known: Sequence[int],
    yardstick: Yardstick,
    advance: Callable[[int], None] | None,
) -> dict[str, Any]:
    require_label_order(model, tests.classes)
    network = load_network(model, yardstick.architecture, yardstick.device)
    embedded = embed(network, tests, yardstick.embedding, yardstick.batch_size, advance)
    require_outputs(embedded.logits, len(tests.classes))
    right = embedded.logits.argmax(1) == embedded.labels
    row = {"client": number, "model": Path(model.label).name, "model_id": model.model_id(), "count": len(tests)}
    row["classifier"] = float(right.double().mean())
    if yardstick.prototypes is None:
        return row
    check_classes(yardstick.prototypes, tests.classes, "the data")
    found = read_prototypes(yardstick.prototypes)
    if found.width != embedded.vectors.shape[1]:
        raise ContentError(
            model.label,
            f"its embedding has {embedded.vectors.shape[1]} entries, the prototypes of {yardstick.prototypes.label} "
            f"{found.width}",
            "Clients may differ in everything before the embedding, not in its width.",
        )
    usable = found.only(known) if yardstick.classes == "local" else found
    row["prototypes"] = None
    if len(usable.classes):
        guessed = nearest(embedded.vectors, usable)
        row["prototypes"] = float((guessed == embedded.labels).double().mean())
    return row


def document_of(
    rows: Sequence[Mapping[str, Any]],
    tests: Mapping[int, Dataset],
    models: Mapping[int, Checkpoint],
    split: str,
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """Return the figures of :func:`judge_clients` as an eval document: one result a way of classifying.

    A result's ``accuracy`` is the mean over clients, each counting alike, and ``accuracy_std`` the standard deviation
    over them (divided by their number, as numpy has it); ``per_client`` holds what they are made of.

    Args:
        rows: One row a client.
        tests: Each client's test examples.
        models: Each client's model.
        split: Which examples they are.
        labels: What the user calls this result.
    """
    first = next(iter(models.values()))
    history = [] if first.metadata is None else metadata_to_json(first.metadata).get("history", [])
    results = []
    for way, name in (("classifier", "classifier"), ("prototypes", "nearest prototype")):
        counted = [row for row in rows if row.get(way) is not None]
        if not counted:
            continue
        accuracies = np.array([row[way] for row in counted])
        results.append(
            {
                "model": name,
                "accuracy": float(accuracies.mean()),
                "accuracy_std": float(accuracies.std()),
                "count": sum(row["count"] for row in counted),
                "per_client": [
                    {key: row[key] for key in ("client", "model", "model_id", "count")} | {"accuracy": row[way]}
                    for row in counted
                ],
                "history": history,
            }
        )
    return {
        "kind": "eval",
        "version": __version__,
        "data": next(iter(tests.values())).name,
        "split": split,
        "labels": dict(labels),
        "results": results,
        "ensemble": None,
    }
