"""The dataclasses and type names that all rooms share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["BoolArray", "ClientInfo", "FloatArray", "IndexArray", "Kind", "Metadata", "Order", "Step", "Tensors"]

FloatArray: TypeAlias = NDArray[np.float64]
IndexArray: TypeAlias = NDArray[np.intp]
BoolArray: TypeAlias = NDArray[np.bool_]
Tensors: TypeAlias = Mapping[str, NDArray[Any]]

Order: TypeAlias = IndexArray
"""(n_k,): for each local unit, the global unit it became."""

Kind: TypeAlias = Literal["model", "fisher", "gram", "prototypes", "embeddings", "partition", "orders"]


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """What a client says of itself.

    Args:
        id: Its number in the partition.
        num_examples: Training examples, at least 1.
        class_counts: Training examples of each class, in the order of ``classes``.
        classes: The label order.
    """

    id: int | None = None
    num_examples: int | None = None
    class_counts: tuple[int, ...] | None = None
    classes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of a file's history. It holds no time and no absolute path: same inputs and options, same bytes.

    Args:
        command: The subcommand, such as ``merge``.
        version: modelfuse's version.
        options: The options that decide the result.
        inputs: ``model_id`` of every input, in a canonical order.
    """

    command: str
    version: str
    options: Mapping[str, Any]
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Metadata:
    """The JSON object that every file of ours carries in its header.

    Args:
        kind: What the file is.
        architecture: The architecture string, or None.
        spec: The permutation spec as plain JSON data, or None.
        client: Whose file it is, or None for a global one.
        model_id: The identity of the model the file holds, or, for Fishers and prototypes, belongs to.
        bits: Bits an entry where the file is quantised, else None.
        scales: The scale of each quantised tensor (FedFiOT eq. 107).
        history: How the file was made, oldest step first.
        details: What only this kind of file has to say (a partition's scheme, the groups of orders).
    """

    kind: Kind
    architecture: str | None = None
    spec: Mapping[str, Any] | None = None
    client: ClientInfo | None = None
    model_id: str | None = None
    bits: int | None = None
    scales: Mapping[str, float] = field(default_factory=dict)
    history: tuple[Step, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
