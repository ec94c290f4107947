"""What ``modelfuse merge`` does once its options are read: one candidate or a grid, the files, the report."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from modelfuse import __version__
from modelfuse.cli.render import Screen
from modelfuse.cli.selection import Validation
from modelfuse.errors import OptionError
from modelfuse.files.checkpoint import Checkpoint
from modelfuse.files.writer import save_json
from modelfuse.methods import load
from modelfuse.methods.contract import Merged, Method, from_options
from modelfuse.methods.gather import Given, gather, gather_prototypes
from modelfuse.methods.output import client_keys, write_merged, write_orders
from modelfuse.methods.partial import completed
from modelfuse.methods.uploads import Uploads
from modelfuse.types import Step

__all__ = ["Job", "Validation", "gathered", "grid", "growth", "inputs_of", "run", "said_of_inputs"]


@dataclass(frozen=True, slots=True)
class Job:
    """One merge as the user asked for it.

    Args:
        method: The method's name.
        options: Its options as given; a list stands for a grid.
        given: The opened files.
        validation: How to choose from a grid, or None.
        labels: Labels for the report.
        rest: Where a partial merge takes what it does not merge from, or None to leave it out.
    """

    method: str
    options: Mapping[str, Any]
    given: Given
    validation: Validation | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    rest: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point of the grid: its settings, what it starts from, its merge and how well it validates."""

    settings: Mapping[str, Any]
    uploads: Uploads
    merged: Merged
    accuracy: float | None


def run(job: Job, output: Path, report: Path | None, orders: Path | None, screen: Screen, as_json: bool) -> None:
    """Merge, write the files, and say what happened.

    Args:
        job: What to merge and how.
        output: The global model's file.
        report: The report's file, or None.
        orders: The orders' file, or None.
        screen: Where to write.
        as_json: Write the report to stdout as well.
    """
    method = load(job.method)
    points = [from_options(method, job.method, point) for point in grid(job.options)]
    count = len(points) * len(job.given.references)
    if count > 1 and job.validation is None:
        several = [
            f"--{name.replace('_', '-')}"
            for name, values in job.options.items()
            if isinstance(values, list) and len(values) > 1
        ]
        raise OptionError(
            "/".join(several or ["--reference"]),
            f"{count} candidates and nothing to choose by",
            "Pass --validate DATA --partition P, or one value of each.",
        )
    if any(job.given.references) and not method.takes_reference:
        raise OptionError("--reference", f"method {job.method} does not know it", "Leave it out.")
    uploads = gathered(job, method)
    if orders is not None and not method.needs_spec:
        raise OptionError("--orders", f"method {job.method} aligns nothing", "Leave it out.")
    if orders is not None:
        client_keys(uploads)  # refuses clients of one number before any work
    best, tried = _choose(points, [replace(uploads, reference=each) for each in job.given.references], job, screen)
    step = Step("merge", __version__, _decisive(job, best), inputs_of(uploads))
    partial = bool(job.given.part) and job.rest is None
    whole = best.merged if job.rest is None else completed(best.merged, job.rest)
    model_id = write_merged(output, whole, uploads, step, partial)
    if orders is not None:
        write_orders(orders, best.merged, uploads, step, model_id)
    document = _document(job, best, tried, uploads, model_id)
    if report is not None:
        save_json(report, document)
    if as_json:
        screen.json(document)
    elif len(tried) > 1:
        _show_grid(tried, screen)
    screen.say(_summary(job.method, output, best, uploads))


def gathered(job: Job, method: type[Method]) -> Uploads:
    """Return the clients' uploads.

    Raises:
        InputError: They do not go with the method, or with each other.
    """
    if job.rest is not None and not job.given.part:
        raise OptionError("--rest", "everything is merged", "Pass --only or --except too, or leave it out.")
    if job.given.part and method.needs_spec:
        raise OptionError(
            "--only/--except",
            f"{job.method} moves units, and layers left out would not follow",
            "Use fedavg or fisher.",
        )
    if job.given.part and job.validation is not None and job.rest is None:
        raise OptionError("--validate", "a part of a network predicts nothing", "Pass --rest FILE too.")
    if method.takes == "prototypes":
        if job.validation is not None:
            raise OptionError("--validate", "prototypes alone predict nothing", "Judge clients with eval --prototypes.")
        return gather_prototypes(job.given)
    return gather(job.given, companion=method.companion, equal_widths=not method.takes_unequal_widths)


