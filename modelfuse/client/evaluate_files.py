"""Models' files on one data set: the examples to judge by, and the figures as plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from modelfuse import __version__
from modelfuse.client.checks import require_label_order
from modelfuse.client.data import Dataset, load_data, read_dataset
from modelfuse.client.evaluate import Evaluation, Outcomes, judge
from modelfuse.client.models import load_network
from modelfuse.client.partition import Partition, read_partition
from modelfuse.client.sources.strings import open_source
from modelfuse.errors import ContentError, OptionError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.metadata import metadata_to_json
from modelfuse.types import IndexArray

__all__ = ["EvalSplit", "Examination", "Weighting", "ensemble_weights", "examine", "open_examination"]

EvalSplit: TypeAlias = Literal["train", "test", "validation"]
Weighting: TypeAlias = Literal["uniform", "examples"]


@dataclass(frozen=True, slots=True, eq=False)
class Examination:
    """What models are judged by.

    Args:
        dataset: The examples.
        split: Which they are.
        clients: For each client that has some, its own among them; empty without a partition.
    """

    dataset: Dataset
    split: EvalSplit
    clients: Mapping[int, IndexArray] = field(default_factory=dict)


def open_examination(
    data: str,
    split: EvalSplit,
    partition: Path | None,
    *,
    download: bool = False,
    normalize: str | None = None,
    clients_only: bool = False,
) -> Examination:
    """Load the examples that models are judged by.

    Args:
        data: The data string.
        split: ``test``, ``train``, or ``validation``: what the partition holds out for the server.
        partition: The partition's file; with it every model is also judged on each client's own part of the split.
        download: Fetch the data set if it is not there.
        normalize: What ``--normalize`` says, or None for the data set's own normalisation.
        clients_only: Leave out what belongs to none of the partition's clients (a role that is no client).

    Raises:
        OptionError: The validation split or ``clients_only`` without a partition, or no data set has this name.
        FileError: A file is not there or cannot be read.
        ContentError: The partition is another data set's, or holds nothing out.
    """
    division = None if partition is None else read_partition(partition)
    where = str(partition)
    if clients_only and (division is None or split == "validation"):
        raise OptionError("--clients-only", "nobody says whose the examples are", "Pass a --partition of this split.")
    if split == "validation":
        if division is None:
            raise OptionError("--split validation", "nobody says what is held out", "Pass the --partition.")
        if not division.validation.size:
            raise ContentError(where, "it holds out no examples", "Make it with --server-holdout 500.")
        source = open_source(data, "train", download)
        division.check(len(source.labels), None, where)
        return Examination(read_dataset(source, normalize, division.validation), split)
    if division is None:
        return Examination(load_data(data, split, download, normalize), split)
    source = open_source(data, split, download)
    parts = _parts(division, split, len(source.labels), where)
    if not clients_only:
        return Examination(read_dataset(source, normalize), split, parts)
    ends = np.cumsum([0, *map(len, parts.values())])
    among = {number: np.arange(*span) for number, span in zip(parts, pairwise(ends), strict=True)}
    return Examination(read_dataset(source, normalize, np.concatenate([*parts.values()])), split, among)


def _parts(division: Partition, split: EvalSplit, count: int, where: str) -> dict[int, IndexArray]:
    owned = division.tests if split == "test" else division.clients
    if not owned:
        raise ContentError(where, "it has no clients' test examples", "Leave --partition out, or use --split train.")
    if max((int(indices.max()) for indices in owned if indices.size), default=-1) >= count:
        raise ContentError(where, f"it speaks of more than {count} examples", "Use the data set that it was made for.")
    return {number: indices for number, indices in enumerate(owned) if indices.size}


def ensemble_weights(models: Sequence[Checkpoint], weighting: Weighting) -> list[float]:
    """Return one weight a model for their ensemble.

    Args:
        models: The models' files.
        weighting: ``uniform``, or ``examples``: as many as the model was trained on.

    Raises:
        ContentError: A file does not say how many examples its model was trained on.
    """
    if weighting == "uniform":
        return [1.0] * len(models)
    weights: list[float] = []
    for model in models:
        client = model.metadata.client if model.metadata else None
        if client is None or client.num_examples is None:
            raise ContentError(
                model.label, "it does not say how many examples it was trained on", "Use --ensemble-weights uniform."
            )
        weights.append(float(client.num_examples))
    return weights


def examine(
    models: Sequence[Checkpoint],
    examination: Examination,
    device: torch.device,
    *,
    architecture: str | None = None,
    batch_size: int = 500,
    weights: Sequence[float] | None = None,
    labels: Mapping[str, str] | None = None,
    advance: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Return the figures of models, and of their ensemble, as plain JSON data.

    Args:
        models: The models' files.
        examination: What they are judged by.
        device: Where to compute.
        architecture: What the user typed for files that do not say theirs.
        batch_size: Examples a pass.
        weights: One weight a model for their ensemble; None: no ensemble.
        labels: What the user calls this result.
        advance: Told the number of examples after each pass.

    Raises:
        InputError: A model cannot be loaded, or does not fit the data.
    """
    for model in models:
        require_label_order(model, examination.dataset.classes)
    networks = [load_network(model, architecture, device) for model in models]
    outcomes = judge(networks, examination.dataset, batch_size, weights, advance)
    return {
        "kind": "eval",
        "version": __version__,
        "data": examination.dataset.name,
        "split": examination.split,
        "labels": dict(labels or {}),
        "results": [
            {**_identity(model, name), **_figures(outcome, examination.clients)}
            for model, name, outcome in zip(models, _names(models), outcomes, strict=False)
        ],
        "ensemble": None if weights is None else {"model": "ensemble", **_figures(outcomes[-1], examination.clients)},
    }


def _identity(model: Checkpoint, name: str) -> dict[str, Any]:
    history = [] if model.metadata is None else metadata_to_json(model.metadata).get("history", [])
    client = model.metadata.client if model.metadata else None
    return {"model": name, "model_id": model.model_id(), "client": client and client.id, "history": history}


def _names(models: Sequence[Checkpoint]) -> list[str]:
    """Return the files' names, with their folders where that is needed to tell them apart."""
    paths = [Path(model.label) for model in models]
    names = [path.name for path in paths]
    return [
        name if names.count(name) == 1 else str(Path(path.parent.name) / name)
        for path, name in zip(paths, names, strict=True)
    ]


def _figures(outcomes: Outcomes, clients: Mapping[int, IndexArray]) -> dict[str, Any]:
    evaluation = outcomes.summary()
    per_client = [{"client": number, **_plain(outcomes.summary(indices))} for number, indices in clients.items()]
    per_class = {
        name: {"accuracy": entry.accuracy, "count": entry.count} for name, entry in evaluation.per_class.items()
    }
    return {**_plain(evaluation), "per_class": per_class} | ({"per_client": per_client} if clients else {})


def _plain(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "accuracy": evaluation.accuracy,
        "loss": evaluation.loss if math.isfinite(evaluation.loss) else None,
        "count": evaluation.count,
        "non_finite": evaluation.non_finite,
    }
