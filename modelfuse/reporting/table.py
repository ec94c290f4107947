"""The table: records sorted into cells, each cell the mean and the sample standard deviation over seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from modelfuse.errors import ContentError, OptionError
from modelfuse.reporting.quantities import QUANTITIES, Quantity
from modelfuse.reporting.records import Record
from modelfuse.reporting.reference import Reference
from modelfuse.reporting.selection import best_validated

__all__ = ["Cell", "Head", "Layout", "Table", "tabulate"]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a table shows.

    Args:
        rows: Keys whose values make the rows.
        columns: Keys whose values make the columns; none for one column.
        value: The quantity in the cells.
        where: Only records with these values of these keys count.
        over: Keys that tell the runs of one cell apart.
        show: Keys whose values are shown beside each figure: what was picked.
        pick: Keys to choose by: of runs that differ in these, only the one whose merge validated best counts.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...] = ()
    value: str = "accuracy"
    where: tuple[tuple[str, str], ...] = ()
    over: tuple[str, ...] = ("seed",)
    show: tuple[str, ...] = ()
    pick: tuple[str, ...] = ()

    @property
    def quantity(self) -> Quantity:
        """How the value is shown."""
        return QUANTITIES[self.value]

    @property
    def named(self) -> frozenset[str]:
        """Every key that rows, columns and filters name."""
        return frozenset((*self.rows, *self.columns, *(key for key, _ in self.where)))


@dataclass(frozen=True, slots=True)
class Head:
    """The values that make one row or one column.

    Args:
        keys: The keys; an empty one where a name stands alone.
        values: Their values, as text.
    """

    keys: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def label(self) -> str:
        """What is shown: words alone, numbers with their key (``cifar10 alpha=0.1``)."""
        pairs = zip(self.keys, self.values, strict=True)
        return " ".join(value if math.isnan(_number(value)) or not key else f"{key}={value}" for key, value in pairs)

    @property
    def names(self) -> frozenset[str]:
        """The names under which a reference may list it: as shown, or the values alone."""
        return frozenset((self.label, " ".join(self.values)))


@dataclass(frozen=True, slots=True)
class Cell:
    """What several runs of one thing gave, in the unit of the files.

    Args:
        runs: The records, one a seed.
        mean: Their mean.
        std: Their sample standard deviation (n − 1); None for a single run.
    """

    runs: tuple[Record, ...]
    mean: float
    std: float | None

    def shown(self, key: str) -> str:
        """Return the values that the runs have of a key, each once, in the order of the runs."""
        return "|".join(dict.fromkeys(run.fields[key] for run in self.runs if key in run.fields))


@dataclass(frozen=True, slots=True)
class Table:
    """A finished table.

    Args:
        layout: What it shows.
        rows: The rows in order.
        columns: The columns in order.
        cells: The cells that have runs.
        best: For each column, the rows whose mean is best; ensembles do not compete.
        references: Published figures to show beside.
        left_out: How many records have the value and lack a key of the rows or columns.
    """

    layout: Layout
    rows: tuple[Head, ...]
    columns: tuple[Head, ...]
    cells: Mapping[tuple[Head, Head], Cell]
    best: frozenset[tuple[Head, Head]]
    references: tuple[Reference, ...] = ()
    left_out: int = 0


def tabulate(records: Sequence[Record], layout: Layout, references: Sequence[Reference] = ()) -> Table:
    """Return the table of some records.

    Args:
        records: The records of all result files.
        layout: What to show.
        references: Published figures; rows that only they have are shown too, and rows follow the order of the first.

    Raises:
        OptionError: No record has the value, or none has the keys, or none passes the filter.
        ContentError: Two runs of one cell have the same seed, a figure is not finite, or a reference fits no column.
    """
    usable = _usable(records, layout)
    keys = (*layout.rows, *layout.columns)
    placed = [record for record in usable if all(key in record.fields for key in keys)]
    if not placed:
        missing = ", ".join(key for key in keys if not any(key in record.fields for record in usable))
        what = f"no result has {missing}" if missing else f"no result has all of {', '.join(keys)}"
        raise OptionError("--rows and --columns", what, f"The keys are {', '.join(_keys(usable))}.")
    if layout.pick:
        apart = (*layout.rows, *layout.columns, *layout.over)
        placed = best_validated(placed, layout.pick, apart, records)
    cells = _cells(placed, layout)
    columns = tuple(sorted({column for _, column in cells}, key=_natural))
    rows = _rows({row for row, _ in cells}, references)
    for reference in references:
        _check_reference(reference, columns)
    best = _best(cells, layout.quantity)
    return Table(layout, rows, columns, cells, best, tuple(references), len(usable) - len(placed))


def _usable(records: Sequence[Record], layout: Layout) -> list[Record]:
    """Return the records that have the value, pass the filter, and are of no finer detail than the layout names."""
    if layout.value not in QUANTITIES:
        raise OptionError("--value", f"there is no value {layout.value!r}", f"There are {', '.join(QUANTITIES)}.")
    details = layout.named & {"class", "group"} or {None}
    measured = [record for record in records if layout.value in record.values and record.detail in details]
    if not measured:
        found = dict.fromkeys(value for record in records for value in record.values)
        raise OptionError(
            "--value", f"no result has {layout.value!r}", f"The results hold {', '.join(found) or 'no figures'}."
        )
    passed = [record for record in measured if all(record.fields.get(key) == text for key, text in layout.where)]
    if not passed:
        wanted = ", ".join(f"{key}={text}" for key, text in layout.where)
        raise OptionError("--where", f"no result has {wanted}", f"The keys are {', '.join(_keys(measured))}.")
    return passed


def _cells(records: Iterable[Record], layout: Layout) -> dict[tuple[Head, Head], Cell]:
    runs: dict[tuple[Head, Head], dict[tuple[str | None, ...], Record]] = {}
    for record in records:
        row, column = (
            Head(keys, tuple(record.fields[key] for key in keys)) if keys else Head(("",), (layout.value,))
            for keys in (layout.rows, layout.columns)
        )
        seed = tuple(record.fields.get(key) for key in layout.over)
        others = runs.setdefault((row, column), {})
        if seed in others:
            raise _clash(others[seed], record, row, column, layout)
        others[seed] = record
    return {place: _cell(found, layout.value) for place, found in runs.items()}


def _clash(first: Record, second: Record, row: Head, column: Head, layout: Layout) -> ContentError:
    cell = f"{row.label} × {column.label}"
    seeds = ", ".join(f"{key} {first.fields.get(key, 'not given')}" for key in layout.over)
    what = f"both are {cell} with {seeds}"
    apart = [key for key in _keys([first, second]) if first.fields.get(key) != second.fields.get(key)]
    telling = [key for key in apart if key != "file" and "." not in key] or apart
    fix = f"Tell them apart by --rows, --columns, --where or --over: they differ in {', '.join(telling)}."
    if not apart:
        fix = "Give each result once."
    return ContentError(f"{first.place} and {second.place}", what, fix)


def _cell(runs: Mapping[tuple[str | None, ...], Record], value: str) -> Cell:
    ordered = [runs[seed] for seed in sorted(runs, key=lambda seed: [_order(each or "") for each in seed])]
    for record in ordered:
        if not math.isfinite(record.values[value]):
            what = f"{value} is no finite number"
            raise ContentError(record.place, what, "Train the model again, or leave it out with --where.")
    figures = [record.values[value] for record in ordered]
    std = statistics.stdev(figures) if len(figures) > 1 else None
    return Cell(tuple(ordered), statistics.fmean(figures), std)


def _best(cells: Mapping[tuple[Head, Head], Cell], quantity: Quantity) -> frozenset[tuple[Head, Head]]:
    if quantity.better is None:
        return frozenset()
    sign = 1.0 if quantity.better == "higher" else -1.0
    competing = {
        place: sign * cell.mean
        for place, cell in cells.items()
        if any(run.fields.get("ensemble") != "true" for run in cell.runs)
    }
    columns: dict[Head, float] = {}
    for (_, column), score in competing.items():
        columns[column] = max(score, columns.get(column, -math.inf))
    return frozenset(place for place, score in competing.items() if math.isclose(score, columns[place[1]]))


def _rows(found: set[Head], references: Sequence[Reference]) -> tuple[Head, ...]:
    """Return the rows of the references in their order, then the others; one that no run has counts as well."""
    by_name = {name: head for head in found for name in head.names}
    listed = [by_name.get(row) or Head(("",), (row,)) for each in references for row in each.rows]
    return tuple(dict.fromkeys((*listed, *sorted(found, key=_natural))))


def _check_reference(reference: Reference, columns: Sequence[Head]) -> None:
    known = {name for column in columns for name in column.names}
    if not known & set(reference.columns):
        what = f"none of its columns ({', '.join(reference.columns)}) is a column of the table"
        raise ContentError(reference.file, what, f"The columns are {', '.join(column.label for column in columns)}.")


def _keys(records: Iterable[Record]) -> list[str]:
    return sorted({key for record in records for key in record.fields})


def _natural(head: Head) -> list[tuple[float, str]]:
    return [_order(value) for value in head.values]


def _order(value: str) -> tuple[float, str]:
    number = _number(value)
    return (math.inf if math.isnan(number) else number, value)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
