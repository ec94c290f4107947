"""FedProto's split: each client knows a few classes, and a few examples of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelfuse.client.sources.source import LabelArray
from modelfuse.errors import OptionError
from modelfuse.types import IndexArray

__all__ = ["Shots", "deal_shots", "draw_classes"]


@dataclass(frozen=True, slots=True)
class Shots:
    """How many classes and examples the clients draw.

    Args:
        ways: n, classes a client on average, at least 1.
        ways_std: s, how far the clients' numbers of classes spread, at least 0.
        shots: k, train examples of each of a client's classes on average, at least 1.
        shots_std: How far the clients' numbers of examples spread, at least 0.
        test_shots: Test examples of each of a client's classes, at least 1.
        noise: ``uniform``: whole numbers, all equally likely: n from max(2, n − s) to min(C − 1, n + s) and k from
            k − s + 1 to k + s, both ends included; n or k itself where s = 0 (the authors' code; on MNIST it stops at
            k + s − 2). ``gaussian``: rounded normal draws of that standard deviation (the paper's words), from 1 to C
            and from 1 up.

    Raises:
        OptionError: A number is out of range, or there is no such noise.

    Source: FedProto §Experiments; its code, exps/federated_main.py.
    """

    ways: int
    ways_std: int = 0
    shots: int = 100
    shots_std: int = 0
    test_shots: int = 40
    noise: str = "uniform"

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.noise not in ("uniform", "gaussian"):
            raise OptionError("--noise", f"{self.noise!r} is unknown", "Choose uniform or gaussian.")
        for option, value, least in (
            ("--ways", self.ways, 1),
            ("--ways-std", self.ways_std, 0),
            ("--shots", self.shots, 1),
            ("--shots-std", self.shots_std, 0),
            ("--test-shots", self.test_shots, 1),
        ):
            if value < least:
                raise OptionError(option, f"{value} is out of range", f"It must be at least {least}.")

    def draw_ways(self, num_clients: int, num_classes: int, generator: np.random.Generator) -> IndexArray:
        """Return how many classes each client has, (K,).

        Raises:
            OptionError: There are not so many classes.
        """
        if self.ways > num_classes:
            raise OptionError("--ways", f"{self.ways} of {num_classes} classes", "Ask for fewer.")
        if self.ways_std == 0:
            return np.full(num_clients, self.ways)
        if self.noise == "gaussian":
            return _rounded(generator.normal(self.ways, self.ways_std, num_clients), 1, num_classes)
        low, high = max(2, self.ways - self.ways_std), min(num_classes - 1, self.ways + self.ways_std)
        if low > high:
            raise OptionError("--ways-std", f"no number from {low} to {high}", "Use --noise gaussian, or --ways-std 0.")
        return generator.integers(low, high, num_clients, endpoint=True)

    def draw_shots(self, num_clients: int, generator: np.random.Generator) -> IndexArray:
        """Return how many train examples of each of its classes each client has, (K,)."""
        if self.shots_std == 0:
            return np.full(num_clients, self.shots)
        if self.noise == "gaussian":
            return _rounded(generator.normal(self.shots, self.shots_std, num_clients), 1, None)
        low, high = max(1, self.shots - self.shots_std + 1), self.shots + self.shots_std
        return generator.integers(low, high, num_clients, endpoint=True)


def draw_classes(
    shots: Shots, num_clients: int, num_classes: int, generator: np.random.Generator
) -> tuple[IndexArray, IndexArray]:
    """Return how many train and how many test examples of each class each client gets.

    Args:
        shots: The numbers.
        num_clients: K.
        num_classes: C.
        generator: Draws how many classes, how many examples, and which classes.

    Returns:
        Two (K, C) arrays of counts; 0 where a client does not know a class.

    Raises:
        OptionError: There are not so many classes.
    """
    ways = shots.draw_ways(num_clients, num_classes, generator)
    per_class = shots.draw_shots(num_clients, generator)
    train = np.zeros((num_clients, num_classes), dtype=np.intp)
    for client, (count, examples) in enumerate(zip(ways, per_class, strict=True)):
        train[client, generator.choice(num_classes, count, replace=False)] = examples
    return train, np.where(train > 0, shots.test_shots, 0)


def deal_shots(
    labels: LabelArray, wanted: IndexArray, generator: np.random.Generator, option: str
) -> tuple[IndexArray, ...]:
    """Deal every class's examples out, each to one client at most.

    Args:
        labels: (N,) classes.
        wanted: (K, C) examples of each class for each client.
        generator: Draws who gets which example of a class.
        option: The option that asks for so many, for messages.

    Returns:
        K arrays of positions, ascending.

    Raises:
        OptionError: A class has fewer examples than its clients want together.
    """
    dealt: list[list[IndexArray]] = [[] for _ in wanted]
    for label, column in enumerate(wanted.T):
        members = generator.permutation(np.flatnonzero(labels == label))
        if column.sum() > len(members):
            raise OptionError(
                option,
                f"{np.count_nonzero(column)} clients want {column.sum()} examples of class {label}, which has "
                f"{len(members)}",
                "Ask for fewer, or for fewer clients or classes.",
            )
        for client, part in enumerate(np.split(members[: column.sum()], np.cumsum(column)[:-1])):
            dealt[client].append(part)
    return tuple(np.sort(np.concatenate(parts)) for parts in dealt)


def _rounded(draws: np.ndarray[tuple[int, ...], np.dtype[np.float64]], low: int, high: int | None) -> IndexArray:
    return np.clip(np.rint(draws), low, high).astype(np.intp)
