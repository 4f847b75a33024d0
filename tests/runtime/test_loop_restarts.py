"""New settings in the loop: asked for once they are accepted, and nothing else is done meanwhile."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import NoBatchYet, SizingFacts
from penstock.decide.manager.manager import ScalingManager
from penstock.decide.manager.restarts import RecommendOnly
from penstock.decide.manager.settings import ManagerSettings
from penstock.decide.policy import ExpectedEffect, Hold, Proposal, Resize
from penstock.decide.verdict import Accepted, Rejected, Waiting
from penstock.journal.store import open_journal
from tests.fakes import a_scale, a_window
from tests.loop_setting import FlakyRecord, Setting

RESIZE = Resize({"spark.executor.memory": "2g"}, "the heap is full", ExpectedEffect(""))
EAGER = ManagerSettings(warm_up_intervals=0, activation_intervals=1)


class Agreeing:
    def judge(self, now: float, resize: Resize) -> Accepted:
        return Accepted(resize)


class Remembering:
    def __init__(self) -> None:
        self.asked: list[tuple[int, Resize]] = []

    def ask(self, now: float, application: str, decision_id: int, resize: Resize) -> str:
        self.asked.append((decision_id, resize))
        return "a restart is under way"


@pytest.fixture
def record(tmp_path: Path) -> Iterator[FlakyRecord]:
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        yield FlakyRecord(journal)


def test_accepted_settings_are_asked_for_once(record: FlakyRecord):
    desk, manager = Remembering(), ScalingManager(EAGER, restarts=Agreeing())
    setting = Setting(record, RESIZE, manager=manager, restarter=desk)
    for now in (10.0, 20.0, 30.0):
        cycle = setting.loop.tick(now)
    assert [resize for _, resize in desk.asked] == [RESIZE]
    assert cycle.paused == "a restart is under way" and not setting.actuator.begun
    (decision,) = record.journal.decisions("app-1")
    assert decision.kind == "accepted" and decision.answer["settings"] == RESIZE.settings


def test_by_default_they_are_recommended_and_recorded(record: FlakyRecord):
    setting = Setting(record, RESIZE, manager=ScalingManager(EAGER, restarts=RecommendOnly()))
    verdict = setting.loop.tick(10.0).verdict
    assert isinstance(verdict, Rejected) and verdict.guardrail == "recommend-only"
    assert setting.loop.paused is None and not record.journal.actions("app-1")
    assert "2g is recommended" in record.journal.decisions("app-1")[0].reason


def test_without_a_supervisor_nothing_is_restarted(record: FlakyRecord):
    setting = Setting(record, RESIZE, manager=ScalingManager(EAGER, restarts=Agreeing()))
    cycle = setting.loop.tick(10.0)
    assert cycle.paused is None and cycle.action is None and not setting.actuator.begun


def before_a_batch(end: float, sized: bool = True) -> NoBatchYet:
    window = a_window(end, queries=())
    facts = SizingFacts({}) if sized else None
    return NoBatchYet("no batch yet", "the first", window=dataclasses.replace(window, sizing=facts))


def test_settings_that_the_first_batch_needs_are_asked_for(record: FlakyRecord):
    desk, manager = Remembering(), ScalingManager(ManagerSettings(), restarts=Agreeing())
    setting = Setting(record, RESIZE, manager=manager, restarter=desk)
    setting.source.answers = [before_a_batch(10.0), before_a_batch(20.0)]
    cycle = setting.loop.tick(10.0)
    assert isinstance(cycle.verdict, Accepted) and cycle.window is None
    assert [resize for _, resize in desk.asked] == [RESIZE]
    assert setting.loop.tick(20.0).paused and len(desk.asked) == 1
    assert not record.journal.observations("app-1"), "there is nothing to see of the queries"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (NotReady("no query", "one"), "no batch yet; awaiting the first"),
        (a_scale(4), "no batch yet; awaiting the first"),
        (Hold("P1 cannot be met"), "no batch yet; P1 cannot be met; awaiting the first"),
    ],
)
def test_nothing_else_follows_from_a_first_batch(record: FlakyRecord, answer: Proposal, told: str):
    setting = Setting(record, answer)
    setting.source.answers = [before_a_batch(10.0)]
    verdict = setting.loop.tick(10.0).verdict
    assert isinstance(verdict, Waiting) and verdict.reason == told
    assert not setting.actuator.begun


def test_policies_that_do_not_size_memory_see_no_window_without_queries(record: FlakyRecord):
    setting = Setting(record, RESIZE, manager=ScalingManager(EAGER, restarts=Agreeing()))
    setting.source.answers = [before_a_batch(10.0, sized=False)]
    assert isinstance(setting.loop.tick(10.0).verdict, Waiting)
    assert not setting.policy.windows
