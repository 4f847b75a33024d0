"""A supervisor with real processes, and a real journal: restarts, failures, crashes in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.act.restart.job_lease import JobLease
from penstock.act.restart.job_lock import JobLock
from penstock.act.restart.job_memory import JobMemory, recall_job, remember_job
from penstock.act.restart.settings import RestartSettings
from penstock.act.restart.shell import Job, Supervisor
from penstock.decide.manager.restarts import RestartRules, judge_restart
from penstock.decide.outcome import Status
from penstock.decide.policy import ExpectedEffect, Resize
from penstock.decide.verdict import Accepted, Rejected
from penstock.errors import ActionFailed, JournalUnavailable
from penstock.journal.explain import explain
from penstock.journal.former_runs import process_is_over
from penstock.journal.store import Journal, open_journal
from tests.act.restart.stand_in import KEY
from tests.waiting import wait_for

STAND_IN = [sys.executable, "-m", "tests.act.restart.stand_in"]
ROOT = Path(__file__).parents[3]
LONG = RestartSettings(stop_timeout=20.0, verify_timeout=60.0)
QUICK = RestartSettings(stop_timeout=20.0, verify_timeout=3.0)
"""Where nothing is to come: a stand-in starts in a moment, and on a busy machine in a longer one."""


class Stage:
    """A journal with an action that was intended, a checkpoint, and a supervisor for stand-ins."""

    def __init__(self, root: Path, action: int | None = None) -> None:
        self.root, self.checkpoint = root, root / "checkpoint"
        self.journal: Journal = open_journal(root / "journal.db")
        self.resize = Resize({KEY: "2g"}, "P1: the heap is full", ExpectedEffect(""), before={KEY: "1g"})
        self.action = self._intended() if action is None else action
        self.said: list[str] = []

    def _intended(self) -> int:
        decision = self.journal.decided(1.0, "app", self.resize, Accepted(self.resize), "sage")
        return self.journal.intend(1.0, "app", decision, self.resize, self.resize.before)

    def supervisor(
        self,
        journal: Any = None,
        patience: RestartSettings = LONG,
        wall: Callable[[], float] = time.time,
        lease: JobLease | None = None,
        **plan: Any,
    ) -> Supervisor:
        told = {"batches": 8, "asks": {"1g": "2g"}, "action": self.action, **plan}

        def command(settings):
            return [*STAND_IN, json.dumps(dict(settings)), str(self.checkpoint), json.dumps(told)]

        job = Job("job", command)
        lock = JobLock(self.root / "run", job.name)
        return Supervisor(job, lock, journal or self.journal, patience, self.said.append, wall, lease)

    def starts(self) -> list[str]:
        lines = self.checkpoint.read_text().splitlines()
        return [line.removeprefix("start ") for line in lines if line.startswith("start")]


@pytest.fixture
def stage(tmp_path: Path):
    made = Stage(tmp_path)
    with closing(made.journal):
        yield made


def test_a_restart_goes_on_where_it_was_and_is_written_down(stage: Stage):
    supervisor = stage.supervisor(code=7)
    assert supervisor.run() == 7
    assert stage.starts() == ["1g", "2g"]
    record = stage.journal.action(stage.action)
    assert record.status is Status.DONE and record.settings == {KEY: ("1g", "2g")}
    assert record.measured is not None and record.measured["pause_seconds"] > 0
    words = explain(record)
    assert f"{KEY} 1g → 2g" in words and "P1: the heap is full" in words and "pause seconds" in words
    assert recall_job(stage.journal, "job").proven == {KEY: "2g"}
    assert supervisor.statuses == [{"application": "app"}]
    assert supervisor.restarts[0]["status"] == "done"


def test_the_next_run_begins_with_what_was_proven(stage: Stage):
    stage.supervisor().run()
    stage.supervisor(asks={}).run()
    assert stage.starts() == ["1g", "2g", "2g"]


@pytest.mark.parametrize(
    ("plan", "said"),
    [({"bad": ["2g"]}, "ended with code 9"), ({"stuck": ["2g"]}, "no batch ended within 3 s")],
)
def test_new_settings_that_fail_give_way_to_the_old(stage: Stage, plan, said):
    assert stage.supervisor(**plan, patience=QUICK, batches=5).run() == 0
    assert stage.starts() == ["1g", "2g", "1g"]
    record = stage.journal.action(stage.action)
    assert record.status is Status.FAILED and said in record.detail
    assert "failed-before" in stage.said[-1], "it asked once more, and was refused"
    known = recall_job(stage.journal, "job")
    assert known.proven == {} and known.failed == ({KEY: "2g"},)
    verdict = judge_restart(time.time(), stage.resize, RestartRules(), known.history)
    assert isinstance(verdict, Rejected) and verdict.guardrail == "failed-before"


def test_a_deaf_driver_is_ended_by_a_signal(stage: Stage):
    patience = RestartSettings(stop_timeout=0.5, verify_timeout=60.0)
    assert stage.supervisor(patience=patience, deaf=["1g"]).run() == 0
    assert stage.starts() == ["1g", "2g"]
    assert stage.journal.action(stage.action).status is Status.DONE


def test_settings_of_the_script_itself_are_noticed(stage: Stage):
    stage.supervisor(fixed={KEY: "1g"}).run()
    record = stage.journal.action(stage.action)
    assert record.status is Status.FAILED and "the script sets" in record.detail
    assert recall_job(stage.journal, "job").fixed == (KEY,)


def test_settings_that_the_script_no_longer_sets_may_change_again(stage: Stage):
    known = JobMemory(fixed=("spark.task.cpus", KEY), failed=({KEY: "9g"},))
    remember_job(stage.journal, 1.0, "job", known)
    stage.supervisor(fixed={"spark.task.cpus": "2"}, asks={}).run()
    after = recall_job(stage.journal, "job")
    assert (after.fixed, after.failed) == (("spark.task.cpus",), known.failed)


class AwayForRestarts:
    """A journal that cannot be written once a restart is under way."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def remember(self, now: float, owner: str, kind: str, key: str, body: dict[str, Any]) -> None:
        if body["action_id"] is not None:
            raise JournalUnavailable("the disk is full")
        self._journal.remember(now, owner, kind, key, body)


