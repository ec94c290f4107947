"""What ``modelfuse merge --through`` does: one layer-wise round of FedMA, every client written back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from modelfuse import __version__
from modelfuse.cli.merging import Job, gathered, grid, growth, inputs_of, said_of_inputs
from modelfuse.cli.render import Screen
from modelfuse.errors import OptionError
from modelfuse.files.writer import save_json
from modelfuse.methods.contract import from_options
from modelfuse.methods.fedma import FedMA
from modelfuse.methods.round_files import write_round
from modelfuse.types import Step

__all__ = ["run_round"]


def run_round(
    job: Job, group: str, folder: Path, report: Path | None, orders: Path | None, screen: Screen, as_json: bool
) -> None:
    """Match one group, write every client back, and say what happened.

    Args:
        job: What to merge and how.
        group: The group.
        folder: Where the clients' files and their orders go.
        report: The report's file, or None.
        orders: What ``--orders`` says; nothing is right, as the orders lie beside the clients.
        screen: Where to write.
        as_json: Write the report to stdout as well.

    Raises:
        OptionError: An option does not go with a round.
    """
    if job.method != "fedma":
        raise OptionError("--through", f"method {job.method} does not know it", "Leave it out, or use fedma.")
    points = grid(job.options)
    for option, given in (
        ("--final", job.options.get("final")),
        ("--validate", job.validation),
        ("--orders", orders),
        ("--reference", any(job.given.references)),
        ("--only", job.given.part),
        ("--gamma/--sigma/--sigma0", len(points) > 1),
    ):
        if given:
            raise OptionError(option, "it does not go with --through", "Leave it out, or give one value.")
    method = from_options(FedMA, job.method, points[0])
    uploads = gathered(job, FedMA)
    done = method.round(uploads, group)
    settings = {**asdict(method), "through": group}
    step = Step("merge", __version__, {"method": job.method, **settings}, inputs_of(uploads))
    identities = write_round(folder, done, uploads, step)
    document: dict[str, Any] = {
        "kind": "merge",
        "version": __version__,
        "method": job.method,
        "settings": settings,
        "labels": dict(job.labels),
        "inputs": said_of_inputs(uploads),
        "model_ids": identities,
        "candidates": [],
        **done.report,
    }
    if report is not None:
        save_json(report, document)
    if as_json:
        screen.json(document)
    screen.say(f"{folder}: {growth(done.report['groups'])}; {done.progress.where()}. {done.progress.next_step()}")
