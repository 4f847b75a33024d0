"""A wall clock that is set while a supervisor waits: no patience is shortened or lengthened by it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from penstock.act.restart.job_memory import JobMemory, recall_job, remember_job
from penstock.decide.outcome import Status
from tests.act.restart.stand_in import KEY
from tests.act.restart.test_shell import QUICK, Stage

DAY = 86_400.0


class LeapingClock:
    """A wall clock that leaps at every look."""

    def __init__(self, leap: float) -> None:
        self.leap, self.ahead = leap, 0.0

    def __call__(self) -> float:
        self.ahead += self.leap
        return time.time() + self.ahead


@pytest.fixture
def stage(tmp_path: Path):
    made = Stage(tmp_path)
    with closing(made.journal):
        yield made


def test_a_clock_that_leaps_ahead_does_not_end_the_wait_for_a_batch(stage: Stage):
    """The stand-in takes a second to start, and has a minute for its first batch."""
    assert stage.supervisor(wall=LeapingClock(3600.0)).run() == 0
    assert stage.starts() == ["1g", "2g"]
    record = stage.journal.action(stage.action)
    assert record.status is Status.DONE and record.measured is not None
    assert record.measured["pause_seconds"] < 3600


def test_a_clock_that_goes_back_does_not_make_the_wait_endless(stage: Stage):
    assert stage.supervisor(wall=LeapingClock(-3600.0), stuck=["2g"], patience=QUICK, batches=5).run() == 0
    assert stage.starts() == ["1g", "2g", "1g"]
    assert stage.journal.action(stage.action).status is Status.FAILED


def test_a_clock_that_leaps_a_day_gives_no_new_budget_of_restarts(stage: Stage):
    """Each size asks for the next one; four restarts are allowed in a day, whatever the clock says."""
    asks = {"1g": "2g", "2g": "3g", "3g": "4g", "4g": "5g", "5g": "6g"}
    stage.supervisor(wall=LeapingClock(DAY), asks=asks).run()
    assert stage.starts() == ["1g", "2g", "3g", "4g", "5g"]
    assert any("restart-budget" in said for said in stage.said)


def test_a_clock_that_went_back_between_runs_frees_nothing_either(stage: Stage):
    ahead = time.time() + DAY
    remember_job(stage.journal, 1.0, "job", JobMemory(restarts=(ahead, ahead + 1, ahead + 2)))
    stage.supervisor(asks={"1g": "2g", "2g": "3g"}).run()
    assert stage.starts() == ["1g", "2g"]
    assert recall_job(stage.journal, "job").proven == {KEY: "2g"}
