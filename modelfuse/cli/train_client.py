"""``modelfuse train-client``: train one client, or several, on their own examples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modelfuse.cli.options import (
    ArchitectureOption,
    DataOption,
    DeviceOption,
    DownloadOption,
    EmbeddingOption,
    NormalizeOption,
    OutputOption,
    PartitionOption,
    PoolingOption,
    QuantizeOption,
    SpecOption,
)
from modelfuse.cli.recipe_options import (
    ClipNormOption,
    LrOption,
    MomentumOption,
    PrecisionOption,
    ScheduleOption,
    WeightDecayOption,
)
from modelfuse.client.settings import Augmentation, Precision, Schedule, TrainSettings, pick
from modelfuse.errors import OptionError

if TYPE_CHECKING:
    from modelfuse.cli.render import Screen
    from modelfuse.client.cohort import Cohort
    from modelfuse.client.prototype_learning import PrototypeLearning

__all__ = ["train_client"]

DEFAULTS = TrainSettings()


def train_client(
    context: typer.Context,
    data: DataOption,
    output: OutputOption,
    init: Annotated[
        Path | None,
        typer.Argument(
            metavar="INIT", help="The broadcast model to start from, or a folder with each client's own client_K."
        ),
    ] = None,
    partition: PartitionOption = None,
    client: Annotated[
        str | None,
        typer.Option("--client", help="A number, numbers joined by commas, or all: several go into the folder OUT."),
    ] = None,
    architecture: ArchitectureOption = None,
    spec: SpecOption = None,
    init_seed: Annotated[
        int | None, typer.Option("--init-seed", min=0, help="Start each client from weights of its own instead.")
    ] = None,
    overlay: Annotated[
        Path | None,
        typer.Option("--overlay", metavar="FILE", help="A (partial) broadcast whose tensors replace those of INIT."),
    ] = None,
    train_only: Annotated[
        list[str] | None,
        typer.Option("--train-only", metavar="PATTERN", help="Train only the parameters called so; repeatable."),
    ] = None,
    freeze_through: Annotated[
        str | None,
        typer.Option("--freeze-through", metavar="GROUP", help="Keep the layers up to this group; FedMA's retraining."),
    ] = None,
    freeze_rule: Annotated[
        str,
        typer.Option(
            "--freeze-rule",
            help="plain: train the rest as told. fedma: without weight decay; but where only the output layer is left, "
            "with it, for 3 times the epochs at a tenth of the rate.",
        ),
    ] = "plain",
    prototypes: Annotated[
        Path | None, typer.Option("--prototypes", metavar="FILE", help="Global prototypes to pull embeddings to.")
    ] = None,
    proto_weight: Annotated[float, typer.Option("--proto-weight", help="λ of FedProto.")] = 1.0,
    proto_distance: Annotated[
        str, typer.Option("--proto-distance", help="mse (the published λ belong to it), l2 or l1.")
    ] = "mse",
    proto_denominator: Annotated[
        str, typer.Option("--proto-denominator", help="Mean over all examples, or over those covered by a prototype.")
    ] = "all",
    embedding: EmbeddingOption = None,
    pooling: PoolingOption = "flatten",
    prototypes_out: Annotated[
        Path | None,
        typer.Option(
            "--prototypes-out",
            metavar="FILE",
            help="Write the prototypes of the last training pass too (FedProto's code); a folder for several clients.",
        ),
    ] = None,
    epochs: Annotated[int, typer.Option("--local-epochs", "-E", help="Passes over the client's examples.")] = (
        DEFAULTS.epochs
    ),
    batch_size: Annotated[int, typer.Option("--batch-size", help="Examples a step.")] = DEFAULTS.batch_size,
    lr: LrOption = DEFAULTS.lr,
    momentum: MomentumOption = DEFAULTS.momentum,
    weight_decay: WeightDecayOption = DEFAULTS.weight_decay,
    schedule: ScheduleOption = DEFAULTS.schedule,
    augment: Annotated[
        str, typer.Option("--augment", help="none, flip, crop (by up to 4 pixels) or crop-flip, image by image.")
    ] = DEFAULTS.augment,
    precision: PrecisionOption = DEFAULTS.precision,
    prox_mu: Annotated[float, typer.Option("--prox-mu", metavar="MU", help="FedProx's μ.")] = DEFAULTS.prox_mu,
    clip_norm: ClipNormOption = DEFAULTS.clip_norm,
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
      modelfuse train-client init.safetensors --data cifar10:ROOT --partition split.safetensors --client all \\
        -E 25 --lr 0.02 --momentum 0.9 --weight-decay 2e-3 --batch-size 64 --schedule cosine \\
        --augment crop-flip -o clients/

    \b
    FedProto, round 2, each client from its own model of round 1:
      modelfuse train-client round1/ --prototypes prototypes1.safetensors --data mnist:ROOT \\
        --partition split.safetensors --client all -E 1 --lr 0.01 --momentum 0.5 --batch-size 8 -o round2/

    \b
    FedMA, round 3, the layers behind conv2, which merge --through conv2 wrote:
      modelfuse train-client round2/ --freeze-through conv2 --freeze-rule fedma --lr 0.01 --weight-decay 1e-4 \\
        --data cifar10:ROOT --partition split.safetensors --client all -o trained2/

    \b
    FedPer, each client's own head under the shared body:
      modelfuse train-client round1/ --overlay body1.safetensors ... -o round2/
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
        clip_norm=clip_norm,
        seed=seed,
    )
    from modelfuse.client.cohort import Cohort
    from modelfuse.client.device import pick_device
    from modelfuse.client.freezing import FreezeRule
    from modelfuse.client.partition import read_partition
    from modelfuse.client.plan import Plan
    from modelfuse.client.shares import client_datasets
    from modelfuse.client.sources.strings import data_files
    from modelfuse.client.start import open_starts, require_start
    from modelfuse.client.workers import available_cores
    from modelfuse.files.folders import own_model
    from modelfuse.files.patterns import Patterns

    require_start(init, architecture, init_seed)
    where = pick_device(device)
    learning = _learning(prototypes, proto_weight, proto_distance, proto_denominator, embedding, pooling)
    datasets = client_datasets(data, partition, client, download=download, normalize=normalize)
    together = len(datasets) > 1 or client == "all" or output.is_dir()
    plan = Plan(
        starts=open_starts(datasets, init, architecture, init_seed, spec, overlay),
        settings=settings,
        device=where,
        output=output,
        together=together,
        learning=learning,
        only=Patterns(tuple(train_only or ()), options=("--train-only", "--train-only")),
        freeze_through=freeze_through,
        freeze_rule=pick(freeze_rule, FreezeRule, "--freeze-rule"),
        prototypes_out=prototypes_out,
        init_seed=init_seed,
        save_at=parse_epochs(save_at),
        bits=quantize,
        resume_every=resume_every,
        drawn={} if partition is None else read_partition(partition).settings(),
    )
    for number, dataset in datasets.items():
        if learning.uncovered(dataset):
            context.obj.say(f"client {number}: none of its classes has a prototype, so it trains without")
    runs = tuple(plan.run(*pair) for pair in sorted(datasets.items(), key=lambda item: -len(item[1])))
    cohort = Cohort(runs, together, threads)
    own = () if init is None else tuple(own_model(init, number) for number in datasets)
    read = (*own, partition, spec, overlay, prototypes, *data_files(data))
    cohort.claim_places(tuple(path for path in read if path is not None))
    at_once = jobs or max(1, available_cores() // threads)
    _train(cohort, at_once if where.type == "cpu" else 1, context.obj)


def _train(cohort: Cohort, jobs: int, screen: Screen) -> None:
    """Train the clients, show how far they are, and say how each did."""
    count = len(cohort.runs)
    with (
        cohort.workers(jobs) as workers,
        screen.progress(cohort.examples(), f"train {count} client{'s' if count > 1 else ''}") as bar,
    ):
        summaries = workers.run(bar.advance)
    cohort.forget_states()
    for run, summary in sorted(zip(cohort.runs, summaries, strict=True), key=lambda pair: pair[0].client):
        screen.say(f"{run.output}: client {run.client}, {summary.text()}")


def _learning(
    prototypes: Path | None, weight: float, distance: str, denominator: str, module: str | None, pooling: str
) -> PrototypeLearning:
    from modelfuse.client.embedding import Embedding, Pooling
    from modelfuse.client.prototype_learning import PrototypeLearning
    from modelfuse.client.proximity import Denominator, Distance
    from modelfuse.files.artifacts import open_kind

    return PrototypeLearning(
        None if prototypes is None else open_kind(prototypes, "prototypes"),
        weight,
        pick(distance, Distance, "--proto-distance"),
        pick(denominator, Denominator, "--proto-denominator"),
        Embedding(module, pick(pooling, Pooling, "--pooling")),
    )


def parse_epochs(text: str | None) -> tuple[int, ...]:
    """Return the epochs that ``--save-at`` names, ascending.

    Raises:
        OptionError: Something else than numbers joined by commas.
    """
    parts = text.split(",") if text else []
    if not all(part.strip().isdecimal() for part in parts):
        raise OptionError("--save-at", f"{text!r} is no list of epochs", "Write 25,50,100.")
    return tuple(sorted({int(part) for part in parts}))
