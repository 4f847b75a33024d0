"""A journal that is away when a job is started: the job runs, and nothing that is known is written over."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.act.restart.job_memory import JobMemory, recall_job, remember_job
from penstock.decide.outcome import Status
from penstock.errors import JournalUnavailable
from penstock.journal.store import Journal
from tests.act.restart.stand_in import KEY
from tests.act.restart.test_shell import Stage


class AwayAtFirst:
    """A journal that answers only after so many questions."""

    def __init__(self, journal: Journal, questions: float) -> None:
        self._journal, self.left = journal, questions

    def __getattr__(self, name: str) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise JournalUnavailable("the server does not answer")
        return getattr(self._journal, name)


@pytest.fixture
def stage(tmp_path: Path):
    made = Stage(tmp_path)
    with closing(made.journal):
        yield made


def test_the_job_runs_without_it_and_is_not_restarted(stage: Stage):
    assert stage.supervisor(AwayAtFirst(stage.journal, 10**9), code=7).run() == 7
    assert stage.starts() == ["1g"]
    assert any("the server does not answer" in said for said in stage.said)


def test_what_was_known_is_known_again_when_it_is_back(stage: Stage):
    failed, restarts = ({KEY: "9g"},), (time.time() - 60.0,)
    known = JobMemory(proven={KEY: "3g"}, failed=failed, restarts=restarts)
    remember_job(stage.journal, 1.0, "job", known)
    assert stage.supervisor(AwayAtFirst(stage.journal, 4), asks={}, batches=60).run() == 0
    after = recall_job(stage.journal, "job")
    assert (after.proven, after.failed, after.restarts) == ({KEY: "3g"}, failed, restarts)
    assert after.driver["pid"] > 0


def test_a_restart_that_was_left_open_is_closed_when_it_is_back(stage: Stage):
    left = JobMemory(proven={KEY: "1g"}, action_id=stage.action, wanted={KEY: "2g"}, phase="verifying")
    remember_job(stage.journal, 5.0, "job", left)
    assert stage.supervisor(AwayAtFirst(stage.journal, 4), asks={}, batches=60).run() == 0
    assert stage.journal.action(stage.action).status is Status.UNKNOWN
    assert recall_job(stage.journal, "job").action_id is None
