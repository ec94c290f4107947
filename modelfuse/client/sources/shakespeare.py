"""``shakespeare:FOLDER``: the roles of plays, as sequences of characters, each of which predicts the next one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelfuse.client.sources.source import LabelArray, Owners, Source, SplitName
from modelfuse.errors import ContentError, FileError
from modelfuse.types import IndexArray

__all__ = ["LENGTH", "VOCABULARY", "open_shakespeare"]

LENGTH = 80
"""Characters a sequence (FedMA's and LEAF's number)."""

TRAIN_PERCENT = 80

VOCABULARY = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The 80 characters, in LEAF's order, so that rows of embeddings and decoders mean the same as in FedMA's models.

The plays use none of ``> }`` and a few digits; any other character, such as the one ``$``, reads as ``}``.
"""

UNKNOWN = len(VOCABULARY) - 1


@dataclass(frozen=True, slots=True)
class _Role:
    """A role of one play and all it says, in the play's order, speeches joined by newlines."""

    name: str
    text: str


def open_shakespeare(argument: str, split: SplitName, download: bool) -> Source:  # noqa: ARG001  (one signature)
    """Return a split of the plays.

    A role's text is cut at 80 % of its characters: what it says first is for training, the rest for testing. Each part
    is cut into sequences of 80 characters, one after the other; the label of each character is the one that follows,
    so every character but a part's first is predicted once, from at most 79 before it. What is left over at the end of
    a part, fewer than 80 characters, is dropped. (LEAF and FedMA's code predict only the character behind each window
    of 80, in steps of one character: the same predictions, each with all of 80 before it, at 80 times the cost.)

    Args:
        argument: A folder with one text file a play, in it or in ``plays/``: blocks parted by blank lines, whose first
            line is ``ROLE:``.
        split: ``train`` or ``test``.
        download: Ignored: there is nowhere to fetch from.

    Returns:
        (n, 80) int64 characters with (n, 80) labels; their owners are the roles, such as ``hamlet/HAMLET``.

    Raises:
        FileError: There is no play.
        ContentError: A file holds something else, or no role speaks enough for one sequence.

    Source: FedMA §3; LEAF (arXiv 1812.01097).
    """
    roles = [role for path in _plays(argument) for role in _read_play(path)]
    parts = [_sequences(_part(_encode(role.text), split)) for role in roles]
    examples = np.concatenate(parts) if parts else np.empty((0, LENGTH + 1), dtype=np.int64)  # (N, 81)
    if not len(examples):
        raise ContentError(
            f"--data shakespeare:{argument}",
            f"no role speaks enough for a sequence of {LENGTH} characters",
            "Give longer plays.",
        )
    owners = Owners(
        tuple(role.name for role in roles),
        np.array([len(role.text) for role in roles]),
        np.repeat(np.arange(len(roles)), [len(part) for part in parts]),
    )

    def read(indices: IndexArray | None) -> NDArray[Any]:
        return examples[slice(None) if indices is None else indices, :-1]

    labels: LabelArray = examples[:, 1:]
    return Source("shakespeare", labels, tuple(VOCABULARY), read, owners=owners)


def _plays(argument: str) -> list[Path]:
    folder = Path(argument)
    inner = folder / "plays"
    found = sorted((inner if inner.is_dir() else folder).glob("*.txt")) if argument else []
    if not found:
        raise FileError(
            f"--data shakespeare:{argument}",
            "there is no play, a file *.txt, in it or in plays/",
            "Name a folder that holds one text file a play.",
        )
    return found


def _read_play(path: Path) -> Iterator[_Role]:
    """Yield the roles of a play by their first appearance."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(str(path), f"not a text that can be read ({error})", "Give a play in UTF-8.") from error
    said: dict[str, list[str]] = {}
    for block in filter(None, (block.strip("\n") for block in text.split("\n\n"))):
        heading, _, speech = block.partition("\n")
        if not heading.endswith(":"):
            raise ContentError(str(path), f"a block begins with {heading!r}", "Begin every block with a line ROLE:.")
        said.setdefault(heading[:-1], []).append(speech)
    for name, speeches in said.items():
        yield _Role(f"{path.stem}/{name}", "\n".join(speeches))


def _encode(text: str) -> IndexArray:
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    codes: IndexArray = _TABLE[np.minimum(points, len(_TABLE) - 1)]
    return codes


def _part(characters: IndexArray, split: SplitName) -> IndexArray:
    cut = len(characters) * TRAIN_PERCENT // 100
    return characters[:cut] if split == "train" else characters[cut:]


def _sequences(characters: IndexArray) -> IndexArray:
    """Return (n, 81): each row's last character is the next row's first, as a label here and as an input there."""
    count = max(0, len(characters) - 1) // LENGTH
    starts = LENGTH * np.arange(count)[:, None]  # (n, 1)
    rows: IndexArray = characters[starts + np.arange(LENGTH + 1)]
    return rows


def _table() -> IndexArray:
    table = np.full(128, UNKNOWN)  # its last entry stands for all that is not ASCII, and is none of the 80
    table[[ord(character) for character in VOCABULARY]] = np.arange(len(VOCABULARY))
    return table


_TABLE = _table()