def grid(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of the options' values, the last option varying fastest."""
    values = [value if isinstance(value, list) else [value] for value in options.values()]
    return [dict(zip(options, point, strict=True)) for point in itertools.product(*values)]


def _choose(
    methods: Sequence[Method], starts: Sequence[Uploads], job: Job, screen: Screen
) -> tuple[Candidate, list[dict[str, Any]]]:
    """Return the best candidate (the first among equals) and a line on each.

    Args:
        methods: The method with each combination of its options.
        starts: The uploads with each reference.
        job: How to choose.
        screen: Where to show progress.
    """
    if job.validation is None:
        return Candidate(_settings(methods[0], starts[0]), starts[0], methods[0].merge(starts[0]), None), []
    from modelfuse.cli.validation import Judge

    judge = Judge.prepare(job.validation, [client.model for client in starts[0].clients])
    points = list(itertools.product(starts, methods))
    best: Candidate | None = None
    tried: list[dict[str, Any]] = []
    with screen.progress(len(points), f"merge and validate {len(points)} candidates") as progress:
        for uploads, method in points:
            merged = method.merge(uploads)
            accuracy = judge.accuracy(merged, uploads.architecture)
            candidate = Candidate(_settings(method, uploads), uploads, merged, accuracy)
            line = {"settings": dict(candidate.settings), "validation_accuracy": candidate.accuracy}
            tried.append(line | {key: merged.report[key] for key in ("objective",) if key in merged.report})
            if best is None or (candidate.accuracy or 0.0) > (best.accuracy or 0.0):
                best = candidate
            progress.advance()
    if best is None:
        raise OptionError("--method", "the grid is empty", "Give at least one value.")
    return best, tried


def _settings(method: Method, uploads: Uploads) -> dict[str, Any]:
    options: dict[str, Any] = asdict(method)  # type: ignore[call-overload]
    if not method.takes_reference:
        return options
    return options | {"reference": "largest" if uploads.reference is None else uploads.reference.label}


def _decisive(job: Job, best: Candidate) -> dict[str, Any]:
    """Return the options that decide the result, for the output's history."""
    chosen = {"method": job.method, **best.settings}
    if job.given.part:
        chosen |= {"only": list(job.given.part.only), "except": list(job.given.part.excepted)}
    if job.rest is not None:
        chosen["rest"] = job.rest.model_id()
    reference = best.uploads.reference
    return chosen if reference is None else chosen | {"reference": reference.model_id()}


def inputs_of(uploads: Uploads) -> tuple[str, ...]:
    """Return the clients' identities, for the output's history."""
    return tuple(sorted(client.model.model_id() for client in uploads.clients))


def said_of_inputs(uploads: Uploads) -> list[dict[str, Any]]:
    """Return what a report says of the clients."""
    return [
        {
            "name": client.model.path.name,
            "model_id": client.model.model_id(),
            "client": client.info.id,
            "num_examples": client.info.num_examples,
        }
        for client in uploads.clients
    ]


def _document(
    job: Job, best: Candidate, tried: list[dict[str, Any]], uploads: Uploads, model_id: str
) -> dict[str, Any]:
    return {
        "kind": "merge",
        "version": __version__,
        "method": job.method,
        "settings": dict(best.settings),
        "labels": dict(job.labels),
        "inputs": said_of_inputs(uploads),
        "model_id": model_id,
        "validation_accuracy": best.accuracy,
        "candidates": tried,
        **best.merged.report,
    }


def _show_grid(tried: Sequence[Mapping[str, Any]], screen: Screen) -> None:
    varying = [name for name in tried[0]["settings"] if len({str(line["settings"][name]) for line in tried}) > 1]
    rows = [
        [*(str(line["settings"][name]) for name in varying), f"{100 * line['validation_accuracy']:.2f}"]
        for line in tried
    ]
    screen.table("Candidates", [*varying, "validation %"], rows)


def growth(groups: Mapping[str, Any]) -> str:
    """Return in words how far matched groups grew: from the widest client's units to the global ones."""
    return ", ".join(f"{name} {max(group['local_widths'])} → {group['width']}" for name, group in groups.items())


def _summary(method: str, output: Path, best: Candidate, uploads: Uploads) -> str:
    text = f"{output}: {method} of {len(uploads.clients)} clients"
    objective = best.merged.report.get("objective")
    if objective:
        text += f"; J = {objective['aligned']:.6g} aligned, {objective['identity']:.6g} by index"
        text += f": {objective['chosen']} merge kept"
    groups = best.merged.report.get("groups", {})
    fractions = [np.mean(group["permuted_fraction"]) for group in groups.values() if "permuted_fraction" in group]
    if fractions:
        text += f"; {100 * float(np.mean(fractions)):.0f} % of units permuted"
    if "parameters" in best.merged.report:
        text += f"; {growth(groups)}; {best.merged.report['parameters']['growth']:.2f} × the parameters"
    missing = best.merged.report.get("entries_without_weight")
    if missing:
        text += f"; {missing} entries that no Fisher weighs took the plain mean"
    if best.merged.report.get("promoted"):
        text += f"; mixed dtypes in {len(best.merged.report['promoted'])} tensors promoted"
    if best.accuracy is not None:
        text += f"; {100 * best.accuracy:.2f} % on the hold-out"
    return text
