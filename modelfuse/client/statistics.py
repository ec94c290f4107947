"""What a client tells of its model beside the weights, as files: which model is whose, and one file a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from modelfuse import __version__
from modelfuse.client.checks import require_label_order
from modelfuse.client.data import Dataset
from modelfuse.client.local import client_info
from modelfuse.client.models import load_network
from modelfuse.errors import OptionError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.metadata import extended
from modelfuse.files.writer import save
from modelfuse.types import FloatArray, Kind, Metadata, Step

__all__ = ["Advance", "Statistic", "clients_of", "pair", "write_statistic"]

Advance: TypeAlias = Callable[[int], None] | None
"""Told the number of examples after each pass, or None."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic of a network on a client's examples, such as its Fisher, and how it is computed.

    Args:
        kind: What the file is, which is also the command that makes it.
        compute: Returns the statistic's arrays by the names of the parameters that they belong to.
        options: The options that decide it, for the file's history.
        device: Where to compute.
        architecture: What the user typed for files that do not say theirs, or None.
        bits: 16 or 8 to quantise the files, or None.
    """

    kind: Kind
    compute: Callable[[nn.Module, Dataset, Advance], Mapping[str, FloatArray]]
    options: Mapping[str, Any]
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


def write_statistic(
    model: Checkpoint,
    dataset: Dataset,
    client: int | None,
    output: Path,
    statistic: Statistic,
    advance: Advance = None,
) -> None:
    """Compute a statistic of one model on one client's examples and write it.

    Args:
        model: The model's file.
        dataset: The client's examples.
        client: The client's number, or None.
        output: The file to write; it appears whole.
        statistic: What to compute, and how.
        advance: Told the number of examples after each pass.

    Raises:
        InputError: The model cannot be loaded, does not fit the data, or the file cannot be written.
    """
    require_label_order(model, dataset.classes)
    network = load_network(model, statistic.architecture, statistic.device)
    arrays = statistic.compute(network, dataset, advance)
    known = model.metadata or Metadata("model")
    white = {"normalize": dataset.normalisation.text()}
    said = {**statistic.options, "data": dataset.name, **white, "client": client}
    options = {key: value for key, value in said.items() if value is not None}
    step = Step(statistic.kind, __version__, options, (model.model_id(),))
    metadata = Metadata(
        statistic.kind,
        statistic.architecture or known.architecture,
        known.spec,
        client_info(dataset, client),
        model.model_id(),
        history=extended(known.history, step),
    )
    save(output, {name: array.astype(np.float32) for name, array in arrays.items()}, metadata, bits=statistic.bits)


def _client_of(model: Checkpoint) -> int | None:
    client = model.metadata.client if model.metadata else None
    return client.id if client else None


def _require_distinct(models: Sequence[Checkpoint], numbers: Sequence[int | None]) -> None:
    for place, number in enumerate(numbers):
        if number in numbers[:place]:
            raise OptionError(models[place].label, f"a second model of client {number}", "Give one model a client.")
