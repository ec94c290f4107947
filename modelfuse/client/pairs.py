"""Which model belongs to which client, and which examples to both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from modelfuse.client.data import Dataset
from modelfuse.client.normalisation import normalisation_of
from modelfuse.client.shares import client_datasets
from modelfuse.client.sources.source import SplitName
from modelfuse.errors import OptionError
from modelfuse.files.artifacts import open_kind
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.folders import clients_files

__all__ = ["Pairs", "clients_of", "pair", "pair_up"]


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Clients' models with their examples.

    Args:
        models: Each client's model, by number.
        datasets: Its examples, by the same numbers.
        paths: The files that the models were given as.
        known: Somebody says which clients they are; otherwise the number 0 stands for nobody in particular.
    """

    models: Mapping[int, Checkpoint]
    datasets: Mapping[int, Dataset]
    paths: Sequence[Path]
    known: bool

    def owner(self, number: int) -> int | None:
        """Return the client's number for its files, or None where nobody says it."""
        return number if self.known else None


def pair_up(
    models: Sequence[Path],
    data: str,
    partition: Path | None,
    client: str | None,
    *,
    split: SplitName = "train",
    download: bool,
    normalize: str | None,
) -> Pairs:
    """Open models and load their clients' examples.

    Args:
        models: The clients' models, folders of them, or one of all.
        data: The data string.
        partition: The partition's file, or None.
        client: A number, numbers joined by commas, or all; None for the models' own.
        split: Which of the clients' examples.
        download: Fetch the data set if it is not there.
        normalize: What ``--normalize`` says; None: as the models were trained, or else the data set's own.

    Raises:
        InputError: A model, the partition or the data cannot be used, or they do not go together.
    """
    paths = clients_files(models)
    opened = [open_kind(path, "model") for path in paths]
    if partition is None and len(opened) > 1:
        raise OptionError("MODELS", "several models, and nobody says whose examples are whose", "Pass --partition.")
    text = clients_of(opened, client)
    white = normalisation_of(opened, normalize)
    datasets = client_datasets(data, partition, text, split=split, download=download, normalize=white)
    return Pairs(pair(opened, tuple(datasets)), datasets, paths, text is not None)


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


def _client_of(model: Checkpoint) -> int | None:
    client = model.metadata.client if model.metadata else None
    return client.id if client else None


def _require_distinct(models: Sequence[Checkpoint], numbers: Sequence[int | None]) -> None:
    for place, number in enumerate(numbers):
        if number in numbers[:place]:
            raise OptionError(models[place].label, f"a second model of client {number}", "Give one model a client.")
