"""The house style: bytes that repeat, suffixes, settings left as they were, and matplotlib that is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from modelfuse.errors import FileError, OptionError
from modelfuse.reporting.plots.split import Split, draw_split
from modelfuse.reporting.plots.style import save_figure, with_symbols

SPLIT = Split(np.array([[1, 2], [3, 4]]), ("cat", "dog"), "a split")


@pytest.mark.parametrize(("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("SVG", b"<?xml")])
def test_the_same_picture_gives_the_same_bytes_and_no_date(tmp_path: Path, suffix: str, start: bytes) -> None:
    first, second = (tmp_path / f"{name}.{suffix}" for name in "ab")
    save_figure(draw_split(SPLIT), first)
    with mpl.rc_context({"font.size": 20, "svg.hashsalt": "mine"}):
        save_figure(draw_split(SPLIT), second)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(start)
    assert b"dc:date" not in first.read_bytes()


def test_the_users_settings_are_left_as_they_were() -> None:
    with mpl.rc_context({"font.size": 20}):
        draw_split(SPLIT)
        assert mpl.rcParams["font.size"] == 20


def test_another_suffix_is_an_error_and_a_missing_folder_too(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"is neither \.png nor \.svg"):
        save_figure(draw_split(SPLIT), tmp_path / "a.pdf")
    with pytest.raises(FileError, match="its folder does not exist"):
        save_figure(draw_split(SPLIT), tmp_path / "absent" / "a.png")
    assert not list(tmp_path.iterdir())


def test_settings_are_written_as_papers_write_them() -> None:
    assert with_symbols("cifar10 alpha=0.1 lam=0.001 seed=1 rho") == "cifar10 α=0.1 λ=0.001 seed=1 rho"


def test_without_matplotlib_the_message_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['matplotlib'] = None\n"
        "from modelfuse.cli.app import run\n"
        "sys.exit(run(['plot', 'split', 'absent.safetensors', '-o', 'a.png']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "modelfuse: plot: matplotlib is not installed. Run pip install 'modelfuse[plot]'.\n"


def test_a_report_needs_neither_matplotlib_nor_numpy_nor_torch() -> None:
    code = (
        "import sys\n"
        "import modelfuse.reporting.formats, modelfuse.reporting.results, modelfuse.reporting.table\n"
        "print(*({'matplotlib', 'numpy', 'torch'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
