"""The status as plain data: what the timeline tells, in the form that the views and the socket need."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from penstock.dataflow.moves import Bin, Move, Plan, Strategy
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import BINS, ExpectedEffect, Hold, MoveState
from penstock.decide.verdict import Accepted, NothingToDo, Rejected, Waiting
from penstock.diagnose.live_batch import find_critical_window
from penstock.runtime.status import summarise_timeline
from penstock.runtime.timeline import RecentTimeline
from penstock.view.words import describe_action_in_flight, describe_change, name_decision
from tests.diagnose.live_batches import hot_task
from tests.fakes import a_query, a_scale, a_window, an_outcome


def needing(slots: float) -> Hold:
    return Hold("right", {"slots_needed": slots})


def test_nothing_seen_yet() -> None:
    told = summarise_timeline(RecentTimeline())
    assert (told["executors"], told["slots"], told["slots_needed"]) == (None, None, None)
    assert (told["queries"], told["recent"], told["decisions"]) == ([], [], [])
    assert told["last_decision"] is None


def test_the_last_stated_need_stands_until_the_next() -> None:
    timeline = RecentTimeline()
    timeline.saw(1.0, a_window(), None)
    timeline.saw(2.0, a_window(), needing(3.0))
    timeline.saw(3.0, a_window(), None)
    told = summarise_timeline(timeline)
    assert [point["slots_needed"] for point in told["recent"]] == [None, 3.0, 3.0]
    assert told["slots_needed"] == told["queries"][0]["slots_needed"] == 3.0


def test_rates_add_up_and_the_busiest_query_gives_the_batch_time() -> None:
    calm = a_query(name="calm", offered=10.0, batch_seconds=(9.0,), period=100.0)
    busy = a_query(name="busy", offered=20.0, batch_seconds=(4.0,), period=5.0)
    timeline = RecentTimeline()
    timeline.saw(1.0, a_window(queries=(calm, busy)), needing(3.0))
    told = summarise_timeline(timeline)
    assert told["recent"][0]["offered_per_second"] == 30.0
    assert (told["recent"][0]["batch_seconds"], told["recent"][0]["period_seconds"]) == (4.0, 5.0)
    assert [query["slots_needed"] for query in told["queries"]] == [None, None]


def test_a_rate_that_could_not_be_measured_is_absent_not_a_number() -> None:
    timeline = RecentTimeline()
    timeline.saw(1.0, a_window(queries=(a_query(offered=math.nan),)), None)
    told = summarise_timeline(timeline)
    assert told["recent"][0]["offered_per_second"] is None
    assert told["queries"][0]["offered_per_second"] is None


def test_analysed_batches_are_told_once_each_oldest_first() -> None:
    timeline = RecentTimeline()
    newest = [
        find_critical_window(replace(hot_task(), batch_id=number, start=100.0 + number))
        for number in (6, 6, 7)
    ]
    for number, window in enumerate(newest):
        timeline.saw(float(number), a_window(queries=(replace(a_query(), critical=(window,)),)), None)
    (query,) = summarise_timeline(timeline)["queries"]
    assert [window["batch_id"] for window in query["critical_windows"]] == [6, 7]
    assert query["critical"] == query["critical_windows"][-1]
    assert sum(query["critical"]["causes"].values()) == pytest.approx(1)


def test_holds_in_a_row_become_one_with_the_latest_reason() -> None:
    timeline = RecentTimeline()
    for number in range(3):
        timeline.decided(float(number), NothingToDo(f"{number} slots"))
    timeline.decided(3.0, Waiting("warming up"))
    hold, wait = summarise_timeline(timeline)["decisions"]
    assert (hold["kind"], hold["count"], hold["reason"]) == ("hold", 3, "2 slots")
    assert (wait["kind"], wait["count"]) == ("wait", 1)


def test_rejections_stay_apart() -> None:
    timeline = RecentTimeline()
    timeline.decided(1.0, Rejected("maximum", "at most 3"))
    timeline.decided(2.0, Rejected("delay", "too early"))
    assert [one["reason"] for one in summarise_timeline(timeline)["decisions"]] == ["at most 3", "too early"]


def test_changes_find_their_own_outcomes() -> None:
    timeline = RecentTimeline()
    for at, held, wanted in ((1.0, 2, 5), (20.0, 5, 2), (40.0, 2, 5)):
        timeline.saw(at, a_window(executors=held), a_scale(wanted))
        timeline.decided(at, Accepted(replace(a_scale(wanted), reason=f"at {at}")))
        if at < 40:
            timeline.ended(at + 5, an_outcome(wanted, detail=f"reached {wanted}"))
    out, back, again = summarise_timeline(timeline)["decisions"]
    assert [one["kind"] for one in (out, back, again)] == ["scale-out", "scale-in", "scale-out"]
    assert (back["from"], back["to"]) == (5, 2)
    assert out["outcome"]["detail"] == "reached 5"
    assert back["outcome"]["detail"] == "reached 2"
    assert again["outcome"] is None
    assert out["expected"] == "batches fit their period"


def test_moved_state_is_no_change_of_size() -> None:
    moves = tuple(Move(11, Bin("q", 0, number), "1", "2") for number in (1, 2))
    plan = Plan("q", moves, Strategy.FLUID, "uneven")
    move = MoveState((plan,), "uneven", ExpectedEffect("2 bins move"))
    timeline = RecentTimeline()
    timeline.saw(1.0, a_window(), None)
    timeline.decided(2.0, Accepted(move))
    timeline.ended(9.0, Outcome(Status.DONE, {BINS: 2}, {BINS: 2}, {BINS: 2}, 7.0, "2 of 2 bins moved"))
    [told] = summarise_timeline(timeline)["decisions"]
    assert (told["kind"], told["bins"], told["expected"]) == ("move-state", 2, "2 bins move")
    assert told["outcome"]["status"] == "done"
    assert (name_decision(told), describe_change(told)) == ("move state", "2 bins")


def test_what_is_under_way_in_words() -> None:
    standing = {"state": "moving", "moved": 3, "of": 12}
    scaling = {"since": 100.0, "from": 3, "to": 2, "migration": standing}
    moving = {"since": 100.0, "from": 3, "to": None, "migration": standing}
    done = {**moving, "migration": {**standing, "state": "done"}}
    told = [
        describe_action_in_flight({"now": 104.0, "action_in_flight": one}) for one in (scaling, moving, done)
    ]
    assert told == [
        "changing 3 → 2 executors, moving state, 3 of 12 bins, for 4 s",
        "moving state, 3 of 12 bins, for 4 s",
        "acting, for 4 s",
    ]
