"""What ``modelfuse eval --personal`` does: each client's model on the client's own examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from modelfuse.cli.render import Screen
from modelfuse.client.device import pick_device
from modelfuse.client.embedding import Embedding, Pooling
from modelfuse.client.normalisation import normalisation_of
from modelfuse.client.pairs import clients_of, pair
from modelfuse.client.personal import ProtoClasses, Yardstick, document_of, judge_clients
from modelfuse.client.settings import pick
from modelfuse.client.shares import classes_known, client_datasets
from modelfuse.client.sources.source import SplitName
from modelfuse.client.sources.strings import data_files
from modelfuse.errors import OptionError
from modelfuse.files.artifacts import open_kind
from modelfuse.files.folders import clients_files
from modelfuse.files.writer import check_output, save_json

__all__ = ["Question", "judge_personally"]


@dataclass(frozen=True, slots=True)
class Question:
    """What the user asks.

    Args:
        files: The clients' models, folders of them, or one model of all.
        data: The data string.
        split: Which split.
        partition: Whose examples are whose.
        prototypes: Prototypes to classify by as well, or None.
        proto_classes: ``local`` or ``all``.
        embedding: The module whose output is the embedding, or None.
        pooling: What becomes of a feature map.
        architecture: What the user typed for files that do not say theirs, or None.
        normalize: What ``--normalize`` says, or None.
        device: The name of the device.
        threads: Threads of the CPU.
        batch_size: Examples a pass.
        download: Fetch the data set if it is not there.
        labels: What the user calls the result.
    """

    files: list[Path]
    data: str
    split: str
    partition: Path | None
    prototypes: Path | None = None
    proto_classes: str = "local"
    embedding: str | None = None
    pooling: str = "flatten"
    architecture: str | None = None
    normalize: str | None = None
    device: str = "auto"
    threads: int = 1
    batch_size: int = 500
    download: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)


def judge_personally(question: Question, output: Path | None, screen: Screen, as_json: bool) -> None:
    """Judge the clients, write the figures, and show them.

    Args:
        question: What is asked.
        output: The JSON's file, or None.
        screen: Where to show them.
        as_json: As JSON.

    Raises:
        OptionError: There is no partition, or an option has an unknown value.
    """
    if question.partition is None:
        raise OptionError("--personal", "nobody says whose examples are whose", "Pass --partition.")
    if output is not None:
        check_output(output, [*clients_files(question.files), question.partition, *data_files(question.data)])
    yardstick = Yardstick(
        device=pick_device(question.device, question.threads),
        prototypes=None if question.prototypes is None else open_kind(question.prototypes, "prototypes"),
        classes=pick(question.proto_classes, ProtoClasses, "--proto-classes"),
        embedding=Embedding(question.embedding, pick(question.pooling, Pooling, "--pooling")),
        architecture=question.architecture,
        batch_size=question.batch_size,
    )
    opened = [open_kind(path, "model") for path in clients_files(question.files)]
    tests = client_datasets(
        question.data,
        question.partition,
        clients_of(opened, None if len(opened) > 1 else "all"),
        split=pick(question.split, SplitName, "--split"),
        download=question.download,
        normalize=normalisation_of(opened, question.normalize),
    )
    models = pair(opened, tuple(tests))
    known = classes_known(question.data, question.partition, models, download=question.download)
    with screen.progress(sum(map(len, tests.values())), f"judge {len(models)} clients") as bar:
        rows = judge_clients(models, tests, known, yardstick, bar.advance)
    for row in rows:
        if row.get("prototypes", 0.0) is None:
            screen.say(f"client {row['client']}: none of its classes has a prototype, so none is the nearest")
    document = document_of(rows, tests, models, question.split, question.labels)
    if output is not None:
        save_json(output, document)
    if as_json:
        screen.json(document)
    else:
        _show(document, screen)


def _show(document: Mapping[str, Any], screen: Screen) -> None:
    rows = [
        [
            result["model"],
            f"{100 * result['accuracy']:.2f}",
            f"{100 * result['accuracy_std']:.2f}",
            str(len(result["per_client"])),
            str(result["count"]),
        ]
        for result in document["results"]
    ]
    screen.table("", ["by", "clients' mean %", "std", "clients", "examples"], rows)
