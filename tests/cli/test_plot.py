"""``modelfuse plot`` from the command line: every picture from files alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from result_documents import evaluated, write

from modelfuse.cli.app import run
from modelfuse.files.writer import save
from modelfuse.types import Metadata


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fill the current folder with one small file of each kind."""
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        write(Path(f"r{number}.json"), evaluated(0.3 * number, labels={"round": number, "alpha": 0.1}))
    details = {"scheme": "iid", "classes": ["cat", "dog"], "class_counts": [[3, 1], [0, 2]]}
    save(Path("split.safetensors"), {"client_0": np.arange(2)}, Metadata("partition", details=details))
    for name in ("c0", "c1", "global"):
        save(Path(f"{name}.safetensors"), {"conv1.weight": np.ones((2, 1, 2, 2), np.float32)}, Metadata("model"))
    orders = {"conv1.client_0": np.array([0, 1]), "conv1.client_1": np.array([1, 0])}
    save(Path("orders.safetensors"), orders, Metadata("orders"))
    np.savez("e.npz", embeddings=np.eye(4), labels=np.arange(4), prototypes=np.eye(4))
    return tmp_path


PICTURES = [
    ["split", "split.safetensors"],
    ["curve", "r1.json", "r2.json", "--title", "A title"],
    ["bars", "r1.json", "r2.json", "--columns", "round"],
    ["assignment", "orders.safetensors", "--group", "conv1", "--clients", "0,1"],
    ["filters", "c0.safetensors", "c1.safetensors", "global.safetensors", "--orders", "orders.safetensors"],
    ["embeddings", "e.npz"],
]


@pytest.mark.parametrize("arguments", PICTURES, ids=lambda arguments: arguments[0])
def test_every_picture_is_drawn_from_files(arguments: Sequence[str]) -> None:
    assert run(["plot", *arguments, "-o", "picture.png"]) == 0
    assert Path("picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["split", "split.safetensors", "-o", "p.pdf"], "--output: p.pdf is neither .png nor .svg."),
        (["split", "c0.safetensors", "-o", "p.png"], "c0.safetensors: a model file where a partition file is needed."),
        (["curve", "r1.json", "--x", "epoch", "-o", "p.png"], "no result has epoch."),
        (["curve", "r1.json", "--x", "method,round", "-o", "p.png"], "--x: 2 keys are given. Name one, such as round"),
        (["filters", "c0.safetensors", "-o", "p.png"], "MODELS: one model is not enough."),
        (
            ["assignment", "orders.safetensors", "--group", "conv1", "--clients", "a", "-o", "p.png"],
            "no list of clients",
        ),
        (["bars", "absent.json", "-o", "p.png"], "absent.json: cannot be read"),
    ],
)
def test_an_error_is_one_line_exit_two_and_no_picture(
    arguments: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plot", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(Path().glob("p.*"))
