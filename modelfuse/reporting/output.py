"""Writing a table or a picture in one step."""

from __future__ import annotations

from pathlib import Path

from modelfuse.files.atomic import StagedFile

__all__ = ["write_whole"]


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all.

    Args:
        path: The output.
        data: Its bytes.

    Raises:
        FileError: It cannot be written; an earlier file of the name is as it was.
    """
    with StagedFile(path) as file:
        file.write_at(0, data)
        file.seal()
        file.publish()
