"""``modelfuse gram``: which inputs of each linear layer occur together, for merging by regmean."""

from __future__ import annotations

from typing import Annotated

import typer

from modelfuse.cli.options import (
    ArchitectureOption,
    DataOption,
    DeviceOption,
    DownloadOption,
    ModelsArgument,
    OutputOption,
    OwnClientOption,
    PartitionOption,
    ThreadsOption,
    TrainedNormalizeOption,
)

__all__ = ["gram"]


def gram(
    context: typer.Context,
    models: ModelsArgument,
    data: DataOption,
    output: OutputOption,
    partition: PartitionOption = None,
    client: OwnClientOption = None,
    convolutions: Annotated[
        bool, typer.Option("--convolutions", help="Of convolutions too, over the patches that they read.")
    ] = False,
    architecture: ArchitectureOption = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, max=1 << 30, help="Examples a pass; changes the last digits only.")
    ] = 128,
    normalize: TrainedNormalizeOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    download: DownloadOption = False,
) -> None:
    """Compute the Gram matrices of what linear layers read, on the clients' train examples.

    Each is the mean of x xᵀ over the examples; no label is looked at. It tells more than a Fisher does: what only one
    example has can be read off it. merge --method regmean takes these files beside the models.

    \b
    Example:
      modelfuse gram clients/ --data digits --partition split.safetensors --client all -o grams/
    """
    from modelfuse.cli.statistics import write_statistics
    from modelfuse.client.device import pick_device
    from modelfuse.client.gram import gram_matrices
    from modelfuse.client.statistics import Statistic

    statistic = Statistic(
        "gram",
        lambda network, dataset, advance: gram_matrices(network, dataset, batch_size, convolutions, advance),
        {"convolutions": convolutions},
        pick_device(device, threads),
        architecture,
    )
    write_statistics(
        statistic,
        "Gram matrices",
        models,
        output,
        context.obj,
        data=data,
        partition=partition,
        client=client,
        download=download,
        normalize=normalize,
    )
