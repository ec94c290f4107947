"""Published figures from a csv."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelfuse.errors import ContentError, FileError, ModelfuseError
from modelfuse.reporting.reference import Published, read_reference


def _csv(folder: Path, text: str) -> Path:
    path = folder / "paper.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_figures_are_read_with_and_without_a_deviation(tmp_path: Path) -> None:
    reference = read_reference(
        _csv(
            tmp_path,
            "row,column,value,std,n\nfedavg,alpha=0.1,30.3,1.0,3\nfedavg,alpha=0.2,34,,\nfisher,alpha=0.1,,,0\n",
        )
    )
    assert reference.name == "paper"
    assert reference.figures == {
        ("fedavg", "alpha=0.1"): Published(30.3, 1.0),
        ("fedavg", "alpha=0.2"): Published(34.0),
    }
    assert (reference.rows, reference.columns) == (("fedavg",), ("alpha=0.1", "alpha=0.2"))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("row,value\nfedavg,1\n", FileError, "has no column column"),
        ("", FileError, "has no column row, column, value"),
        ("row,column,value\na,b,many\n", ContentError, "paper.csv, line 2: 'many' is no number"),
        ("row,column,value\na,b,1\na,b,2\n", ContentError, "paper.csv, line 3: lists a × b a second time"),
    ],
)
def test_a_broken_csv_is_named(tmp_path: Path, text: str, error: type[ModelfuseError], message: str) -> None:
    with pytest.raises(error) as caught:
        read_reference(_csv(tmp_path, text))
    assert message in str(caught.value)


def test_a_missing_csv_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"paper\.csv: cannot be read"):
        read_reference(tmp_path / "paper.csv")
