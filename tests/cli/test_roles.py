"""Plays from files to files: roles become clients, train, go through a pass of FedMA and are judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelfuse.cli.app import run
from modelfuse.client.partition import read_partition
from modelfuse.files.checkpoint import open_checkpoint

LETTERS = "It is the cause, it is the cause, my soul.\nLet me not name it to you, you chaste stars! "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fill the current folder with a play of two roles that speak enough and one that does not."""
    monkeypatch.chdir(tmp_path)
    speeches = [("A", LETTERS * 12), ("B", LETTERS[::-1] * 9), ("C", LETTERS * 5)]
    (tmp_path / "play.txt").write_text("\n".join(f"{role}:\n{speech}\n" for role, speech in speeches))
    assert modelfuse("partition", "--scheme", "natural", "--min-chars", "600", "-o", "split.safetensors") == 0
    return tmp_path


def modelfuse(command: str, *words: str) -> int:
    data = [] if command == "merge" else ["--data", "shakespeare:."]
    return run(["-q", command, *data, *words])


def train(*words: str) -> int:
    return modelfuse("train-client", *words, "--partition", "split.safetensors", "--client", "all", "-E", "1")


def judged(*words: str) -> dict[str, Any]:
    partition = ["--partition", "split.safetensors", "--clients-only", "-o", "r.json"]
    assert modelfuse("eval", *words, *partition) == 0
    said: dict[str, Any] = json.loads(Path("r.json").read_text(encoding="utf-8"))
    return said


def test_roles_become_clients(folder: Path) -> None:
    drawn = read_partition(Path("split.safetensors"))
    assert drawn.details["names"] == ["play/A", "play/B"]
    lengths = np.array([12, 9]) * len(LETTERS)
    trained = lengths * 80 // 100
    assert [len(own) for own in drawn.clients] == ((trained - 1) // 80).tolist()
    assert [len(own) for own in drawn.tests] == ((lengths - trained - 1) // 80).tolist()


def test_a_pass_of_fedma_over_roles(folder: Path) -> None:
    assert train("--architecture", "char-lstm:hidden=6", "--init-seed", "0", "--lr", "0.5", "-o", "own") == 0
    client = open_checkpoint(Path("own/client_1.safetensors")).metadata
    assert client is not None
    assert client.client is not None
    assert client.client.class_counts is not None
    assert sum(client.client.class_counts) == 80 * client.client.num_examples
    for before, group in (("own", "encoder"), ("trained-encoder", "rnn")):
        assert modelfuse("merge", "-m", "fedma", "--through", group, before, "-o", group) == 0
        words = ["--freeze-through", group, "--freeze-rule", "fedma", "-o", f"trained-{group}"]
        assert train(group, *words) == 0
    assert modelfuse("merge", "-m", "fedma", "--final", "trained-rnn", "-o", "global.safetensors") == 0
    said = judged("own", "global.safetensors", "--ensemble")
    predictions = 80 * sum(len(own) for own in read_partition(Path("split.safetensors")).tests)
    assert [result["count"] for result in [*said["results"], said["ensemble"]]] == [predictions] * 4
    assert all(0 < result["loss"] < 10 for result in said["results"])
