"""New settings in the loop: asked for once they are accepted, and nothing else is done meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.decide.manager import ScalingManager
from penstock.decide.manager_settings import ManagerSettings
from penstock.decide.policy import ExpectedEffect, Resize
from penstock.decide.restarts import RecommendOnly
from penstock.decide.verdict import Accepted, Rejected
from penstock.journal.store import open_journal
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
    setting = Setting(record, RESIZE, manager=ScalingManager(EAGER, Agreeing()))
    setting.loop.restarter = desk = Remembering()
    for now in (10.0, 20.0, 30.0):
        cycle = setting.loop.tick(now)
    assert [resize for _, resize in desk.asked] == [RESIZE]
    assert cycle.paused == "a restart is under way" and not setting.actuator.begun
    (decision,) = record.journal.decisions("app-1")
    assert decision.kind == "accepted" and decision.answer["settings"] == RESIZE.settings


def test_by_default_they_are_recommended_and_recorded(record: FlakyRecord):
    setting = Setting(record, RESIZE, manager=ScalingManager(EAGER, RecommendOnly()))
    verdict = setting.loop.tick(10.0).verdict
    assert isinstance(verdict, Rejected) and verdict.guardrail == "recommend-only"
    assert setting.loop.paused is None and not record.journal.actions("app-1")
    assert "2g is recommended" in record.journal.decisions("app-1")[0].reason


def test_without_a_supervisor_nothing_is_restarted(record: FlakyRecord):
    setting = Setting(record, RESIZE, manager=ScalingManager(EAGER, Agreeing()))
    cycle = setting.loop.tick(10.0)
    assert cycle.paused is None and cycle.action is None and not setting.actuator.begun
