"""``modelfuse plot``: files in, one picture out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from modelfuse.cli.render import Screen
from modelfuse.cli.results import (
    OverOption,
    ReferenceOption,
    ResultsArgument,
    ValueOption,
    WhereOption,
    gather,
    layout_of,
)
from modelfuse.errors import OptionError

__all__ = ["plot"]

plot = typer.Typer(
    no_args_is_help=True,
    help="""Draw pictures from files: .png or .svg, readable in black and white, the same bytes for the same input.

    Needs matplotlib: pip install 'modelfuse[plot]'.

    \b
    Examples:
      modelfuse plot split split.safetensors -o split.svg
      modelfuse plot curve rounds/*.json --x round -o rounds.svg
      modelfuse plot bars results/*.json --columns dataset,alpha --reference paper.csv -o table.png
      modelfuse plot assignment orders.safetensors --group fc1 -o fc1.png
      modelfuse plot filters clients/*.safetensors global.safetensors --orders orders.safetensors -o filters.png
      modelfuse plot embeddings embeddings.npz --method tsne -o embeddings.png
    """,
)

PictureOption = Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="The picture: .png or .svg.")]
TitleOption = Annotated[
    str | None, typer.Option("--title", metavar="TEXT", help="The heading; default: one made from the data.")
]


@plot.command("split")
def split(
    partition: Annotated[Path, typer.Argument(metavar="PARTITION", help="What partition wrote.")],
    output: PictureOption,
    title: TitleOption = None,
) -> None:
    """Draw who holds how much of what: clients × classes, the area of a bubble in proportion to the examples.

    Example: modelfuse plot split split.safetensors -o split.svg
    """
    from modelfuse.reporting.plots.split import draw_split, read_split
    from modelfuse.reporting.plots.style import check_picture, save_figure

    check_picture(output)
    save_figure(draw_split(read_split(partition), title), output)


@plot.command("curve")
def curve(
    context: typer.Context,
    results: ResultsArgument,
    output: PictureOption,
    x: Annotated[
        str, typer.Option("--x", metavar="KEY", help="The key on the x axis: round, epoch, or another number.")
    ] = "round",
    lines: Annotated[str, typer.Option("--lines", metavar="KEYS", help="The keys that make the lines.")] = "method",
    value: ValueOption = "accuracy",
    where: WhereOption = None,
    over: OverOption = "seed",
    title: TitleOption = None,
) -> None:
    """Draw a value over rounds or epochs: one line a method, a band of ± one sample standard deviation over seeds.

    Keys and values are those of modelfuse report.

    Example: modelfuse plot curve rounds/*.json --x round -o rounds.svg
    """
    from modelfuse.reporting.plots.curve import draw_curve
    from modelfuse.reporting.plots.style import check_picture, save_figure

    check_picture(output)
    screen: Screen = context.obj
    save_figure(draw_curve(gather(screen, results, layout_of(lines, x, value, where, over)), title), output)


@plot.command("bars")
def bars(
    context: typer.Context,
    results: ResultsArgument,
    output: PictureOption,
    rows: Annotated[str, typer.Option("--rows", metavar="KEYS", help="The keys that make the bars.")] = "method",
    columns: Annotated[
        str, typer.Option("--columns", metavar="KEYS", help="The keys that make the clusters; '' for one.")
    ] = "dataset",
    value: ValueOption = "accuracy",
    where: WhereOption = None,
    over: OverOption = "seed",
    reference: ReferenceOption = None,
    title: TitleOption = None,
) -> None:
    """Draw the table that modelfuse report makes with the same options, as bars with error bars.

    Example: modelfuse plot bars results/*.json --columns dataset,alpha --reference paper.csv -o table.png
    """
    from modelfuse.reporting.plots.bars import draw_bars
    from modelfuse.reporting.plots.style import check_picture, save_figure

    check_picture(output)
    screen: Screen = context.obj
    table = gather(screen, results, layout_of(rows, columns, value, where, over), reference)
    save_figure(draw_bars(table, title), output)


@plot.command("assignment")
def assignment(
    orders: Annotated[Path, typer.Argument(metavar="ORDERS", help="What merge --orders wrote.")],
    group: Annotated[str, typer.Option("--group", metavar="GROUP", help="The group, such as conv1.")],
    output: PictureOption,
    clients: Annotated[str, typer.Option("--clients", metavar="K,...", help="Only these clients.")] = "",
    title: TitleOption = None,
) -> None:
    """Draw which global unit each client's local units became.

    Example: modelfuse plot assignment orders.safetensors --group fc1 -o fc1.png
    """
    from modelfuse.reporting.plots.assignment import draw_assignment, read_assignment
    from modelfuse.reporting.plots.style import check_picture, save_figure

    check_picture(output)
    save_figure(draw_assignment(read_assignment(orders, group, _numbers(clients)), title), output)


@plot.command("filters")
def filters(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODELS... GLOBAL", help="The clients' models and, last, the global one.")
    ],
    output: PictureOption,
    orders: Annotated[
        Path | None, typer.Option("--orders", metavar="FILE", help="Show each client's units as they were matched.")
    ] = None,
    tensor: Annotated[
        str | None, typer.Option("--tensor", metavar="NAME", help="The weights; by default those of the first layer.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, help="At most so many units.")] = 12,
    title: TitleOption = None,
) -> None:
    """Draw first-layer filters of clients and global model side by side (FedMA fig. 5).

    Example: modelfuse plot filters clients/*.safetensors global.safetensors --orders orders.safetensors -o filters.png
    """
    if len(models) < 2:
        raise OptionError("MODELS", "one model is not enough", "Give the clients' files and, last, the global model.")
    from modelfuse.reporting.plots.filters import draw_filters, read_filters
    from modelfuse.reporting.plots.style import check_picture, save_figure

    check_picture(output)
    save_figure(draw_filters(read_filters(models, tensor, orders, count), title), output)


@plot.command("embeddings")
def embeddings(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="npz or safetensors: embeddings (N, D), labels (N,), perhaps prototypes (C, D)."
        ),
    ],
    output: PictureOption,
    prototypes: Annotated[
        Path | None,
        typer.Option("--prototypes", metavar="FILE", help="Draw these prototypes, of merge or of prototypes, into it."),
    ] = None,
    method: Annotated[
        Literal["pca", "tsne"], typer.Option("--method", help="How more than two dimensions become two.")
    ] = "pca",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of t-SNE and of the draw of points.")] = 0,
    max_points: Annotated[int, typer.Option("--max-points", min=1, help="Show a random subset of so many.")] = 2000,
    title: TitleOption = None,
) -> None:
    """Draw embeddings with their prototypes, a colour and a marker a class (FedProto fig. 2).

    prototypes --embeddings writes such a file.

    Example: modelfuse plot embeddings embeddings.safetensors --prototypes global.safetensors -o embeddings.png
    """
    from modelfuse.reporting.plots.embeddings import draw_embeddings, project, read_embeddings
    from modelfuse.reporting.plots.style import check_picture, save_figure

    check_picture(output)
    save_figure(draw_embeddings(project(read_embeddings(file, prototypes), method, seed, max_points), title), output)


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise OptionError("--clients", f"{text!r} is no list of clients", "Write --clients 0,2,5.")
    return tuple(map(int, parts))
