"""How a cohort trains: what ``train-client`` was told, put together into one run a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from modelfuse.client.cohort import client_path, metadata_of
from modelfuse.client.data import Dataset
from modelfuse.client.freezing import FreezeRule, frozen_through
from modelfuse.client.local import LocalRun
from modelfuse.client.prototype_learning import PrototypeLearning, TrainingPassFile, prototypes_path
from modelfuse.client.proximity import TrainingPass
from modelfuse.client.settings import TrainSettings
from modelfuse.client.start import Start
from modelfuse.files.patterns import Patterns
from modelfuse.types import Metadata

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What all clients of a cohort have in common, and where each starts.

    Args:
        starts: Where each client starts.
        settings: The recipe.
        device: Where to compute.
        output: The model's file, or the folder of several.
        together: The clients write into one folder.
        learning: FedProto's part of the recipe.
        only: Which parameters train.
        freeze_through: The last group that stays as it is, or None.
        freeze_rule: How the layers behind it train.
        prototypes_out: Where the prototypes of the last training pass go, or None.
        init_seed: What the clients' own first weights are drawn from, or None.
        save_at: Epochs after which the model is written too.
        bits: 16 or 8 for quantised files, or None.
        resume_every: Seconds between two states to resume from.
        drawn: How the partition was drawn, for the clients' history.
    """

    starts: Mapping[int, Start]
    settings: TrainSettings
    device: torch.device
    output: Path
    together: bool
    learning: PrototypeLearning
    only: Patterns
    freeze_through: str | None
    freeze_rule: FreezeRule
    prototypes_out: Path | None
    init_seed: int | None
    save_at: tuple[int, ...]
    bits: int | None
    resume_every: float
    drawn: Mapping[str, Any]

    def run(self, client: int, dataset: Dataset) -> LocalRun:
        """Return what one client is to do.

        Args:
            client: Its number.
            dataset: Its examples.

        Raises:
            InputError: Something that was asked for does not fit the client's network or data.
        """
        start, name = self.starts[client], f"client {client}'s model"
        if self.only:
            self.only.check(dict(start.network(client).named_parameters()), name)
        freezing = frozen_through(self.freeze_through, start.spec, name)
        recipe = freezing.recipe(self.settings, self.freeze_rule)
        read = replace(start, inputs=(*start.inputs, *self.learning.inputs()))
        metadata = metadata_of(read, recipe, dataset, client, self.init_seed, self._said())
        companion = self._companion(client, dataset, metadata)
        return LocalRun(
            client=client,
            network=partial(start.network, client),
            dataset=dataset,
            settings=recipe,
            device=self.device,
            metadata=metadata,
            output=client_path(self.output, client, self.together),
            save_at=self.save_at,
            bits=self.bits,
            resume_every=self.resume_every,
            objective=self.learning.objective(dataset, name, companion.training_pass if companion else None),
            trainable=lambda parameter: self.only.holds(parameter) and freezing.trains(parameter),
            companion=companion,
        )

    def _said(self) -> dict[str, Any]:
        """Return the options that decide a client's result beside the recipe, for its history."""
        kept = {"freeze_through": self.freeze_through, "freeze_rule": self.freeze_rule} if self.freeze_through else {}
        only = {"train_only": list(self.only.only)} if self.only else {}
        return {**self.drawn, **self.learning.said(), **kept, **only}

    def _companion(self, client: int, dataset: Dataset, metadata: Metadata) -> TrainingPassFile | None:
        if self.prototypes_out is None:
            return None
        met = TrainingPass(len(dataset.classes), len(dataset))
        return TrainingPassFile(met, prototypes_path(self.prototypes_out, client, self.together), metadata)
