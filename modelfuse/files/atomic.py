"""Files that exist are whole: written beside their place under another name, then renamed into it."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from modelfuse.errors import FileError

__all__ = ["StagedFile", "check_place", "make_folder", "resolved"]

REASONS: dict[int, tuple[str, str]] = {
    errno.ENOSPC: ("the disk is full", "Free some space, or write to another disk."),
    errno.EDQUOT: ("your disk quota is used up", "Free some space, or write to another disk."),
    errno.EFBIG: ("the file is larger than its disk or your limits allow", "Write to another disk, or to shards."),
    errno.EACCES: ("its folder cannot be written to", "Choose a folder that you may write to."),
    errno.EPERM: ("its folder cannot be written to", "Choose a folder that you may write to."),
    errno.EROFS: ("its disk is read-only", "Choose a folder that you may write to."),
    errno.ENOENT: ("its folder does not exist", "Create the folder first."),
    errno.EEXIST: ("it is a file where a folder is needed", "Choose another folder."),
    errno.ENOTDIR: ("its folder is a file", "Choose another folder."),
    errno.ENAMETOOLONG: ("its name is too long", "Choose a shorter name."),
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses while writing into a :class:`FileError` with a remedy."""
    try:
        yield
    except OSError as error:
        what, fix = REASONS.get(
            error.errno or 0, (f"cannot be written ({error.strerror or error})", "Choose another place.")
        )
        raise FileError(str(path), what, fix) from error


def resolved(path: Path) -> Path:
    """Return the file that is written to when the user names ``path``: behind links, which stay links."""
    return Path(os.path.realpath(path))


def check_place(path: Path) -> None:
    """Check before any work that an output can be written.

    Args:
        path: The output file.

    Raises:
        FileError: It is a folder or a device, or its folder is missing or cannot be written to.
    """
    target = resolved(path)
    with explained(path):
        if target.exists() and not target.is_file():
            what = "it is a folder" if target.is_dir() else "it is not a regular file"
            raise FileError(str(path), what, "Give the path of a file to write.")
        if not target.parent.exists():
            raise OSError(errno.ENOENT, "")
        if not target.parent.is_dir():
            raise OSError(errno.ENOTDIR, "")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, "")


def make_folder(folder: Path) -> None:
    """Make a folder for outputs, with its parents, unless it is there.

    Args:
        folder: The folder.

    Raises:
        FileError: It cannot be made, or is a file.
    """
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)


class StagedFile:
    """A file under construction: invisible until :meth:`publish`, gone if the context ends without it.

    Args:
        path: The place it will take, in one step, replacing a file that is there.

    Raises:
        FileError: From any method: the disk is full, or the folder cannot be written to.
    """

    def __init__(self, path: Path) -> None:
        check_place(path)
        self.path = path
        self._target = resolved(path)
        self._temporary = self._target.with_name(f".modelfuse-{secrets.token_hex(8)}.tmp")
        with explained(path):
            self._file = self._temporary.open("xb")

    def write_at(self, offset: int, data: Any) -> None:
        """Write bytes (or any buffer of them) at a position from the start of the file."""
        with explained(self.path):
            if self._file.tell() != offset:
                self._file.seek(offset)
            self._file.write(data)

    def seal(self) -> None:
        """Bring all bytes to the disk; nothing can be written any more."""
        with explained(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def publish(self) -> None:
        """Take the place, after :meth:`seal`."""
        with explained(self.path):
            self._temporary.replace(self._target)
            _sync_folder(self._target.parent)

    def __enter__(self) -> StagedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # a full disk refuses the last buffered bytes of a file that is thrown away
            self._file.close()
        self._temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, where the file system lets folders be synced: the file is in its place already."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
