"""Writing a merge: the global model, streamed, and the orders of its clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from modelfuse.errors import ContentError
from modelfuse.files.metadata import extended
from modelfuse.files.writer import StreamingWriter, save
from modelfuse.methods.contract import Merged
from modelfuse.methods.history import common_history
from modelfuse.methods.uploads import Uploads
from modelfuse.types import ClientInfo, Metadata, Order, Step

__all__ = ["client_keys", "save_orders", "write_merged", "write_orders"]


def write_merged(path: Path, merged: Merged, uploads: Uploads, step: Step, partial: bool = False) -> str:
    """Write the global model (or prototypes) and return its ``model_id``.

    Args:
        path: The output.
        merged: What the method made.
        uploads: What it was made from.
        step: How it was made, for the file's history.
        partial: The tensors are a part of the network; the file says so.
    """
    metadata = Metadata(
        kind=merged.kind,
        architecture=uploads.architecture,
        spec=None if uploads.spec is None else uploads.spec.to_json(),
        client=_together(uploads),
        history=_history(uploads, step),
        details={"partial": True} if partial else {},
    )
    layout = {name: tensor.layout for name, tensor in merged.tensors.items()}
    with StreamingWriter(path, layout, metadata) as writer:
        for name, tensor in merged.tensors.items():
            for chunk in tensor.chunks():
                writer.write(name, chunk)
    return writer.model_id


def write_orders(path: Path, merged: Merged, uploads: Uploads, step: Step, model_id: str) -> None:
    """Write each client's order in each group, as tensors ``GROUP.client_K``.

    Args:
        path: The output.
        merged: What the method made.
        uploads: What it was made from.
        step: How it was made, for the file's history.
        model_id: The global model's.
    """
    keys = client_keys(uploads)
    members = {key: client.model.model_id() for key, client in zip(keys, uploads.clients, strict=True)}
    save_orders(path, merged.orders, members, step, model_id)


def save_orders(
    path: Path,
    orders: Mapping[str, Sequence[Order]],
    members: Mapping[str, str],
    step: Step,
    model_id: str | None = None,
) -> None:
    """Write orders as tensors ``GROUP.client_K``.

    Args:
        path: The output.
        orders: For each group, one order a client.
        members: Each client's key and the ``model_id`` of its model, in the same order.
        step: How they were made, for the file's history.
        model_id: The global model's; None while there is none.
    """
    tensors = {
        f"{group}.{key}": order.astype(np.int64)
        for group, found in orders.items()
        for key, order in zip(members, found, strict=True)
    }
    details = {"groups": list(orders), "clients": dict(members)}
    save(path, tensors, Metadata(kind="orders", model_id=model_id, history=(step,), details=details))


def client_keys(uploads: Uploads) -> list[str]:
    """Return each client's key in files: ``client_`` and its number, or its place where numbers are unknown.

    Raises:
        ContentError: Two clients have one number, so that what is one's would be taken for the other's.
    """
    numbers = [client.info.id for client in uploads.clients]
    if None in numbers:
        return [f"client_{place}" for place in range(len(numbers))]
    first: dict[int | None, str] = {}
    for client in uploads.clients:
        number, label = client.info.id, client.model.label
        if number in first:
            raise ContentError(
                label, f"it is from client {number}, and so is {first[number]}", "Give one model a client."
            )
        first[number] = label
    return [f"client_{number}" for number in numbers]


def _history(uploads: Uploads, step: Step) -> tuple[Step, ...]:
    said = [client.model.metadata.history if client.model.metadata else () for client in uploads.clients]
    return extended(common_history(said), step)


def _together(uploads: Uploads) -> ClientInfo:
    """Return what the clients are as one, so that a merge of merges weighs them rightly."""
    examples = uploads.known_examples()
    counts = [client.info.class_counts for client in uploads.clients]
    known = [count for count in counts if count is not None]
    summed = len(known) == len(counts) and len({len(count) for count in known}) == 1
    return ClientInfo(
        num_examples=None if examples is None else int(sum(examples)),
        class_counts=tuple(map(sum, zip(*known, strict=True))) if summed else None,
        classes=next((client.info.classes for client in uploads.clients if client.info.classes), None),
    )
