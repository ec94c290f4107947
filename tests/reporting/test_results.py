"""Reading result files and standard input."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from result_documents import evaluated, write

from modelfuse.errors import FileError, OptionError
from modelfuse.reporting.results import read_results

NOTHING = io.StringIO()


def test_files_and_standard_input_are_read_in_order(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", evaluated(0.25))
    piped = io.StringIO(json.dumps(evaluated(0.5)) + "\n" + json.dumps(evaluated(0.75)) + "\n\n")
    records = read_results([path, Path("-")], piped)
    assert [record.values["accuracy"] for record in records] == [0.25, 0.5, 0.75]
    assert [record.file for record in records] == [str(path), "standard input", "standard input"]


def test_standard_input_twice_is_an_error() -> None:
    with pytest.raises(OptionError, match="read only once"):
        read_results([Path("-"), Path("-")], NOTHING)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b" \n", "is empty"),
        (b'{"kind": "eval",\n nonsense}', "is not JSON at line 2, column 2"),
        (b"\xff\xfe\x00", "is not text"),
        (json.dumps(evaluated(0.5)).encode() + b" }", "is not JSON at line 1"),
        (b"[" * 100_000, "is nested deeper"),
    ],
)
def test_a_file_that_is_no_result_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        read_results([path], NOTHING)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"absent\.json: cannot be read: No such file"):
        read_results([tmp_path / "absent.json"], NOTHING)
