"""Partition schemes: each one function that divides a data set's two splits over the clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from modelfuse.client.roles import Roles
from modelfuse.client.shots import Shots, deal_shots, draw_classes
from modelfuse.client.sources.source import LabelArray
from modelfuse.errors import OptionError
from modelfuse.types import FloatArray, IndexArray

__all__ = [
    "SCHEMES",
    "Division",
    "Scheme",
    "SchemeSettings",
    "dirichlet_class",
    "dirichlet_client",
    "divide_by_shares",
    "iid",
    "natural",
    "nway_kshot",
]


@dataclass(frozen=True, slots=True)
class SchemeSettings:
    """What a scheme is told; a scheme refuses what it has no use for, None or False stand for nothing given.

    Args:
        num_clients: K, at least 1; None: as many as the data has (natural).
        num_classes: C, at least 1.
        alpha: Concentration of the Dirichlet draws, positive.
        shots: What nway-kshot is told.
        balance: FedMA's code: a client that holds N / K examples already gets none of the next classes.
        min_chars: Characters that a role must speak to be a client.
        roles: Who the examples belong to, where the data says so.
    """

    num_clients: int | None
    num_classes: int
    alpha: float | None = None
    shots: Shots | None = None
    balance: bool = False
    min_chars: int | None = None
    roles: Roles | None = None

    def clients(self) -> int:
        """Return K.

        Raises:
            OptionError: It is not given.
        """
        if self.num_clients is None:
            raise OptionError("--num-clients", "the scheme needs a number of clients", "Pass -K 6, say.")
        return self.num_clients

    def concentration(self) -> float:
        """Return α.

        Raises:
            OptionError: It is not given, or not positive.
        """
        if self.alpha is None:
            raise OptionError("--alpha", "the scheme needs a concentration", "Pass --alpha 0.1, say.")
        if not 0 < self.alpha < np.inf:
            raise OptionError("--alpha", f"{self.alpha} is out of range", "It must be positive.")
        return self.alpha

    def allow(self, scheme: str, *known: str) -> None:
        """Check that nothing is given that a scheme does not know.

        Raises:
            OptionError: Something is.
        """
        for name, option in OPTIONS.items():
            if name not in known and getattr(self, name) not in (None, False):
                raise OptionError(
                    option, f"the scheme {scheme} has no such setting", "Leave it out, or choose another scheme."
                )


OPTIONS = {"alpha": "--alpha", "shots": "--ways", "balance": "--balance", "min_chars": "--min-chars"}


@dataclass(frozen=True, slots=True)
class Division:
    """Who gets which examples: one array of positions a client, in each split; and what the data calls the clients."""

    train: tuple[IndexArray, ...]
    test: tuple[IndexArray, ...]
    names: tuple[str, ...] = ()


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
    settings.allow("dirichlet-client", "alpha")
    alpha = settings.concentration()
    draws = generator.dirichlet(np.full(settings.num_classes, alpha), size=settings.clients())  # (K, C)
    totals = draws.sum(axis=0)  # (C,)
    if not (np.isfinite(totals).all() and (totals > 0).all()):
        return None  # a tiny α: every client's share of some class was rounded to nothing
    shares = draws / totals
    return Division(divide_by_shares(train, shares, generator), divide_by_shares(test, shares, generator))


def dirichlet_class(
    train: LabelArray, test: LabelArray, settings: SchemeSettings, generator: np.random.Generator
) -> Division | None:
    """For each class c, p_c ~ Dir_K(α·1), and client k gets the share p_ck of the class's examples.

    With ``balance``, class after class, a client that holds N / K examples already gets none of the class, and the
    others' shares grow in proportion. The test split is shared by the same proportions.

    Raises:
        OptionError: There is no α, or it is not positive.

    Source: FedMA §3; its code, utils.py (balance).
    """
    settings.allow("dirichlet-class", "alpha", "balance")
    alpha, num_clients = settings.concentration(), settings.clients()
    draws = generator.dirichlet(np.full(num_clients, alpha), size=settings.num_classes)  # (C, K)
    held = np.zeros(num_clients, dtype=np.intp)
    for draw, count in zip(draws, np.bincount(train, minlength=settings.num_classes), strict=True):
        if settings.balance:
            draw[held >= len(train) / num_clients] = 0
        total = draw.sum()
        if not (np.isfinite(total) and total > 0):
            return None  # a tiny α: the whole class was to go to clients that are full, or was rounded to nothing
        draw /= total
        held += np.diff(_cuts(draw, int(count)))
    return Division(divide_by_shares(train, draws.T, generator), divide_by_shares(test, draws.T, generator))


def natural(train: LabelArray, test: LabelArray, settings: SchemeSettings, generator: np.random.Generator) -> Division:  # noqa: ARG001
    """One client a role: each gets its own train examples, and is tested on its own test examples.

    Raises:
        OptionError: The data set has no roles, or too few that speak enough.

    Source: FedMA §3; LEAF (arXiv 1812.01097).
    """
    settings.allow("natural", "min_chars")
    roles = settings.roles
    if roles is None:
        raise OptionError("--scheme natural", "the data set does not come with clients", "Choose another scheme.")
    chosen = roles.choose(settings.num_clients, settings.min_chars, generator)
    return Division(
        tuple(np.flatnonzero(roles.train.of == role) for role in chosen),
        tuple(np.flatnonzero(roles.test.of == role) for role in chosen),
        tuple(roles.train.names[role] for role in chosen),
    )


def iid(train: LabelArray, test: LabelArray, settings: SchemeSettings, generator: np.random.Generator) -> Division:
    """Every client gets as many examples as the others, drawn uniformly; so in the test split.

    Raises:
        OptionError: An α is given, which the scheme does not know.
    """
    settings.allow("iid")
    num_clients = settings.clients()

    def deal(labels: LabelArray) -> tuple[IndexArray, ...]:
        parts = np.array_split(generator.permutation(len(labels)), num_clients)
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
    settings.allow("nway-kshot", "shots")
    if settings.shots is None:
        raise OptionError("--ways", "nway-kshot needs a number of classes", "Pass --ways 3, say.")
    train_counts, test_counts = draw_classes(settings.shots, settings.clients(), settings.num_classes, generator)
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
        for client, part in enumerate(np.split(members, _cuts(column, len(members))[1:-1])):
            owner[part] = client
    return tuple(np.flatnonzero(owner == client) for client in range(len(shares)))


def _cuts(shares: FloatArray, count: int) -> IndexArray:
    """Return where K shares of ``count`` examples begin and end, (K + 1,)."""
    inner = np.minimum(np.rint(np.cumsum(shares)[:-1] * count).astype(np.intp), count)
    return np.concatenate([[0], inner, [count]])


SCHEMES: Mapping[str, Scheme] = {
    "dirichlet-client": dirichlet_client,
    "dirichlet-class": dirichlet_class,
    "nway-kshot": nway_kshot,
    "iid": iid,
    "natural": natural,
}
