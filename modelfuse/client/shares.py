"""What is whose: the chosen clients' own examples, as a data string and a partition give them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import numpy as np

from modelfuse.client.data import Dataset, load_data, read_dataset
from modelfuse.client.partition import choose_clients, read_partition
from modelfuse.client.sources.source import SplitName
from modelfuse.client.sources.strings import open_source
from modelfuse.errors import ContentError, OptionError

__all__ = ["classes_known", "client_datasets"]


def client_datasets(
    data: str,
    partition: Path | None,
    client: str | None,
    *,
    split: SplitName = "train",
    download: bool = False,
    normalize: str | None = None,
) -> Mapping[int, Dataset]:
    """Return the examples of each chosen client; only theirs are read.

    The last few answers stay in memory, for ``modelfuse run``, whose commands ask for the same examples over and over;
    a partition that was written again is read again, files of data are not expected to change within a process.

    Args:
        data: The data string.
        partition: The partition's file. None: all examples are one client's, whose number ``client`` is (or 0).
        client: ``all``, a number, or numbers joined by commas.
        split: ``train`` or ``test``.
        download: Fetch the data set if it is not there.
        normalize: What ``--normalize`` says, or None for the data set's own normalisation.

    Raises:
        OptionError: The client is missing or out of range, or no data set has this name.
        FileError: A file is not there or cannot be read.
        ContentError: The partition is another data set's or has no test examples, or a file cannot be used.
    """
    if partition is None:
        return {_lone_client(client): load_data(data, split, download, normalize)}
    if client is None:
        read_partition(partition)
        raise OptionError("--client", "the partition has several clients", "Pass --client all, or numbers from 0.")
    state = partition.stat() if partition.exists() else None
    version = (state.st_ino, state.st_mtime_ns, state.st_size) if state else (0, 0, 0)
    return _read(data, partition, version, client, split, download, normalize)


@lru_cache(maxsize=4)
def _read(
    data: str,
    partition: Path,
    version: tuple[int, int, int],  # noqa: ARG001  (a part of the cache's key)
    client: str,
    split: SplitName,
    download: bool,
    normalize: str | None,
) -> Mapping[int, Dataset]:
    division = read_partition(partition)
    chosen = choose_clients(client, len(division.clients))
    everybodys = division.clients if split == "train" else division.tests
    if not everybodys:
        raise ContentError(str(partition), "it has no clients' test examples", "Draw it with modelfuse partition.")
    owned = [everybodys[number] for number in chosen]
    source = open_source(data, split, download)
    train, test = (len(source.labels), None) if split == "train" else (None, len(source.labels))
    division.check(train, test, str(partition))
    said = division.details.get("classes")
    if said is not None and tuple(said) != source.classes:
        raise ContentError(
            str(partition), "it was made for other classes than --data has", "Use the data set that it was made for."
        )
    everything = read_dataset(source, normalize, np.concatenate(owned))
    ends = np.cumsum([0, *map(len, owned)]).tolist()
    return MappingProxyType(
        {
            number: everything.subset(slice(start, end))
            for number, start, end in zip(chosen, ends, ends[1:], strict=False)
        }
    )


def classes_known(
    data: str, partition: Path, clients: Iterable[int], *, download: bool = False
) -> dict[int, list[int]]:
    """Return the classes that each client has train examples of; arguments and errors as :func:`client_datasets`."""
    division, labels = read_partition(partition), open_source(data, "train", download).labels
    division.check(len(labels), None, str(partition))
    return {number: np.unique(labels[division.clients[number]]).tolist() for number in clients}


def _lone_client(client: str | None) -> int:
    if client is None:
        return 0
    if not client.isdecimal():
        raise OptionError("--client", f"{client!r} without a partition", "Pass --partition, or one number.")
    return int(client)
