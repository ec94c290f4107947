"""Choosing between results as a server can: by how their merges did on its hold-out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from modelfuse.errors import ContentError
from modelfuse.reporting.records import Record

__all__ = ["best_validated"]


def best_validated(
    records: Sequence[Record], keys: Sequence[str], apart: Sequence[str], known: Iterable[Record]
) -> list[Record]:
    """Return the records left when, of those that differ in some keys, only the one that validated best counts.

    Args:
        records: The results to choose from.
        keys: What is chosen, such as ``epochs``.
        apart: The keys of a cell and of its runs: records that differ in these do not compete.
        known: All records, among them those of the merges' reports, which say how each model validated.

    Raises:
        ContentError: A record that competes has no validation.

    Source: FedFiOT sec. 5.1 (local epochs are chosen per method on the server's validation set).
    """
    scores = {
        model: record.values["validation_accuracy"]
        for record in known
        if "validation_accuracy" in record.values
        for model in record.model_ids
    }
    rivals: dict[tuple[str | None, ...], dict[tuple[str | None, ...], list[Record]]] = {}
    for record in records:
        cell, choice = (tuple(map(record.fields.get, each)) for each in (apart, keys))
        rivals.setdefault(cell, {}).setdefault(choice, []).append(record)
    kept: list[Record] = []
    for choices in rivals.values():
        found = list(choices.values())
        best = found[0] if len(found) == 1 else max(found, key=lambda runs: _score(runs[0], scores))
        kept.extend(best)
    return kept


def _score(record: Record, scores: dict[str, float]) -> float:
    known = [scores[model] for model in record.model_ids if model in scores]
    if len(known) != 1:
        fix = "Merge with --validate and --report, and name that report too."
        raise ContentError(record.place, "nothing says how it validated", fix)
    return known[0]
