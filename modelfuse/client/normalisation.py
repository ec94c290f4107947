"""How models' inputs were normalised in training, where their files say it."""

from __future__ import annotations

from collections.abc import Sequence

from modelfuse.errors import ContentError
from modelfuse.files.checkpoint import Checkpoint

__all__ = ["normalisation_of"]


def normalisation_of(models: Sequence[Checkpoint], told: str | None = None) -> str | None:
    """Return how inputs of models are to be normalised, as ``--normalize`` takes it, or None if nobody says it.

    Args:
        models: The models' files: each may say how its latest training did it.
        told: What ``--normalize`` says, which counts more, or None.

    Raises:
        ContentError: Two say different ones.
    """
    if told is not None:
        return told
    said = {model.label: text for model in models if (text := _latest(model)) is not None}
    first = next(iter(said), None)
    for label, text in said.items():
        if first is not None and text != said[first]:
            raise ContentError(
                label,
                f"it was trained on data normalised by {text}, and {first} by {said[first]}",
                "Pass --normalize to take one for all.",
            )
    return None if first is None else said[first]


def _latest(model: Checkpoint) -> str | None:
    history = model.metadata.history if model.metadata else ()
    return next((str(step.options["normalize"]) for step in reversed(history) if "normalize" in step.options), None)
