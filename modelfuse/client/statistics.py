"""What a client tells of its model beside the weights, as files: one a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.metadata import extended
from modelfuse.files.writer import save
from modelfuse.types import FloatArray, Kind, Metadata, Step

__all__ = ["Advance", "Statistic", "write_statistic"]

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
