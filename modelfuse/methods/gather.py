"""From files to uploads: sort out which file is whose, and check that they can be merged before anything is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from modelfuse.errors import ContentError, FileError, OptionError
from modelfuse.files.artifacts import check_distinct, named
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.patterns import Patterns, part_of
from modelfuse.files.prototypes import read_prototypes
from modelfuse.methods.agreement import check_classes, check_shapes, check_tensors
from modelfuse.methods.pairing import paired
from modelfuse.methods.uploads import Upload, Uploads
from modelfuse.spec.architectures import parse_architecture
from modelfuse.spec.axes import PermutationSpec
from modelfuse.types import ClientInfo, Kind

__all__ = ["Given", "gather", "gather_prototypes"]


@dataclass(frozen=True, slots=True)
class Given:
    """What the user gave to a merge, opened but not yet understood.

    Args:
        files: Models and Fishers, in any order.
        fishers: Fishers of foreign models, in the order of the models; empty where files name their models.
        num_examples: n_k of each model in the order given, or None where the files say it.
        class_counts: Examples of each class, one row a model in the order given, or None where the files say it.
        spec: A permutation spec that replaces the files', or None.
        architecture: An architecture string that replaces the files', or None.
        references: The reference models to choose from; None stands for the client with the most examples.
        part: Which tensors are merged; the clients' others may differ in name and shape.
    """

    files: Sequence[Checkpoint]
    fishers: Sequence[Checkpoint] = ()
    num_examples: Sequence[int] | None = None
    class_counts: Sequence[Sequence[int]] | None = None
    spec: PermutationSpec | None = None
    architecture: str | None = None
    references: Sequence[Checkpoint | None] = (None,)
    part: Patterns = field(default_factory=Patterns)


def gather(given: Given, companion: Kind | None, equal_widths: bool = True) -> Uploads:
    """Return the uploads of a merge.

    Args:
        given: What the user gave.
        companion: What every client must send beside its model: its ``fisher``, its ``gram`` matrices, or nothing.
        equal_widths: Whether all clients must have the same shapes.

    Raises:
        FileError: A file is of the wrong kind, or of another model.
        ContentError: Clients differ in tensors, shapes or label order, or do not fit the spec.
        OptionError: The options do not go with the files, or one is given twice.
    """
    check_distinct(given.files)
    models = [file for file in given.files if _kind(file) == "model"]
    welcome = companion or "fisher"  # Fishers that nobody needs do no harm: a folder may hold them
    loose = [file for file in given.files if _kind(file) == welcome]
    for file in given.files:
        if _kind(file) not in ("model", welcome):
            raise FileError(file.label, f"{named(_kind(file))} where a model is needed", "Leave it out.")
    if not models:
        raise OptionError("FILES", "there is no model among them", "Name at least one client's model.")
    infos = _infos(models, given)
    companions = paired(models, loose, given.fishers, companion)
    architecture, spec = _structure(given, models)
    if given.part:
        models = [part_of(model, given.part) for model in models]
    clients = [Upload(*parts) for parts in zip(models, companions, infos, strict=True)]
    clients = [clients[index] for index in _canonical_order(clients)]
    check_tensors(clients, spec and spec.part(models[0].layout) if given.part else spec, equal_widths)
    check_classes(clients)
    for reference in filter(None, given.references):
        if equal_widths:
            check_shapes(clients[0].model, reference)
    return Uploads(tuple(clients), spec, architecture, given.references[0])


def gather_prototypes(given: Given) -> Uploads:
    """Return the uploads of a merge of prototypes.

    Args:
        given: What the user gave: prototype files only.

    Raises:
        FileError: A file is of another kind.
        ContentError: Clients differ in the embedding's width or in their label order.
        OptionError: An option goes with models only, or a file is given twice.
    """
    for option, value in (
        ("--fisher", given.fishers),
        ("--num-examples", given.num_examples),
        ("--class-counts", given.class_counts),
        ("--only", given.part),
        ("--spec", given.spec),
        ("--architecture", given.architecture),
    ):
        if value:
            raise OptionError(option, "prototypes are merged, not models", "Leave it out.")
    for file in given.files:
        if _kind(file) != "prototypes":
            raise FileError(
                file.label,
                f"{named(_kind(file))} where prototypes are needed",
                "Make the client's with modelfuse prototypes.",
            )
    check_distinct(given.files)
    infos = [file.metadata.client if file.metadata and file.metadata.client else ClientInfo() for file in given.files]
    clients = [Upload(file, None, info) for file, info in zip(given.files, infos, strict=True)]
    clients = [clients[index] for index in _canonical_order(clients)]
    check_classes(clients)
    widths = [read_prototypes(client.model).width for client in clients]
    for client, width in zip(clients, widths, strict=True):
        if width != widths[0]:
            raise ContentError(
                client.model.label,
                f"its embedding has {width} entries, that of {clients[0].model.label} {widths[0]}",
                "Clients may differ in everything before the embedding, not in its width.",
            )
    return Uploads(tuple(clients))


def _kind(file: Checkpoint) -> Kind:
    return "model" if file.metadata is None else file.metadata.kind


def _infos(models: Sequence[Checkpoint], given: Given) -> list[ClientInfo]:
    infos = [model.metadata.client if model.metadata and model.metadata.client else ClientInfo() for model in models]
    if given.num_examples is not None:
        _check_one_each("--num-examples", "numbers", given.num_examples, models)
        infos = [replace(info, num_examples=count) for info, count in zip(infos, given.num_examples, strict=True)]
    if given.class_counts is not None:
        _check_one_each("--class-counts", "rows", given.class_counts, models)
        infos = [replace(info, class_counts=tuple(row)) for info, row in zip(infos, given.class_counts, strict=True)]
    for model, info in zip(models, infos, strict=True):
        if info.num_examples is not None and info.num_examples < 1:
            raise ContentError(
                model.label, f"it was trained on {info.num_examples} examples", "Leave this client out of the merge."
            )
    return infos


def _check_one_each(option: str, what: str, values: Sequence[Any], models: Sequence[Checkpoint]) -> None:
    if len(values) != len(models):
        raise OptionError(
            option, f"{len(values)} {what} for {len(models)} models", "Give one a model, in the order of the files."
        )


def _canonical_order(clients: Sequence[Upload]) -> list[int]:
    """Return the order of the clients' numbers, or of their paths: the same whatever order they were given in."""
    ids = [client.info.id for client in clients]
    if None not in ids and len(set(ids)) == len(ids):
        return sorted(range(len(clients)), key=lambda index: ids[index] or 0)
    return sorted(range(len(clients)), key=lambda index: _natural(clients[index].model.label))


def _natural(text: str) -> list[tuple[bool, Any]]:
    """Return a key that sorts client_10 behind client_9."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else part) for part in re.split(r"(\d+)", text)]


def _structure(given: Given, models: Sequence[Checkpoint]) -> tuple[str | None, PermutationSpec | None]:
    metadata = [model.metadata for model in models if model.metadata is not None]
    architectures = {entry.architecture for entry in metadata if entry.architecture}
    architecture = given.architecture or (architectures.pop() if len(architectures) == 1 else None)
    if given.spec is not None:
        return architecture, given.spec
    if given.architecture is not None:
        return architecture, parse_architecture(given.architecture).spec()
    specs: dict[str, Mapping[str, Any]] = {
        model.label: model.metadata.spec
        for model in models
        if model.metadata is not None and model.metadata.spec is not None
    }
    first = next(iter(specs), None)
    if first is None:
        return architecture, None
    for label, spec in specs.items():
        if spec != specs[first]:
            raise ContentError(
                label, f"its architecture is not that of {first}", "Merge clients of one architecture, or pass --spec."
            )
    return architecture, PermutationSpec.from_json(specs[first], first)
