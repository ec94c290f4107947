"""``modelfuse report``: result files in, one table out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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

__all__ = ["report"]

SUFFIXES = {".md": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}
FORMATS = ("terminal", *SUFFIXES.values())


def report(
    context: typer.Context,
    results: ResultsArgument,
    rows: Annotated[str, typer.Option("--rows", metavar="KEYS", help="Keys of the rows, joined by commas.")] = "method",
    columns: Annotated[
        str, typer.Option("--columns", metavar="KEYS", help="Keys of the columns; '' for one column.")
    ] = "dataset",
    value: ValueOption = "accuracy",
    where: WhereOption = None,
    over: OverOption = "seed",
    show: Annotated[
        str, typer.Option("--show", metavar="KEYS", help="Keys to show beside each figure, such as the picked rho,lam.")
    ] = "",
    pick: Annotated[
        str,
        typer.Option(
            "--pick", metavar="KEYS", help="Of results that differ in these, only the best validated counts: epochs."
        ),
    ] = "",
    reference: ReferenceOption = None,
    digits: Annotated[int, typer.Option("--digits", min=0, max=10, help="Decimals of percentages.")] = 1,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="terminal, markdown, csv, latex or json; else by OUT's suffix."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="OUT", help="Write to a file (.md, .csv, .tex, .json).")
    ] = None,
) -> None:
    """Gather results into a table: mean ± sample standard deviation over seeds.

    A key is a label (eval and merge take --label key=value), a field of a result (model, data or dataset, split,
    ensemble, file; class for the accuracy per class; group for the figures per group of a merge), or an option in the
    model's history (method, rho, lam, local_epochs, alpha, seed, …): of the last step that has it, or of the step that
    is named, as in train_client.seed. A label beats a field, a field beats the history. Of a merge that chose from a
    grid, every candidate can be listed (value validation_accuracy, key picked true or false).

    What the server's hold-out has to decide, such as the local epochs, is named by --pick: beside the results it needs
    the reports of their merges, made with --validate.

    The best of each column is marked; cells without a result are shown as –. Two results of one cell with the same
    seed are an error. The json format lists file, model_id and settings behind every figure.

    \b
    Examples:
      modelfuse report results/*.json --rows method --columns dataset,alpha
      modelfuse report results/*.json --columns alpha --reference paper.csv -o table.md
      modelfuse report results/*.json --rows method --show rho,lam
      modelfuse report results/*.json merges/*.json --pick epochs --show epochs,rho,lam
      modelfuse report merge.json --rows rho --columns lam --value validation_accuracy
      modelfuse report merges/*.json --rows group --columns round --value permuted
      modelfuse eval clients/ --data digits --json | modelfuse report - --rows model
    """
    screen: Screen = context.obj
    chosen = _format(form, output)
    table = gather(screen, results, layout_of(rows, columns, value, where, over, show, pick), reference)

    from modelfuse.reporting import formats
    from modelfuse.reporting.output import write_whole

    if chosen == "terminal":
        screen.table("", *formats.grid(table, digits))
        typer.echo(f"{formats.caption(table)}{', * best of its column' if table.best else ''}")
        return
    text = formats.WRITERS[chosen](table, digits)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_whole(output, text.encode())


def _format(form: str | None, output: Path | None) -> str:
    """Return the format asked for, or the one that the output's suffix stands for."""
    if form is not None and form not in FORMATS:
        raise OptionError("--format", f"there is no format {form!r}", f"There are {', '.join(FORMATS)}.")
    chosen = form or ("terminal" if output is None else SUFFIXES.get(output.suffix))
    if chosen is None:
        what = f"{output} does not say the format of the table"
        raise OptionError("--output", what, f"Name --format, or end the name in {', '.join(SUFFIXES)}.")
    if chosen == "terminal" and output is not None:
        raise OptionError("--output", "the terminal format is not for files", "Choose markdown, csv, latex or json.")
    return chosen
