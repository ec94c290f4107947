"""Count the entries that clients send in a round, in the files that they send: python communication.py FOLDER ...."""

from __future__ import annotations

import sys
from pathlib import Path

from modelfuse.files.checkpoint import Checkpoint, open_checkpoint
from modelfuse.files.layout import is_float


def entries(file: Checkpoint) -> int:
    """Return the floating-point entries of a file; classes and counts of prototypes are bookkeeping, as labels are."""
    return sum(layout.size for layout in file.layout.values() if is_float(layout.dtype))


def sent(run: Path) -> tuple[int, int]:
    """Return the entries, and the bytes of these entries, that all clients of a run send together in one round."""
    if (run / "prototypes").exists():
        files = [open_checkpoint(path) for path in (run / "prototypes").glob("prototypes_*.safetensors")]
    elif (run / "global.safetensors").exists():
        body = run / "body.safetensors"
        upload = open_checkpoint(body if body.exists() else run / "global.safetensors")
        files = [upload] * len(list((run / "clients-even").glob("client_*.safetensors")))
    else:
        files = []  # local training
    size = sum(layout.nbytes for file in files for layout in file.layout.values() if is_float(layout.dtype))
    return sum(map(entries, files)), size


for folder in map(Path, sys.argv[1:]):
    count, size = sent(folder)
    print(f"{folder.parent.name:28} {folder.name:20} {count:>12,} entries a round {size / 1000:>12,.1f} kB")
