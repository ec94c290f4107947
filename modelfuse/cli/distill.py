"""``modelfuse distill``: one model that says what the clients' ensemble says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from modelfuse.cli.options import (
    ArchitectureOption,
    DeviceOption,
    DownloadOption,
    EnsembleWeightsOption,
    OutputOption,
    PartitionOption,
    QuantizeOption,
    SpecOption,
    ThreadsOption,
    TrainedNormalizeOption,
)
from modelfuse.cli.recipe_options import (
    ClipNormOption,
    LrOption,
    MomentumOption,
    PrecisionOption,
    ScheduleOption,
    WeightDecayOption,
)
from modelfuse.client.settings import Precision, Schedule, TrainSettings, pick

__all__ = ["distill"]

DEFAULTS = TrainSettings(epochs=5, lr=0.01, schedule="cosine")


def distill(
    context: typer.Context,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES...", help="The clients' models, or folders of them; of any widths.")
    ],
    data: Annotated[
        str,
        typer.Option(
            "--data",
            metavar="DATA",
            help="What to show them: synthetic:CxHxW[,count=16000][,seed=0] for images of nobody, or a data set "
            "(digits, cifar10:ROOT, npz:FILE, …), whose labels are not looked at.",
        ),
    ],
    output: OutputOption,
    start: Annotated[
        Path | None,
        typer.Option("--start", metavar="FILE", help="The model that learns, such as a merge; or --init-seed."),
    ] = None,
    architecture: ArchitectureOption = None,
    init_seed: Annotated[
        int | None,
        typer.Option(
            "--init-seed",
            min=0,
            help="Start from random weights of --architecture, or of --start's; a network that "
            "normalises by running statistics keeps those of a beginner, mean 0 and variance 1.",
        ),
    ] = None,
    spec: SpecOption = None,
    ensemble_weights: EnsembleWeightsOption = "uniform",
    temperature: Annotated[float, typer.Option("--temperature", help="T: divides the logits of all.")] = 1.0,
    epochs: Annotated[int, typer.Option("--epochs", "-E", help="Passes over the inputs.")] = DEFAULTS.epochs,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Inputs a step.")] = DEFAULTS.batch_size,
    lr: LrOption = DEFAULTS.lr,
    momentum: MomentumOption = DEFAULTS.momentum,
    weight_decay: WeightDecayOption = DEFAULTS.weight_decay,
    schedule: ScheduleOption = DEFAULTS.schedule,
    clip_norm: ClipNormOption = DEFAULTS.clip_norm,
    precision: PrecisionOption = DEFAULTS.precision,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the order of inputs, and of dropout.")] = 0,
    split: Annotated[
        str, typer.Option("--split", help="train, test, or validation: what the --partition holds out for the server.")
    ] = "train",
    partition: PartitionOption = None,
    normalize: TrainedNormalizeOption = None,
    quantize: QuantizeOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    download: DownloadOption = False,
) -> None:
    """Train one model to say what the clients' ensemble says: the mean of their probabilities.

    The clients may have any architectures, as long as they tell the same classes apart. Inputs are shown to them as
    they were normalised in training. Where the server has no data, synthetic images will do: leaves in random colours,
    lying on top of each other. A merge is a good start.

    \b
    Examples:
      modelfuse distill clients/ --start global.safetensors --data synthetic:3x32x32 -o distilled.safetensors
      modelfuse distill clients/ --start global.safetensors --data synthetic:1x8x8,count=4000,seed=1 -o d.safetensors
      modelfuse distill big.safetensors small.safetensors --architecture lenet --init-seed 0 \\
          --data imagefolder:public -E 20 -o student.safetensors
    """
    settings = TrainSettings(
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        momentum=momentum,
        weight_decay=weight_decay,
        schedule=pick(schedule, Schedule, "--schedule"),
        precision=pick(precision, Precision, "--precision"),
        clip_norm=clip_norm,
        seed=seed,
    )
    from modelfuse.client import distill_files as work
    from modelfuse.client.device import pick_device
    from modelfuse.client.evaluate_files import EvalSplit, Weighting
    from modelfuse.client.evaluate_files import ensemble_weights as weigh
    from modelfuse.client.sources.strings import data_files
    from modelfuse.client.start import open_start
    from modelfuse.errors import OptionError
    from modelfuse.files.artifacts import check_distinct, open_kind
    from modelfuse.files.folders import clients_files
    from modelfuse.files.writer import check_output

    if start is None and (architecture is None or init_seed is None):
        raise OptionError(
            "distill",
            "there is no model to train",
            "Pass --start FILE, such as a merge of the clients, or --architecture and --init-seed.",
        )
    files = clients_files(files)
    read = [path for path in (start, spec, partition) if path is not None]
    check_output(output, [*files, *read, *data_files(data)])
    teachers = [open_kind(path, "model") for path in files]
    check_distinct(teachers)
    weighting = pick(ensemble_weights, Weighting, "--ensemble-weights")
    how = work.Distillation(
        settings,
        temperature,
        weighting,
        weigh(teachers, weighting),
        pick_device(device, threads),
        architecture,
        quantize,
        {"split": split} | ({} if init_seed is None else {"init_seed": init_seed}),
    )
    own = architecture if start is None else work.typed_architecture(open_kind(start, "model"), architecture)
    student = open_start(start, own, init_seed, spec)
    chosen = pick(split, EvalSplit, "--split")
    dataset = work.open_unlabelled(data, chosen, partition, teachers, download=download, normalize=normalize)
    with context.obj.progress(len(dataset) * (epochs + 1), f"distil {len(teachers)} models") as bar:
        loss = work.run_distillation(how, teachers, student, dataset, output, bar.advance)
    context.obj.say(f"{output}: {len(teachers)} models in one, loss {max(loss, 0.0):.4f} on {len(dataset)} inputs")
