"""Small result documents, as ``eval`` and ``merge --report`` write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def evaluated(
    accuracy: float,
    /,
    *,
    method: str | None = "fedavg",
    labels: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Return what ``eval`` writes of one model: trained with some options, then merged by a method."""
    steps = [{"command": "train-client", "version": "0", "options": dict(options or {}), "inputs": []}]
    if method is not None:
        steps.append({"command": "merge", "version": "0", "options": {"method": method, "rho": 1.0}, "inputs": []})
    result = {"model": "global.safetensors", "model_id": f"id-{accuracy}", "accuracy": accuracy, "loss": 1.5}
    return {
        "kind": "eval",
        "version": "0",
        "data": "digits",
        "split": "test",
        "labels": dict(labels or {}),
        "results": [{**result, "count": 10, "per_class": {}, "history": steps, **fields}],
        "ensemble": None,
    }


def merged(**fields: Any) -> dict[str, Any]:
    """Return what ``merge --report`` writes of a fedfiot merge of two clients with two groups."""
    return {
        "kind": "merge",
        "version": "0",
        "method": "fedfiot",
        "settings": {"rho": 0.5, "lam": 0.001},
        "inputs": [],
        "model_id": "id-merged",
        "reference": "c0.safetensors",
        "groups": {
            "conv1": {
                "width": 10,
                "iterations": [
                    {"objective": 9.0, "cost_seconds": 0.5, "lap_seconds": 0.25},
                    {"objective": 8.0, "cost_seconds": 0.25, "lap_seconds": 0.5},
                ],
                "permuted_fraction": [0.0, 0.5],
            },
            "fc1": {
                "width": 30,
                "iterations": [{"objective": 3.0, "cost_seconds": 1.0, "lap_seconds": 2.0}],
                "permuted_fraction": [0.0, 1.0],
            },
        },
        "objective": {"aligned": 9.0, "identity": 116.0, "chosen": "aligned"},
        "candidates": [],
        "labels": {},
        **fields,
    }


def write(path: Path, document: Any) -> Path:
    """Write a document and return its path."""
    path.write_text(json.dumps(document), encoding="utf-8")
    return path
