"""Clients that are there already: examples that come with an owner each, such as the lines of a play's roles."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from modelfuse.client.sources.source import Owners
from modelfuse.errors import OptionError
from modelfuse.types import IndexArray

__all__ = ["Roles"]

DEFAULT_MIN_CHARS = 10_000  # FedMA §3


@dataclass(frozen=True, slots=True)
class Roles:
    """Who the examples of both splits belong to.

    Args:
        train: The owners of the train examples.
        test: The owners of the test examples, of the same names.
    """

    train: Owners
    test: Owners

    def of_train(self, positions: IndexArray) -> Roles:
        """Return the same with some of the train examples only, in that order."""
        return replace(self, train=self.train.at(positions))

    def choose(self, count: int | None, min_chars: int | None, generator: np.random.Generator) -> IndexArray:
        """Return the roles that become clients, in the order of the data.

        Args:
            count: How many to draw, uniformly, of those that speak enough; None: all of them.
            min_chars: Characters that a role must speak; None: 10,000.
            generator: Draws.

        Raises:
            OptionError: There are not so many roles, or one of them has no whole example in a split.

        Source: FedMA §3 (clients with at least 10,000 characters).
        """
        least = DEFAULT_MIN_CHARS if min_chars is None else min_chars
        enough = np.flatnonzero(self.train.characters >= least)
        if len(enough) < (count or 1):
            raise OptionError(
                "--min-chars" if count is None else "--num-clients",
                f"{len(enough)} of {len(self.train.names)} roles speak at least {least:,} characters",
                "Lower --num-clients or --min-chars.",
            )
        chosen = enough if count is None else np.sort(generator.choice(enough, count, replace=False))
        both = np.intersect1d(self.train.of, self.test.of)
        for role in np.setdiff1d(chosen, both):
            raise OptionError(
                "--min-chars",
                f"{self.train.names[role]} speaks {self.train.characters[role]} characters, too few for both splits",
                "Raise it, or hold out fewer examples.",
            )
        return chosen
