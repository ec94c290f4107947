"""``modelfuse fisher``: how sure each client is of each of its weights."""

from __future__ import annotations

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
    ThreadsOption,
)

__all__ = ["fisher"]


def fisher(
    context: typer.Context,
    models: Annotated[
        list[Path], typer.Argument(metavar="MODELS...", help="The clients' models, a folder of them, or one of all.")
    ],
    data: DataOption,
    output: OutputOption,
    partition: PartitionOption = None,
    client: Annotated[
        str | None,
        typer.Option(
            "--client",
            help="A number, several joined by commas, or all, into the folder OUT; default: the models' own.",
        ),
    ] = None,
    estimator: Annotated[
        str,
        typer.Option("--estimator", help="empirical: observed labels; true: expectation over the model's own labels."),
    ] = "empirical",
    architecture: ArchitectureOption = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Examples a pass; changes no result.")] = 128,
    normalize: NormalizeOption = None,
    quantize: QuantizeOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    download: DownloadOption = False,
) -> None:
    """Compute the exact diagonal Fisher of models on their clients' train examples.

    It is the mean over examples of squared per-example gradients of log p(y | x), raw: merge tempers and damps it. The
    file names the model it belongs to by its model_id.

    \b
    Examples:
      modelfuse fisher client_3.safetensors --data digits --partition split.safetensors --client 3 \\
          -o fisher_3.safetensors
      modelfuse fisher clients/*.safetensors --data digits --partition split.safetensors --client all -o fishers/
    """
    from modelfuse.client.device import pick_device
    from modelfuse.client.fisher import Estimator
    from modelfuse.client.fisher_files import FisherRun, clients_of, pair, write_fisher
    from modelfuse.client.settings import pick
    from modelfuse.client.shares import client_datasets
    from modelfuse.errors import OptionError
    from modelfuse.files.artifacts import open_kind
    from modelfuse.files.atomic import make_folder
    from modelfuse.files.folders import clients_files
    from modelfuse.files.writer import check_output

    chosen = pick(estimator, Estimator, "--estimator")
    run = FisherRun(chosen, batch_size, pick_device(device, threads), architecture, quantize)
    models = clients_files(models)
    opened = [open_kind(path, "model") for path in models]
    if partition is None and len(opened) > 1:
        raise OptionError("MODELS", "several models, and nobody says whose examples are whose", "Pass --partition.")
    text = clients_of(opened, client)
    datasets = client_datasets(data, partition, text, download=download, normalize=normalize)
    pairs = pair(opened, tuple(datasets))
    together = len(pairs) > 1 or client == "all" or output.is_dir()
    if together:
        make_folder(output)
    places = {number: output / f"fisher_{number}.safetensors" if together else output for number in pairs}
    for place in places.values():
        check_output(place, [*models, *([partition] if partition else [])])
    for number, model in pairs.items():
        with context.obj.progress(len(datasets[number]), f"Fisher of client {number}") as bar:
            owner = number if text is not None else None
            write_fisher(model, datasets[number], owner, places[number], run, bar.advance)
        context.obj.say(f"{places[number]}: Fisher of {model.label} on {len(datasets[number])} examples")
