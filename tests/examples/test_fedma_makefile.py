"""The Makefile of examples/fedma: the steps of a pass in their order; what is missing is made, and nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "fedma"
CLIENTS = {"lenet": 10, "vgg9": 4, "lstm": 6}
STAND_IN = """
import pathlib, sys
words, clients = sys.argv[3:], int(sys.argv[2])
with open(sys.argv[1], "a") as log:
    log.write(" ".join(words) + "\\n")
written = ("-o", "--report") if words[0] == "localize" else ("-o", "--report", "--orders")
for option, path in zip(words, map(pathlib.Path, words[1:])):
    if option in written:
        for file in [path] if path.suffix else [path / f"client_{k}.safetensors" for k in range(clients)]:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None or shutil.which("bash") is None, reason="needs make")


class Example:
    """One experiment, with a stand-in for modelfuse that notes what it is told and touches what it would write."""

    def __init__(self, folder: Path, experiment: str, *words: str) -> None:
        self.at = folder / "build" / f"{experiment}-s0"
        self._log, program = folder / "log", folder / "stand_in.py"
        program.write_text(STAND_IN)
        given = ["QUICK=1", f"B={folder / 'build'}", f"R={folder / 'results'}"]
        stand_in = f"MODELFUSE={sys.executable} -S {program} {self._log} {CLIENTS[experiment]}"
        self._command = ["make", "-C", str(FOLDER), *given, stand_in, *words, experiment]

    def make(self) -> list[str]:
        """Return the commands that make runs."""
        self._log.write_text("")
        subprocess.run(self._command, capture_output=True, text=True, check=True)
        return self._log.read_text().splitlines()


@pytest.mark.parametrize("experiment", ["lstm", *(pytest.param(e, marks=pytest.mark.slow) for e in ("lenet", "vgg9"))])
def test_a_second_make_does_nothing(tmp_path: Path, experiment: str) -> None:
    example = Example(tmp_path, experiment)
    assert len(example.make()) > 20
    assert example.make() == []


def test_a_deleted_client_is_made_again_with_what_follows(tmp_path: Path) -> None:
    example = Example(tmp_path, "vgg9")
    example.make()
    (example.at / "fedma" / "1" / "conv2" / "client_3.safetensors").unlink()
    again = [line for line in example.make() if line.startswith(("train-client", "merge"))]
    rounds = [re.findall(r"--(?:freeze-through|through|final) (\S+)", line)[0] for line in again]
    assert rounds == ["conv2", "fc1", "fc1", f"{example.at}/fedma/1/fc1"]


def test_a_pass_matches_and_trains_layer_after_layer(tmp_path: Path) -> None:
    example = Example(tmp_path, "lstm", "passes.lstm=2")
    steps = [line for line in example.make() if "/fedma/" in line and not line.startswith(("eval", "report"))]
    one_pass = ["merge", "train-client"] * 2 + ["merge"]
    assert [line.partition(" ")[0] for line in steps] == [*one_pass, "localize", "train-client", *one_pass]
    at = example.at / "fedma"
    assert f"--through encoder {example.at}/own -o" in steps[0]
    assert f"localize {at}/1.safetensors --orders {at}/1.orders.safetensors --client all -o {at}/2/local" in steps[5]
    assert "--freeze-through" not in steps[6]
    for match, train, before, group in ((*steps[7:9], "start", "encoder"), (*steps[9:11], "encoder", "rnn")):
        assert f"--through {group} {at}/2/{before} -o {at}/2/{group}-matched" in match
        assert f"{at}/2/{group}-matched --freeze-through {group} --freeze-rule plain" in train
    assert f"--final {at}/2/rnn " in steps[11]


@pytest.mark.parametrize(("method", "more"), [("fedavg", False), ("fedprox", True)])
def test_baselines_get_as_many_rounds_as_the_passes(tmp_path: Path, method: str, more: bool) -> None:
    lines = [line for line in Example(tmp_path, "lstm", "passes.lstm=2").make() if f"/{method}/" in line]
    trained = [line for line in lines if line.startswith("train-client")]
    assert len(trained) == 2 * 3
    assert all(("--prox-mu 0.001" in line) == more for line in trained)
    assert any(f"{method}/6.safetensors" in line and "rounds=6" in line for line in lines if line.startswith("eval"))
