"""Several clients' runs: planned together, trained side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from modelfuse import __version__
from modelfuse.client.data import Dataset
from modelfuse.client.local import LocalRun, RunSummary, client_info, epoch_path, run_client
from modelfuse.client.resume import resume_path
from modelfuse.client.settings import TrainSettings
from modelfuse.client.start import Start
from modelfuse.client.workers import Workers
from modelfuse.files.atomic import make_folder
from modelfuse.files.metadata import extended
from modelfuse.files.writer import check_outputs
from modelfuse.types import Metadata, Step

__all__ = ["Cohort", "client_path", "metadata_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Cohort:
    """Clients that train in the same way.

    Args:
        runs: What each does, the longest first, so that they end at about the same time.
        together: They write into one folder, under ``client_{k}.safetensors``.
        threads: Threads a client.
    """

    runs: tuple[LocalRun, ...]
    together: bool
    threads: int = 1

    def examples(self) -> int:
        """Return how many examples all runs meet together, every epoch anew."""
        return sum(run.settings.epochs * len(run.dataset) for run in self.runs)

    def claim_places(self, inputs: tuple[Path, ...]) -> None:
        """Make the folders and check before any work that every file can be written.

        Args:
            inputs: The files that are read, which no output may replace.

        Raises:
            FileError: An output cannot be written, or is an input.
        """
        places: list[Path] = []
        for run in self.runs:
            companions = () if run.companion is None else (run.companion.path,)
            epochs = (epoch_path(run.output, epoch, self.together) for epoch in run.save_at)
            places += (run.output, *epochs, *companions)
        if self.together:
            for folder in {place.parent for place in places}:
                make_folder(folder)
        check_outputs(places, inputs)

    def workers(self, jobs: int) -> Workers[RunSummary]:
        """Return workers that train the clients.

        Args:
            jobs: Clients that train at the same time.
        """
        with _threads(1):  # before a fork no pool of threads may have been at work
            return Workers([partial(self._train, run) for run in self.runs], jobs)

    def forget_states(self) -> None:
        """Remove what an interrupted run would have gone on from."""
        for run in self.runs:
            resume_path(run.output).unlink(missing_ok=True)

    def _train(self, run: LocalRun, advance: Callable[[float], None]) -> RunSummary:
        with _threads(self.threads):
            return run_client(run, self.together, advance)


def client_path(output: Path, client: int, together: bool) -> Path:
    """Return where a client's model goes: the output itself, or a file in that folder."""
    return output / f"client_{client}.safetensors" if together else output


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def metadata_of(
    start: Start,
    settings: TrainSettings,
    dataset: Dataset,
    client: int,
    init_seed: int | None,
    more: Mapping[str, Any] | None = None,
) -> Metadata:
    """Return what a client's file says of itself.

    Args:
        start: Where the client started.
        settings: The recipe.
        dataset: The client's examples.
        client: Its number.
        init_seed: What the client's own first weights were drawn from, or None if it started from a broadcast model.
        more: Further options that decide the result.
    """
    white = {"normalize": dataset.normalisation.text()}
    said = {**asdict(settings), "data": dataset.name, **white, "client": client, **(more or {})}
    if init_seed is not None:
        said["init_seed"] = init_seed
    step = Step("train-client", __version__, said, start.inputs)
    return Metadata(
        "model",
        start.architecture,
        start.spec,
        client_info(dataset, client),
        history=extended(start.history, step),
        details=start.details,
    )
