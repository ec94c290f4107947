"""The clients' files as a method receives them: paired, checked against each other, read value by checked value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.errors import ContentError, OptionError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.layout import is_float
from modelfuse.spec.axes import PermutationSpec
from modelfuse.types import ClientInfo, FloatArray

__all__ = ["Upload", "Uploads", "is_running_statistic"]

ROUNDING = 1e-4  # relative, of sums in float32
FLOAT32 = float(np.finfo(np.float32).max)
GRAM_AGAIN = "Pass the file that modelfuse gram wrote."


@dataclass(frozen=True, slots=True)
class Upload:
    """What one client sent.

    Args:
        model: Its weights.
        companion: Its raw Fisher or its Gram matrices, as the method needs, or None.
        info: What is known of the client.
    """

    model: Checkpoint
    companion: Checkpoint | None
    info: ClientInfo

    def weights(self, name: str) -> NDArray[Any]:
        """Return a tensor in float64 (integers as they are), all of it finite."""
        return self.slice(name, 0, _size(self.model.layout[name].shape)).reshape(self.model.layout[name].shape)

    def slice(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return entries ``start`` to ``stop`` of the flattened tensor, as :meth:`weights`."""
        values = self.model.read_flat(name, start, stop)
        if not is_float(self.model.layout[name].dtype):
            return values
        return _finite(values, self.model.label, name, start)

    def raw_fisher(self, name: str) -> FloatArray:
        """Return a tensor's raw Fisher in float64, finite and at least 0."""
        shape = self.model.layout[name].shape
        return self.fisher_slice(name, 0, _size(shape)).reshape(shape)

    def fisher_slice(self, name: str, start: int, stop: int) -> FloatArray:
        """Return entries ``start`` to ``stop`` of the flattened Fisher, as :meth:`raw_fisher`."""
        fisher = self._companion(name, "Fisher", "modelfuse fisher")
        values = _finite(fisher.read_flat(name, start, stop), fisher.label, name, start)
        if values.size and values.min() < 0:
            position = start + int(values.argmin())
            raise ContentError(
                fisher.label,
                f"{name} is negative at entry {position} ({values.min():.3g}), which no Fisher is",
                "Pass the file that modelfuse fisher wrote, not a gradient or a model.",
            )
        return values

    def has_gram(self, name: str) -> bool:
        """Return whether the client sent the Gram matrix of what a weight multiplies."""
        return self.companion is not None and name in self.companion.layout

    def gram(self, name: str) -> FloatArray:
        """Return the Gram matrix (inputs, inputs) of what a weight multiplies, in float64, finite."""
        file = self._companion(name, "Gram matrix", "modelfuse gram")
        shape = file.layout[name].shape
        values = _finite(file.read_flat(name, 0, _size(shape)), file.label, name, 0, GRAM_AGAIN).reshape(shape)
        if not _is_second_moment(values):
            raise ContentError(file.label, f"{name} is no mean of outer products x xᵀ", GRAM_AGAIN)
        return values

    def _companion(self, name: str, what: str, command: str) -> Checkpoint:
        """Return the companion, which holds a tensor of that name."""
        if self.companion is None or name not in self.companion.layout:
            label = (self.companion or self.model).label
            raise ContentError(label, f"there is no {what} of {name}", f"Make one with {command}.")
        return self.companion


@dataclass(frozen=True, slots=True)
class Uploads:
    """All that a merge starts from.

    Args:
        clients: In a canonical order, whatever the order in which they were given, so that sums round alike.
        spec: The permutation spec, or None where neither files nor options gave one.
        architecture: The architecture string that the clients agree on, or None.
        reference: The file that ``--reference`` names, or None for the client with the most examples.
    """

    clients: tuple[Upload, ...]
    spec: PermutationSpec | None = None
    architecture: str | None = None
    reference: Checkpoint | None = None

    def names(self) -> list[str]:
        """Return the tensors' names, sorted."""
        return sorted(self.clients[0].model.layout)

    def examples(self) -> list[float]:
        """Return n_k of each client.

        Raises:
            OptionError: A client's file does not say.
        """
        counts = self.known_examples()
        if counts is None:
            silent = next(client for client in self.clients if client.info.num_examples is None)
            raise OptionError(
                silent.model.label,
                "the file does not say on how many examples it was trained",
                "Pass --num-examples N,N,… in the order of the files.",
            )
        return counts

    def shares(self) -> list[float]:
        """Return n_k of each client, or one for all where a file does not say."""
        return self.known_examples() or [1.0] * len(self.clients)

    def known_examples(self) -> list[float] | None:
        """Return n_k of each client, or None if a client's file does not say."""
        counts = [client.info.num_examples for client in self.clients]
        return None if None in counts else [float(count) for count in counts if count is not None]

    def class_counts(self, classes: int) -> FloatArray:
        """Return each client's examples of each class, (K, classes).

        Args:
            classes: Number of classes that the models predict.

        Raises:
            OptionError: A client's file does not say.
            ContentError: It has another number of classes, or fewer than no examples of one.
        """
        for client in self.clients:
            counts = client.info.class_counts
            if counts is None:
                raise OptionError(
                    client.model.label,
                    "the file does not say how many examples of each class it was trained on",
                    "Pass --class-counts FILE.json with one list a model, in the order of the files.",
                )
            if len(counts) != classes or min(counts) < 0:
                raise ContentError(
                    client.model.label,
                    f"its class counts are {list(counts)}, its output layer has {classes} classes",
                    "Pass the right ones with --class-counts FILE.json.",
                )
        return np.array([client.info.class_counts for client in self.clients], dtype=np.float64)

    def permutation_spec(self) -> PermutationSpec:
        """Return the spec.

        Raises:
            OptionError: There is none.
        """
        if self.spec is None:
            raise OptionError(
                self.clients[0].model.label,
                "the file does not say which axes its units are on",
                "Pass the --architecture it was trained with, or --spec FILE.",
            )
        return self.spec


def is_running_statistic(name: str) -> bool:
    """Return whether a tensor is a batch-norm statistic: averaged over examples, and never asked for a Fisher."""
    return name.endswith(("running_mean", "running_var"))


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _is_second_moment(values: FloatArray) -> bool:
    """Return whether a matrix can be E[x xᵀ], up to float32's rounding."""
    scale = np.sqrt(np.maximum(np.diagonal(values), 0.0))  # |E[x_i x_j]| ≤ √(E[x_i²] E[x_j²])
    bound = np.outer(scale, scale)
    slack = ROUNDING * float(bound.max(initial=0.0))
    symmetric = np.abs(values - values.T).max(initial=0.0) <= slack
    within = (np.abs(values) <= bound * (1 + ROUNDING) + slack).all()
    return bool(symmetric and within and float(bound.max(initial=0.0)) <= FLOAT32)


def _finite(
    values: NDArray[Any],
    label: str,
    name: str,
    start: int,
    fix: str = "Training has diverged there: lower the learning rate, or leave this client out.",
) -> FloatArray:
    wide: FloatArray = values.astype(np.float64)
    # one sum finds nearly every NaN and infinity at the cost of one pass; the exact look is for the unhappy case
    if not np.isfinite(wide.sum()) and not np.isfinite(wide).all():
        position = start + int(np.flatnonzero(~np.isfinite(wide))[0])
        raise ContentError(
            label,
            f"{name} holds {wide[position - start]} at entry {position}",
            fix,
        )
    return wide
