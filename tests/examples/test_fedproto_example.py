"""The federations of examples/fedproto: what they print are command lines that run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from modelfuse.cli.app import run

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "fedproto"


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("split") / "split.safetensors"
    words = ["--scheme", "nway-kshot", "-K", "3", "--ways", "3", "--shots", "10", "--test-shots", "5"]
    assert run(["-q", "partition", "--data", "digits", *words, "-o", str(path)]) == 0
    return path


def script(split: Path, folder: Path, method: str, *words: str) -> Path:
    """Write the lines of two rounds, judged after the second, and return their file."""
    fixed = ["--data", "digits", "--split", str(split), "--out", str(folder), "--clients", "3", "--rounds", "2"]
    command = [sys.executable, str(FOLDER / "rounds.py"), "--method", method, *fixed, *words]
    path = folder / "script.txt"
    path.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return path


@pytest.mark.parametrize(
    ("method", "entries"),
    [
        # an mlp of 64-8-10: 520 entries of fc1, 90 of fc2, embeddings of 8, three clients of three classes
        ("local", 0),
        ("fedavg", 3 * 610),
        ("fedprox", 3 * 610),
        ("fedper", 3 * 520),
        ("fedrep", 3 * 520),
        ("fedproto", 3 * 3 * 8),
    ],
)
def test_two_rounds_of_each_method(split: Path, tmp_path: Path, method: str, entries: int) -> None:
    words = ["--network", "mlp:in=64,hidden=8,out=10", "--shared", "fc1*", "--recipe", "--lr 0.05 --jobs 1"]
    assert run(["-q", "run", str(script(split, tmp_path, method, *words, "--head", "fc2*"))]) == 0
    document = json.loads((tmp_path / "eval-2.json").read_text())
    assert document["labels"]["method"] == method
    ways = ["classifier", "nearest prototype"] if method == "fedproto" else ["classifier"]
    assert [result["model"] for result in document["results"]] == ways
    assert [row["client"] for row in document["results"][0]["per_client"]] == [0, 1, 2]
    counted = subprocess.run(
        [sys.executable, str(FOLDER / "communication.py"), str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert f"{entries:,} entries a round" in counted


@pytest.mark.parametrize(("network", "settings"), [("fedproto-cnn", "width="), ("resnet18:outputs=3", "stride=")])
def test_unlike_clients_start_from_unlike_networks(split: Path, tmp_path: Path, network: str, settings: str) -> None:
    lines = script(split, tmp_path, "fedproto-mh", "--network", network).read_text().splitlines()
    first = [line for line in lines if "--init-seed" in line]
    assert all(settings in line for line in first)
    owners = [line.split("--client ")[1].split()[0] for line in first]
    assert ",".join(owners) == "0,1,2"
    assert sum("--prototypes " in line and line.startswith("train-client") for line in lines) == 1  # round 2


def test_the_papers_figures_can_stand_beside_a_table() -> None:
    from modelfuse.reporting.reference import read_reference

    figures = read_reference(FOLDER / "expected.csv").figures
    assert figures["fedproto", "mnist stdev=2 ways=3"].value == 97.13
    assert figures["fedproto-mh", "mnist stdev=2 ways=5"].std == 0.36
    assert len(figures) == 3 * 8 * 3


def test_make_reads_a_run_from_its_path() -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    words = [make, "-n", "-B", "QUICK=1", "B=build-of-a-test", "fashion", "cifar"]
    lines = subprocess.run(words, cwd=FOLDER, capture_output=True, text=True, check=True).stdout.replace("\\\n", " ")
    shown = {" ".join(line.split()) for line in lines.splitlines()}
    folder = "build-of-a-test/fashion-mnist-s2-n4-k100-c20"
    assert (
        "modelfuse partition --data fashion-mnist:data --scheme nway-kshot -K 20 --ways 4 --ways-std 2 --shots 100 "
        f"--shots-std 2 --test-shots 40 --seed 0 -o {folder}/split-0.safetensors"
    ) in shown
    run_lines = [line for line in shown if f"--out {folder}/fedproto-mh-l1-0 " in line]
    assert len(run_lines) == 1
    assert "--method fedproto-mh" in run_lines[0]
    assert '--labels "dataset=fashion-mnist stdev=2 ways=4 shots=100 weight=1"' in run_lines[0]
    assert any("--method fedproto --data cifar10:data" in line and "--weight 0.1" in line for line in shown)
