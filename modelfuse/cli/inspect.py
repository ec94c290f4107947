"""``modelfuse inspect``: what is in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from modelfuse.cli.options import ArchitectureOption, JsonOption

if TYPE_CHECKING:
    from modelfuse.files.checkpoint import Checkpoint
    from modelfuse.spec.axes import PermutationSpec

__all__ = ["inspect"]


def inspect(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A safetensors file, an index of shards, or a folder.")],
    architecture: ArchitectureOption = None,
    spec: Annotated[
        bool, typer.Option("--spec", help="Print the permutation spec as JSON, to start one of your own from.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what is in a file: its kind, architecture, groups and widths, client, history, tensors and their norms.

    \b
    Examples:
      modelfuse inspect global.safetensors
      modelfuse inspect client_3.safetensors --json | jq .client
      modelfuse inspect foreign.safetensors --architecture vgg9 --spec > vgg9.json
    """
    from modelfuse.errors import OptionError
    from modelfuse.files.checkpoint import open_checkpoint

    checkpoint = open_checkpoint(file)
    known = _spec(checkpoint, architecture)
    if spec:
        if known is None:
            raise OptionError(str(file), "it has no permutation spec", "Pass the --architecture it was trained with.")
        context.obj.json(known.to_json())
        return
    document = _document(checkpoint, known)
    if as_json:
        context.obj.json(document)
        return
    _show(document, context.obj)


def _spec(checkpoint: Checkpoint, architecture: str | None) -> PermutationSpec | None:
    from modelfuse.spec.architectures import parse_architecture
    from modelfuse.spec.axes import PermutationSpec

    if architecture is not None:
        return parse_architecture(architecture).spec()
    metadata = checkpoint.metadata
    if metadata is None or metadata.spec is None or metadata.kind == "gram":  # whose axes are inputs, not units
        return None
    known = PermutationSpec.from_json(metadata.spec, checkpoint.label)
    return known.part(checkpoint.layout) if metadata.details.get("partial") else known


def _document(checkpoint: Checkpoint, spec: PermutationSpec | None) -> dict[str, Any]:
    from modelfuse.files.artifacts import metadata_to_json

    said = {} if checkpoint.metadata is None else metadata_to_json(checkpoint.metadata)
    groups = {} if spec is None else spec.widths(checkpoint.shapes(), checkpoint.label)
    return {
        "kind": said.get("kind", "model"),
        "foreign": checkpoint.metadata is None,
        "architecture": said.get("architecture"),
        "model_id": checkpoint.model_id(),
        "groups": groups,
        "client": said.get("client"),
        "bits": None if checkpoint.metadata is None else checkpoint.metadata.bits,
        "details": said.get("details", {}),
        "history": said.get("history", []),
        "entries": sum(layout.size for layout in checkpoint.layout.values()),
        "bytes": sum(path.stat().st_size for path in checkpoint.files),
        "tensors": {
            name: {"dtype": layout.dtype, "shape": list(layout.shape), "norm": _norm(checkpoint, name)}
            for name, layout in checkpoint.layout.items()
        },
    }


def _norm(checkpoint: Checkpoint, name: str) -> float:
    import numpy as np

    chunk, total = 1 << 20, 0.0
    for start in range(0, checkpoint.layout[name].size, chunk):
        total += float(np.sum(np.square(checkpoint.read_flat(name, start, start + chunk).astype(np.float64))))
    return float(np.sqrt(total))


def _show(document: dict[str, Any], screen: Any) -> None:
    client = document["client"] or {}
    facts = [
        ("kind", document["kind"] + (" (no metadata of ours)" if document["foreign"] else "")),
        ("architecture", document["architecture"]),
        ("model_id", document["model_id"]),
        ("entries", f"{document['entries']:,}"),
        ("bytes", f"{document['bytes']:,}"),
        ("quantised", f"{document['bits']} bits" if document["bits"] else None),
        ("groups", ", ".join(f"{group} {width}" for group, width in document["groups"].items())),
        *((key.replace("_", " "), _plain(value)) for key, value in client.items()),
        *((key.replace("_", " "), _plain(value)) for key, value in document["details"].items()),
        *((f"step {number}", _step(step)) for number, step in enumerate(document["history"], start=1)),
    ]
    screen.table("", ["", "value"], [[key, str(value)] for key, value in facts if value not in (None, "")], left=2)
    rows = [
        [name, tensor["dtype"], "×".join(map(str, tensor["shape"])) or "scalar", f"{tensor['norm']:.6g}"]
        for name, tensor in document["tensors"].items()
    ]
    screen.table("", ["tensor", "dtype", "shape", "norm"], rows)


def _plain(value: Any) -> str:
    return ", ".join(map(_plain, value)) if isinstance(value, list) else str(value)


def _step(step: dict[str, Any]) -> str:
    options = " ".join(f"{key}={_plain(value)}" for key, value in step["options"].items() if value is not None)
    return f"{step['command']} {options}"
