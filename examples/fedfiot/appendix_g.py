"""Write the two clients of FedFiOT's worked example (app. G) into a folder: python appendix_g.py FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

CLIENTS = {
    "one": [0, 4, 8],
    "two": [10, 2, 6],
    "fisher_one": [2, 0, 2],
    "fisher_two": [0, 0, 2],
}

folder = Path(sys.argv[1])
for name, values in CLIENTS.items():
    save_file({"w": np.array(values, np.float32).reshape(3, 1)}, folder / f"{name}.safetensors")
(folder / "spec.json").write_text(json.dumps({"axes": {"w": [["hidden", "match", 1, 1], None]}}))
