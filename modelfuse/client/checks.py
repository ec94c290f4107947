"""Whether a model and a data set speak of the same classes."""

from __future__ import annotations

from torch import Tensor

from modelfuse.errors import ContentError
from modelfuse.files.checkpoint import Checkpoint

__all__ = ["require_label_order", "require_outputs"]


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
