"""One client's run: from its start, through its epochs, to its files; resumed where an earlier try was interrupted."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from modelfuse.client.checks import outputs_of
from modelfuse.client.data import Dataset
from modelfuse.client.models import tensors_of
from modelfuse.client.prototype_learning import TrainingPassFile
from modelfuse.client.resume import Snapshot, read_snapshot, resume_path, write_snapshot
from modelfuse.client.settings import TrainSettings
from modelfuse.client.train import Objective, Trainer, cross_entropy, train_every
from modelfuse.errors import ContentError, OptionError
from modelfuse.files.artifacts import model_id
from modelfuse.files.identity import bytes_of
from modelfuse.files.metadata import json_text
from modelfuse.files.writer import save
from modelfuse.types import ClientInfo, Metadata

__all__ = ["LocalRun", "RunSummary", "client_info", "epoch_path", "run_client"]


@dataclass(frozen=True, slots=True, eq=False)
class LocalRun:
    """What one client is to do.

    Args:
        client: Its number.
        network: Makes its network, holding the weights to start from.
        dataset: Its examples.
        settings: The recipe.
        device: Where to compute.
        metadata: What its file will say of itself.
        output: The file of the trained model.
        save_at: Epochs after which the model is written too, under :func:`epoch_path`.
        bits: 16 or 8 for a quantised file, None for one with the weights as they are.
        resume_every: Seconds of training between two states that an interrupted run can resume from.
        objective: The loss of a batch.
        trainable: Says of each parameter's name whether it trains.
        companion: A file that is written with the trained model, or None.
    """

    client: int
    network: Callable[[], nn.Module]
    dataset: Dataset
    settings: TrainSettings
    device: torch.device
    metadata: Metadata
    output: Path
    save_at: tuple[int, ...] = ()
    bits: int | None = None
    resume_every: float = 5.0
    objective: Objective = cross_entropy
    trainable: Callable[[str], bool] = train_every
    companion: TrainingPassFile | None = None

    def __post_init__(self) -> None:
        """Check before any work what would only show at its end.

        Raises:
            OptionError: An epoch to save is none of the run, or a file cannot have so many bits.
        """
        if self.bits not in (None, 8, 16):
            raise OptionError("--quantize", f"{self.bits} bits are not offered", "Choose 16 or 8.")
        if self.save_at and not 1 <= min(self.save_at) <= max(self.save_at) <= self.settings.epochs:
            raise OptionError(
                "--save-at",
                f"{','.join(map(str, self.save_at))} are not epochs of the run",
                f"Name epochs from 1 to {self.settings.epochs}.",
            )


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How a run went.

    Args:
        loss: Mean loss over the last epoch.
        resumed: Epochs that an earlier try had done; 0 from the beginning.
        seconds: Seconds that the epochs of this try took.
        examples: Examples that this try met, every epoch anew.
    """

    loss: float
    resumed: int
    seconds: float
    examples: int

    def text(self) -> str:
        """Return one line for people."""
        went_on = f", resumed after epoch {self.resumed}" if self.resumed else ""
        return f"loss {self.loss:.4f}, {self.examples / max(self.seconds, 1e-9):,.0f} examples/s{went_on}"


def client_info(dataset: Dataset, client: int | None) -> ClientInfo:
    """Return what a client's files say of it and its examples."""
    return ClientInfo(client, len(dataset), dataset.class_counts(), dataset.classes)


def epoch_path(output: Path, epoch: int, together: bool) -> Path:
    """Return where the model of an earlier epoch goes.

    Args:
        output: The file of the final model.
        epoch: The epoch, from 1.
        together: The client is one of several in a folder: the epoch goes into the folder's name
            (``clients-epoch25/client_3.safetensors``), not into the file's.
    """
    if together:
        return output.parent.with_name(f"{output.parent.name}-epoch{epoch}") / output.name
    return output.with_name(f"{output.stem}-epoch{epoch}{output.suffix}")


