"""From one result document to flat records: what was measured, and under which keys it can be found."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modelfuse.errors import FileError
from modelfuse.reporting.entries import figure, figures, optional, take, texts

__all__ = ["Record", "records_of"]

EVALUATED = {"accuracy": "accuracy", "accuracy_std": "accuracy_std", "loss": "loss", "count": "count"}
TIMES = {"cost_seconds": "cost_seconds", "lap_seconds": "lap_seconds"}


@dataclass(frozen=True, slots=True)
class Record:
    """Figures that belong together: of one model, of one class of it, of one group of a merge.

    Args:
        file: The result file, as the user named it.
        subject: What in the file is measured, for messages: a model's name, ``ensemble``, or a method.
        model_ids: The models behind the figures.
        fields: Every key that the record can be found by, as text.
        values: The figures by quantity, in the unit of the file (fractions, not percent).
        detail: The key that a table has to name for this record to count (``class``, ``group``), or None.
    """

    file: str
    subject: str
    model_ids: tuple[str, ...]
    fields: Mapping[str, str]
    values: Mapping[str, float]
    detail: str | None = None

    @property
    def place(self) -> str:
        """Where the record comes from, for messages."""
        return f"{self.file} ({self.subject})"


def records_of(document: Any, file: str) -> tuple[Record, ...]:
    """Return the records of one result document.

    Args:
        document: What ``eval`` or ``merge --report`` wrote, as plain JSON data.
        file: The file it comes from, for messages and for tracing.

    Raises:
        FileError: The document is no result.
        ContentError: A field is missing or of the wrong type, or a figure is impossible.
    """
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if kind == "eval":
        return tuple(_of_eval(document, file))
    if kind == "merge":
        return tuple(_of_merge(document, file))
    what = "does not say what kind of result it is" if kind is None else f"is of kind {kind!r}, which is no result"
    raise FileError(file, what, "Give the JSON of modelfuse eval or of modelfuse merge --report.")


def _of_eval(document: Mapping[str, Any], file: str) -> Iterator[Record]:
    labels = texts(optional(document, "labels", dict, file))
    data = take(document, "data", str, file)
    common = {"file": file, "data": data, "dataset": data, "split": take(document, "split", str, file)}
    results = take(document, "results", list, file)
    for result in results:
        yield from _of_model(result, {**common, "ensemble": "false"}, labels, file)
    if document.get("ensemble") is not None:
        ensemble = {**take(document, "ensemble", dict, file), "model": "ensemble"}
        common |= {"ensemble": "true", "method": "ensemble"}
        members = tuple(result["model_id"] for result in results if result.get("model_id"))
        # a label for the method says how the members were made: their ensemble stays a method of its own
        yield from _of_model(ensemble, common, {**labels, "method": "ensemble"}, file, members)


def _of_model(
    result: Any, common: Mapping[str, str], labels: Mapping[str, str], file: str, members: tuple[str, ...] = ()
) -> Iterator[Record]:
    model = take(result, "model", str, file)
    where = f"{file} ({model})"
    history = _options(optional(result, "history", list, where), where)
    fields = {**history, **common, "model": model, **labels}
    ids = members or _identity(result)
    accuracy = figure(result.get("accuracy"), "accuracy", where)
    diverged = {"loss": math.nan} if "loss" in result else {}  # JSON has no NaN: eval writes null
    yield Record(file, model, ids, fields, {"accuracy": accuracy, **diverged, **figures(result, EVALUATED, where)})
    for name, entry in optional(result, "per_class", dict, where).items():
        values = figures(entry, EVALUATED, f"{where}, class {name}")
        yield Record(file, model, ids, {**fields, "class": name}, values, detail="class")


def _of_merge(document: Mapping[str, Any], file: str) -> Iterator[Record]:
    method = take(document, "method", str, file)
    where = f"{file} ({method})"
    labels = texts(optional(document, "labels", dict, file))
    objective = optional(document, "objective", dict, where)
    settings = texts(take(document, "settings", dict, where))
    named = {"chosen": objective.get("chosen"), "reference": document.get("reference")}
    known = {"file": file, "method": method} | {key: name for key, name in named.items() if isinstance(name, str)}
    fields = {**settings, **known, **labels}
    groups = {
        name: _of_group(group, f"{where}, group {name}")
        for name, group in optional(document, "groups", dict, where).items()
    }
    ids = _identity(document)
    grown = figures(optional(document, "parameters", dict, where), {"global": "parameters", "growth": "growth"}, where)
    yield Record(file, method, ids, fields, {**_totals(groups), **_objectives(objective, where), **grown})
    for name, values in groups.items():
        yield Record(file, method, ids, {**fields, "group": name}, values, detail="group")
    for number, candidate in enumerate(optional(document, "candidates", list, where), start=1):
        subject = f"{method}, candidate {number}"
        place = f"{file} ({subject})"
        tried = texts(take(candidate, "settings", dict, place))
        picked = str(tried == settings).lower()
        values = figures(candidate, {"validation_accuracy": "validation_accuracy"}, place)
        at = _objectives(optional(candidate, "objective", dict, place), place)
        values |= {"candidate_objective": at["objective"]} if "objective" in at else {}
        behind = ids if picked == "true" else ()
        yield Record(file, subject, behind, {**fields, **tried, "picked": picked, **labels}, values)


def _of_group(group: Any, where: str) -> dict[str, float]:
    values = figures(group, {"width": "width", "growth": "growth"}, where)
    iterations = optional(group, "iterations", list, where)
    if iterations:
        values["iterations"] = float(len(iterations))
        values |= figures(iterations[-1], {"objective": "objective"}, where)
        times = [figures(iteration, TIMES, where) for iteration in iterations]
        values |= {key: math.fsum(each.get(key, 0.0) for each in times) for key in TIMES}
        values["seconds"] = math.fsum(values[key] for key in TIMES)
    moved = [figure(share, "permuted", where) for share in optional(group, "permuted_fraction", list, where)]
    return values | ({"permuted": math.fsum(moved) / len(moved)} if moved else {})


def _totals(groups: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Sum over the groups; the permuted fraction is that of all units, so wide groups weigh more."""
    totals: dict[str, float] = {}
    for key in (*TIMES, "seconds"):
        parts = [values[key] for values in groups.values() if key in values]
        totals |= {key: math.fsum(parts)} if parts else {}
    moved = [(each["permuted"], each["width"]) for each in groups.values() if {"permuted", "width"} <= each.keys()]
    if moved:
        totals["permuted"] = math.fsum(share * width for share, width in moved) / math.fsum(width for _, width in moved)
    return totals


def _objectives(objective: Mapping[str, Any], where: str) -> dict[str, float]:
    """Return the full-model objectives; ``chosen`` may be a figure or the name of one of the other two."""
    chosen = objective.get("chosen")
    named = {**objective, "chosen": objective.get(chosen) if isinstance(chosen, str) else chosen}
    quantities = {"chosen": "objective", "aligned": "objective_aligned", "identity": "objective_identity"}
    return figures(named, quantities, where)


def _options(history: Sequence[Any], where: str) -> dict[str, str]:
    """Return options by name, from the last step that has each; also as ``command.name``, where the step matters."""
    fields: dict[str, str] = {}
    for step in history:
        command = take(step, "command", str, where)
        options = texts(take(step, "options", dict, where))
        fields |= options | {f"{command}.{key}".replace("-", "_"): value for key, value in options.items()}
    return fields


def _identity(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (entry["model_id"],) if isinstance(entry.get("model_id"), str) else ()
