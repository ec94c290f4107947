"""A table as text: for a terminal, in Markdown, LaTeX, csv, and as JSON that keeps every run."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from modelfuse import __version__
from modelfuse.reporting.reference import Published
from modelfuse.reporting.table import Cell, Head, Table

__all__ = ["WRITERS", "caption", "grid", "to_csv", "to_json", "to_latex", "to_markdown"]

MISSING = "–"
SYMBOLS = {"alpha": r"\alpha", "gamma": r"\gamma", "lam": r"\lambda", "mu": r"\mu", "rho": r"\rho", "sigma": r"\sigma"}
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure as text.

    Args:
        mean: The mean.
        std: The standard deviation, or None.
        count: The number of runs where it differs between cells, else None.
        best: Whether it is the best of its column.
        note: What was picked, empty for nothing to show.
    """

    mean: str
    std: str | None = None
    count: int | None = None
    best: bool = False
    note: str = ""


def caption(table: Table) -> str:
    """Return the sentence that says what the figures are."""
    layout, quantity = table.layout, table.layout.quantity
    unit = f" in {quantity.unit}" if quantity.unit else ""
    counts = _counts(table)
    if counts == {1}:
        return f"{quantity.title}{unit}, single runs"
    runs = f"n = {counts.pop()}" if len(counts) == 1 else "n in brackets"
    spread = f"mean ± sample std over {', '.join(layout.over)}"
    return f"{quantity.title}{unit}, {spread}, {runs}"


