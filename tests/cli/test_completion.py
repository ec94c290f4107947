"""Shell completion: what the shell asks when the tab key is pressed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("typed", "word", "offered"),
    [
        ("modelfuse me", 1, {"merge"}),
        ("modelfuse merge --re", 2, {"--reference", "--refine", "--refine-seed", "--report", "--rest"}),
    ],
)
def test_bash_completes_commands_and_options(typed: str, word: int, offered: set[str]) -> None:
    asked = {"_MODELFUSE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(word)}
    program = "import sys; sys.argv[0] = 'modelfuse'; from modelfuse.__main__ import main; main()"
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env={**os.environ, **asked}, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) >= offered
