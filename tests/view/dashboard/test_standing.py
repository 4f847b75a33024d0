"""How an application stands: the dashboard, the Spark UI tab and the metric mean the same by behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.dataflow.window import SlotQuery
from penstock.journal.terms import Terms
from penstock.runtime.pace import describe_pace
from penstock.runtime.status import summarise_timeline
from penstock.runtime.telemetry.catalog import BY_NAME
from penstock.runtime.timeline import RecentTimeline
from penstock.view.dashboard.board import Seen
from penstock.view.dashboard.standing import describe_cost, judge_state
from tests.fakes import a_query, a_window

BEHIND = BY_NAME["penstock_query_behind"]


def status_of(*queries: SlotQuery) -> dict:
    timeline = RecentTimeline()
    timeline.saw(10.0, a_window(queries=queries), None)
    return summarise_timeline(timeline)


@pytest.mark.parametrize(
    ("query", "word", "why"),
    [
        (a_query(offered=100.0, backlog=0.0, batch_seconds=(8.0,)), "keeps up", ""),
        (a_query(offered=100.0, backlog=900.0, batch_seconds=(8.0,)), "keeps up", ""),
        # between one period's records and two
        (a_query(offered=100.0, backlog=1500.0, batch_seconds=(8.0,)), "behind", "15 s of input wait"),
        # above its period by less than noise
        (a_query(offered=100.0, backlog=0.0, batch_seconds=(10.3,)), "keeps up", ""),
        (a_query(offered=100.0, backlog=0.0, batch_seconds=(12.0,)), "behind", "a batch takes 12 s of 10 s"),
        (
            a_query(offered=100.0, backlog=3000.0, batch_seconds=(12.0,)),
            "behind",
            "a batch takes 12 s of 10 s, 30 s of input wait",
        ),
        # nothing new comes, and nothing is read
        (a_query(offered=0.0, observed=0.0, backlog=1200.0), "behind", "1,200 records wait"),
        # without a trigger interval the batch is the period
        (
            a_query(offered=100.0, backlog=500.0, batch_seconds=(2.0,), period=None),
            "behind",
            "5 s of input wait",
        ),
    ],
)
def test_all_that_tell_whether_it_is_behind_agree(query: SlotQuery, word: str, why: str) -> None:
    told = status_of(query)
    state = judge_state(Seen("app-1", Path(), 10.0, told))
    assert (state.word, state.why) == (word, why)
    assert [value for _, value in BEHIND.read(told)] == [float(word == "behind")]
    assert describe_pace(told).startswith(f"behind: {why};" if why else "keeps up;")


def test_of_several_queries_the_late_one_is_named() -> None:
    # added up, the backlog of both is no second of their input
    late = a_query(name="late", offered=100.0, backlog=1500.0, batch_seconds=(2.0,))
    calm = a_query(name="calm", offered=9000.0, backlog=0.0, batch_seconds=(8.0,))
    told = status_of(calm, late)
    state = judge_state(Seen("app-1", Path(), 10.0, told))
    assert (state.word, state.why) == ("behind", "late: 15 s of input wait")


USAGE = {
    "seconds": 7200.0, "slot_seconds": 9 * 3600.0, "slots_at_peak": 8, "slots_at_start": 2,
    "executor_seconds": 4.5 * 3600, "executors_at_peak": 4, "executors_at_start": 1,
}  # fmt: skip
SLOTS_ALONE = {name: value for name, value in USAGE.items() if not name.startswith("executor")}


@pytest.mark.parametrize(
    ("usage", "terms", "cost"),
    [
        (USAGE, Terms(), "4.50 executor-h"),
        (SLOTS_ALONE, Terms(), "9.00 slot-h"),
        # 9 slots of 2 cores for an hour, and 4.5 executors of 3 GB
        (USAGE, Terms(2, 3e9, price_per_core_hour=0.5), "9.00"),
        (USAGE, Terms(2, 3e9, price_per_core_hour=0.5, price_per_gb_hour=0.1), "10.35"),
        (USAGE, Terms(2, None, price_per_core_hour=0.5, price_per_gb_hour=0.1), "9.00"),
        (USAGE, Terms(2, 3e9, price_per_gb_hour=0.001), "0.0135"),
    ],
)
def test_the_cost_is_money_where_there_is_a_price(usage: dict[str, float], terms: Terms, cost: str) -> None:
    assert describe_cost(usage, terms) == (cost, "−44 % to peak, +125 % to start")


def test_what_costs_nothing_or_is_not_known_has_no_comparison() -> None:
    assert describe_cost({}, Terms()) == describe_cost({**USAGE, "slot_seconds": 0.0}, Terms()) == ("–", "")
    assert describe_cost(USAGE, Terms(price_per_core_hour=0.0)) == ("0.00", "")
