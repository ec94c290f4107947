"""Forked workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial

import pytest

from modelfuse.client.workers import Workers, available_cores
from modelfuse.errors import ContentError, ModelfuseError

Advance = Callable[[float], None]


def square(number: int, advance: Advance) -> tuple[int, int]:
    advance(number)
    return number**2, os.getpid()


@pytest.mark.parametrize("jobs", [1, 3, 9])
def test_results_come_in_order_and_progress_is_heard(jobs: int) -> None:
    done: list[float] = []
    with Workers([partial(square, number) for number in range(5)], jobs) as workers:
        results = workers.run(done.append)
    assert [value for value, _ in results] == [0, 1, 4, 9, 16]
    assert sum(done) == 10
    processes = {process for _, process in results}
    assert (processes == {os.getpid()}) == (jobs == 1)
    assert len(processes) <= jobs


def test_what_a_worker_raises_is_raised_here_whole() -> None:
    def fail(advance: Advance) -> tuple[int, int]:
        raise ContentError("client 3", "it has no examples", "Leave it out.")

    with pytest.raises(ContentError, match="client 3: it has no examples. Leave it out.") as caught:  # noqa: SIM117
        with Workers([partial(square, 1), fail], 2) as workers:
            workers.run(lambda _: None)
    assert caught.value.where == "client 3"


def test_a_killed_worker_is_noticed() -> None:
    def die(advance: Advance) -> tuple[int, int]:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0, 0

    with pytest.raises(ModelfuseError, match="a worker process was killed.*--jobs"):  # noqa: SIM117
        with Workers([partial(square, 1), die, partial(square, 2)], 2) as workers:
            workers.run(lambda _: None)


def test_there_is_at_least_one_core() -> None:
    assert available_cores() >= 1
