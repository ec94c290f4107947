"""Distillation as files: the clients' models and the inputs that belong to them in, one model out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from modelfuse import __version__
from modelfuse.client.checks import require_label_order
from modelfuse.client.data import Dataset, read_dataset
from modelfuse.client.distill import distill, require_temperature
from modelfuse.client.evaluate_files import EvalSplit, open_examination
from modelfuse.client.factory import PREFIX
from modelfuse.client.models import load_network, tensors_of
from modelfuse.client.normalisation import normalisation_of
from modelfuse.client.settings import TrainSettings
from modelfuse.client.sources.strings import is_synthetic, open_inputs
from modelfuse.client.start import Start
from modelfuse.errors import OptionError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.metadata import extended
from modelfuse.files.quantize import code_dtype
from modelfuse.files.writer import save
from modelfuse.types import ClientInfo, Metadata, Step

__all__ = ["Distillation", "open_unlabelled", "run_distillation", "typed_architecture"]


@dataclass(frozen=True, slots=True)
class Distillation:
    """How an ensemble is distilled.

    Args:
        settings: The student's recipe.
        temperature: T, from 0.01 to 1000.
        weighting: What the weights below are, for the file's history.
        weights: One weight a teacher.
        device: Where to compute.
        architecture: What the user typed for files that do not say theirs, or None.
        bits: 16 or 8 to quantise the file, or None.
        more: Further options that decide the result, for the file's history.
    """

    settings: TrainSettings
    temperature: float
    weighting: str
    weights: Sequence[float]
    device: torch.device
    architecture: str | None = None
    bits: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check before any work what would only show at its end.

        Raises:
            OptionError: The temperature is out of range, or a file cannot have so many bits.
        """
        require_temperature(self.temperature)
        if self.bits is not None:
            code_dtype(self.bits)


def open_unlabelled(
    text: str,
    split: EvalSplit,
    partition: Path | None,
    teachers: Sequence[Checkpoint],
    *,
    download: bool = False,
    normalize: str | None = None,
) -> Dataset:
    """Load inputs, normalised as those that the teachers were trained on.

    Args:
        text: A data string; ``synthetic:CxHxW`` needs no data.
        split: Which examples of a data set; with ``validation`` what the partition holds out.
        partition: The partition's file, or None.
        teachers: Models whose history may say how they were normalised.
        download: Fetch the data set if it is not there.
        normalize: What ``--normalize`` says, or None for the teachers' own.

    Raises:
        OptionError: The teachers were normalised in different ways, and nobody says which to take.
        InputError: As :func:`modelfuse.client.evaluate_files.open_examination`.
    """
    own = normalisation_of(teachers, normalize)
    if not is_synthetic(text):
        if partition is not None and split != "validation":
            raise OptionError("--partition", f"the {split} split is not divided here", "Pass --split validation too.")
        if split == "validation":
            return open_examination(text, split, partition, download=download, normalize=own).dataset
        return read_dataset(open_inputs(text, split, download), own)
    given = {"--partition": partition is not None, f"--split {split}": split != "train", "--download": download}
    for option, there in given.items():
        if there:
            raise OptionError(option, "synthetic images belong to nobody, and are one split", "Leave it out.")
    return read_dataset(open_inputs(text, "train"), own)


def run_distillation(
    how: Distillation,
    teachers: Sequence[Checkpoint],
    start: Start,
    dataset: Dataset,
    output: Path,
    advance: Callable[[int], None] | None = None,
) -> float:
    """Distil the teachers into one network and write it.

    Args:
        how: The recipe.
        teachers: The clients' models, of any architectures with the same classes.
        start: Where the student starts.
        dataset: The inputs.
        output: The file to write; it appears whole.
        advance: As :func:`modelfuse.client.distill.distill`.

    Returns:
        The mean loss over the last epoch.

    Raises:
        InputError: A model cannot be loaded or does not fit the others or the data, or the file cannot be written.
    """
    classes = _common_classes(teachers)
    networks = [
        load_network(teacher, typed_architecture(teacher, how.architecture), how.device) for teacher in teachers
    ]
    student = start.network(0).to(how.device)
    loss = distill(student, networks, how.weights, dataset, how.settings, how.temperature, advance)
    recipe = {name: value for name, value in asdict(how.settings).items() if name not in ("augment", "prox_mu")}
    said = {
        **recipe,
        **how.more,
        "data": dataset.name,
        "ensemble_weights": how.weighting,
        "normalize": dataset.normalisation.text(),
        "temperature": how.temperature,
    }
    inputs = (*sorted(teacher.model_id() for teacher in teachers), *start.inputs)
    metadata = Metadata(
        "model",
        start.architecture,
        start.spec,
        ClientInfo(num_examples=_examples(teachers), classes=classes),
        history=extended(start.history, Step("distill", __version__, said, inputs)),
    )
    save(output, tensors_of(student), metadata, bits=how.bits)
    return loss


def typed_architecture(model: Checkpoint, architecture: str | None) -> str | None:
    """Return what the user's ``--architecture`` says of a model: only what its file does not."""
    stated = model.metadata.architecture if model.metadata else None
    return architecture if stated is None or stated.startswith(PREFIX) else None


def _common_classes(teachers: Sequence[Checkpoint]) -> tuple[str, ...] | None:
    clients = [teacher.metadata.client if teacher.metadata else None for teacher in teachers]
    classes = next((client.classes for client in clients if client and client.classes), None)
    if classes is not None:
        for teacher in teachers:
            require_label_order(teacher, classes, "the other models'")
    return classes


def _examples(teachers: Sequence[Checkpoint]) -> int | None:
    clients = [teacher.metadata.client if teacher.metadata else None for teacher in teachers]
    known = [client.num_examples for client in clients if client and client.num_examples]
    return sum(known) if len(known) == len(teachers) else None
