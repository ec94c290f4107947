"""Writing a layer-wise round: every client's model for retraining, and all orders so far."""

from __future__ import annotations

from pathlib import Path

from modelfuse.files.atomic import make_folder
from modelfuse.files.layout import numpy_dtype
from modelfuse.files.metadata import extended
from modelfuse.files.writer import check_outputs, save
from modelfuse.methods.contract import promote
from modelfuse.methods.fedma import Round
from modelfuse.methods.output import client_keys, save_orders
from modelfuse.methods.uploads import Uploads
from modelfuse.types import Metadata, Step, Tensors

__all__ = ["write_round"]


def write_round(folder: Path, done: Round, uploads: Uploads, step: Step) -> list[str]:
    """Write ``client_K.safetensors`` for every client and ``orders.safetensors``, and return the models' identities.

    Args:
        folder: Where; it is made if it is missing.
        done: The round.
        uploads: What it was made from.
        step: How it was made, for the files' histories.

    Raises:
        FileError: The folder cannot be written, or a file in it is an input.
        ContentError: Two clients have one number.
    """
    keys = client_keys(uploads)
    make_folder(folder)
    paths = [folder / f"{key}.safetensors" for key in keys]
    orders = folder / "orders.safetensors"
    check_outputs((*paths, orders), [client.model.path for client in uploads.clients])
    spec = uploads.permutation_spec()
    identities = []
    for number, (path, client) in enumerate(zip(paths, uploads.clients, strict=True)):
        history = client.model.metadata.history if client.model.metadata else ()
        metadata = Metadata(
            "model",
            architecture=uploads.architecture,
            spec=spec.to_json(),
            client=client.info,
            history=extended(history, step),
            details=done.progress.details(number),
        )
        identities.append(save(path, _in_dtypes(done, uploads, number), metadata))
    members = dict(zip(keys, identities, strict=True))
    save_orders(orders, done.progress.orders, members, step)
    return identities


def _in_dtypes(done: Round, uploads: Uploads, number: int) -> Tensors:
    """Return a client's tensors in its own dtypes, global ones in those that hold every client's."""
    dtypes = {
        name: promote([client.model.layout[name] for client in uploads.clients])
        if name in done.merged
        else uploads.clients[number].model.layout[name].dtype
        for name in done.tensors[number]
    }
    return {name: array.astype(numpy_dtype(dtypes[name])) for name, array in done.tensors[number].items()}
