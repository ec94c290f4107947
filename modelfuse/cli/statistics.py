"""What ``fisher`` and ``gram`` have in common: models and clients paired, one file a client."""

from __future__ import annotations

from pathlib import Path

from modelfuse.cli.render import Screen
from modelfuse.client.normalisation import normalisation_of
from modelfuse.client.shares import client_datasets
from modelfuse.client.sources.strings import data_files
from modelfuse.client.statistics import Statistic, clients_of, pair, write_statistic
from modelfuse.errors import OptionError
from modelfuse.files.artifacts import open_kind
from modelfuse.files.atomic import make_folder
from modelfuse.files.folders import clients_files
from modelfuse.files.writer import check_output

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
    paths = clients_files(models)
    opened = [open_kind(path, "model") for path in paths]
    if partition is None and len(opened) > 1:
        raise OptionError("MODELS", "several models, and nobody says whose examples are whose", "Pass --partition.")
    text = clients_of(opened, client)
    white = normalisation_of(opened, normalize)
    datasets = client_datasets(data, partition, text, download=download, normalize=white)
    pairs = pair(opened, tuple(datasets))
    together = len(pairs) > 1 or client == "all" or output.is_dir()
    if together:
        make_folder(output)
    places = {number: output / f"{statistic.kind}_{number}.safetensors" if together else output for number in pairs}
    for place in places.values():
        check_output(place, [*paths, *([partition] if partition else []), *data_files(data)])
    for number, model in pairs.items():
        with screen.progress(len(datasets[number]), f"{title} of client {number}") as bar:
            owner = number if text is not None else None
            write_statistic(model, datasets[number], owner, places[number], statistic, bar.advance)
        screen.say(f"{places[number]}: {title} of {model.label} on {len(datasets[number])} examples")
