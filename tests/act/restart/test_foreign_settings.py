"""Settings that no sizing writes never reach a driver's command line, wherever they come from."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.act.restart.job_memory import recall_job
from penstock.decide.manager.restarts import RestartHistory, RestartRules, judge_restart
from penstock.decide.outcome import Status
from penstock.decide.policy import ExpectedEffect, Resize
from penstock.decide.verdict import Accepted, Rejected
from tests.act.restart.stand_in import KEY
from tests.act.restart.test_shell import Stage

AGENT = {"spark.driver.extraJavaOptions": "-javaagent:/tmp/theirs.jar"}
HOSTILE = [AGENT, {KEY: "2g", **AGENT}, {KEY: "2g --conf spark.jars=/tmp/theirs.jar"}, {KEY: "1p"}]


@pytest.fixture
def stage(tmp_path: Path):
    made = Stage(tmp_path)
    with closing(made.journal):
        yield made


def remember(stage: Stage, **body: Any) -> None:
    stage.journal.remember(1.0, "job", "supervise", "job", body)


@pytest.mark.parametrize("settings", HOSTILE)
def test_no_restart_is_accepted_for_them(settings):
    resize = Resize(settings, "the heap is full", ExpectedEffect(""))
    verdict = judge_restart(0.0, resize, RestartRules(), RestartHistory())
    assert isinstance(verdict, Rejected) and verdict.guardrail == "not-a-size"
    assert next(key for key in reversed(settings)) in verdict.reason


def test_what_is_accepted_is_written_as_spark_is_told_it():
    verdict = judge_restart(
        0.0, Resize({KEY: "2048"}, "", ExpectedEffect("")), RestartRules(), RestartHistory()
    )
    assert isinstance(verdict, Accepted) and isinstance(verdict.action, Resize)
    assert verdict.action.settings == {KEY: "2048m"}


@pytest.mark.parametrize("also", [AGENT, {"spark.python.daemon.module": "theirs"}])
def test_a_driver_that_asks_for_them_is_refused_and_runs_on(stage: Stage, also: dict[str, str]):
    assert stage.supervisor(also=also).run() == 0
    assert stage.starts() == ["1g"]
    record = stage.journal.action(stage.action)
    assert record.status is Status.FAILED and "not-a-size" in record.detail


@pytest.mark.parametrize("settings", HOSTILE)
def test_as_settings_that_worked_they_are_not_used_and_that_is_said_once(stage: Stage, settings):
    remember(stage, proven=settings, restarts=[5.0])
    supervisor = stage.supervisor(asks={}, batches=2)
    assert supervisor.run() == 0
    assert stage.starts() == ["1g"]
    (line,) = [said for said in stage.said if "not used" in said]
    assert next(key for key in reversed(settings)) in line
    known = recall_job(stage.journal, "job")
    assert known.proven == {} and known.restarts == (5.0,), "and what else is known stays known"


@pytest.mark.parametrize("settings", HOSTILE)
def test_a_restart_left_under_way_with_them_is_closed_and_not_gone_on_with(stage: Stage, settings):
    remember(stage, proven={KEY: "3g"}, action_id=stage.action, wanted=settings, phase="verifying")
    supervisor = stage.supervisor(asks={}, batches=2)
    assert supervisor.run() == 0
    assert stage.starts() == ["3g"], "the settings before, which are sound"
    assert stage.journal.action(stage.action).status is Status.UNKNOWN
    assert supervisor.restarts[0]["settings"] == {}


def test_failures_that_no_sizing_can_have_had_are_forgotten(stage: Stage):
    remember(stage, failed=[AGENT, {KEY: "2G"}, 7])
    assert recall_job(stage.journal, "job").failed == ({KEY: "2g"},)
