"""Forked workers: what was imported and loaded before the fork is shared, and each worker computes on its own core."""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Generic, TypeAlias, TypeVar

from modelfuse.errors import ModelfuseError

__all__ = ["Work", "Workers", "available_cores"]

T = TypeVar("T")
Work: TypeAlias = Callable[[Callable[[float], None]], T]
"""A piece of work; it is handed a function to report progress to."""

CAN_FORK = (
    sys.platform != "darwin" and "fork" in multiprocessing.get_all_start_methods()
)  # unsafe with macOS's libraries


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers(Generic[T]):
    """Does pieces of work in parallel; with one job, or where a process cannot fork, one after another right here.

    The workers are forked at once, so that no thread started later (a progress bar's) is caught half-way by a fork.

    Args:
        works: The pieces, longest first. Their results must be picklable.
        jobs: Workers, at least 1.
    """

    def __init__(self, works: Sequence[Work[T]], jobs: int) -> None:
        self._works = works
        self._processes: list[Any] = []
        self._connections: list[Connection] = []
        if jobs > 1 and len(works) > 1 and CAN_FORK:
            for _ in range(min(jobs, len(works))):
                self._fork()

    def run(self, advance: Callable[[float], None]) -> list[T]:
        """Return the pieces' results, in their order.

        Args:
            advance: Told the progress that the pieces report.

        Raises:
            ModelfuseError: A worker was killed. Whatever a piece raises is raised here too; the other workers then end.
        """
        if not self._connections:
            return [work(advance) for work in self._works]
        results: dict[int, T] = {}
        waiting = iter(range(len(self._works)))
        for connection in self._connections:
            connection.send(next(waiting))
        while len(results) < len(self._works):
            ready = wait(self._connections)
            for connection in self._connections:
                if connection in ready:
                    self._listen(connection, waiting, results, advance)
        return [results[number] for number in range(len(self._works))]

    def __enter__(self) -> Workers[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection, process in zip(self._connections, self._processes, strict=True):
            connection.close()
            if kind is not None:
                process.terminate()
        for process in self._processes:
            process.join()

    def _listen(
        self, connection: Connection, waiting: Any, results: dict[int, T], advance: Callable[[float], None]
    ) -> None:
        try:
            what, number, value = connection.recv()
        except EOFError as error:
            raise ModelfuseError(
                "a worker process was killed, perhaps for want of memory. Pass a smaller --jobs and run again: "
                "what it had done is kept."
            ) from error
        if what == "progress":
            advance(value)
        elif what == "failed":
            raise value
        else:
            results[number] = value
            following = next(waiting, None)
            if following is not None:
                connection.send(following)

    def _fork(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(
            target=self._serve, args=(theirs, [*self._connections, ours]), daemon=True
        )
        with warnings.catch_warnings():
            # Python 3.12 and later warn of threads in a process that forks: ours are idle, and the child uses none
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        self._processes.append(process)
        self._connections.append(ours)

    def _serve(self, connection: Connection, inherited: Sequence[Connection]) -> None:
        for other in inherited:
            other.close()  # else no worker would notice that the parent is gone
        try:
            while True:
                self._work_on(connection.recv(), connection)
        except (EOFError, BrokenPipeError, KeyboardInterrupt):
            return  # the parent has all it wants, or is gone

    def _work_on(self, number: int, connection: Connection) -> None:
        try:
            value = self._works[number](lambda count: connection.send(("progress", number, count)))
        except (BrokenPipeError, KeyboardInterrupt):
            raise
        except Exception as error:
            connection.send(("failed", number, error))
        else:
            connection.send(("done", number, value))
