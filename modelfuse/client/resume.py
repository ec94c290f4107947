"""The state of an unfinished training run, beside its output, for the next try to go on from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from modelfuse.files.atomic import StagedFile

__all__ = ["Snapshot", "read_snapshot", "resume_path", "write_snapshot"]

KEY = "modelfuse-resume"
WEIGHT, MOMENTUM = "weight/", "momentum/"


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A training run between two epochs.

    Args:
        epoch: How many epochs are done.
        weights: The network's state.
        momenta: The optimiser's buffers, by the names of their parameters.
        loss: Mean loss over the last epoch done.
    """

    epoch: int
    weights: Mapping[str, NDArray[Any]]
    momenta: Mapping[str, NDArray[Any]]
    loss: float


def resume_path(output: Path) -> Path:
    """Return where the state of the run that writes ``output`` lies."""
    return output.with_name(f"{output.name}.resume")


def write_snapshot(path: Path, snapshot: Snapshot, run: str) -> None:
    """Write a state, in one step.

    Args:
        path: The file.
        snapshot: The state.
        run: What identifies the run: its start, its data and its settings.

    Raises:
        FileError: The file cannot be written.
    """
    tensors = {f"{WEIGHT}{name}": array for name, array in snapshot.weights.items()}
    tensors |= {f"{MOMENTUM}{name}": array for name, array in snapshot.momenta.items()}
    text = json.dumps({"epoch": snapshot.epoch, "loss": snapshot.loss, "run": run})
    with StagedFile(path) as file:
        file.write_at(0, safetensors.numpy.save(tensors, {KEY: text}))
        file.seal()
        file.publish()


def read_snapshot(path: Path, run: str) -> Snapshot | None:
    """Return the state that a file holds, or None if there is none, or it is another run's.

    Args:
        path: The file.
        run: As :func:`write_snapshot`.
    """
    if not path.is_file():
        return None
    try:
        with safetensors.safe_open(path, framework="np") as file:
            said = json.loads((file.metadata() or {}).get(KEY, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no mapping)
    except (OSError, ValueError, RecursionError, safetensors.SafetensorError):
        return None  # whatever it is, no state of ours: start from the beginning
    if said.get("run") != run:
        return None
    weights, momenta = (
        {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
        for prefix in (WEIGHT, MOMENTUM)
    )
    return Snapshot(said["epoch"], weights, momenta, said["loss"])
