"""Options that several commands share: one spelling and one help text each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "ArchitectureOption",
    "BatchSizeOption",
    "DataOption",
    "DeviceOption",
    "DownloadOption",
    "EmbeddingOption",
    "EnsembleWeightsOption",
    "JsonOption",
    "LabelOption",
    "ModelsArgument",
    "NormalizeOption",
    "OutputOption",
    "OwnClientOption",
    "PartitionOption",
    "PoolingOption",
    "QuantizeOption",
    "SeedOption",
    "SpecOption",
    "ThreadsOption",
    "TrainedNormalizeOption",
    "parse_labels",
]

ArchitectureOption = Annotated[
    str | None,
    typer.Option(
        "--architecture",
        metavar="A",
        help="Architecture string, such as fednet or mlp:in=64,hidden=100-50,out=10; needed where a file does not say.",
    ),
]
BatchSizeOption = Annotated[
    int, typer.Option("--batch-size", min=1, max=1 << 30, help="Examples a pass; changes no result.")
]
DataOption = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="DATA",
        help="digits, mnist:ROOT, fashion-mnist:ROOT, cifar10:ROOT, svhn:ROOT, imagefolder:ROOT (train/ and test/), "
        "shakespeare:FOLDER, npz:FILE, or python:PKG.MOD:FACTORY.",
    ),
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
DownloadOption = Annotated[bool, typer.Option("--download", help="Fetch the data set if it is not there.")]
EmbeddingOption = Annotated[
    str | None,
    typer.Option(
        "--embedding", metavar="MODULE", help="The module whose output is the embedding; default: as the zoo marks it."
    ),
]
EnsembleWeightsOption = Annotated[
    str, typer.Option("--ensemble-weights", help="uniform, or examples: as many as each was trained on.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON to standard output instead of a table.")]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="A label for report to find this result by; repeatable."),
]
ModelsArgument = Annotated[
    list[Path], typer.Argument(metavar="MODELS...", help="The clients' models, a folder of them, or one of all.")
]
NormalizeOption = Annotated[
    str | None,
    typer.Option(
        "--normalize",
        metavar="MEAN,…/STD,…",
        help="What to take off and divide by, channel by channel, or a data set's name; default: the data's own.",
    ),
]
TrainedNormalizeOption = Annotated[
    str | None,
    typer.Option(
        "--normalize",
        metavar="MEAN,…/STD,…",
        help="What to take off and divide by, or a data set's name; default: as the models were trained, or else the "
        "data's own.",
    ),
]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="OUT", help="Where to write; complete once it exists.")
]
OwnClientOption = Annotated[
    str | None,
    typer.Option(
        "--client", help="A number, several joined by commas, or all, into the folder OUT; default: the models' own."
    ),
]
PartitionOption = Annotated[
    Path | None, typer.Option("--partition", metavar="FILE", help="The split of the data over the clients.")
]
PoolingOption = Annotated[
    str, typer.Option("--pooling", help="What becomes of an embedding that is a feature map: flatten, or mean.")
]
QuantizeOption = Annotated[
    int | None,
    typer.Option(
        "--quantize", metavar="BITS", help="Write 16- or 8-bit integers and one scale a tensor (FedFiOT eq. 107)."
    ),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random in this command.")]
SpecOption = Annotated[
    Path | None, typer.Option("--spec", metavar="FILE", help="Permutation spec (JSON) of a network of your own.")
]
ThreadsOption = Annotated[
    int, typer.Option("--threads", min=1, help="Threads of the CPU; the last digits depend on them.")
]


def parse_labels(labels: list[str] | None) -> dict[str, str]:
    """Return ``--label key=value`` options as a mapping.

    Raises:
        OptionError: A label has no equals sign or no key.
    """
    from modelfuse.errors import OptionError

    found: dict[str, str] = {}
    for label in labels or []:
        key, equals, value = label.partition("=")
        if not key or not equals:
            raise OptionError("--label", f"{label!r} is not KEY=VALUE", "Write --label alpha=0.1.")
        found[key] = value
    return found
