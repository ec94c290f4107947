"""``modelfuse prototypes``: the mean embedding of each class a client holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from modelfuse.cli.options import (
    ArchitectureOption,
    BatchSizeOption,
    DataOption,
    DeviceOption,
    DownloadOption,
    EmbeddingOption,
    OutputOption,
    PartitionOption,
    PoolingOption,
    TrainedNormalizeOption,
)

__all__ = ["prototypes"]


def prototypes(
    context: typer.Context,
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODELS...", help="The clients' models, a folder of them, or one model of all."),
    ],
    data: DataOption,
    output: OutputOption,
    partition: PartitionOption = None,
    client: Annotated[
        str | None,
        typer.Option("--client", help="A number, numbers joined by commas, or all: several go into the folder OUT."),
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train, or test: the client's test examples.")] = "train",
    origin: Annotated[
        str,
        typer.Option("--from", help="eval: the finished model over all examples; or training-pass."),
    ] = "eval",
    embedding: EmbeddingOption = None,
    pooling: PoolingOption = "flatten",
    embeddings: Annotated[
        Path | None,
        typer.Option("--embeddings", metavar="FILE", help="Write every example's embedding too, for plot embeddings."),
    ] = None,
    architecture: ArchitectureOption = None,
    batch_size: BatchSizeOption = 500,
    normalize: TrainedNormalizeOption = None,
    device: DeviceOption = "auto",
    download: DownloadOption = False,
) -> None:
    """Compute clients' prototypes: the mean embedding of each class, with its count (FedProto eq. 3).

    A class that a client does not hold is absent from its file. The authors' code averages what training met in its
    last epoch, with dropout on and weights changing, instead (training-pass): only train-client can write that, with
    --prototypes-out.

    \b
    Examples:
      modelfuse prototypes client_3.safetensors --data digits --partition split.safetensors --client 3 -o p3.safetensors
      modelfuse prototypes clients/ --data digits --partition split.safetensors --client all -o prototypes/
    """
    from modelfuse.client.device import pick_device
    from modelfuse.client.embedding import Embedding, Pooling
    from modelfuse.client.pairs import pair_up
    from modelfuse.client.prototype_files import Extraction, extract, write_embeddings
    from modelfuse.client.prototype_learning import prototypes_path
    from modelfuse.client.settings import pick
    from modelfuse.client.sources.source import SplitName
    from modelfuse.client.sources.strings import data_files
    from modelfuse.errors import OptionError
    from modelfuse.files.atomic import make_folder
    from modelfuse.files.writer import check_outputs

    if origin == "training-pass":
        raise OptionError(
            "--from training-pass", "they exist only while a client trains", "Pass --prototypes-out to train-client."
        )
    if origin != "eval":
        raise OptionError("--from", f"{origin!r} is unknown", "Choose eval or training-pass.")
    where = Embedding(embedding, pick(pooling, Pooling, "--pooling"))
    extraction = Extraction(where, batch_size, pick_device(device), architecture)
    part = pick(split, SplitName, "--split")
    pairs = pair_up(models, data, partition, client, split=part, download=download, normalize=normalize)
    together = len(pairs.models) > 1 or client == "all" or output.is_dir()
    if together:
        make_folder(output)
    places = {number: prototypes_path(output, number, together) for number in pairs.models}
    read = [*pairs.paths, *([partition] if partition else []), *data_files(data)]
    check_outputs([*places.values(), *([embeddings] if embeddings else [])], read)
    results = []
    total = sum(map(len, pairs.datasets.values()))
    with context.obj.progress(total, f"prototypes of {len(pairs.models)} clients") as bar:
        for number, model in pairs.models.items():
            data_of = pairs.datasets[number]
            results.append(extract(model, data_of, pairs.owner(number), places[number], extraction, bar.advance))
    if embeddings is not None:
        write_embeddings(embeddings, results)
    made = sum(len(each.prototypes.classes) for each in results)
    context.obj.say(f"{output}: {made} prototypes of {len(results)} client{'s' if len(results) > 1 else ''}")