def grid(table: Table, digits: int) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows for a terminal: the best of a column is starred.

    Args:
        table: The table.
        digits: Decimals of percentages; other quantities have three significant digits more.
    """

    def write(shown: Shown) -> str:
        return f"{_plain(shown)} {'*' if shown.best else ' '}{_note(shown)}"

    width = 2 if table.best else 0
    head, rows = _body(table, digits, write if width else _noted, f"{MISSING}{' ' * width}")
    return [head[0], *(f"{text}{' ' * width}" for text in head[1:])], rows


def to_markdown(table: Table, digits: int) -> str:
    """Return a Markdown table, its columns aligned in the source too; the best of a column is bold."""

    def write(shown: Shown) -> str:
        return (f"**{_plain(shown)}**" if shown.best else _plain(shown)) + _note(shown)

    head, rows = _body(table, digits, write, MISSING)
    lines = [[text.replace("|", r"\|") for text in line] for line in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = [f"{'-' * (width - 1)}{':' if number else '-'}" for number, width in enumerate(widths)]
    lines.insert(1, rule)
    return "".join(f"| {' | '.join(_justify(line, widths))} |\n" for line in lines) + f"\n{caption(table)}\n"


def to_latex(table: Table, digits: int) -> str:
    """Return a LaTeX ``tabular`` with booktabs' rules; the best of a column is bold."""

    def write(shown: Shown) -> str:
        spread = rf" \pm {shown.std}" if shown.std else ""
        count = rf"\,({shown.count})" if shown.count else ""
        figure = f"{shown.mean}{spread}{count}"
        note = f" [{_escape(shown.note)}]" if shown.note else ""
        return rf"$\mathbf{{{figure}}}${note}" if shown.best else f"${figure}${note}"

    head, rows = _body(table, digits, write, "--")
    lines = [[_escape(text) for text in head], *([_escape(row[0]), *row[1:]] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    top, *body = (rf"  {' & '.join(_justify(line, widths))} \\" for line in lines)
    return "\n".join(
        (
            f"% {caption(table)}; needs \\usepackage{{booktabs}}",
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            *(r"  \toprule", top, r"  \midrule", *body, r"  \bottomrule"),
            r"\end{tabular}",
            "",
        )
    )


def to_csv(table: Table) -> str:
    """Return one line a cell, in the unit shown; a csv of this form can be the ``--reference`` of another table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    published = [f"{each.name}{part}" for each in table.references for part in ("", "_std")]
    writer.writerow(["row", "column", "value", "std", "n", "best", *table.layout.show, *published])
    for row in table.rows:
        for column in table.columns:
            cell = table.cells.get((row, column))
            best = str((row, column) in table.best).lower()
            measured = _measured(cell, table.layout.quantity.factor)
            figures = [measured["mean"], measured["std"], measured["n"], best]
            found = [each.find(row.names, column.names) for each in table.references]
            others = [part for each in found for part in ((each.value, each.std) if each else (None, None))]
            picked = [cell.shown(key) if cell else "" for key in table.layout.show]
            writer.writerow([row.label, column.label, *figures, *picked, *others])
    return text.getvalue()


def to_json(table: Table) -> dict[str, Any]:
    """Return the table as JSON data: every cell with the file, the models and the settings of each of its runs."""
    layout, factor = table.layout, table.layout.quantity.factor
    cells = []
    for (row, column), cell in sorted(table.cells.items(), key=lambda item: _position(table, item[0])):
        runs = [
            {
                "file": run.file,
                "model_ids": list(run.model_ids),
                "value": round(run.values[layout.value] * factor, 10),
                "fields": dict(run.fields),
            }
            for run in cell.runs
        ]
        place = {"row": row.label, "column": column.label}
        cells.append({**place, **_measured(cell, factor), "best": (row, column) in table.best, "runs": runs})
    return {
        "kind": "report",
        "version": __version__,
        "value": layout.value,
        "unit": layout.quantity.unit,
        "row_keys": list(layout.rows),
        "column_keys": list(layout.columns),
        "over": list(layout.over),
        "where": dict(layout.where),
        "rows": [row.label for row in table.rows],
        "columns": [column.label for column in table.columns],
        "cells": cells,
        "references": [
            {"name": each.name, "row": row, "column": column, "value": figure.value, "std": figure.std}
            for each in table.references
            for (row, column), figure in each.figures.items()
        ],
        "left_out": table.left_out,
    }


WRITERS: Mapping[str, Callable[[Table, int], str]] = {
    "markdown": to_markdown,
    "latex": to_latex,
    "csv": lambda table, _: to_csv(table),
    "json": lambda table, _: f"{json.dumps(to_json(table), ensure_ascii=False, indent=2)}\n",
}
"""The formats that are text, by name; csv and json keep all digits."""


def _position(table: Table, place: tuple[Head, Head]) -> tuple[int, int]:
    row, column = place
    return table.rows.index(row), table.columns.index(column)


def _measured(cell: Cell | None, factor: float) -> dict[str, Any]:
    if cell is None:
        return {"mean": None, "std": None, "n": 0}
    std = None if cell.std is None else round(cell.std * factor, 10)
    return {"mean": round(cell.mean * factor, 10), "std": std, "n": len(cell.runs)}


def _body(table: Table, digits: int, write: Callable[[Shown], str], missing: str) -> tuple[list[str], list[list[str]]]:
    """Heads and rows, the columns of each reference right of the column that they belong to."""
    head = [", ".join(table.layout.rows)]
    columns: list[list[str]] = []
    for column in table.columns:
        head.append(column.label)
        columns.append([write(shown) if shown else missing for shown in _column(table, column, digits)])
        for reference in table.references:
            figures = [reference.find(row.names, column.names) for row in table.rows]
            if any(figures):
                head.append(f"{column.label} ({reference.name})")
                columns.append([write(_shown(each, table, digits)) if each else missing for each in figures])
    return head, [list(line) for line in zip((row.label for row in table.rows), *columns, strict=True)]


def _column(table: Table, column: Head, digits: int) -> Iterator[Shown | None]:
    uniform = len(_counts(table)) == 1
    factor = table.layout.quantity.factor
    for row in table.rows:
        cell = table.cells.get((row, column))
        if cell is None:
            yield None
            continue
        std = None if cell.std is None else _text(cell.std * factor, table, digits)
        count = None if uniform else len(cell.runs)
        note = " ".join(f"{key}={cell.shown(key) or MISSING}" for key in table.layout.show)
        yield Shown(_text(cell.mean * factor, table, digits), std, count, (row, column) in table.best, note)


def _counts(table: Table) -> set[int]:
    return {len(cell.runs) for cell in table.cells.values()}


def _shown(figure: Published, table: Table, digits: int) -> Shown:
    std = None if figure.std is None else _text(figure.std, table, digits)
    return Shown(_text(figure.value, table, digits), std)


def _text(figure: float, table: Table, digits: int) -> str:
    return f"{figure:.{digits}f}" if table.layout.quantity.percent else f"{figure:.{digits + 3}g}"


def _plain(shown: Shown) -> str:
    spread = f" ± {shown.std}" if shown.std else ""
    count = f" ({shown.count})" if shown.count else ""
    return f"{shown.mean}{spread}{count}"


def _noted(shown: Shown) -> str:
    return _plain(shown) + _note(shown)


def _note(shown: Shown) -> str:
    return f" [{shown.note}]" if shown.note else ""


def _justify(line: list[str], widths: list[int]) -> list[str]:
    return [line[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True))]


def _escape(text: str) -> str:
    """Text for LaTeX; settings such as ``alpha=0.1`` become formulas."""
    return " ".join(_formula(word) or _escape_word(word) for word in text.split(" "))


def _formula(word: str) -> str | None:
    key, equals, value = word.partition("=")
    return f"${SYMBOLS[key]}={value}$" if equals and key in SYMBOLS and re.fullmatch(r"[-+.\deE|]+", value) else None


def _escape_word(word: str) -> str:
    return re.sub(r"[\\~^&%$#_{}]", lambda found: SPECIAL.get(found[0], f"\\{found[0]}"), word)
