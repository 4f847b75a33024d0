"""Counts since the start: by kind and by few reasons, durations in classes, misses of predictions."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.summary import QuerySummary, is_behind
from penstock.decide.outcome import Status
from penstock.decide.policy import BINS, ExpectedEffect, Resize
from penstock.decide.verdict import Accepted, NothingToDo, Rejected, Waiting
from penstock.runtime.tally import BUCKETS, Tally, find_errors, name_change
from tests.fakes import a_scale, a_window, an_outcome

HELD = {"executors": 3}


@pytest.mark.parametrize(
    ("before", "planned", "expected"),
    [
        (HELD, {"executors": 5}, "scale-out"),
        (HELD, {"executors": 2}, "scale-in"),
        (HELD, {BINS: 7}, "move-state"),
        ({}, {"executors": 1}, "scale-out"),
        ({"parse": 2, "count": 4}, {"parse": 1, "count": 3}, "scale-in"),
        ({"parse": 2, "count": 4}, {"parse": 1, "count": 5}, "scale-out"),
    ],
)
def test_a_change_has_a_name(before, planned, expected) -> None:
    assert name_change(before, planned) == expected


def test_verdicts_are_counted_by_kind_and_by_few_reasons() -> None:
    tally = Tally()
    resize = Resize({"spark.executor.memory": "2g"}, "heap is full", ExpectedEffect(""))
    for verdict in (
        NothingToDo("4 slots"), NothingToDo("5 slots"), Waiting("warming up"),
        Rejected("bounds", "at most 3"), Accepted(a_scale(5)),
        Accepted(a_scale(2), rollback=True), Accepted(resize),
    ):  # fmt: skip
        tally.decided(verdict, HELD)
    tally.decided(Accepted(a_scale(4)), HELD, by_hand=True)
    told = tally.plain()
    assert [(one["kind"], one["reason"], one["count"]) for one in told["decisions"]] == [
        ("hold", "", 2), ("rejected", "bounds", 1), ("resize", "policy", 1), ("scale-in", "rollback", 1),
        ("scale-out", "by-hand", 1), ("scale-out", "policy", 1), ("wait", "", 1),
    ]  # fmt: skip
    assert told["rollbacks"] == 1


@given(st.lists(st.floats(0, 10_000), max_size=30))
def test_durations_fall_into_the_class_that_holds_them(seconds) -> None:
    tally = Tally()
    for one in seconds:
        tally.decided(Accepted(a_scale(5)), HELD)
        tally.ended(an_outcome(5, Status.PARTIAL, seconds=one))
    told = tally.plain()
    assert sum(one["count"] for one in told["actions"]) == len(seconds)
    for one in told["action_seconds"]:
        below = [sum(value <= bound for value in seconds) for bound in BUCKETS]
        assert [sum(one["counts"][: at + 1]) for at in range(len(BUCKETS))] == below
        assert sum(one["counts"]) == len(seconds) and one["sum"] == pytest.approx(sum(seconds))
    assert bisect_left(BUCKETS, 1.0) == 0, "a bound belongs to its class"


def test_slots_add_up_over_windows_and_errors_are_shares_of_what_was_expected() -> None:
    tally = Tally()
    tally.saw(a_window(10.0, executors=2))
    tally.saw(a_window(20.0, executors=3))
    tally.measured({"batch_seconds": 8.0, "other": 1.0, "zero": 0.0}, {"batch_seconds": 6.0, "zero": 1.0})
    assert tally.plain()["slot_seconds"] == 2 * 2 * 10.0 + 3 * 2 * 10.0
    assert tally.plain()["prediction_errors"] == {"batch_seconds": 0.25}
    assert find_errors({"a": -2.0}, {"a": -1.0}) == {"a": 0.5}


@pytest.mark.parametrize(
    ("offered", "observed", "backlog", "batch", "period", "behind"),
    [
        (100.0, 100.0, 0.0, 8.0, 10.0, False),
        (100.0, 100.0, 0.0, 10.4, 10.0, False),
        (100.0, 100.0, 0.0, 10.6, 10.0, True),
        (100.0, 90.0, 1000.0, 8.0, 10.0, False),  # one period's records
        (100.0, 90.0, 1001.0, 8.0, 10.0, True),
        (0.0, 200.0, 1001.0, 8.0, 10.0, False),  # nothing new comes, and the rest is read within a period
        (0.0, 0.0, 1.0, None, 10.0, True),  # nothing is read at all
        (float("nan"), 100.0, float("nan"), 8.0, 10.0, False),
        (100.0, 100.0, 250.0, 2.0, None, True),  # without a trigger the batch is the period
    ],
)
def test_a_query_is_behind(offered, observed, backlog, batch, period, behind) -> None:
    assert is_behind(QuerySummary("words", offered, observed, backlog, batch, period)) is behind
