"""How inputs are normalised when nobody says: as the models were trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from modelfuse.cli.app import run
from modelfuse.client.normalisation import normalisation_of
from modelfuse.client.sources.source import Normalisation, parse_normalisation
from modelfuse.errors import ContentError
from modelfuse.files.artifacts import open_kind


def test_text_keeps_every_digit() -> None:
    odd = Normalisation((0.1 + 0.2, 1e-9), (1 / 3, 2.0))
    assert parse_normalisation(odd.text()) == odd


def trained(folder: Path, name: str, *words: str) -> str:
    path = str(folder / name)
    recipe = ["--data", "digits", "-E", "1", "--lr", "0.05", "--batch-size", "16", *words]
    start = ["--architecture", "mlp:in=64,hidden=12,out=10", "--init-seed", "0"]
    assert run(["-q", "train-client", *start, *recipe, "-o", path]) == 0
    return path


def test_models_are_read_as_they_were_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    half = trained(tmp_path, "half.safetensors", "--normalize", "half")
    plain = trained(tmp_path, "plain.safetensors")
    models = [open_kind(Path(path), "model") for path in (half, plain)]
    assert normalisation_of(models[:1]) == "0.5/0.5"
    assert normalisation_of(models[1:]) == "0.3053/0.3761"
    assert normalisation_of(models, "none") == "none"
    with pytest.raises(ContentError, match=r"plain.safetensors: it was trained on data normalised by 0.3053/0.3761"):
        normalisation_of(models)
    losses = []
    for words in ([], ["--normalize", "half"], ["--normalize", "none"]):
        capsys.readouterr()
        assert run(["-q", "eval", half, "--data", "digits", "--json", *words]) == 0
        losses.append(json.loads(capsys.readouterr().out)["results"][0]["loss"])
    assert losses[0] == losses[1] != losses[2]
    for command in ("fisher", "gram", "prototypes"):
        written = []
        for words in ([], ["--normalize", "half"], ["--normalize", "none"]):
            output = tmp_path / "statistic.safetensors"
            assert run(["-q", command, half, "--data", "digits", *words, "-o", str(output)]) == 0
            written.append(output.read_bytes())
        assert written[0] == written[1] != written[2], command
