"""The status tells what a change of the job would bring, once the costs of its batches are known."""

from __future__ import annotations

from dataclasses import replace

from penstock.decide.policy import Hold
from penstock.runtime.advice import JobAdvice
from penstock.runtime.timeline import RecentTimeline
from penstock.settings.model import load_settings
from tests.dataflow.costs.test_foresight import costs, outlook
from tests.fakes import a_window

SETTINGS = load_settings(None, {}, {"spark.penstock.max_executors": "50"})


def test_nothing_is_told_before_anything_is_known() -> None:
    assert JobAdvice(SETTINGS).list(RecentTimeline()) == ()


def test_a_backlog_is_told_with_the_limit_that_would_cut_it() -> None:
    timeline, advice = RecentTimeline(), JobAdvice(SETTINGS)
    # two executors of two slots: 16,000 records fit 10 s, and 10,000 come meanwhile
    timeline.saw(10.0, a_window(), Hold("right", {}, (outlook(),)))
    (told,) = advice.list(timeline)
    assert "maxOffsetsPerTrigger=16000" in told and "17 batches of 10.0 s" in told
    assert advice.list(timeline) is advice.list(timeline)
    # the costs of the next decision count
    timeline.saw(20.0, a_window(), Hold("right", {}, (outlook(backlog_records=0.0),)))
    assert advice.list(timeline) == ()


def test_each_query_is_told_of_for_its_own_share_of_the_slots() -> None:
    few = outlook(
        replace(
            costs(), stages=(replace(costs().stages[0], tasks=2, shares=costs().stages[0].shares[:2] * 4),)
        ),
        backlog_records=0.0,
    )
    timeline = RecentTimeline()
    timeline.saw(10.0, a_window(), Hold("right", {}, (few, replace(few, query="clicks"))))
    told = JobAdvice(SETTINGS).list(timeline)
    assert [one.partition(":")[0] for one in told] == ["words", "clicks"]
    assert all("read has 2 tasks" in one and "spark.sql.shuffle.partitions=4" in one for one in told)
