"""What ``fisher`` and ``gram`` have in common: models and clients paired, one file a client."""

from __future__ import annotations

from pathlib import Path

from modelfuse.cli.render import Screen
from modelfuse.client.pairs import pair_up
from modelfuse.client.sources.strings import data_files
from modelfuse.client.statistics import Statistic, write_statistic
from modelfuse.files.atomic import make_folder
from modelfuse.files.writer import check_outputs

__all__ = ["write_statistics"]


def write_statistics(
    statistic: Statistic,
    title: str,
    models: list[Path],
    output: Path,
    screen: Screen,
    *,
    data: str,
    partition: Path | None,
    client: str | None,
    download: bool,
    normalize: str | None,
) -> None:
    """Compute a statistic of models on their clients' train examples and write one file a client.

    Args:
        statistic: What to compute, and how.
        title: What it is called in front of "of client 3".
        models: The clients' models, folders of them, or one of all.
        output: A file, or the folder of several.
        screen: Where to show progress.
        data: The data string.
        partition: The partition's file, or None.
        client: A number, numbers joined by commas, or all; None for the models' own.
        download: Fetch the data set if it is not there.
        normalize: What ``--normalize`` says; None: as the models were trained, or else the data set's own.

    Raises:
        InputError: A model, the partition or the data cannot be used, or a file cannot be written.
    """
    pairs = pair_up(models, data, partition, client, download=download, normalize=normalize)
    together = len(pairs.models) > 1 or client == "all" or output.is_dir()
    if together:
        make_folder(output)
    places = {
        number: output / f"{statistic.kind}_{number}.safetensors" if together else output for number in pairs.models
    }
    check_outputs(places.values(), [*pairs.paths, *([partition] if partition else []), *data_files(data)])
    for number, model in pairs.models.items():
        dataset = pairs.datasets[number]
        with screen.progress(len(dataset), f"{title} of client {number}") as bar:
            write_statistic(model, dataset, pairs.owner(number), places[number], statistic, bar.advance)
        screen.say(f"{places[number]}: {title} of {model.label} on {len(dataset)} examples")
