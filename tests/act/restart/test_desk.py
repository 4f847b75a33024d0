"""The driver's side: intents before requests, batches told of, a stop obeyed, and no supervisor."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.act.restart import channel as wire
from penstock.act.restart.desk import RestartDesk
from penstock.act.restart.job_memory import JobMemory, recall_job, remember_job
from penstock.decide.manager.quiet import parse_quiet_spans
from penstock.decide.manager.restarts import (
    RecommendOnly,
    RestartHistory,
    RestartRules,
    judge_restart,
)
from penstock.decide.outcome import Status
from penstock.decide.policy import ExpectedEffect, Resize
from penstock.decide.verdict import Accepted, Rejected
from penstock.errors import SparkUnavailable
from penstock.journal.store import open_journal
from tests.waiting import wait_for

RESIZE = Resize({"spark.executor.memory": "2g"}, "the heap is full", ExpectedEffect(""))
HOUR = 3600.0


class FakeDriver:
    def __init__(self, stop_fails: bool = False) -> None:
        self.batches: list[tuple[float, bool]] = [(5.0, False)]
        self.stopped = threading.Event()
        self._fails = stop_fails

    def in_effect(self) -> Mapping[str, str]:
        return {"spark.executor.memory": "1g"}

    def new_batches(self) -> list[tuple[float, bool]]:
        found, self.batches = self.batches, []
        return found

    def stop_after_batch(self) -> None:
        self.stopped.set()
        if self._fails:
            raise SparkUnavailable("it has gone")


class Supervised:
    """A desk with the other end of its channel in the test's hands."""

    def __init__(self, root: Path, driver: FakeDriver | None = None) -> None:
        self.supervisor, theirs = wire.open_channel()
        self.journal, self.driver, self.refused = (
            open_journal(root / "j.db"),
            driver or FakeDriver(),
            threading.Event(),
        )
        self.channel = wire.Channel(theirs)
        self.desk = RestartDesk(self.channel, self.journal, "job", RestartRules(2), self.driver)
        self.decision = self.journal.decided(1.0, "app", RESIZE, Accepted(RESIZE))
        self.heard: list[dict[str, Any]] = []

    def hears(self, kind: str) -> dict[str, Any]:
        def listen() -> dict[str, Any] | None:
            self.heard += self.supervisor.read()[0]
            return next((message for message in self.heard if message["kind"] == kind), None)

        return wait_for(f"a message {kind}", listen, every=0.01)


@pytest.fixture
def supervised(tmp_path: Path):
    made = Supervised(tmp_path)
    with closing(made.journal), closing(made.channel), closing(made.supervisor), closing(made.desk):
        yield made


def test_it_says_who_is_there_and_which_batches_end(supervised: Supervised):
    supervised.desk.start("app", "words", supervised.refused.set)
    hello = supervised.hears("attached")
    assert (hello["application"], hello["settings"]) == ("app", {"spark.executor.memory": "1g"})
    assert supervised.hears("batch") == {"kind": "batch", "at": 5.0, "idle": False}


def test_the_intent_is_written_before_the_restart_is_asked_for(supervised: Supervised):
    why = supervised.desk.ask(2.0, "app", supervised.decision, RESIZE)
    asked = supervised.hears("restart")
    record = supervised.journal.action(asked["action"])
    assert record.status is None and asked["settings"] == RESIZE.settings
    assert "the heap is full" in why


def test_a_stop_is_obeyed_and_told_of_even_if_spark_does_not_answer(tmp_path: Path):
    supervised = Supervised(tmp_path, FakeDriver(stop_fails=True))
    with closing(supervised.journal), closing(supervised.supervisor), closing(supervised.desk):
        supervised.desk.start("app", "words", supervised.refused.set)
        supervised.supervisor.say(kind="stop")
        assert supervised.driver.stopped.wait(20)
        supervised.hears("stopped")


def test_a_refusal_lets_the_loop_go_on(supervised: Supervised):
    supervised.desk.start("app", "words", supervised.refused.set)
    supervised.supervisor.say(kind="refused")
    assert supervised.refused.wait(20)


def test_without_its_supervisor_it_only_recommends(supervised: Supervised):
    supervised.supervisor.close()
    why = supervised.desk.ask(2.0, "app", supervised.decision, RESIZE)
    assert "has gone" in why
    (record,) = supervised.journal.actions("app")
    assert record.status is Status.FAILED
    verdict = supervised.desk.judge(3.0, RESIZE)
    assert isinstance(verdict, Rejected) and verdict.guardrail == "recommend-only"


def test_earlier_restarts_count_whoever_did_them(supervised: Supervised):
    assert isinstance(supervised.desk.judge(10.0, RESIZE), Accepted)
    remember_job(supervised.journal, 10.0, "job", JobMemory(restarts=(8.0, 9.0)))
    verdict = supervised.desk.judge(10.0, RESIZE)
    assert isinstance(verdict, Rejected) and verdict.guardrail == "restart-budget"
    assert isinstance(supervised.desk.judge(9.0 + 24 * HOUR, RESIZE), Accepted)


def test_nothing_is_asked_for_while_the_restart_before_is_not_proven(supervised: Supervised):
    """A first batch that is short of memory again would else pause its own loop for good."""
    remember_job(supervised.journal, 10.0, "job", JobMemory(action_id=3, phase="verifying"))
    verdict = supervised.desk.judge(10.0, RESIZE)
    assert isinstance(verdict, Rejected) and verdict.guardrail == "restart-under-way"
    assert "action 3" in verdict.reason and "the heap is full" in verdict.reason
    remember_job(supervised.journal, 11.0, "job", JobMemory())
    assert isinstance(supervised.desk.judge(12.0, RESIZE), Accepted)


@pytest.mark.parametrize(
    ("rules", "history", "guardrail"),
    [
        (RestartRules(0), RestartHistory(), "restart-budget"),
        (RestartRules(4, parse_quiet_spans(["08:00-18:00"])), RestartHistory(), "quiet-hours"),
        (RestartRules(4, parse_quiet_spans(["22:00-12:00"])), RestartHistory(), "quiet-hours"),
        (RestartRules(), RestartHistory(fixed=frozenset({"spark.executor.memory"})), "set-in-script"),
        (RestartRules(), RestartHistory(failed=({"spark.executor.memory": "2g"},)), "failed-before"),
        (RestartRules(4, parse_quiet_spans(["12:00-18:00"])), RestartHistory((0.0,)), None),
        (RestartRules(), RestartHistory(failed=({"spark.executor.memory": "3g"},)), None),
    ],
)
def test_rules_at_ten_in_the_morning(rules, history, guardrail):
    verdict = judge_restart(10 * HOUR, RESIZE, rules, history)
    assert (verdict.guardrail if isinstance(verdict, Rejected) else None) == guardrail
    assert "the heap is full" in verdict.reason


def test_by_default_a_restart_is_recommended():
    verdict = RecommendOnly().judge(0.0, RESIZE)
    assert verdict.guardrail == "recommend-only"
    assert "spark.executor.memory=2g" in verdict.reason and "--allow-restart" in verdict.reason


def test_a_memory_that_cannot_be_read_counts_as_none(supervised: Supervised):
    body = {"proven": 5, "restarts": "x"}
    supervised.journal.remember(1.0, "job", "supervise", "job", body)
    assert recall_job(supervised.journal, "job") == JobMemory()
