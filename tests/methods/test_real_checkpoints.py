"""Six trained clients, their Fishers and 10,000 test images: every row of the stored tables."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from modelfuse.cli.app import run
from modelfuse.files.writer import save
from modelfuse.types import Metadata

pytestmark = pytest.mark.slow

FOLDERS = {"shared": "fednet-cifar10-k6", "independent": "fednet-cifar10-k6-independent"}
WITHIN = 0.3  # points

ROWS: dict[str, list[tuple[str, int, float]]] = {
    "shared": [
        ("fedavg", 32, 24.79),
        ("fedavg --weighting uniform", 32, 24.04),
        ("fisher", 32, 29.92),
        ("fisher --rho 0.2 --lam 1e-4", 16, 34.87),
        ("fedfiot --rho 0.2 --lam 1e-4", 16, 34.87),
        ("fedfiot --rho 0.3 --lam 1e-5 --no-safeguard", 16, 34.60),
        ("fedfiot --rho 0.4 --lam 1e-3 --no-safeguard", 32, 33.87),
        ("fedfiot --rho 0.3 --lam 1e-5 --no-safeguard --matching euclidean", 16, 37.50),
        ("fedfiot --no-safeguard --matching euclidean --average uniform", 16, 30.82),
    ],
    "independent": [
        ("fedavg", 32, 15.15),
        ("fedavg --weighting uniform", 32, 11.27),
        ("fisher", 32, 15.86),
        ("fisher --rho 0.3 --lam 1e-3", 16, 14.81),
        ("fedfiot --rho 0.4 --lam 1e-3", 16, 33.17),
        ("fedfiot --rho 0.4 --lam 1e-3 --no-safeguard", 32, 33.35),
        ("fedfiot --rho 0.4 --lam 1e-4 --no-safeguard --matching euclidean", 16, 34.84),
        ("fedfiot --no-safeguard --matching euclidean --average uniform", 16, 23.06),
    ],
}
CASES = [(start, *row) for start, rows in ROWS.items() for row in rows]
CHOSEN = {"shared": "identity", "independent": "aligned"}


@pytest.fixture(scope="module")
def images(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Unpack the images and return their data string."""
    folder = tmp_path_factory.mktemp("images")
    with tarfile.open(shared / "data" / "cifar10-jpeg.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return f"imagefolder:{folder / 'cifar10-jpeg'}"


@pytest.fixture(scope="module")
def uploads(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], list[str]]:
    """Return what gives the arguments of a merge of one folder's clients, sent in so many bits."""

    def arguments(start: str, bits: int) -> list[str]:
        folder = shared / "data" / FOLDERS[start]
        counts = json.loads((folder / "clients.json").read_text())["sample_counts"]
        if bits != 32:
            sent = tmp_path_factory.mktemp(f"{start}{bits}")
            for path in [*folder.glob("client_*"), *folder.glob("fisher_*")]:
                kind: Any = "model" if path.name.startswith("client") else "fisher"
                save(sent / path.name, load_file(path), Metadata(kind), bits=bits)
            folder = sent
        fishers = [f"--fisher={folder / f'fisher_{k}.safetensors'}" for k in range(6)]
        clients = [str(folder / f"client_{k}.safetensors") for k in range(6)]
        return [*clients, *fishers, "--architecture", "fednet", "--num-examples", ",".join(map(str, counts))]

    return arguments


def _accuracies(files: list[str], images: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["-q", "eval", *files, "--data", images, "--architecture", "fednet", "--json", *options]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    return said


@pytest.mark.parametrize(("start", "method", "bits", "expected"), CASES, ids=lambda value: str(value).replace(" ", ""))
def test_a_row_of_the_table(
    tmp_path: Path,
    images: str,
    uploads: Callable[[str, int], list[str]],
    capsys: pytest.CaptureFixture[str],
    start: str,
    method: str,
    bits: int,
    expected: float,
) -> None:
    given = uploads(start, bits)
    if method.startswith("fedavg"):  # has no use for Fishers
        given = [argument for argument in given if not argument.startswith("--fisher")]
    output, report = tmp_path / "merged.safetensors", tmp_path / "report.json"
    told = ["--method", *method.split(), *given, "-o", str(output), "--report", str(report)]
    assert run(["-q", "merge", *told]) == 0
    accuracy = 100 * _accuracies([str(output)], images, capsys)["results"][0]["accuracy"]
    assert accuracy == pytest.approx(expected, abs=WITHIN)
    if method.startswith("fedfiot") and "safeguard" not in method:
        assert json.loads(report.read_text())["objective"]["chosen"] == CHOSEN[start]


@pytest.mark.parametrize(("start", "ensemble"), [("shared", 55.71), ("independent", 54.55)])
def test_clients_and_their_ensemble(
    shared: Path, images: str, capsys: pytest.CaptureFixture[str], start: str, ensemble: float
) -> None:
    folder = shared / "data" / FOLDERS[start]
    files = [str(folder / f"client_{k}.safetensors") for k in range(6)]
    said = _accuracies(files, images, capsys, "--ensemble")
    expected = json.loads((folder / "clients.json").read_text())["client_test_accuracy"]
    found = [100 * result["accuracy"] for result in said["results"]]
    np.testing.assert_allclose(found, expected, atol=0.05)
    assert 100 * said["ensemble"]["accuracy"] == pytest.approx(ensemble, abs=0.05)
