"""Partition schemes: each one function that divides a data set's two splits over the clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from modelfuse.client.shots import Shots, deal_shots, draw_classes
from modelfuse.client.sources.source import LabelArray
from modelfuse.errors import OptionError
from modelfuse.types import FloatArray, IndexArray

__all__ = [
    "SCHEMES",
    "Division",
    "Scheme",
    "SchemeSettings",
    "dirichlet_client",
    "divide_by_shares",
    "iid",
    "nway_kshot",
]


@dataclass(frozen=True, slots=True)
class SchemeSettings:
    """What a scheme is told.

    Args:
        num_clients: K, at least 1.
        num_classes: C, at least 1.
        alpha: Concentration of the Dirichlet draws, positive; None where the user gave none.
        shots: What nway-kshot is told; None where the user gave nothing of it.
    """

    num_clients: int
    num_classes: int
    alpha: float | None = None
    shots: Shots | None = None


@dataclass(frozen=True, slots=True)
class Division:
    """Who gets which examples: one array of positions a client, in each split."""

    train: tuple[IndexArray, ...]
    test: tuple[IndexArray, ...]


Scheme: TypeAlias = Callable[[LabelArray, LabelArray, SchemeSettings, np.random.Generator], Division | None]
"""(train labels less the hold-out, test labels, settings, generator) to a division, or None if the draw has none."""


def dirichlet_client(
    train: LabelArray, test: LabelArray, settings: SchemeSettings, generator: np.random.Generator
) -> Division | None:
    """Each client k draws q_k ~ Dir(α·1); the examples of class c are shared in proportion q_kc / Σ_k' q_k'c.

    The test split is shared by the same proportions, so that a client is tested on its own mixture of classes.

    Raises:
        OptionError: There is no α, or it is not positive.

    Source: FedFiOT app. C.1.
    """
    _refuse_shots(settings, "dirichlet-client")
    alpha = _concentration(settings)
    draws = generator.dirichlet(np.full(settings.num_classes, alpha), size=settings.num_clients)  # (K, C)
    totals = draws.sum(axis=0)  # (C,)
    if not (np.isfinite(totals).all() and (totals > 0).all()):
        return None  # a tiny α: every client's share of some class was rounded to nothing
    shares = draws / totals
    return Division(divide_by_shares(train, shares, generator), divide_by_shares(test, shares, generator))


def iid(train: LabelArray, test: LabelArray, settings: SchemeSettings, generator: np.random.Generator) -> Division:
    """Every client gets as many examples as the others, drawn uniformly; so in the test split.

    Raises:
        OptionError: An α is given, which the scheme does not know.
    """
    _refuse_alpha(settings, "iid")
    _refuse_shots(settings, "iid")

    def deal(labels: LabelArray) -> tuple[IndexArray, ...]:
        parts = np.array_split(generator.permutation(len(labels)), settings.num_clients)
        return tuple(np.sort(part) for part in parts)

    return Division(deal(train), deal(test))


def nway_kshot(
    train: LabelArray, test: LabelArray, settings: SchemeSettings, generator: np.random.Generator
) -> Division:
    """Each client draws n classes, and k train examples and a fixed number of test examples of each.

    Raises:
        OptionError: A number is missing or out of range, or a class has too few examples for its clients.

    Source: FedProto §Experiments.
    """
    _refuse_alpha(settings, "nway-kshot")
    if settings.shots is None:
        raise OptionError("--ways", "nway-kshot needs a number of classes", "Pass --ways 3, say.")
    train_counts, test_counts = draw_classes(settings.shots, settings.num_clients, settings.num_classes, generator)
    return Division(
        deal_shots(train, train_counts, generator, "--shots"),
        deal_shots(test, test_counts, generator, "--test-shots"),
    )


def divide_by_shares(labels: LabelArray, shares: FloatArray, generator: np.random.Generator) -> tuple[IndexArray, ...]:
    """Return each client's positions when every class is shuffled and cut in proportion.

    Args:
        labels: (N,) classes.
        shares: (K, C); the columns sum to 1.
        generator: Draws who gets which example of a class.

    Returns:
        K arrays of positions, ascending; together they are all positions, each once.
    """
    owner = np.empty(len(labels), dtype=np.intp)
    for label, column in enumerate(shares.T):
        members = generator.permutation(np.flatnonzero(labels == label))
        cuts = np.rint(np.cumsum(column)[:-1] * len(members)).astype(np.intp)
        for client, part in enumerate(np.split(members, np.minimum(cuts, len(members)))):
            owner[part] = client
    return tuple(np.flatnonzero(owner == client) for client in range(len(shares)))


def _concentration(settings: SchemeSettings) -> float:
    if settings.alpha is None:
        raise OptionError("--alpha", "the scheme needs a concentration", "Pass --alpha 0.1, say.")
    if not 0 < settings.alpha < np.inf:
        raise OptionError("--alpha", f"{settings.alpha} is out of range", "It must be positive.")
    return settings.alpha


def _refuse_alpha(settings: SchemeSettings, scheme: str) -> None:
    if settings.alpha is not None:
        raise OptionError("--alpha", f"the scheme {scheme} has no such setting", "Leave it out, or choose another.")


def _refuse_shots(settings: SchemeSettings, scheme: str) -> None:
    if settings.shots is not None:
        raise OptionError("--ways", f"the scheme {scheme} has no such setting", "Leave it out, or use nway-kshot.")


SCHEMES: Mapping[str, Scheme] = {"dirichlet-client": dirichlet_client, "iid": iid, "nway-kshot": nway_kshot}
