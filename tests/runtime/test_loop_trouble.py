"""The loop when something fails: journal, source, policy, actuator, Spark, and the end itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Status
from penstock.decide.policy import Hold
from penstock.errors import ActionFailed, SparkUnavailable
from penstock.journal.store import Journal, open_journal
from tests.fakes import (
    a_scale,
)
from tests.loop_setting import GROW, FlakyRecord, Setting


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return open_journal(tmp_path / "journal.db")


@pytest.fixture
def record(journal: Journal) -> FlakyRecord:
    return FlakyRecord(journal)


@pytest.mark.parametrize("broken", [None, {"observed"}, {"decided"}, {"intend"}, {"unfinished"}])
def test_without_a_journal_it_does_not_act_says_so_goes_on_observing_and_resumes(
    record: FlakyRecord, journal: Journal, caplog: pytest.LogCaptureFixture, broken: set[str] | None
):
    setting = Setting(record, GROW)
    record.broken = broken
    for now in (100.0, 110.0):
        cycle = setting.loop.tick(now)
        assert cycle.error is not None and "the disk is full" in cycle.error
        assert cycle.window is not None and cycle.action is None
    assert setting.actuator.begun == []
    assert len(setting.source.observed_at) == len(setting.loop.timeline.points) == 2
    assert caplog.text.count("stepping aside") == 1, "the same trouble is said once"
    record.broken = set()
    assert setting.loop.tick(120.0).action == GROW


def test_an_outcome_that_cannot_be_written_is_written_later_and_nothing_new_is_begun(
    record: FlakyRecord, journal: Journal
):
    setting = Setting(record, GROW, a_scale(6))
    setting.loop.tick(100.0)
    record.broken = {"ended"}
    failed = setting.loop.tick(101.0)
    assert failed.outcome is not None and failed.error is not None
    for now in (110.0, 120.0):
        assert setting.loop.tick(now).error is not None
    assert len(setting.actuator.begun) == 1
    record.broken = set()
    setting.loop.tick(121.0)
    (action,) = journal.actions()
    assert (action.status, action.ended_at) == (Status.DONE, 101.0)
    assert setting.loop.tick(130.0).action == a_scale(6)


def test_a_journal_that_was_replaced_does_not_block_the_loop(record: FlakyRecord, tmp_path: Path):
    setting = Setting(record, GROW, Hold("enough"))
    setting.loop.tick(100.0)
    for file in tmp_path.iterdir():
        file.unlink()
    assert setting.loop.tick(101.0).error is None
    assert setting.loop.tick(120.0).verdict is not None


def test_errors_of_the_source_and_the_policy_end_in_the_cycle(record: FlakyRecord):
    setting = Setting(record, SparkUnavailable("the context has stopped"), Hold("fine"))
    setting.source.answers = [SparkUnavailable("Spark does not answer")]
    assert setting.loop.tick(100.0).error == "Spark does not answer"
    failed = setting.loop.tick(110.0)
    assert failed.error == "the context has stopped" and failed.window is not None
    assert setting.loop.tick(120.0).error is None


def test_an_unexpected_failure_is_logged_and_after_three_in_a_row_the_autopilot_pauses_itself(
    record: FlakyRecord, caplog: pytest.LogCaptureFixture
):
    setting = Setting(record, ValueError("surprise"), ValueError("again"), ValueError("and again"), GROW)
    assert setting.loop.tick(100.0).error == "the autopilot failed: ValueError: surprise"
    assert "Traceback" in caplog.text
    assert setting.loop.tick(110.0).paused is None
    third = setting.loop.tick(120.0)
    assert third.paused is not None and "paused itself after 3 failures" in third.paused
    assert third.error is not None and third.error.endswith(third.paused)
    assert setting.loop.tick(130.0).answer is None
    setting.loop.resume()
    assert setting.loop.tick(140.0).action == GROW


def test_failures_that_are_not_in_a_row_do_not_pause(record: FlakyRecord):
    broken, fine = ValueError("surprise"), Hold("fine")
    setting = Setting(record, broken, broken, fine, broken, broken, fine)
    for now in range(100, 170, 10):
        assert setting.loop.tick(float(now)).paused is None


@pytest.mark.parametrize(
    ("problem", "status", "detail"),
    [
        (ActionFailed("no such executor"), Status.FAILED, "no such executor"),
        (SparkUnavailable("stopped"), Status.UNKNOWN, "stopped"),
        (ValueError("surprise"), Status.UNKNOWN, "ValueError: surprise"),
    ],
)
def test_an_actuator_that_fails_ends_the_action(
    record: FlakyRecord, journal: Journal, problem: Exception, status: Status, detail: str
):
    at_once, later = Setting(record, GROW), Setting(record, GROW)
    at_once.actuator.begin_error = problem
    failed = at_once.loop.tick(100.0)
    assert failed.outcome is not None and failed.action is None
    at_once.loop.tick(101.0)
    later.loop.tick(110.0)
    polls = later.loop.settings.polls_before_giving_up if isinstance(problem, SparkUnavailable) else 1
    later.actuator.outcomes = [problem] * polls
    for poll in range(polls):
        assert later.loop.action_under_way == GROW and later.actuator.abandoned == []
        later.loop.tick(111.0 + poll / 10)
    assert later.loop.action_under_way is None and later.actuator.abandoned == [GROW]
    for action in journal.actions():
        assert (action.status, action.detail, action.observed) == (status, detail, {EXECUTORS: 2})
    assert len(journal.actions()) == 2


def test_a_poll_that_spark_does_not_answer_is_repeated(record: FlakyRecord, journal: Journal):
    setting = Setting(record, GROW)
    setting.loop.tick(100.0)
    setting.actuator.outcomes = [SparkUnavailable("a hiccup")] * 9
    for poll in range(9):
        cycle = setting.loop.tick(101.0 + poll)
        assert (cycle.error, cycle.action, cycle.outcome) == ("a hiccup", GROW, None)
    ended = setting.loop.tick(110.0)
    assert ended.error is None and ended.outcome is not None
    assert journal.actions()[0].status is Status.DONE
    assert setting.actuator.abandoned == []


def test_unanswered_polls_that_are_not_in_a_row_do_not_end_the_action(record: FlakyRecord):
    setting = Setting(record, GROW)
    hiccups: list[Any] = [SparkUnavailable("a hiccup")] * 9
    setting.actuator.outcomes = [*hiccups, None, *hiccups]
    setting.loop.tick(100.0)
    for poll in range(19):
        assert setting.loop.tick(101.0 + poll / 10).action == GROW
    assert setting.loop.tick(103.0).outcome is not None
    assert setting.actuator.abandoned == []


def test_leaving_closes_an_action_under_way(record: FlakyRecord, journal: Journal):
    setting = Setting(record, GROW)
    setting.loop.tick(100.0)
    setting.loop.leave(104.0)
    (action,) = journal.actions()
    assert (action.status, action.observed, action.seconds) == (Status.UNKNOWN, {EXECUTORS: 2}, 4.0)
    assert "detached before the action had ended" in action.detail
    assert setting.actuator.abandoned == [GROW]


def test_leaving_without_an_action_under_way_abandons_nothing(record: FlakyRecord):
    setting = Setting(record, GROW, Hold("enough"))
    setting.loop.tick(100.0)
    setting.loop.tick(101.0)
    setting.loop.leave(104.0)
    assert setting.actuator.abandoned == []


def test_an_action_that_cannot_be_abandoned_is_closed_all_the_same(
    record: FlakyRecord, journal: Journal, caplog: pytest.LogCaptureFixture
):
    setting = Setting(record, GROW)
    setting.actuator.abandon_error = SparkUnavailable("the context has stopped")
    setting.loop.tick(100.0)
    setting.loop.leave(104.0)
    assert journal.actions()[0].status is Status.UNKNOWN
    assert "a change is left half-done: the context has stopped" in caplog.text


def test_leaving_never_raises(record: FlakyRecord, caplog: pytest.LogCaptureFixture):
    setting = Setting(record, GROW)
    setting.loop.tick(100.0)
    record.broken = None
    setting.loop.leave(104.0)
    assert "an outcome is left open: the journal cannot be written" in caplog.text
