"""Partitions: which client owns which examples; drawn by a scheme, written to and read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.client.schemes import SCHEMES, Division, SchemeSettings
from modelfuse.client.sources.source import LabelArray
from modelfuse.errors import ContentError, OptionError
from modelfuse.files.artifacts import open_kind
from modelfuse.types import IndexArray

__all__ = ["Partition", "choose_clients", "draw_partition", "read_partition"]

ATTEMPTS = 100
OF_SEQUENCES = ("iid", "natural")
CLIENT, VALIDATION, TEST = "client_", "validation", "test_"


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Who owns which examples.

    Args:
        clients: For each client, indices into the train split.
        validation: The server's hold-out, indices into the train split; empty without one.
        tests: For each client, indices into the test split; empty if the partition does not say.
        details: The scheme, its settings and the class counts, as the file's metadata has them.
    """

    clients: tuple[IndexArray, ...]
    validation: IndexArray
    tests: tuple[IndexArray, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """Return how it was drawn, under the names that the history of a client's model has for it."""
        lists = ("class_counts", "classes", "names")
        said = {name: value for name, value in self.details.items() if name not in lists}
        renamed = {"seed": "partition_seed", "data": "partition_data"}
        return {renamed.get(name, name): value for name, value in said.items()}

    def tensors(self) -> dict[str, NDArray[np.int64]]:
        """Return the partition as the tensors of its file."""
        found = {f"{CLIENT}{number}": indices for number, indices in enumerate(self.clients)}
        if self.validation.size:
            found[VALIDATION] = self.validation
        found |= {f"{TEST}{number}": indices for number, indices in enumerate(self.tests)}
        return {name: indices.astype(np.int64) for name, indices in found.items()}

    def check(self, num_train: int | None, num_test: int | None, where: str) -> None:
        """Check that a data set has the examples that the partition speaks of.

        Args:
            num_train: Examples of the train split, or None to leave it unchecked.
            num_test: Examples of the test split, or None to leave it unchecked.
            where: The partition's file, for messages.

        Raises:
            ContentError: An index is out of range.
        """
        limits = {TEST: num_test} | dict.fromkeys((CLIENT, VALIDATION), num_train)
        for name, indices in self.tensors().items():
            limit = limits[TEST if name.startswith(TEST) else CLIENT]
            if limit is not None and indices.size and indices.max() >= limit:
                raise ContentError(
                    where,
                    f"{name} speaks of example {indices.max()} and --data has {limit}",
                    "Use the data set that the partition was made for.",
                )


def draw_partition(
    scheme: str,
    settings: SchemeSettings,
    train: LabelArray,
    test: LabelArray,
    *,
    seed: int = 0,
    holdout: int = 0,
    min_examples: int = 1,
) -> Partition:
    """Divide a data set over the clients.

    Args:
        scheme: A name of :data:`~modelfuse.client.schemes.SCHEMES`.
        settings: What the scheme is told.
        train: (N,) labels of the train split; (N, T) for sequences, which only natural and iid divide.
        test: (M,) labels of the test split.
        seed: Seed of the hold-out and of the scheme's draws, each from its own stream.
        holdout: Train examples that the server keeps for validation, drawn uniformly before the split.
        min_examples: What every client must get; the scheme draws again, up to 100 times, until it is so.

    Raises:
        OptionError: There is no such scheme, or a number is out of range, or no draw gave every client enough.
    """
    if scheme not in SCHEMES:
        raise OptionError("--scheme", f"{scheme!r} is unknown", f"There are {', '.join(SCHEMES)}.")
    if train.ndim > 1 and scheme not in OF_SEQUENCES:
        raise OptionError("--scheme", f"{scheme} divides classes, and a sequence has many", "Use natural or iid.")
    if settings.num_clients is not None and settings.num_clients < 1:
        raise OptionError("--num-clients", f"{settings.num_clients} is out of range", "There must be at least 1.")
    if not 0 <= holdout < len(train):
        raise OptionError("--server-holdout", f"{holdout} of {len(train)} examples", "Leave some for the clients.")
    _check_enough(settings.num_clients or 1, min_examples, len(train) - holdout)
    held_seed, scheme_seed = np.random.SeedSequence(seed).spawn(2)
    held = np.sort(np.random.default_rng(held_seed).choice(len(train), holdout, replace=False))
    rest = np.setdiff1d(np.arange(len(train)), held)
    generator = np.random.default_rng(scheme_seed)
    if settings.roles is not None:
        settings = replace(settings, roles=settings.roles.of_train(rest))
    for _ in range(ATTEMPTS):
        division = SCHEMES[scheme](train[rest], test, settings, generator)
        if division is not None and min(map(len, division.train)) >= min_examples:
            clients = tuple(rest[positions] for positions in division.train)
            return Partition(clients, held, division.test, _details(scheme, settings, seed, train, division, rest))
    raise OptionError(
        "--min-examples",
        f"none of {ATTEMPTS} draws gave each of {settings.num_clients or 'the'} clients {min_examples} examples",
        "Lower --min-examples or --num-clients, or raise --alpha.",
    )


def _check_enough(clients: int, each: int, examples: int) -> None:
    """Refuse at once what no draw can satisfy."""
    if clients * each > examples:
        raise OptionError(
            "--num-clients",
            f"{clients} clients of at least {each} examples each, and there are {examples} to divide",
            "Lower --num-clients, --min-examples or --server-holdout.",
        )


def _details(
    scheme: str, settings: SchemeSettings, seed: int, labels: LabelArray, division: Division, rest: IndexArray
) -> dict[str, Any]:
    counts = [
        np.bincount(labels[rest[positions]].ravel(), minlength=settings.num_classes).tolist()
        for positions in division.train
    ]
    told = {
        "alpha": settings.alpha,
        "balance": settings.balance or None,
        "min_chars": settings.min_chars,
        "names": list(division.names) or None,
    } | ({} if settings.shots is None else asdict(settings.shots))
    given = {name: value for name, value in told.items() if value is not None}
    return {"scheme": scheme, "num_clients": len(division.train), **given, "seed": seed, "class_counts": counts}


def read_partition(path: Path) -> Partition:
    """Return the partition that a file holds; files of other programs need just the tensors ``client_0``, ….

    Args:
        path: The file: integer tensors ``client_{k}``, optionally ``validation`` and ``test_{k}``.

    Raises:
        FileError: The file cannot be read, or is of another kind.
        ContentError: A client's tensor is missing, or a tensor holds something other than indices.
    """
    checkpoint = open_kind(path, "partition")
    found = {name: _indices(checkpoint.read(name), name, checkpoint.label) for name in checkpoint.layout}
    clients = _numbered(found, CLIENT, checkpoint.label)
    tests = _numbered(found, TEST, checkpoint.label)
    if not clients or (tests and len(tests) != len(clients)):
        raise ContentError(
            checkpoint.label,
            f"it has {len(clients)} tensors client_… and {len(tests)} tensors test_…",
            "Give one client_{k} for each client, and as many test_{k} or none.",
        )
    details = {} if checkpoint.metadata is None else checkpoint.metadata.details
    return Partition(clients, found.get(VALIDATION, np.empty(0, dtype=np.intp)), tests, details)


def _numbered(tensors: Mapping[str, IndexArray], prefix: str, where: str) -> tuple[IndexArray, ...]:
    count = sum(name.startswith(prefix) for name in tensors)
    for number in range(count):
        if f"{prefix}{number}" not in tensors:
            raise ContentError(where, f"tensor {prefix}{number} is missing", "Number the clients from 0, without gaps.")
    return tuple(tensors[f"{prefix}{number}"] for number in range(count))


def _indices(array: NDArray[Any], name: str, where: str) -> IndexArray:
    if array.ndim != 1 or array.dtype.kind not in "iu" or (array.size and array.min() < 0):
        raise ContentError(
            where,
            f"{name} has shape {array.shape}, dtype {array.dtype}, and is no list of indices",
            "Store whole numbers from 0, one axis.",
        )
    return array.astype(np.intp)


def choose_clients(text: str, count: int, where: str = "--client") -> tuple[int, ...]:
    """Return the clients that ``--client`` names.

    Args:
        text: ``all``, one number, or numbers joined by commas.
        count: How many clients there are.
        where: The option, for messages.

    Returns:
        Numbers from 0 to count − 1, in the order given.

    Raises:
        OptionError: A number is out of range, named twice, or no number.
    """
    if text == "all":
        return tuple(range(count))
    parts = [part.strip() for part in text.split(",")]
    chosen = tuple(int(part) for part in parts if part.isdecimal())
    if len(chosen) != len(parts) or len(set(chosen)) != len(chosen) or max(chosen) >= count:
        raise OptionError(
            where,
            f"{text!r} names no set of clients",
            f"Write all, or different numbers from 0 to {count - 1}, such as 0,2,5.",
        )
    return chosen
