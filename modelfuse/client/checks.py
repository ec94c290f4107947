"""Whether a model and a data set speak of the same classes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from modelfuse.client.data import Dataset
from modelfuse.errors import ContentError
from modelfuse.files.checkpoint import Checkpoint

__all__ = ["outputs_of", "readable", "require_label_order", "require_outputs"]


def require_outputs(logits: Tensor, num_classes: int) -> None:
    """Check that a network has an output for every class of the data.

    Args:
        logits: (…, C), what the network gave.
        num_classes: Classes of the data.

    Raises:
        ContentError: It has fewer.
    """
    if logits.shape[-1] < num_classes:
        raise ContentError(
            "--data",
            f"it has {num_classes} classes and the network {logits.shape[-1]} outputs",
            "Use the data that the network was trained for.",
        )


@contextmanager
def readable(dataset: Dataset) -> Iterator[None]:
    """Say of inputs that a network cannot read what they are, whatever torch says.

    Args:
        dataset: What the network reads in the context.

    Raises:
        ContentError: The network cannot read them: another shape, or tokens that it does not know.
    """
    try:
        yield
    except (RuntimeError, IndexError) as error:
        shape = "×".join(map(str, dataset.inputs.shape[1:]))
        raise ContentError(
            "--data",
            f"the network cannot read an example of shape {shape} ({(str(error).splitlines() or ['?'])[0]})",
            "Use the data that the network was made for, or another --architecture.",
        ) from error


def outputs_of(network: nn.Module, dataset: Dataset) -> int:
    """Return how many outputs a network has, having let it read the first example in evaluation mode.

    Args:
        network: The network; it stays in evaluation mode.
        dataset: At least one example.

    Raises:
        ContentError: The network cannot read it.
    """
    network.eval()
    with torch.no_grad(), readable(dataset):
        logits = network(dataset.batch(slice(0, 1)).to(next(network.parameters()).device))
    return int(logits.shape[-1])


def require_label_order(checkpoint: Checkpoint, classes: tuple[str, ...], whose: str = "those of --data") -> None:
    """Check that a model was trained with the label order of the data, where its file says so.

    Args:
        checkpoint: The model's file.
        classes: The label order of the data.
        whose: What these are called in the message.

    Raises:
        ContentError: The file states another order.
    """
    client = checkpoint.metadata.client if checkpoint.metadata else None
    if client is None or client.classes is None or client.classes == classes:
        return
    differing = next(
        (number for number, (ours, theirs) in enumerate(zip(client.classes, classes, strict=False)) if ours != theirs),
        min(len(client.classes), len(classes)),
    )
    raise ContentError(
        checkpoint.label,
        f"its classes are not {whose}, from label {differing} on",
        "Use data and models with the same classes in the same order.",
    )
