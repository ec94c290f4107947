"""Read the JSON of ``modelfuse eval`` and say in one JSON line whether the model is better than a floor."""

from __future__ import annotations

import json
import sys

floor = float(sys.argv[1])
document = json.load(sys.stdin)
result = document["results"][0]
passed = result["accuracy"] >= floor
line = {
    "passed": passed,
    "accuracy": round(result["accuracy"], 4),
    "floor": floor,
    "model_id": result["model_id"],
    **document["labels"],
}
print(json.dumps(line))
sys.exit(not passed)
