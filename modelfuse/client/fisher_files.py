"""Fishers as files: which model belongs to which client, and one file a client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from modelfuse import __version__
from modelfuse.client.checks import require_label_order
from modelfuse.client.data import Dataset
from modelfuse.client.fisher import Estimator, diagonal_fisher
from modelfuse.client.local import client_info
from modelfuse.client.models import load_network
from modelfuse.errors import OptionError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.metadata import extended
from modelfuse.files.writer import save
from modelfuse.types import Metadata, Step

__all__ = ["FisherRun", "clients_of", "pair", "write_fisher"]


@dataclass(frozen=True, slots=True)
class FisherRun:
    """How Fishers are computed.

    Args:
        estimator: ``empirical`` or ``true``.
        batch_size: Examples a pass.
        device: Where to compute.
        architecture: What the user typed for files that do not say theirs, or None.
        bits: 16 or 8 to quantise the files, or None.
    """

    estimator: Estimator
    batch_size: int
    device: torch.device
    architecture: str | None = None
    bits: int | None = None


def clients_of(models: Sequence[Checkpoint], text: str | None) -> str | None:
    """Return what ``--client`` stands for: the models' own clients, where it says nothing or ``all`` and they know.

    Args:
        models: The models given.
        text: What the user typed, or None.

    Raises:
        OptionError: Two models are of the same client.
    """
    numbers = [_client_of(model) for model in models]
    if text not in (None, "all") or None in numbers or (text == "all" and len(models) == 1):
        return text
    _require_distinct(models, numbers)
    return ",".join(map(str, numbers))


def pair(models: Sequence[Checkpoint], clients: Sequence[int]) -> dict[int, Checkpoint]:
    """Return each client's model: a single one is everybody's, several go by the client they name, else by position.

    Args:
        models: The models given.
        clients: The clients' numbers, in the order given.

    Raises:
        OptionError: Models and clients are not equally many, or the models are of other clients.
    """
    if len(models) == 1:
        return dict.fromkeys(clients, models[0])
    if len(models) != len(clients):
        raise OptionError(
            "--client", f"{len(models)} models for {len(clients)} clients", "Give one model, or one for each client."
        )
    numbers = [_client_of(model) for model in models]
    if all(number is None for number in numbers):
        return dict(zip(clients, models, strict=True))
    _require_distinct(models, numbers)
    for model, number in zip(models, numbers, strict=True):
        if number not in clients:
            stated = "of no client" if number is None else f"client {number}'s"
            raise OptionError(
                model.label, f"the model is {stated}", "Choose its client with --client, or leave it out."
            )
    return {number: model for number, model in zip(numbers, models, strict=True) if number is not None}


def write_fisher(
    model: Checkpoint,
    dataset: Dataset,
    client: int | None,
    output: Path,
    run: FisherRun,
    advance: Callable[[int], None] | None = None,
) -> None:
    """Compute one model's Fisher on one client's examples and write it.

    Args:
        model: The model's file.
        dataset: The client's examples.
        client: The client's number, or None.
        output: The file to write; it appears whole.
        run: How to compute it.
        advance: Told the number of examples after each pass.

    Raises:
        InputError: The model cannot be loaded, does not fit the data, or the file cannot be written.
    """
    require_label_order(model, dataset.classes)
    network = load_network(model, run.architecture, run.device)
    fisher = diagonal_fisher(network, dataset, run.batch_size, run.estimator, advance)
    known = model.metadata or Metadata("model")
    said = {"estimator": run.estimator, "data": dataset.name, "client": client}
    step = Step(
        "fisher", __version__, {key: value for key, value in said.items() if value is not None}, (model.model_id(),)
    )
    metadata = Metadata(
        "fisher",
        run.architecture or known.architecture,
        known.spec,
        client_info(dataset, client),
        model.model_id(),
        history=extended(known.history, step),
    )
    save(output, {name: array.astype(np.float32) for name, array in fisher.items()}, metadata, bits=run.bits)


def _client_of(model: Checkpoint) -> int | None:
    client = model.metadata.client if model.metadata else None
    return client.id if client else None


def _require_distinct(models: Sequence[Checkpoint], numbers: Sequence[int | None]) -> None:
    for place, number in enumerate(numbers):
        if number in numbers[:place]:
            raise OptionError(models[place].label, f"a second model of client {number}", "Give one model a client.")
