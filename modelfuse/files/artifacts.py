"""The kinds of file: what each says of itself, and opening one of the kind that a command needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from modelfuse.errors import FileError, OptionError
from modelfuse.files.checkpoint import Checkpoint, open_checkpoint
from modelfuse.files.identity import model_id
from modelfuse.files.metadata import metadata_from_json, metadata_to_json
from modelfuse.types import Kind

__all__ = ["check_distinct", "metadata_from_json", "metadata_to_json", "model_id", "named", "open_kind"]

FOREIGN: frozenset[Kind] = frozenset({"model", "fisher", "partition"})
"""The kinds whose tensors alone say enough, so that files of other programs are welcome."""


def named(kind: Kind) -> str:
    """Return what a file of a kind is called in a sentence: ``a model file``."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} file"


def check_distinct(files: Sequence[Checkpoint]) -> None:
    """Refuse a file named twice, as a folder and a file inside it do: it would silently count double.

    Raises:
        OptionError: One is.
    """
    seen: set[Path] = set()
    for file in files:
        place = file.path.resolve()
        if place in seen:
            raise OptionError("FILES", f"{file.label} is given twice", "Name it once; folders stand for all in them.")
        seen.add(place)


def open_kind(path: Path, kind: Kind) -> Checkpoint:
    """Open a file that is to be of one kind.

    Args:
        path: The file, index or folder.
        kind: What the command needs. Without metadata of ours a model, Fisher or partition is taken at its word.

    Raises:
        FileError: The file cannot be read, or is of another kind.
    """
    checkpoint = open_checkpoint(path)
    if checkpoint.metadata is None and kind not in FOREIGN:
        raise FileError(
            checkpoint.label, f"no {kind} file: it has no modelfuse metadata", f"Make the {kind} file with modelfuse."
        )
    if checkpoint.metadata is not None and checkpoint.metadata.kind != kind:
        found = checkpoint.metadata.kind
        raise FileError(checkpoint.label, f"{named(found)} where {named(kind)} is needed", f"Give {named(kind)}.")
    return checkpoint
