"""What is whose: the chosen clients' own examples, as a data string and a partition give them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from modelfuse.client.data import Dataset, load_data, read_dataset
from modelfuse.client.partition import choose_clients, read_partition
from modelfuse.client.sources.strings import open_source
from modelfuse.errors import ContentError, OptionError

__all__ = ["client_datasets"]


def client_datasets(
    data: str, partition: Path | None, client: str | None, *, download: bool = False, normalize: str | None = None
) -> dict[int, Dataset]:
    """Return the train examples of each chosen client; only theirs are read.

    Args:
        data: The data string.
        partition: The partition's file. None: all train examples are one client's, whose number ``client`` is (or 0).
        client: ``all``, a number, or numbers joined by commas.
        download: Fetch the data set if it is not there.
        normalize: What ``--normalize`` says, or None for the data set's own normalisation.

    Raises:
        OptionError: The client is missing or out of range, or no data set has this name.
        FileError: A file is not there or cannot be read.
        ContentError: The partition is another data set's, or a file cannot be used.
    """
    if partition is None:
        return {_lone_client(client): load_data(data, "train", download, normalize)}
    split = read_partition(partition)
    if client is None:
        raise OptionError("--client", "the partition has several clients", "Pass --client all, or numbers from 0.")
    chosen = choose_clients(client, len(split.clients))
    owned = [split.clients[number] for number in chosen]
    source = open_source(data, "train", download)
    split.check(len(source.labels), None, str(partition))
    said = split.details.get("classes")
    if said is not None and tuple(said) != source.classes:
        raise ContentError(
            str(partition), "it was made for other classes than --data has", "Use the data set that it was made for."
        )
    everything = read_dataset(source, normalize, np.concatenate(owned))
    ends = np.cumsum([0, *map(len, owned)]).tolist()
    return {
        number: everything.subset(slice(start, end)) for number, start, end in zip(chosen, ends, ends[1:], strict=False)
    }


def _lone_client(client: str | None) -> int:
    if client is None:
        return 0
    if not client.isdecimal():
        raise OptionError("--client", f"{client!r} without a partition", "Pass --partition, or one number.")
    return int(client)
