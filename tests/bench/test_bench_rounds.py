"""Rounds of many small clients: a process each step, against all steps in one process."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROUNDS = 3


@pytest.mark.bench
def test_rounds_in_one_process_against_a_process_each_step(tmp_path: Path) -> None:
    data = "--data digits --partition split.safetensors --client all"
    lines = ["partition --data digits --scheme nway-kshot -K 20 --ways 3 --shots 9 --test-shots 2 -o split.safetensors"]
    start = "--architecture mlp:in=64,hidden=20,out=10 --init-seed 0"
    for number in range(1, ROUNDS + 1):
        lines += [
            f"train-client {start} {data} -E 1 --jobs 1 -o clients{number}/",
            f"prototypes clients{number}/ {data} -o prototypes/",
            "merge -m fedproto prototypes/ -o global.safetensors",
        ]
        start = f"clients{number}/ --prototypes global.safetensors"
    modelfuse = [sys.executable, "-m", "modelfuse", "-q"]
    begun = time.perf_counter()
    for line in lines:
        subprocess.run([*modelfuse, *line.split()], cwd=tmp_path, check=True)
    apart = time.perf_counter() - begun
    begun = time.perf_counter()
    subprocess.run([*modelfuse, "run", "-"], input="\n".join(lines), text=True, cwd=tmp_path, check=True)
    together = time.perf_counter() - begun
    print(
        f"\n{ROUNDS} rounds of 20 clients: {together:.1f} s with modelfuse run, "
        f"{apart:.1f} s with a process each step: {apart / together:.1f}× as long"
    )
