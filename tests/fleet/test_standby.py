"""Of two controllers of a fleet one decides; the other stands by, and takes over."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.errors import ActionFailed, NotLeading
from penstock.fleet.standby import Standby, make_keeper
from penstock.journal.store import Journal
from tests.waiting import wait_for


class FakeJob:
    """A job that runs until it is ended."""

    def __init__(self) -> None:
        self.ended, self.stopped = threading.Event(), False

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        return self.ended.wait(timeout)

    def stop(self) -> None:
        self.stopped = True
        self.ended.set()


class Controller:
    """A controller in a thread, and the jobs that it has started."""

    def __init__(self, journal: Journal, directory: Path, patience: float = 60.0) -> None:
        self.jobs: list[FakeJob] = []
        self.said: list[str] = []
        self.beats = 0
        self.keeper = make_keeper(journal, directory, patience)
        self.standby = Standby(self.keeper, self.said.append, 0.01, self.beat)
        self.thread = threading.Thread(target=self.standby.run, args=(self.start,), daemon=True)

    def start(self) -> FakeJob:
        self.jobs.append(FakeJob())
        return self.jobs[-1]

    def beat(self) -> None:
        self.beats += 1

    def begin(self) -> Controller:
        self.thread.start()
        return self


def test_the_second_waits_and_takes_over_when_the_first_ends(journal: Journal, tmp_path: Path):
    first = Controller(journal, tmp_path).begin()
    wait_for("the first", lambda: first.jobs)
    second = Controller(journal, tmp_path).begin()
    wait_for("the second", lambda: second.said)
    assert "standing by" in second.said[0] and second.jobs == []
    for one in (first, second):
        seen = one.beats
        wait_for("the loop to come round", lambda one=one, seen=seen: one.beats > seen)
    first.standby.require_lead()
    with pytest.raises(NotLeading):
        second.standby.require_lead()
    other = Controller(journal, tmp_path / "other").begin()
    wait_for("another fleet", lambda: other.jobs)
    for one in (first, other):
        one.jobs[0].ended.set()
        one.thread.join()
    second.keeper.refresh()
    wait_for("its turn", lambda: second.jobs)
    second.jobs[0].ended.set()
    second.thread.join()


def test_one_that_slept_too_long_stops_its_job_and_writes_nothing(journal: Journal, tmp_path: Path):
    first = Controller(journal, tmp_path).begin()
    wait_for("the first", lambda: first.jobs)
    # as after a pause of the whole machine: another has taken the lease meanwhile
    name = first.keeper.leadership.name
    taken = journal.leases.take(name, "other", journal.leases.seen(name))
    assert taken is not None
    with pytest.raises(NotLeading, match="nothing is written here"):
        first.standby.require_lead()
    wait_for("its end", lambda: first.jobs[0].stopped)
    wait_for("standing by", lambda: first.said)
    journal.leases.release(taken)
    first.keeper.refresh()
    wait_for("its turn again", lambda: len(first.jobs) == 2)
    first.jobs[1].ended.set()
    first.thread.join()


def test_once_waits_for_one_that_was_killed_and_not_for_one_that_decides(journal: Journal, tmp_path: Path):
    first = Controller(journal, tmp_path, patience=0.2).begin()
    wait_for("the first", lambda: first.jobs)
    second = Controller(journal, tmp_path, patience=1.0)
    with pytest.raises(ActionFailed, match="decides for this fleet"):
        second.standby.run(second.start, once=True)
    first.jobs[0].ended.set()
    first.thread.join()
    name = first.keeper.leadership.name
    assert journal.leases.take(name, "killed", journal.leases.seen(name)) is not None
    third = Controller(journal, tmp_path, patience=0.2)
    job = FakeJob()
    job.ended.set()
    third.standby.run(lambda: job, once=True)
