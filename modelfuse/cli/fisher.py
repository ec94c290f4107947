"""``modelfuse fisher``: how sure each client is of each of its weights."""

from __future__ import annotations

from typing import Annotated

import typer

from modelfuse.cli.options import (
    ArchitectureOption,
    BatchSizeOption,
    DataOption,
    DeviceOption,
    DownloadOption,
    ModelsArgument,
    OutputOption,
    OwnClientOption,
    PartitionOption,
    QuantizeOption,
    ThreadsOption,
    TrainedNormalizeOption,
)

__all__ = ["fisher"]


def fisher(
    context: typer.Context,
    models: ModelsArgument,
    data: DataOption,
    output: OutputOption,
    partition: PartitionOption = None,
    client: OwnClientOption = None,
    estimator: Annotated[
        str,
        typer.Option("--estimator", help="empirical: observed labels; true: expectation over the model's own labels."),
    ] = "empirical",
    architecture: ArchitectureOption = None,
    batch_size: BatchSizeOption = 128,
    normalize: TrainedNormalizeOption = None,
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
    from modelfuse.cli.statistics import write_statistics
    from modelfuse.client.device import pick_device
    from modelfuse.client.fisher import Estimator, diagonal_fisher
    from modelfuse.client.settings import pick
    from modelfuse.client.statistics import Statistic

    chosen = pick(estimator, Estimator, "--estimator")
    statistic = Statistic(
        "fisher",
        lambda network, dataset, advance: diagonal_fisher(network, dataset, batch_size, chosen, advance),
        {"estimator": chosen},
        pick_device(device, threads),
        architecture,
        quantize,
    )
    write_statistics(
        statistic,
        "Fisher",
        models,
        output,
        context.obj,
        data=data,
        partition=partition,
        client=client,
        download=download,
        normalize=normalize,
    )
