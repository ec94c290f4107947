"""``modelfuse partition``: divide a data set over clients."""

from __future__ import annotations

from typing import Annotated

import typer

from modelfuse.cli.options import DataOption, DownloadOption, OutputOption

__all__ = ["partition"]


def partition(
    context: typer.Context,
    data: DataOption,
    output: OutputOption,
    num_clients: Annotated[int, typer.Option("--num-clients", "-K", min=1, help="Clients.")],
    scheme: Annotated[str, typer.Option("--scheme", help="dirichlet-client or iid.")] = "dirichlet-client",
    alpha: Annotated[
        float | None,
        typer.Option("--alpha", help="Concentration of the Dirichlet draws: the smaller, the more skewed."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", "--partition-seed", min=0, help="Seed of the split.")] = 0,
    server_holdout: Annotated[
        int, typer.Option("--server-holdout", min=0, help="Train examples that the server keeps for validation.")
    ] = 0,
    min_examples: Annotated[
        int, typer.Option("--min-examples", min=1, help="Draw again until every client has as many.")
    ] = 1,
    download: DownloadOption = False,
) -> None:
    """Divide a data set over clients: who owns which train examples, and is tested on which test examples.

    dirichlet-client: each client draws a mixture of classes from Dir(α), and the examples of a class are shared in
    proportion to the clients' draws (FedFiOT). iid: everybody gets the same number, drawn uniformly.
    In both, the test split is shared in the same way as the train split.

    \b
    Example:
      modelfuse partition --data cifar10:ROOT -K 6 --alpha 0.1 --server-holdout 500 -o split.safetensors
    """
    from modelfuse import __version__
    from modelfuse.client.partition import draw_partition
    from modelfuse.client.schemes import SchemeSettings
    from modelfuse.client.sources.strings import open_source
    from modelfuse.files.writer import check_output, save
    from modelfuse.types import Metadata, Step

    check_output(output, ())
    train, test = open_source(data, "train", download), open_source(data, "test", download)
    settings = SchemeSettings(num_clients, len(train.classes), alpha)
    drawn = draw_partition(
        scheme, settings, train.labels, test.labels, seed=seed, holdout=server_holdout, min_examples=min_examples
    )
    options = {
        "data": train.name,
        "scheme": scheme,
        "num_clients": num_clients,
        "alpha": alpha,
        "seed": seed,
        "server_holdout": server_holdout,
        "min_examples": min_examples,
    }
    details = {**drawn.details, "data": train.name, "classes": list(train.classes)}
    history = (Step("partition", __version__, {key: value for key, value in options.items() if value is not None}),)
    save(output, drawn.tensors(), Metadata("partition", history=history, details=details))
    sizes = ", ".join(str(len(indices)) for indices in drawn.clients)
    kept = f", {len(drawn.validation)} held by the server" if drawn.validation.size else ""
    context.obj.say(f"{output}: {sizes} examples for clients 0 to {num_clients - 1}{kept}")
