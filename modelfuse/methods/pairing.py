"""Which Fisher, or which Gram matrices, belong to which model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modelfuse.errors import ContentError, FileError, OptionError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.layout import is_float
from modelfuse.methods.uploads import is_running_statistic
from modelfuse.types import Kind

__all__ = ["paired"]


@dataclass(frozen=True, slots=True)
class _Words:
    """How messages speak of a companion: what one is, whose it is, how to name it, and how to make it."""

    one: str
    another: str
    order: str
    make: str


WORDS: Mapping[Kind, _Words] = {
    "fisher": _Words("Fisher", "the Fisher", "pass them with --fisher, in the models' order", "modelfuse fisher"),
    "gram": _Words("Gram file", "the Gram matrices", "make them again", "modelfuse gram"),
}


def paired(
    models: Sequence[Checkpoint], loose: Sequence[Checkpoint], ordered: Sequence[Checkpoint], companion: Kind | None
) -> list[Checkpoint | None]:
    """Return each model's companion: the ordered ones by position, the loose ones by the model_id that they name.

    Args:
        models: The clients' models.
        loose: Their Fishers or Gram matrices, in any order.
        ordered: Fishers of foreign models, in the models' order; empty where files name their models.
        companion: What every model must have: ``fisher``, ``gram``, or nothing.

    Raises:
        FileError: A companion is of another model, or two are of one.
        ContentError: It does not fit its model.
        OptionError: A model has none, or options do not go together.
    """
    words = WORDS[companion or "fisher"]
    if ordered and companion == "gram":
        raise OptionError("--fisher", "Gram matrices are needed, not Fishers", "Name them among the files.")
    if ordered:
        return _by_position(models, loose, ordered)
    if not loose and companion is None:
        return [None for _ in models]
    identities = [model.model_id() for model in models]
    by_model: dict[str, list[Checkpoint]] = {}
    for file in loose:
        if (owner := _owner(file, words)) not in identities:
            raise FileError(
                file.label, f"{words.another} of another model ({owner[:12]}…)", "Give that model too, or leave it out."
            )
        by_model.setdefault(owner, []).append(file)
    found = [_own(model, by_model.get(identity, []), words) for model, identity in zip(models, identities, strict=True)]
    for file in loose:
        if not any(file is match for match in found):
            raise FileError(file.label, "no client among the models has it", "Give its model too, or leave it out.")
    for model, match in zip(models, found, strict=True):
        if match is None and companion is not None:
            raise OptionError(
                model.label, f"no {words.one} of it is among the files", f"Make one with {words.make} and name it too."
            )
        if match is not None:
            (_check_gram if companion == "gram" else _check_fisher)(model, match)
    return found


def _by_position(
    models: Sequence[Checkpoint], loose: Sequence[Checkpoint], ordered: Sequence[Checkpoint]
) -> list[Checkpoint | None]:
    if len(ordered) != len(models) or loose:
        raise OptionError(
            "--fisher",
            f"{len(ordered)} Fishers for {len(models)} models ({len(loose)} more among the files)",
            "Repeat --fisher once a model, in the order of the models.",
        )
    for model, fisher in zip(models, ordered, strict=True):
        if fisher.metadata is not None and fisher.metadata.model_id not in (None, model.model_id()):
            raise FileError(
                fisher.label, f"not the Fisher of {model.label}", "Give --fisher in the order of the models."
            )
        _check_fisher(model, fisher)
    return list(ordered)


def _own(model: Checkpoint, files: Sequence[Checkpoint], words: _Words) -> Checkpoint | None:
    """Return a model's companion among those that name it; clients of equal weights go by their numbers."""
    if len(files) < 2:
        return next(iter(files), None)
    own = [file for file in files if (number := _number(file)) is not None and number == _number(model)]
    if len(own) != 1:
        raise FileError(
            files[-1].label,
            f"{model.label} has another {words.one}, {files[0].label}",
            f"Leave one out, or {words.order}.",
        )
    return own[0]


def _number(file: Checkpoint) -> int | None:
    return file.metadata.client.id if file.metadata and file.metadata.client else None


def _owner(file: Checkpoint, words: _Words) -> str:
    identity = file.metadata.model_id if file.metadata else None
    if identity is None:
        raise FileError(file.label, "it does not name its model", f"{words.order[0].upper()}{words.order[1:]}.")
    return identity


def _check_fisher(model: Checkpoint, fisher: Checkpoint) -> None:
    for name, layout in model.layout.items():
        if not is_float(layout.dtype) or is_running_statistic(name):
            continue
        if name not in fisher.layout:
            raise ContentError(fisher.label, f"tensor {name} of {model.label} is missing", "Make the Fisher again.")
        if fisher.layout[name].shape != layout.shape:
            raise ContentError(
                fisher.label,
                f"{name} is {list(fisher.layout[name].shape)}, in {model.label} it is {list(layout.shape)}",
                "Give --fisher in the order of the models.",
            )


def _check_gram(model: Checkpoint, gram: Checkpoint) -> None:
    for name, layout in gram.layout.items():
        shape = model.layout[name].shape if name in model.layout else ()
        inputs = math.prod(shape[1:])
        if len(shape) < 2 or layout.shape != (inputs, inputs):
            raise ContentError(
                gram.label,
                f"{name} is {list(layout.shape)}, and {model.label} has {list(shape) or 'no such tensor'}",
                "Make the Gram matrices again.",
            )
