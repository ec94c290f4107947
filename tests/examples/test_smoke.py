"""The smoke test of examples/smoke: one JSON line, and an exit status that a CI job can trust."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SMOKE = Path(__file__).parents[2] / "examples" / "smoke"


@pytest.mark.slow
@pytest.mark.parametrize(("method", "floor", "status"), [("fedfiot", "0.4", 0), ("fedavg", "1.1", 1), ("none", "0", 2)])
def test_the_script_ends_as_the_merge_deserves(method: str, floor: str, status: int) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    words = [bash, str(SMOKE / "smoke.sh"), method, floor]
    done = subprocess.run(words, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    if status < 2:
        line = json.loads(done.stdout)
        assert done.stdout.count("\n") == 1
        assert (line["passed"], line["method"]) == (status == 0, method)


@pytest.mark.parametrize(("floor", "status"), [("0.5", 0), ("0.6251", 1)])
def test_the_check_compares_with_the_floor(floor: str, status: int) -> None:
    document = {"labels": {"method": "fedavg"}, "results": [{"accuracy": 0.625, "model_id": "ab"}]}
    words = [sys.executable, str(SMOKE / "check.py"), floor]
    done = subprocess.run(words, input=json.dumps(document), capture_output=True, text=True)
    assert done.returncode == status
    said = {"passed": status == 0, "accuracy": 0.625, "floor": float(floor), "model_id": "ab", "method": "fedavg"}
    assert json.loads(done.stdout) == said
