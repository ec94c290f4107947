"""Layer-wise rounds as files: which groups the clients of a FedMA pass share already, and what comes next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from modelfuse.core.engine import Matching
from modelfuse.errors import ContentError, OptionError
from modelfuse.methods.uploads import Upload, Uploads
from modelfuse.spec.axes import PermutationSpec
from modelfuse.types import Metadata, Order

__all__ = ["Progress", "global_tensors", "progress_of", "require_no_round"]

KEY = "fedma"
"""Where a client's file says how far its pass has come: ``details["fedma"]``."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pass has come.

    Args:
        groups: All groups, in merge order.
        orders: For each group that is global already, each client's order.
    """

    groups: tuple[str, ...]
    orders: Mapping[str, tuple[Order, ...]]

    @property
    def shared(self) -> tuple[str, ...]:
        """The groups that are global already."""
        return self.groups[: len(self.orders)]

    def where(self) -> str:
        """Return which round the files are in, in words."""
        if not self.orders:
            return "the files are the clients' own, before round 1"
        return f"the files are global through {self.shared[-1]}, after round {len(self.orders)} of {len(self.groups)}"

    def next_step(self) -> str:
        """Return what to do next, as a sentence."""
        if len(self.orders) == len(self.groups):
            return "Pass --final next."
        return f"Pass --through {self.groups[len(self.orders)]} next."

    def require_next(self, group: str) -> None:
        """Check that a group is the one to match.

        Raises:
            OptionError: There is no such group, or it is another's turn.
        """
        if group not in self.groups:
            raise OptionError("--through", f"no group is called {group!r}", f"There are {', '.join(self.groups)}.")
        if self.groups.index(group) != len(self.orders):
            raise OptionError("--through", f"it is not {group}'s turn: {self.where()}", self.next_step())

    def require_last(self) -> None:
        """Check that all groups are global.

        Raises:
            OptionError: Some are not.
        """
        if len(self.orders) != len(self.groups):
            raise OptionError("--final", f"hidden layers are left to match: {self.where()}", self.next_step())

    def matchings(self, widths: Mapping[str, int]) -> dict[str, Matching]:
        """Return what the rounds found, of the global widths."""
        found: dict[str, Matching] = {}
        for group, orders in self.orders.items():
            local = [len(order) for order in orders]
            trace = {"local_widths": local, "growth": widths[group] / max(local)}
            found[group] = Matching(orders, widths[group], trace)
        return found

    def details(self, client: int) -> dict[str, Any]:
        """Return what a client's file has to say of the pass."""
        orders = {group: found[client].tolist() for group, found in self.orders.items()}
        return {KEY: {"through": self.shared[-1], "orders": orders}}


def progress_of(uploads: Uploads) -> Progress:
    """Return how far the clients' pass has come, and check that they are in it together.

    Raises:
        ContentError: They are in different rounds, or layers that should be global differ: a client trained them.
    """
    spec = uploads.permutation_spec()
    groups = spec.groups()
    said = [_orders_said(client, groups) for client in uploads.clients]
    for client, orders in zip(uploads.clients, said, strict=True):
        if orders.keys() != said[0].keys():
            raise ContentError(
                client.model.label,
                f"it is {_through(orders)}, {uploads.clients[0].model.label} is {_through(said[0])}",
                "Merge clients of one round.",
            )
    progress = Progress(groups, {group: tuple(orders[group] for orders in said) for group in said[0]})
    _check_global(uploads, global_tensors(spec, progress.shared))
    return progress


def require_no_round(uploads: Uploads) -> None:
    """Check that the clients are not in the middle of a layer-wise pass.

    Raises:
        OptionError: They are.
    """
    progress = progress_of(uploads)
    if progress.orders:
        raise OptionError("--method", f"a layer-wise pass is under way: {progress.where()}", progress.next_step())


def global_tensors(spec: PermutationSpec, groups: Sequence[str]) -> list[str]:
    """Return the hidden tensors all of whose units are in some groups."""
    found = []
    for name, axes in spec.axes.items():
        indexed = {axis.group for axis in axes if axis is not None}
        if indexed and indexed <= set(groups) and name not in spec.class_axis:
            found.append(name)
    return found


def _orders_said(client: Upload, groups: Sequence[str]) -> dict[str, Order]:
    metadata: Metadata | None = client.model.metadata
    data = metadata.details.get(KEY) if metadata else None
    if data is None:
        return {}
    try:
        through = groups.index(data["through"]) + 1
        orders = {group: np.array(data["orders"][group], dtype=np.intp) for group in groups[:through]}
        well = all(order.ndim == 1 and len(order) == len(set(order.tolist())) for order in orders.values())
    except (KeyError, TypeError, ValueError):
        well = False
    if not well:
        raise ContentError(
            client.model.label, "what it says of its FedMA pass cannot be read", "Make it with merge --through again."
        )
    return orders


def _through(orders: Mapping[str, Order]) -> str:
    return f"global through {list(orders)[-1]}" if orders else "its client's own"


def _check_global(uploads: Uploads, names: Sequence[str]) -> None:
    first = uploads.clients[0]
    for name in names:
        expected = first.weights(name)
        for client in uploads.clients[1:]:
            if not np.array_equal(client.weights(name), expected):
                raise ContentError(
                    client.model.label,
                    f"{name} is global, and not what it is in {first.model.label}",
                    "Retrain the clients with train-client --freeze-through, which leaves global layers alone.",
                )
