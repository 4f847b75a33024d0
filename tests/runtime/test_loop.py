"""The loop, cycle by cycle: what is seen, decided, done and recorded, also after restarts and clock jumps."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.manager.manager import ManagerSettings, ScalingManager
from penstock.decide.outcome import Status
from penstock.decide.policy import Hold
from penstock.decide.verdict import Accepted, NothingToDo, Waiting
from penstock.errors import SparkUnavailable
from penstock.journal.store import Journal, open_journal
from tests.fakes import (
    APPLICATION,
    FakeActuator,
    a_scale,
    a_window,
    an_outcome,
)
from tests.loop_setting import GROW, FlakyRecord, Setting


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return open_journal(tmp_path / "journal.db")


@pytest.fixture
def record(journal: Journal) -> FlakyRecord:
    return FlakyRecord(journal)


def test_a_hold_is_recorded_and_nothing_is_done(record: FlakyRecord, journal: Journal):
    setting = Setting(record, Hold("the size is right"))
    cycle = setting.loop.tick(100.0)
    assert cycle.verdict == NothingToDo("the size is right")
    assert cycle.error is None and cycle.action is None
    assert len(journal.observations(APPLICATION)) == 1
    assert journal.decisions(APPLICATION)[0].policy == "fixed"
    assert setting.actuator.begun == []


def test_it_decides_once_per_policy_interval(record: FlakyRecord):
    setting = Setting(record)
    for now in range(100, 131):
        setting.loop.tick(float(now))
    assert setting.source.observed_at == [100.0, 110.0, 120.0, 130.0]


def test_late_ticks_keep_the_grid_and_a_long_gap_starts_a_new_one(record: FlakyRecord):
    setting = Setting(record)
    for now in (100.0, 113.0, 120.0, 200.0, 209.0, 210.0):
        setting.loop.tick(now)
    assert setting.source.observed_at == [100.0, 113.0, 120.0, 200.0, 210.0]


def test_an_accepted_proposal_is_written_performed_and_its_outcome_written(
    record: FlakyRecord, journal: Journal
):
    setting = Setting(record, GROW)
    begun = setting.loop.tick(100.0)
    assert begun.verdict == Accepted(GROW) and begun.action == GROW and begun.outcome is None
    (intent,) = journal.unfinished(APPLICATION)
    assert (intent.before, intent.planned) == ({EXECUTORS: 2}, {EXECUTORS: 4})
    ended = setting.loop.tick(101.0)
    assert ended.outcome is not None and ended.action is None
    assert journal.action(intent.action_id).status is Status.DONE
    assert setting.manager.started == [GROW]
    assert [outcome.status for outcome in setting.manager.ended] == [Status.DONE]


def test_the_intent_is_durable_before_the_effect_begins(
    record: FlakyRecord, journal: Journal, tmp_path: Path
):
    seen_from_outside: list[int] = []

    class Watching(FakeActuator):
        def begin(self, now, action):
            other = open_journal(tmp_path / "journal.db", create=False)
            seen_from_outside.append(len(other.unfinished(APPLICATION)))
            super().begin(now, action)

    setting = Setting(record, GROW)
    setting.loop.actuator = Watching()
    setting.loop.tick(100.0)
    assert seen_from_outside == [1]


def test_while_an_action_is_under_way_it_observes_and_decides_nothing(record: FlakyRecord, journal: Journal):
    setting = Setting(record, GROW)
    setting.actuator.takes = 3
    setting.loop.tick(100.0)
    cycle = setting.loop.tick(110.0)
    assert cycle.window is not None and cycle.answer is None and cycle.action == GROW
    assert len(setting.actuator.begun) == 1 and len(setting.policy.windows) == 1
    assert len(journal.observations(APPLICATION)) == 2


def test_windows_from_before_the_last_change_are_not_shown_to_the_policy(record: FlakyRecord):
    setting = Setting(record, GROW, Hold("enough"))
    setting.loop.tick(100.0)
    setting.loop.tick(105.0)
    stale = setting.loop.tick(110.0)
    assert isinstance(stale.verdict, Waiting)
    assert "before the last change" in stale.verdict.reason and stale.verdict.until == 115.0
    assert len(setting.policy.windows) == 1
    assert setting.loop.tick(120.0).verdict == NothingToDo("enough")


def test_a_source_that_is_not_ready_is_a_normal_answer(record: FlakyRecord, journal: Journal):
    setting = Setting(record)
    setting.source.answers = [NotReady("no streaming query yet", "a query", 130.0)]
    cycle = setting.loop.tick(100.0)
    assert cycle.error is None
    assert cycle.verdict == Waiting("no streaming query yet; awaiting a query", 130.0)
    assert journal.decisions(APPLICATION)[0].kind == "waiting"
    assert setting.policy.windows == []


def test_without_an_actuator_decisions_are_recommendations(record: FlakyRecord, journal: Journal):
    setting = Setting(record, GROW, acts=False)
    for now in (100.0, 110.0, 120.0):
        assert setting.loop.tick(now).verdict == Accepted(GROW)
    (decision,) = journal.decisions(APPLICATION)
    assert (decision.kind, decision.count) == ("accepted", 3)
    assert journal.actions() == () and setting.actuator.begun == []


def test_paused_it_observes_and_records_and_proposes_nothing(record: FlakyRecord, journal: Journal):
    setting = Setting(record, GROW)
    setting.loop.pause()
    cycle = setting.loop.tick(100.0)
    assert cycle.paused == "paused by hand" and cycle.answer is None and cycle.window is not None
    assert len(journal.observations(APPLICATION)) == 1 and setting.policy.windows == []
    setting.loop.resume()
    assert setting.loop.tick(110.0).action == GROW


def test_an_action_under_way_is_seen_to_its_end_while_paused(record: FlakyRecord, journal: Journal):
    setting = Setting(record, GROW)
    setting.loop.tick(100.0)
    setting.loop.pause()
    assert setting.loop.tick(101.0).outcome is not None
    assert journal.unfinished(APPLICATION) == ()


def test_a_restart_closes_what_was_left_open_and_does_not_act_twice(record: FlakyRecord, journal: Journal):
    crashed = Setting(record, GROW)
    crashed.loop.tick(100.0)
    restarted = Setting(record, GROW)
    restarted.actuator.size = 4
    cycle = restarted.loop.tick(110.0)
    (action,) = journal.actions()
    assert (action.status, action.observed, action.seconds) == (Status.UNKNOWN, {EXECUTORS: 4}, 10.0)
    assert "Spark reports 4 executors" in action.detail
    assert isinstance(cycle.verdict, Waiting), "the window began before the change was known to be over"
    assert isinstance(restarted.loop.tick(120.0).verdict, NothingToDo)
    assert restarted.actuator.begun == []
    assert restarted.manager.restored == [110.0]


def test_a_restart_after_a_finished_action_restores_its_time(record: FlakyRecord):
    first = Setting(record, GROW)
    first.loop.tick(100.0)
    first.loop.tick(101.0)
    restarted = Setting(record, GROW)
    restarted.loop.reconcile(200.0)
    assert restarted.manager.restored == [101.0]
    fresh = Setting(record)
    fresh.loop.application = "another"
    fresh.loop.reconcile(200.0)
    assert fresh.manager.restored == [None]


def test_without_an_actuator_what_another_left_open_stays_open(record: FlakyRecord, journal: Journal):
    Setting(record, GROW).loop.tick(100.0)
    Setting(record, GROW, acts=False).loop.tick(110.0)
    assert len(journal.unfinished(APPLICATION)) == 1


def test_the_effect_is_measured_three_intervals_after_the_end(record: FlakyRecord, journal: Journal):
    setting = Setting(record, GROW, Hold("enough"))
    setting.loop.tick(100.0)
    setting.loop.tick(105.0)
    for now in (110.0, 120.0, 130.0):
        setting.loop.tick(now)
        assert journal.actions()[0].measured is None
    setting.loop.tick(140.0)
    (action,) = journal.actions()
    assert action.effect_at == 140.0
    assert action.measured == {
        "batch_seconds": 8.0,
        "utilisation_ratio": 0.8,
        "offered_per_second": 100.0,
        "observed_per_second": 80.0,
        "backlog_records": 500.0,
    }


def test_the_effect_is_measured_early_when_another_action_follows(record: FlakyRecord, journal: Journal):
    setting = Setting(record, GROW, a_scale(6))
    for now in (100.0, 105.0, 110.0, 120.0):
        setting.loop.tick(now)
    first, second = journal.actions()
    assert first.effect_at == 120.0 and second.measured is None


def test_a_clock_that_jumps_back_is_waited_out(record: FlakyRecord, journal: Journal):
    setting = Setting(record, GROW, Hold("enough"))
    setting.loop.tick(1000.0)
    setting.loop.tick(1001.0)
    jumped = setting.loop.tick(500.0)
    assert jumped.error is None and isinstance(jumped.verdict, Waiting)
    assert "the clock went back" in jumped.verdict.reason
    assert setting.loop.tick(510.0).verdict == NothingToDo("enough")
    setting.loop.tick(530.0)
    assert journal.actions()[0].effect_at == 530.0


def test_a_clock_that_jumps_forward_costs_nothing(record: FlakyRecord):
    setting = Setting(record, Hold("enough"))
    setting.loop.tick(100.0)
    assert setting.loop.tick(1e6).verdict == NothingToDo("enough")


def test_the_recent_past_can_be_watched(record: FlakyRecord):
    setting = Setting(record, GROW, Hold("enough", {"slots_needed": 3.4}))
    for now in (100.0, 105.0, 120.0, 130.0):
        setting.loop.tick(now)
    timeline = setting.loop.timeline
    assert [point.slots for point in timeline.points] == [4, 8, 8]
    assert timeline.points[0].needed == {EXECUTORS: 3.75}
    assert timeline.points[-1].figures == {"slots_needed": 3.4}
    assert [(one.verdict.kind, one.count) for one in timeline.decisions] == [
        ("accepted", 1),
        ("nothing-to-do", 2),
    ]
    assert [ended.outcome.status for ended in timeline.outcomes] == [Status.DONE]


def test_the_past_in_memory_is_bounded(record: FlakyRecord):
    setting = Setting(record, acts=False)
    setting.loop.record.broken = {"observed"}
    for now in range(0, 7000, 10):
        setting.loop.tick(float(now))
    assert len(setting.loop.timeline.points) == 500


def test_with_the_real_manager_an_under_sized_application_is_grown_once(
    record: FlakyRecord, journal: Journal
):
    manager = ScalingManager(ManagerSettings(warm_up_intervals=1, activation_intervals=2))
    setting = Setting(record, GROW, manager=manager)
    for now in range(100, 400, 5):
        cycle = setting.loop.tick(float(now))
        assert cycle.error is None
    assert [action.planned for action in journal.actions()] == [{EXECUTORS: 4}]
    assert setting.actuator.size == 4


def test_a_partial_outcome_is_kept_as_such(record: FlakyRecord, journal: Journal):
    setting = Setting(record, GROW)
    setting.actuator.outcomes = [an_outcome(3, Status.PARTIAL, "no room")]
    setting.loop.tick(100.0)
    setting.loop.tick(160.0)
    (action,) = journal.actions()
    assert (action.status, action.planned, action.observed) == (
        Status.PARTIAL,
        {EXECUTORS: 4},
        {EXECUTORS: 3},
    )


def test_rejections_and_trouble_are_logged(record: FlakyRecord, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    setting = Setting(record)
    setting.source.answers = [SparkUnavailable("Spark does not answer"), a_window(110.0)]
    setting.loop.tick(100.0)
    setting.loop.tick(110.0)
    assert "app-1: stepping aside: Spark does not answer" in caplog.text
