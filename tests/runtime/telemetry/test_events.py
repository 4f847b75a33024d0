"""Cycles as events: each thing that happened is told once, in the order in which it happened."""

from __future__ import annotations

from penstock.decide.policy import Hold
from penstock.decide.verdict import Accepted
from penstock.errors import ActionFailed
from penstock.journal.store import Journal
from penstock.runtime.loop import Cycle
from penstock.runtime.telemetry.events import Narrator, tell_heartbeat
from tests.fakes import AgreeingManager, a_scale, a_window
from tests.loop_setting import GROW, FlakyRecord, Setting


class Undoing(AgreeingManager):
    """Accepts what is proposed as a rollback."""

    def judge(self, now, window, answer):
        verdict = super().judge(now, window, answer)
        return Accepted(verdict.action, rollback=True) if isinstance(verdict, Accepted) else verdict


def tell(setting: Setting, *times: float) -> list[tuple[float, str]]:
    narrator = Narrator()
    return [(event.at, event.kind) for now in times for event in narrator.hear(setting.loop.tick(now))]


def test_an_action_is_told_from_decision_to_effect(journal: Journal) -> None:
    setting = Setting(FlakyRecord(journal), GROW, Hold("right"))
    setting.actuator.takes = 2
    assert tell(setting, 10.0, 11.0, 12.0, 20.0, 30.0, 50.0) == [
        (10.0, "decision"), (10.0, "action"), (12.0, "outcome"),
        (20.0, "decision"), (30.0, "decision"), (50.0, "effect"), (50.0, "decision"),
    ]  # fmt: skip


def test_a_rollback_is_told_as_one(journal: Journal) -> None:
    setting = Setting(FlakyRecord(journal), a_scale(1), manager=Undoing())
    narrator = Narrator()
    _, rollback = narrator.hear(setting.loop.tick(10.0))
    assert rollback.kind == "rollback" and rollback.fields["change"] == "scale-in"
    assert rollback.text == "rollback, scale in 2 → 1 executors: the load needs more"


def test_an_action_that_fails_as_it_begins_has_an_outcome(journal: Journal) -> None:
    setting = Setting(FlakyRecord(journal), GROW)
    setting.actuator.begin_error = ActionFailed("no room")
    narrator = Narrator()
    _, outcome = narrator.hear(setting.loop.tick(10.0))
    assert (outcome.kind, outcome.fields["status"]) == ("outcome", "failed") and "no room" in outcome.text


def test_an_order_by_hand_and_a_pause_are_told(journal: Journal) -> None:
    setting = Setting(FlakyRecord(journal))
    setting.loop.pause("for the night")
    setting.loop.order(a_scale(4))
    told = tell(setting, 10.0, 11.0)
    assert told == [(10.0, "action"), (10.0, "pause"), (11.0, "outcome")]
    assert Narrator().hear(Cycle(1.0, window=a_window())) == []
    assert tell_heartbeat(1.0, None).fields == {"hangs": False}