def test_what_cannot_be_written_down_is_not_begun(stage: Stage):
    assert stage.supervisor(AwayForRestarts(stage.journal)).run() == 0
    assert stage.starts() == ["1g"]
    record = stage.journal.action(stage.action)
    assert record.status is Status.FAILED and "the disk is full" in record.detail
    assert recall_job(stage.journal, "job").restarts == (), "nothing of the budget is used up"


class AwayOnceProven(AwayForRestarts):
    """A journal that is away for a moment, just when a restart has come to its end."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal)
        self.away, self.written = 3, 0

    def remember(self, now: float, owner: str, kind: str, key: str, body: dict[str, Any]) -> None:
        if body["restarts"] and body["action_id"] is None:
            self.away -= 1
            if self.away >= 0:
                raise JournalUnavailable("it is away")
            self.written += 1
        self._journal.remember(now, owner, kind, key, body)


def test_that_a_restart_is_over_is_written_when_the_journal_is_back(stage: Stage):
    """Until then the driver may not ask for another one."""
    away = AwayOnceProven(stage.journal)
    assert stage.supervisor(away, batches=60).run() == 0
    assert stage.starts() == ["1g", "2g"]
    assert away.written >= 2, "once while it ran, and once at its end"
    assert recall_job(stage.journal, "job").proven == {KEY: "2g"}


def test_a_restart_that_a_killed_supervisor_left_open_is_closed_and_not_repeated(stage: Stage):
    left = JobMemory(proven={KEY: "1g"}, action_id=stage.action, wanted={KEY: "2g"}, phase="verifying")
    remember_job(stage.journal, 5.0, "job", left)
    assert stage.supervisor(asks={}).run() == 0
    assert stage.starts() == ["1g"]
    record = stage.journal.action(stage.action)
    assert record.status is Status.UNKNOWN and "while it was verifying" in record.detail


SUPERVISE = """
import sys
from pathlib import Path
from tests.act.restart.test_shell import LONG, Stage
stage = Stage(Path(sys.argv[1]), action=int(sys.argv[2]))
sys.exit(stage.supervisor(stuck=["2g"], batches=100000, patience=LONG).run())
"""


def running(stage: Stage, tmp_path: Path, starts: int) -> subprocess.Popen[bytes]:
    """A supervisor in a process of its own, until its driver was started so many times."""
    words = [sys.executable, "-c", SUPERVISE, str(tmp_path), str(stage.action)]
    process = subprocess.Popen(words, cwd=ROOT)

    def started() -> bool:
        assert process.poll() is None
        return stage.checkpoint.exists() and len(stage.starts()) == starts

    wait_for(f"start {starts} of the driver", started)
    return process


def test_a_supervisor_killed_in_the_middle_of_a_restart(stage: Stage, tmp_path: Path):
    process = running(stage, tmp_path, starts=2)
    driver = recall_job(stage.journal, "job").driver["pid"]
    process.kill()
    process.wait(timeout=30)
    with pytest.raises(ActionFailed, match=f"already runs as process {driver}"):
        stage.supervisor(asks={}).run()
    os.kill(driver, signal.SIGKILL)
    wait_for("the end of the driver", lambda: process_is_over(recall_job(stage.journal, "job").driver))
    assert stage.supervisor(asks={}, batches=3).run() == 0
    assert stage.starts() == ["1g", "2g", "1g"], "the settings that were proven"
    assert stage.journal.action(stage.action).status is Status.UNKNOWN


def test_a_signal_to_the_supervisor_ends_the_driver_and_starts_no_other(stage: Stage, tmp_path: Path):
    process = running(stage, tmp_path, starts=2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert stage.starts() == ["1g", "2g"]
    assert stage.journal.action(stage.action).status is Status.UNKNOWN
