"""Work that forked processes do ahead of its turn is what is done here, whatever happens to them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partitioners import _forked_work
from partitioners._forked_work import ForkedWork, usable_cores
from simulator.errors import InputError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")


def _forked(work: Callable[[int], Any], jobs: Iterable[int], processes: int = 2) -> ForkedWork[int, Any]:
    left = list(jobs)
    return ForkedWork(work=work, upcoming=lambda: left, processes=processes)


def _squared(job: int) -> int:
    if job % 5 == 0:
        raise InputError(f"{job} is no job")
    return job * job


def _outcome(work: Callable[[int], Any], job: int) -> object:
    try:
        return work(job)
    except InputError as error:
        return str(error)


@given(
    asked=st.lists(st.integers(1, 12), max_size=12),
    expected=st.lists(st.integers(1, 12), max_size=8),
    processes=st.integers(1, 3),
)
@settings(max_examples=15, deadline=None)
def test_results_and_errors_are_those_of_the_work_whatever_was_expected(
    asked: list[int], expected: list[int], processes: int
) -> None:
    with _forked(_squared, expected, processes) as ahead:
        assert [_outcome(ahead, job) for job in asked] == [_outcome(_squared, job) for job in asked]


def test_what_follows_the_first_job_is_done_by_other_processes() -> None:
    with _forked(lambda job: os.getpid(), range(2, 6)) as ahead:
        first, *others = [ahead(job) for job in range(1, 6)]
    assert first == os.getpid() and os.getpid() not in others and len(set(others)) == 2


def test_on_one_core_and_beside_the_main_thread_all_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    with _forked(lambda job: os.getpid(), range(5), processes=1) as ahead:
        assert {ahead(job) for job in range(5)} == {os.getpid()}
    cores: list[int] = []
    thread = threading.Thread(target=lambda: cores.append(usable_cores()))
    thread.start()
    thread.join()
    assert cores == [1]
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    assert usable_cores() == 3
    monkeypatch.setattr(_forked_work, "MOST_PROCESSES", 2)
    assert usable_cores() == 2


def test_jobs_of_processes_that_end_are_done_here() -> None:
    """One is killed amid its job, one cannot send what it has."""
    here = os.getpid()

    def work(job: int) -> object:
        if os.getpid() == here:
            return job
        if job % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return lambda: job

    with _forked(work, range(1, 8)) as ahead:
        assert [ahead(job) for job in range(8)] == list(range(8))


def test_forked_processes_fork_none() -> None:
    with _forked(lambda job: usable_cores(), range(2, 4)) as ahead:
        assert [ahead(job) for job in range(1, 4)][1:] == [1, 1]


def test_no_process_outlives_the_work() -> None:
    with _forked(lambda job: os.getpid() if job < 3 else signal.pause(), range(2, 9)) as ahead:
        ahead(1)
        process = ahead(2)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    assert ahead(1) == os.getpid()
