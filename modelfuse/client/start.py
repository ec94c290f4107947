"""Where local training starts: a broadcast model that all clients share, or an initialisation of each one's own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from modelfuse.client.factory import PREFIX
from modelfuse.client.models import create, load_network, load_tensors, tensors_of
from modelfuse.client.seeds import derived_seed
from modelfuse.errors import ContentError, OptionError
from modelfuse.files.artifacts import open_kind
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.folders import own_model
from modelfuse.spec.architectures import parse_architecture
from modelfuse.spec.axes import read_spec
from modelfuse.types import Step

__all__ = [
    "Start",
    "open_start",
    "open_starts",
    "require_start",
]


@dataclass(frozen=True, slots=True)
class Start:
    """Where clients start.

    Args:
        network: Returns a client's network, holding its first weights, by its number.
        architecture: The architecture string, for the clients' files.
        spec: The permutation spec as plain JSON data, for the clients' files, or None if nobody knows it.
        history: How the broadcast model was made.
        inputs: ``model_id`` of the broadcast model, if there is one.
        details: What that model's file says beside, such as how far a FedMA pass has come; it holds for the clients'.
    """

    network: Callable[[int], nn.Module]
    architecture: str
    spec: Mapping[str, Any] | None
    history: tuple[Step, ...] = ()
    inputs: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


def open_start(init: Path | None, architecture: str | None, init_seed: int | None, spec: Path | None) -> Start:
    """Return the start that the options ask for.

    Args:
        init: The broadcast model, or None.
        architecture: What ``--architecture`` says, or None for what ``init`` says.
        init_seed: Draw every client's weights anew, from this seed and its number; of ``init`` only the architecture
            counts then. None: start from ``init``.
        spec: A JSON file with the permutation spec, for networks that are not of the zoo.

    Raises:
        OptionError: Neither a model nor a seed is given, or nobody says the architecture.
        FileError: A file cannot be read.
        ContentError: The model does not fit its architecture.
    """
    require_start(init, architecture, init_seed)
    if init is None:
        own = str(architecture)
        return Start(_fresh(own, init_seed or 0), _canonical(own), _spec_of(own, spec, None))
    checkpoint = open_kind(init, "model")
    metadata = checkpoint.metadata
    text = architecture or (metadata and metadata.architecture)
    network = load_network(checkpoint, architecture, torch.device("cpu"))  # says what to do if there is no text
    text = _canonical(str(text))
    plain = _spec_of(text, spec, metadata.spec if metadata else None)
    history = metadata.history if metadata else ()
    if init_seed is not None:
        return Start(_fresh(text, init_seed), text, plain, history)
    details = metadata.details if metadata else {}
    return Start(lambda _: copy.deepcopy(network), text, plain, history, (checkpoint.model_id(),), details)


def require_start(init: Path | None, architecture: str | None, init_seed: int | None) -> None:
    """Check that there is something to start from; arguments as :func:`open_start`.

    Raises:
        OptionError: There is not.
    """
    if init is None and (architecture is None or init_seed is None):
        raise OptionError(
            "train-client",
            "there is nothing to start from",
            "Give a broadcast model, or --architecture and --init-seed for weights of each client's own.",
        )


def open_starts(
    clients: Iterable[int],
    init: Path | None,
    architecture: str | None,
    init_seed: int | None,
    spec: Path | None,
    overlay: Path | None = None,
) -> dict[int, Start]:
    """Return the start of each client: one that all share, or, from a folder of their own models, one each.

    Args:
        clients: Their numbers.
        init: A broadcast model, or a folder with ``client_{k}.safetensors`` for each client.
        architecture: As :func:`open_start`.
        init_seed: As :func:`open_start`.
        spec: As :func:`open_start`.
        overlay: A model, or what ``merge --only`` or ``--except`` wrote: its tensors replace the client's own.

    Raises:
        OptionError: As :func:`open_start`.
        FileError: A file is missing or cannot be read.
        ContentError: A model does not fit its architecture, or the overlay does not fit the client's model.
    """
    starts: dict[int, Start] = {}
    opened: dict[Path | None, Start] = {}
    for client in clients:
        own = None if init is None else own_model(init, client)
        if own not in opened:
            opened[own] = open_start(own, architecture, init_seed, spec)
        starts[client] = opened[own]
    if overlay is None:
        return starts
    broadcast = open_kind(overlay, "model")
    return {client: _overlaid(start, broadcast) for client, start in starts.items()}


def _overlaid(start: Start, broadcast: Checkpoint) -> Start:
    """Return a start whose network takes from a broadcast all that it holds, and keeps the rest."""

    def network(client: int) -> nn.Module:
        own, shared = start.network(client), broadcast.read_all()
        state = tensors_of(own)
        for name in shared:
            if name not in state:
                raise ContentError(
                    broadcast.label, f"client {client}'s model has no tensor {name}", "Lay it over models like those."
                )
        load_tensors(own, {**state, **shared}, broadcast.label)
        return own

    return replace(start, network=network, inputs=(*start.inputs, broadcast.model_id()))


def _fresh(text: str, seed: int) -> Callable[[int], nn.Module]:
    return lambda client: create(text, derived_seed(seed, client))


def _canonical(text: str) -> str:
    return text if text.startswith(PREFIX) else parse_architecture(text).text


def _spec_of(text: str, path: Path | None, stated: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if path is not None:
        return read_spec(path).to_json()
    if stated is not None or text.startswith(PREFIX):
        return stated
    return parse_architecture(text).spec().to_json()
