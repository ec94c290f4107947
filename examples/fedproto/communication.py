"""Count the entries that clients send in a round, in the files that they send: python communication.py FOLDER ...."""

from __future__ import annotations

import sys
from pathlib import Path

from modelfuse.files.checkpoint import Checkpoint, open_checkpoint
from modelfuse.files.layout import is_float


def entries(file: Checkpoint) -> int:
    """Return the floating-point entries of a file; classes and counts of prototypes are bookkeeping, as labels are."""
    return sum(layout.size for layout in file.layout.values() if is_float(layout.dtype))


def sent(run: Path) -> int:
    """Return what all clients of a run send together in one round."""
    if not (run / "global.safetensors").exists() and not (run / "prototypes").exists():
        return 0  # local training
    if (run / "prototypes").exists():
        return sum(entries(open_checkpoint(path)) for path in (run / "prototypes").glob("prototypes_*.safetensors"))
    clients = len(list((run / "clients-even").glob("client_*.safetensors")))
    body = run / "body.safetensors"
    return clients * entries(open_checkpoint(body if body.exists() else run / "global.safetensors"))


for folder in map(Path, sys.argv[1:]):
    print(f"{folder.parent.name:24} {folder.name:20} {sent(folder):>10,} entries a round")