def run_client(run: LocalRun, together: bool, advance: Callable[[float], None]) -> RunSummary:
    """Train one client and write its files.

    Args:
        run: What to do.
        together: The client is one of several: its last state stays, so that nobody trains it again if the others are
            interrupted. Whoever runs them removes it.
        advance: Told the number of examples after every epoch.

    Raises:
        ContentError: The network cannot read the examples, or tells too few classes apart.
        OptionError: The training diverged.
        FileError: A file cannot be written.
    """
    if not len(run.dataset):
        raise ContentError(f"client {run.client}", "it has no examples", "Leave it out, or draw another partition.")
    network = run.network()
    identity, state = _identity(run, network), resume_path(run.output)
    trainer = Trainer(network, run.dataset, run.settings, run.client, run.device, run.objective, run.trainable)
    _check_fit(network, run)
    files = [(epoch, epoch_path(run.output, epoch, together)) for epoch in run.save_at]
    files.append((run.settings.epochs, run.output))
    companions = [] if run.companion is None else [(run.settings.epochs, run.companion.path)]
    loss = _resume(trainer, state, identity, [*files, *companions])
    resumed = trainer.epoch
    advance(resumed * len(run.dataset))
    started = saved = time.monotonic()
    while trainer.epoch < run.settings.epochs:
        loss = trainer.run_epoch()
        advance(len(run.dataset))
        for path in (path for epoch, path in files if epoch == trainer.epoch):
            identifier = _write(trainer, run, path)
            if run.companion is not None and path == run.output:
                run.companion.write(identifier)
        last = trainer.epoch == run.settings.epochs
        if together if last else time.monotonic() - saved >= run.resume_every:
            write_snapshot(state, Snapshot(trainer.epoch, trainer.weights(), trainer.momenta(), loss), identity)
            saved = time.monotonic()
    if not together:
        state.unlink(missing_ok=True)
    seconds = time.monotonic() - started
    return RunSummary(loss, resumed, seconds, (run.settings.epochs - resumed) * len(run.dataset))


def _write(trainer: Trainer, run: LocalRun, path: Path) -> str:
    *before, step = run.metadata.history
    if trainer.epoch < run.settings.epochs:
        step = replace(step, options={**step.options, "saved_epoch": trainer.epoch})
    return save(path, trainer.weights(), replace(run.metadata, history=(*before, step)), bits=run.bits)


def _resume(trainer: Trainer, state: Path, identity: str, files: Sequence[tuple[int, Path]]) -> float:
    """Go on from an earlier try's state, unless a file that it had written is gone, and return its last loss."""
    snapshot = read_snapshot(state, identity)
    if snapshot is None or not all(path.exists() for epoch, path in files if epoch <= snapshot.epoch):
        return math.nan
    trainer.resume(snapshot.epoch, snapshot.weights, snapshot.momenta, str(state))
    return snapshot.loss


def _identity(run: LocalRun, network: nn.Module) -> str:
    """Return a digest of everything that decides the run's result."""
    digest = hashlib.sha256()
    for tensor in (run.dataset.inputs, run.dataset.labels):
        digest.update(bytes_of(tensor.cpu().numpy()).data)
    said: dict[str, Any] = {
        "settings": asdict(run.settings),
        "client": run.client,
        "start": model_id(tensors_of(network)),
        "trained": [name for name, _ in network.named_parameters() if run.trainable(name)],
        "normalisation": asdict(run.dataset.normalisation),
        "device": run.device.type,
        "step": asdict(run.metadata.history[-1]),
    }
    digest.update(json_text(said).encode())
    return digest.hexdigest()


def _check_fit(network: nn.Module, run: LocalRun) -> None:
    outputs = outputs_of(network, run.dataset)
    if outputs < len(run.dataset.classes):
        raise ContentError(
            "--data",
            f"there are {len(run.dataset.classes)} classes and the network tells {outputs} apart",
            f"Use an --architecture with out={len(run.dataset.classes)}.",
        )
