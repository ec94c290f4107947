"""``modelfuse eval``: how well models do on data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from modelfuse.cli.options import (
    ArchitectureOption,
    BatchSizeOption,
    DataOption,
    DeviceOption,
    DownloadOption,
    EmbeddingOption,
    EnsembleWeightsOption,
    JsonOption,
    LabelOption,
    PartitionOption,
    PoolingOption,
    ThreadsOption,
    TrainedNormalizeOption,
    parse_labels,
)

if TYPE_CHECKING:
    from modelfuse.cli.render import Screen

__all__ = ["evaluate"]


def evaluate(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="Models, or folders of clients' models.")],
    data: DataOption,
    split: Annotated[
        str, typer.Option("--split", help="test, train, or validation: what the partition holds out for the server.")
    ] = "test",
    partition: PartitionOption = None,
    clients_only: Annotated[
        bool,
        typer.Option("--clients-only", help="Leave out examples of nobody in the --partition, such as minor roles."),
    ] = False,
    personal: Annotated[
        bool, typer.Option("--personal", help="Judge each client's model on its own examples alone, with --partition.")
    ] = False,
    prototypes: Annotated[
        Path | None,
        typer.Option("--prototypes", metavar="FILE", help="As --personal; classify by the nearest prototype as well."),
    ] = None,
    proto_classes: Annotated[
        str, typer.Option("--proto-classes", help="local: prototypes of a client's own train classes; or all.")
    ] = "local",
    embedding: EmbeddingOption = None,
    pooling: PoolingOption = "flatten",
    ensemble: Annotated[bool, typer.Option("--ensemble", help="Judge the mean of the models' probabilities too.")] = (
        False
    ),
    ensemble_weights: EnsembleWeightsOption = "uniform",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the figures as JSON too.")
    ] = None,
    as_json: JsonOption = False,
    label: LabelOption = None,
    architecture: ArchitectureOption = None,
    batch_size: BatchSizeOption = 500,
    normalize: TrainedNormalizeOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    download: DownloadOption = False,
) -> None:
    """Judge models on a data set: accuracy, loss, and, as JSON, accuracy per class.

    With a partition each model is judged on every client's own examples of the split as well: the table shows their
    mean over clients, and the accuracy on the model's own client's. With --personal each client's model (or one of
    all) is judged on that client's own examples only: mean ± standard deviation over clients. --prototypes sets the
    accuracy by the nearest prototype (FedProto eq. 4) beside that of the classifier.

    \b
    Examples:
      modelfuse eval clients/*.safetensors global.safetensors --data digits
      modelfuse eval clients/*.safetensors --data digits --ensemble --label alpha=0.1 -o result.json
      modelfuse eval clients/ --data mnist:ROOT --partition split.safetensors --prototypes prototypes.safetensors
    """
    if personal or prototypes is not None:
        from modelfuse.cli.personal import Question, judge_personally

        _refuse_together({"--ensemble": ensemble, "--clients-only": clients_only})
        question = Question(
            files=files,
            data=data,
            split=split,
            partition=partition,
            prototypes=prototypes,
            proto_classes=proto_classes,
            embedding=embedding,
            pooling=pooling,
            architecture=architecture,
            normalize=normalize,
            device=device,
            threads=threads,
            batch_size=batch_size,
            download=download,
            labels=parse_labels(label),
        )
        judge_personally(question, output, context.obj, as_json)
        return
    from modelfuse.client import evaluate_files as work
    from modelfuse.client.device import pick_device
    from modelfuse.client.normalisation import normalisation_of
    from modelfuse.client.settings import pick
    from modelfuse.client.sources.strings import data_files
    from modelfuse.files.artifacts import check_distinct, open_kind
    from modelfuse.files.folders import clients_files
    from modelfuse.files.writer import check_output, save_json

    labels = parse_labels(label)
    files = clients_files(files)
    chosen = pick(split, work.EvalSplit, "--split")
    weighting = pick(ensemble_weights, work.Weighting, "--ensemble-weights")
    if output is not None:
        check_output(output, [*files, *([partition] if partition else []), *data_files(data)])
    where = pick_device(device, threads)
    models = [open_kind(path, "model") for path in files]
    if ensemble:
        check_distinct(models)
    weights = work.ensemble_weights(models, weighting) if ensemble else None
    examination = work.open_examination(
        data,
        chosen,
        partition,
        download=download,
        normalize=normalisation_of(models, normalize),
        clients_only=clients_only,
    )
    with context.obj.progress(len(examination.dataset), f"judge {len(models)} models") as bar:
        document: dict[str, Any] = work.examine(
            models,
            examination,
            where,
            architecture=architecture,
            batch_size=batch_size,
            weights=weights,
            labels=labels,
            advance=bar.advance,
        )
    if output is not None:
        save_json(output, document)
    _show(document, bool(examination.clients), context.obj, as_json)


def _refuse_together(options: Mapping[str, bool]) -> None:
    from modelfuse.errors import OptionError

    for option, given in options.items():
        if given:
            raise OptionError(option, "clients are judged one by one", "Leave it out, or leave --personal out.")


def _show(document: Mapping[str, Any], by_client: bool, screen: Screen, as_json: bool) -> None:
    results = [*document["results"], *([document["ensemble"]] if document["ensemble"] else [])]
    for result in results:
        if result["non_finite"]:
            screen.say(f"{result['model']}: NaN or infinity on {result['non_finite']} examples, counted as wrong")
    if as_json:
        screen.json(document)
        return
    columns = ["model", "accuracy %", "loss", "count"]
    screen.table("", columns + (["clients' mean %", "own %"] if by_client else []), _rows(results))


def _rows(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return one row a model: its figures over all examples, and over the clients' own where there are any."""
    rows = []
    for result in results:
        loss = "–" if result["loss"] is None else f"{result['loss']:.4f}"
        row = [result["model"], _percent(result["accuracy"]), loss, str(result["count"])]
        if "per_client" in result:
            theirs = {part["client"]: part["accuracy"] for part in result["per_client"]}
            own = theirs.get(result.get("client"))
            row += [_percent(sum(theirs.values()) / len(theirs)), "–" if own is None else _percent(own)]
        rows.append(row)
    return rows


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"
