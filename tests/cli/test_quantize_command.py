"""The quantize command: small copies that every reader takes for the files they were made from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from federation import write_federation

from modelfuse.cli.app import run
from modelfuse.files.checkpoint import open_checkpoint


def test_copies_are_small_and_keep_who_they_are(tmp_path: Path) -> None:
    models, fishers = write_federation(tmp_path)
    assert run(["-q", "quantize", *map(str, [*models, *fishers]), "-o", str(tmp_path / "small")]) == 0
    for path in (*models, *fishers):
        before, after = open_checkpoint(path), open_checkpoint(tmp_path / "small" / path.name)
        assert before.metadata is not None
        assert after.metadata is not None
        assert (after.metadata.bits, after.metadata.client) == (16, before.metadata.client)
        assert after.model_id() == before.model_id()
        for name, values in before.read_all().items():
            atol = 1.001 * np.abs(values).max() / (2 * 32767)
            np.testing.assert_allclose(after.read(name), values, rtol=0, atol=atol)


def test_a_merge_takes_the_copies(tmp_path: Path) -> None:
    models, fishers = write_federation(tmp_path)
    assert run(["-q", "quantize", *map(str, [*models, *fishers]), "-o", str(tmp_path / "small")]) == 0
    small = [str(tmp_path / "small" / path.name) for path in (*models, *fishers)]
    assert run(["-q", "merge", "-m", "fedfiot", *small, "-o", str(tmp_path / "out.safetensors")]) == 0


def test_training_writes_the_same_bytes(tmp_path: Path) -> None:
    train = ["-q", "train-client", "--data", "digits", "--architecture", "mlp:in=64,hidden=4,out=10", "-E", "1"]
    whole, small, copy = (str(tmp_path / f"{name}.safetensors") for name in ("whole", "small", "copy"))
    assert run([*train, "--init-seed", "0", "-o", whole]) == 0
    assert run([*train, "--init-seed", "0", "--quantize", "8", "-o", small]) == 0
    assert run(["-q", "quantize", whole, "--bits", "8", "-o", copy]) == 0
    assert Path(copy).read_bytes() == Path(small).read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bits", "12"], "12"),
        (["small/client_0.safetensors"], "quantised already, in 16 bits"),
    ],
)
def test_what_cannot_be_quantised_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_federation(tmp_path)
    assert run(["-q", "quantize", "client_0.safetensors", "client_1.safetensors", "-o", "small"]) == 0
    assert run(["-q", "quantize", "fisher_0.safetensors", *options, "-o", "other"]) == 2
    assert message in capsys.readouterr().err
