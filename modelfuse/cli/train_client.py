"""``modelfuse train-client``: train one client, or several, on their own examples."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from modelfuse.cli.options import (
    ArchitectureOption,
    DataOption,
    DeviceOption,
    DownloadOption,
    NormalizeOption,
    OutputOption,
    PartitionOption,
    QuantizeOption,
)
from modelfuse.client.settings import Augmentation, Precision, Schedule, TrainSettings, pick
from modelfuse.errors import OptionError

__all__ = ["train_client"]

DEFAULTS = TrainSettings()


def train_client(
    context: typer.Context,
    data: DataOption,
    output: OutputOption,
    init: Annotated[Path | None, typer.Argument(metavar="INIT", help="The broadcast model to start from.")] = None,
    partition: PartitionOption = None,
    client: Annotated[
        str | None,
        typer.Option("--client", help="A number, numbers joined by commas, or all: several go into the folder OUT."),
    ] = None,
    architecture: ArchitectureOption = None,
    spec: Annotated[
        Path | None, typer.Option("--spec", metavar="FILE", help="Permutation spec (JSON) of a network of your own.")
    ] = None,
    init_seed: Annotated[
        int | None, typer.Option("--init-seed", min=0, help="Start each client from weights of its own instead.")
    ] = None,
    epochs: Annotated[int, typer.Option("--local-epochs", "-E", help="Passes over the client's examples.")] = (
        DEFAULTS.epochs
    ),
    batch_size: Annotated[int, typer.Option("--batch-size", help="Examples a step.")] = DEFAULTS.batch_size,
    lr: Annotated[float, typer.Option("--lr", help="Learning rate.")] = DEFAULTS.lr,
    momentum: Annotated[float, typer.Option("--momentum", help="Momentum of SGD.")] = DEFAULTS.momentum,
    weight_decay: Annotated[float, typer.Option("--weight-decay", help="Weight decay of SGD.")] = DEFAULTS.weight_decay,
    schedule: Annotated[
        str, typer.Option("--schedule", help="constant, or cosine: annealed from epoch to epoch towards zero.")
    ] = DEFAULTS.schedule,
    augment: Annotated[
        str, typer.Option("--augment", help="none, flip, crop (by up to 4 pixels) or crop-flip, image by image.")
    ] = DEFAULTS.augment,
    precision: Annotated[
        str, typer.Option("--precision", help="float32, or bf16: bfloat16 arithmetic, float32 weights.")
    ] = DEFAULTS.precision,
    prox_mu: Annotated[float, typer.Option("--prox-mu", metavar="MU", help="FedProx's μ.")] = DEFAULTS.prox_mu,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of order, augmentation and dropout.")] = (
        DEFAULTS.seed
    ),
    normalize: NormalizeOption = None,
    save_at: Annotated[
        str | None,
        typer.Option(
            "--save-at",
            metavar="E,…",
            help="Write the model after these epochs too, with -epochE in the name of OUT. "
            "They are points of one run: with --schedule cosine, only the last one is annealed to the end.",
        ),
    ] = None,
    quantize: QuantizeOption = None,
    device: DeviceOption = "auto",
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", "-j", min=1, help="Clients that train at the same time on the CPU; default: one a core."
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option("--threads", min=1, help="Threads a client; the last digits depend on them, not on --jobs.")
    ] = 1,
    resume_every: Annotated[
        float, typer.Option("--resume-every", min=0, help="Seconds between two states to resume from (OUT.resume).")
    ] = 5.0,
    download: DownloadOption = False,
) -> None:
    """Train one client, or several, on their own examples: a broadcast model in, a trained model out.

    An interrupted run, started again in the same way, goes on from its last state and ends with the same bytes.

    \b
    FedFiOT's recipe:
      modelfuse train-client init.safetensors --data cifar10:ROOT --partition split.safetensors --client all
        -E 25 --lr 0.02 --momentum 0.9 --weight-decay 2e-3 --batch-size 64 --schedule cosine
        --augment crop-flip -o clients/
    """
    settings = TrainSettings(
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        momentum=momentum,
        weight_decay=weight_decay,
        schedule=pick(schedule, Schedule, "--schedule"),
        augment=pick(augment, Augmentation, "--augment"),
        precision=pick(precision, Precision, "--precision"),
        prox_mu=prox_mu,
        seed=seed,
    )
    early = parse_epochs(save_at)
    from modelfuse.client.cohort import Cohort, client_path, metadata_of
    from modelfuse.client.device import pick_device
    from modelfuse.client.local import LocalRun
    from modelfuse.client.shares import client_datasets
    from modelfuse.client.start import open_start
    from modelfuse.client.workers import available_cores

    where = pick_device(device)
    start = open_start(init, architecture, init_seed, spec)
    datasets = client_datasets(data, partition, client, download=download, normalize=normalize)
    together = len(datasets) > 1 or client == "all" or output.is_dir()
    runs = tuple(
        LocalRun(
            client=number,
            network=partial(start.network, number),
            dataset=dataset,
            settings=settings,
            device=where,
            metadata=metadata_of(start, settings, dataset, number, init_seed),
            output=client_path(output, number, together),
            save_at=early,
            bits=quantize,
            resume_every=resume_every,
        )
        for number, dataset in sorted(datasets.items(), key=lambda item: -len(item[1]))
    )
    cohort = Cohort(runs, together, threads)
    cohort.claim_places(tuple(path for path in (init, partition, spec) if path is not None))
    at_once = jobs or max(1, available_cores() // threads)
    with (
        cohort.workers(at_once if where.type == "cpu" else 1) as workers,
        context.obj.progress(cohort.examples(), f"train {len(runs)} client{'s' if len(runs) > 1 else ''}") as bar,
    ):
        summaries = workers.run(bar.advance)
    cohort.forget_states()
    for run, summary in sorted(zip(runs, summaries, strict=True), key=lambda pair: pair[0].client):
        context.obj.say(f"{run.output}: client {run.client}, {summary.text()}")


def parse_epochs(text: str | None) -> tuple[int, ...]:
    """Return the epochs that ``--save-at`` names, ascending.

    Raises:
        OptionError: Something else than numbers joined by commas.
    """
    parts = text.split(",") if text else []
    if not all(part.strip().isdecimal() for part in parts):
        raise OptionError("--save-at", f"{text!r} is no list of epochs", "Write 25,50,100.")
    return tuple(sorted({int(part) for part in parts}))
