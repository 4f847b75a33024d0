"""The report's figures, against examples computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.summary import QuerySummary
from penstock.decide.outcome import Status
from penstock.decide.policy import ExpectedEffect
from penstock.diagnose.causes import CAUSES
from penstock.journal.records import ActionRecord, DecisionRecord, ObservationRecord
from penstock.journal.report import (
    Holding,
    count_decisions,
    find_advice,
    hold_usage,
    judge_queries,
    make_report,
    price_holding,
    sum_holding,
)
from penstock.journal.store import Journal
from penstock.journal.terms import KIND, Terms, recall_terms, remember_terms
from penstock.runtime.assembly import read_terms
from penstock.settings.model import Settings

CALM = QuerySummary("clicks", 100.0, 100.0, 0.0, batch_seconds=4.0, period_seconds=10.0, latency_seconds=6.0)
LATE = replace(CALM, batch_seconds=12.0, latency_seconds=30.0, backlog_records=5000.0)
TERMS = {"app-1": Terms(task_cpus=2, executor_memory_bytes=3e9, max_executors=4)}


def seen(start: float, at: float, executors: int, *queries: QuerySummary, application: str = "app-1", **more):
    sizes = {"executors": executors}
    return ObservationRecord(application, at, start, sizes, 2 * executors, queries or (CALM,), **more)


DAY = [
    seen(0.0, 1800.0, 1),
    seen(1800.0, 3600.0, 4, LATE),
    # the driver was away for an hour, which counts on neither side
    seen(7200.0, 10800.0, 2),
]


def test_what_was_held_against_the_peak_over_the_same_time() -> None:
    holding = sum_holding(DAY, TERMS)
    # 1, 4 and 2 executors of 2 slots of 2 cores, for half an hour, half an hour and an hour
    assert holding == Holding(2.0, 4 * 0.5 + 16 * 0.5 + 8 * 1.0, 16.0, 3 * 0.5 + 12 * 0.5 + 6 * 1.0, 12.0)
    assert (holding.peak_core_hours, holding.peak_gb_hours) == (32.0, 24.0)
    assert holding.saved_share == 1 - 18 / 32
    cost = price_holding(holding, Terms(price_per_core_hour=0.05, price_per_gb_hour=0.01))
    assert cost is not None and cost.with_memory
    assert (cost.held, cost.peak) == (pytest.approx(0.05 * 18 + 0.01 * 13.5), pytest.approx(1.6 + 0.24))


def test_what_a_status_says_was_held_is_summed_as_the_windows_are() -> None:
    usage = {
        "seconds": 7200.0, "slot_seconds": 9 * 3600.0, "slots_at_peak": 8, "slots_at_start": 2,
        "executor_seconds": 4.5 * 3600, "executors_at_peak": 4, "executors_at_start": 1,
    }  # fmt: skip
    assert hold_usage(usage, TERMS["app-1"]) == sum_holding(DAY, TERMS)
    start = hold_usage(usage, TERMS["app-1"], "start")
    assert (start.peak_cores, start.peak_gb, start.core_hours) == (4.0, 3.0, 18.0)
    # a driver of an earlier version does not tell its executors
    earlier = {name: value for name, value in usage.items() if not name.startswith("executor")}
    assert hold_usage(earlier, TERMS["app-1"]).gb_hours is None


def test_what_is_not_known_is_left_out_and_said() -> None:
    holding = sum_holding([*DAY, seen(10800.0, 14400.0, 1, application="app-0")], TERMS)
    assert holding.gb_hours is None and holding.peak_gb_hours is None
    assert price_holding(holding, Terms()) is None
    cost = price_holding(holding, Terms(price_per_gb_hour=0.01, price_per_core_hour=0.05))
    assert cost is not None and not cost.with_memory and cost.held == pytest.approx(0.05 * 20)
    nothing = sum_holding([], {})
    assert (nothing.hours, nothing.saved_share, nothing.gb_hours) == (0.0, 0.0, None)


@given(st.lists(st.tuples(st.floats(0.1, 1000), st.integers(0, 50)), max_size=20))
def test_no_more_is_held_than_at_the_peak(windows) -> None:
    told, at = [], 0.0
    for seconds, executors in windows:
        told.append(seen(at, at + seconds, executors))
        at += seconds
    holding = sum_holding(told, TERMS)
    assert holding.core_hours <= holding.peak_core_hours * (1 + 1e-9)
    assert -1e-9 <= holding.saved_share <= 1


def test_queries_are_judged_by_the_time_that_windows_lasted() -> None:
    (query,) = judge_queries(DAY, 10.0)
    assert (query.name, query.hours) == ("clicks", 2.0)
    assert query.kept_up_share == 0.75 and query.within_target_share == 0.75
    assert query.batch_seconds == (4.0, 12.0) and query.latency_seconds == (6.0, 30.0)
    assert query.largest_backlog_records == 5000.0
    unknown = replace(CALM, batch_seconds=None, latency_seconds=None)
    (query,) = judge_queries([seen(0.0, 10.0, 1, unknown)], 10.0)
    assert (query.batch_seconds, query.latency_seconds, query.within_target_share) == (None, None, None)


def decision(kind: str, count: int, **more: str) -> DecisionRecord:
    return DecisionRecord(1, "app-1", "ds2", 0.0, 1.0, count, {}, {"kind": kind, "reason": "so", **more})


def action(status: Status | None, **more) -> ActionRecord:
    sizes = {"executors": 2}
    return ActionRecord(
        1, "app-1", 1, "ds2", 5.0, (), sizes, sizes, sizes, {}, "why", (), ExpectedEffect("less"),
        status, detail="no room", **more,
    )  # fmt: skip


def test_decisions_are_counted_and_rejections_by_their_guardrail() -> None:
    decisions = [
        decision("nothing-to-do", 40),
        decision("rejected", 3, guardrail="bounds"),
        decision("nothing-to-do", 2),
    ]
    assert count_decisions(decisions) == {"nothing-to-do": 42, "rejected: bounds": 3}


def test_the_job_is_told_what_to_change() -> None:
    def waited(batch: int, seconds: float, **causes: float) -> QuerySummary:
        critical = {"batch_id": batch, "seconds": seconds, "causes": {**causes, "nonsense": 0.2}}
        return replace(CALM, critical=critical)

    observations = [
        seen(0.0, 50.0, 4, waited(1, 10.0, gc=0.5, run=0.3), warnings=("executor 1 was lost",)),
        seen(50.0, 60.0, 1, waited(1, 10.0, gc=0.5, run=0.3)),  # the same batch again
        seen(60.0, 100.0, 2, waited(2, 30.0, gc=0.1, run=0.7), warnings=("executor 7 was lost",)),
    ]
    decisions = [decision("rejected", 5, guardrail="critical-path")]
    found = find_advice(observations, decisions, [action(Status.DONE), action(Status.PARTIAL)], TERMS)
    told = {one.what: one.why for one in found}
    # run: (3 + 21) / 40 s, gc: (5 + 3) / 40 s
    assert told[CAUSES["run"].advice] == f"60% of the critical path of 2 batches is {CAUSES['run'].noun}"
    assert told[CAUSES["gc"].advice].startswith("20% of")
    assert "50% of the time" in told["Raise max_executors, or make batches cheaper."]
    assert any("rejected 5 times" in why for why in told.values())
    assert any("1 of 2 changes" in why and "no room" in why for why in told.values())
    assert told["executor 7 was lost"] == "told in 2 of 3 windows"
    assert find_advice([seen(0.0, 1.0, 1)], [], [], {}) == []


def test_the_whole_of_it_takes_prices_and_targets_from_the_newest_run() -> None:
    terms = {
        "app-0": Terms(price_per_core_hour=9.0),
        "app-1": Terms(price_per_core_hour=1.0, latency_target=7.0),
    }
    report = make_report("words", 0.0, 86400.0, DAY, [], [action(None)], terms)
    assert report.cost is not None and report.cost.held == pytest.approx(9.0)
    assert (report.runs, report.observed_from, report.latency_target) == (("app-1",), 0.0, 7.0)


def test_terms_are_read_from_spark_and_kept_in_the_journal(journal: Journal) -> None:
    conf = {"spark.executor.memory": "2g", "spark.task.cpus": "2"}
    terms = read_terms(conf, Settings(max_executors=7, latency_target="5s", price_per_core_hour=0.04))
    assert terms == Terms(2, 2.0**31 + 384 * 2.0**20, 7, 5.0, 0.04, None)
    assert read_terms({"spark.executor.memory": "much"}, Settings()).executor_memory_bytes is None
    remember_terms(journal, 1.0, "words", "app-1", terms)
    journal.remember(
        2.0, "words", KIND, "app-2", {"task_cpus": 3, "of_another_version": 1, "max_executors": "x"}
    )
    assert recall_terms(journal, "words") == {"app-1": terms, "app-2": Terms(task_cpus=3)}
