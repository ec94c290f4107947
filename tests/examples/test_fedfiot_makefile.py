"""The Makefile of examples/fedfiot: it makes what is missing, nothing else, and goes on where it was killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "fedfiot"
OUTPUT = re.compile(r"(?:-o|--report) (\S+)")

pytestmark = pytest.mark.skipif(shutil.which("make") is None or shutil.which("bash") is None, reason="needs make")


def _make(build: Path, *words: str) -> list[str]:
    """Return a make command line on the embedded digits that builds into a folder of its own."""
    program = f"MODELFUSE={sys.executable} -m modelfuse"
    return ["make", "-C", str(FOLDER), "QUICK=1", f"B={build}", f"R={build}/results", program, *words]


def _plan(build: Path, *words: str) -> list[str]:
    """Return the modelfuse commands that make would run."""
    done = subprocess.run(_make(build, "-n", *words), capture_output=True, text=True, check=True)
    commands = done.stdout.replace("\\\n", " ").splitlines()
    return [line.split(" -m modelfuse ", 1)[1] for line in commands if line.startswith(sys.executable)]


def _pretend(commands: list[str]) -> None:
    """Touch what the commands would write, one after the other."""
    for number, command in enumerate(commands):
        for path in map(Path, OUTPUT.findall(command)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (1e9 + number, 1e9 + number))


@pytest.mark.parametrize("target", ["tab1", "tab2", "tab3", "tab5", "tab6", "epochs", "fig2", "fig4", "pictures"])
def test_a_second_make_does_nothing(tmp_path: Path, target: str) -> None:
    first = _plan(tmp_path, target)
    assert first
    _pretend(first)
    assert _plan(tmp_path, target) == []


def test_a_deleted_client_is_all_that_is_trained_again(tmp_path: Path) -> None:
    first = _plan(tmp_path, "tab1", "tab5")
    _pretend(first)
    (tmp_path / "digits-a0.1-p0" / "own-e5-s0" / "client_2.safetensors").unlink()
    again = _plan(tmp_path, "tab1", "tab5")
    assert [line for line in again if line.startswith("train-client")] == [
        line for line in first if line.startswith("train-client") and "own-e5-s0/client_2" in line
    ]
    assert [line for line in again if line.startswith("fisher")] == [
        line for line in first if line.startswith("fisher") and "own-e5-s0/client_2" in line
    ]
    assert all("own-e5-s0" in line for line in again)
    merges = [line for line in first if line.startswith("merge") and "own-e5-s0" in line]
    assert [line for line in again if line.startswith("merge")] == merges
    assert not any("shared" in line for line in again)


def test_a_deleted_report_of_a_merge_is_that_merge_again(tmp_path: Path) -> None:
    first = _plan(tmp_path, "picked")
    _pretend(first)
    (tmp_path / "digits-a0.1-p0" / "shared-e5-s0" / "euclidean.merge.json").unlink()
    merges = [line for line in _plan(tmp_path, "picked") if line.startswith("merge")]
    assert len(merges) == 1
    assert "--matching euclidean --no-safeguard" in merges[0]


def test_later_rounds_start_from_the_merge_before_and_choose_their_reference(tmp_path: Path) -> None:
    plan = _plan(tmp_path, "fig2", "ROUNDS=2 3", "CLIENTS=0 2 5")
    setting = tmp_path / "digits-a0.1-p0"
    trained = [line for line in plan if line.startswith(f"train-client {setting}/fedfiot2-e5-s0/fedfiot.safetensors")]
    assert [re.findall(r"--client (\d)", line) for line in trained] == [["0"], ["2"], ["5"]]
    (merge,) = (line for line in plan if line.startswith("merge") and f"-o {setting}/fedfiot3-e5-s0/fedfiot" in line)
    assert f"--reference largest --reference {setting}/fedfiot2-e5-s0/fedfiot.safetensors" in merge
    assert "client_{0,2,5}.safetensors" in merge


@pytest.mark.slow
def test_a_killed_training_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    recipe = "RECIPE=--batch-size 16 --schedule cosine --resume-every 0"

    def words(build: str) -> list[str]:
        model = tmp_path / build / "digits-a0.1-p0" / "shared-e60-s0" / "client_1.safetensors"
        return _make(tmp_path / build, "EPOCHS=60", recipe, str(model))

    killed = subprocess.Popen(
        words("one"), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    model = Path(words("one")[-1])
    state = model.with_name("client_1.safetensors.resume")
    deadline = time.monotonic() + 120
    while not state.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert state.exists()
    assert not model.exists()
    for build in ("one", "two"):
        subprocess.run(words(build), check=True, capture_output=True)
    assert model.read_bytes() == Path(words("two")[-1]).read_bytes()


@pytest.mark.slow
def test_a_table_comes_out(tmp_path: Path) -> None:
    small = ["-j2", "CLIENTS=0 1", "EPOCHS=1", "RHOS=0.3", "STARTS=shared", "tab6"]
    subprocess.run(_make(tmp_path, *small), check=True, capture_output=True, text=True)
    table = (tmp_path / "results" / "tab6.md").read_text("utf-8")
    for row in ("A FedFiOT", "B no alignment", "C Euclidean matching", "D uniform average", "E WB Fusion"):
        assert re.search(rf"^\| {row} +\|.*\d", table, re.MULTILINE), table
    assert _plan(tmp_path, *small[1:]) == []
