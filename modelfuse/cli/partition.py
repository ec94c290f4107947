"""``modelfuse partition``: divide a data set over clients."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from modelfuse.cli.options import DataOption, DownloadOption, OutputOption

__all__ = ["partition"]


def partition(
    context: typer.Context,
    data: DataOption,
    output: OutputOption,
    num_clients: Annotated[
        int | None,
        typer.Option("--num-clients", "-K", min=1, help="Number of clients; natural: of roles to draw (all)."),
    ] = None,
    scheme: Annotated[
        str, typer.Option("--scheme", help="dirichlet-client, dirichlet-class, nway-kshot, iid or natural.")
    ] = "dirichlet-client",
    alpha: Annotated[
        float | None,
        typer.Option("--alpha", help="Concentration of the Dirichlet draws: the smaller, the more skewed."),
    ] = None,
    balance: Annotated[
        bool,
        typer.Option("--balance", help="Who holds N/K examples gets none of the next classes. dirichlet-class."),
    ] = False,
    min_chars: Annotated[
        int | None,
        typer.Option("--min-chars", min=1, help="Characters that a role must speak (10,000). natural."),
    ] = None,
    ways: Annotated[int | None, typer.Option("--ways", help="Classes a client on average. nway-kshot.")] = None,
    ways_std: Annotated[int | None, typer.Option("--ways-std", help="How far they spread (0). nway-kshot.")] = None,
    shots: Annotated[
        int | None, typer.Option("--shots", help="Train examples of each of a client's classes (100). nway-kshot.")
    ] = None,
    shots_std: Annotated[int | None, typer.Option("--shots-std", help="How far they spread (0). nway-kshot.")] = None,
    test_shots: Annotated[
        int | None, typer.Option("--test-shots", help="Test examples of each of its classes (40). nway-kshot.")
    ] = None,
    noise: Annotated[
        str | None, typer.Option("--noise", help="How numbers spread: uniform (default) or gaussian. nway-kshot.")
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
    proportion to the clients' draws (FedFiOT). dirichlet-class: each class draws a mixture of clients from Dir(α), and
    its examples are shared in these proportions (FedMA). iid: everybody gets the same number, drawn uniformly.
    In these, the test split is shared in the same way as the train split. nway-kshot: each client draws about n
    classes, and about k train examples of each, with test examples of the same classes (FedProto). natural: one
    client a role of shakespeare:FOLDER, with its own train and test examples (LEAF, FedMA).

    \b
    Examples:
      modelfuse partition --data cifar10:ROOT -K 6 --alpha 0.1 --server-holdout 500 -o split.safetensors
      modelfuse partition --data cifar10:ROOT --scheme dirichlet-class -K 16 --alpha 0.5 --balance -o split.safetensors
      modelfuse partition --data shakespeare:FOLDER --scheme natural -K 66 -o split.safetensors
      modelfuse partition --data mnist:ROOT --scheme nway-kshot -K 20 --ways 3 --ways-std 2 -o split.safetensors
    """
    from modelfuse import __version__
    from modelfuse.client.partition import draw_partition
    from modelfuse.client.roles import Roles
    from modelfuse.client.schemes import SchemeSettings
    from modelfuse.client.shots import Shots
    from modelfuse.client.sources.strings import data_files, open_source
    from modelfuse.errors import OptionError
    from modelfuse.files.writer import check_output, save
    from modelfuse.types import Metadata, Step

    check_output(output, data_files(data))
    train, test = open_source(data, "train", download), open_source(data, "test", download)
    told = {"ways_std": ways_std, "shots": shots, "shots_std": shots_std, "test_shots": test_shots, "noise": noise}
    given: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
    if given and ways is None:
        raise OptionError(f"--{next(iter(given)).replace('_', '-')}", "nobody says how many classes", "Pass --ways 3.")
    settings = SchemeSettings(
        num_clients,
        len(train.classes),
        alpha,
        None if ways is None else Shots(ways, **given),
        balance,
        min_chars,
        Roles(train.owners, test.owners) if train.owners and test.owners else None,
    )
    drawn = draw_partition(
        scheme, settings, train.labels, test.labels, seed=seed, holdout=server_holdout, min_examples=min_examples
    )
    options = {
        "data": train.name,
        "scheme": scheme,
        "num_clients": num_clients,
        "alpha": alpha,
        "balance": balance or None,
        "min_chars": min_chars,
        "ways": ways,
        **given,
        "seed": seed,
        "server_holdout": server_holdout,
        "min_examples": min_examples,
    }
    details = {**drawn.details, "data": train.name, "classes": list(train.classes)}
    history = (Step("partition", __version__, {key: value for key, value in options.items() if value is not None}),)
    save(output, drawn.tensors(), Metadata("partition", history=history, details=details))
    sizes = ", ".join(str(len(indices)) for indices in drawn.clients)
    kept = f", {len(drawn.validation)} held by the server" if drawn.validation.size else ""
    context.obj.say(f"{output}: {sizes} examples for clients 0 to {len(drawn.clients) - 1}{kept}")
