from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import (
    BatchExecution,
    InstanceMetrics,
    MetricWindow,
    RunningBatch,
    RunningStage,
    StageExecution,
)
from penstock.dataflow.summary import (
    MOST_TASKS,
    measure_figures,
    read_operator_query,
    read_slot_query,
    summarise,
    write_query,
)
from penstock.dataflow.window import OperatorQuery, SourceRate, TopicRate
from penstock.errors import BadMetrics
from tests.fakes import a_query, a_window

COLUMNS = ("records_in", "records_out", "useful_seconds", "waiting_seconds")
OLD_SLOT_RECORD = {
    "version": 1,
    "operators": [["read", True], ["count", False]],
    "edges": [["read", "count"]],
    "sources": {"read": [20.0, 10.0, 50.0]},
    "overdue": {},
    "batches": [
        {
            "id": 7,
            "start": 2.0,
            "seconds": 4.0,
            "slots": 4,
            "records": 100.0,
            "settled": True,
            "stages": [
                {
                    "operator": "read",
                    "wall": 1.5,
                    "tasks": 2,
                    "columns": [[60.0, 40.0], [25.0], [1.0, 0.5], [0.1]],
                },
                {"operator": "count", "wall": 1.5, "tasks": 1, "columns": [[50.0], [25.0], [2.0], [0.1]]},
            ],
        }
    ],
    "metrics": None,
}
OLD_OPERATOR_RECORD = {
    "version": 1,
    "operators": [["topic", True], ["resize", True], ["store", True]],
    "edges": [["topic", "resize"], ["resize", "store"]],
    "sources": {"resize": [10.0, 10.0, 30.0], "store": [5.0, 4.0, 60.0], "topic": [10.0, 10.0, 30.0]},
    "overdue": {"resize": 0.0, "store": 20.0},
    "batches": [],
    "metrics": {
        "operator": [0, 1, 2],
        "columns": [[100.0, 100.0, 40.0], [100.0, 50.0, 0.0], [10.0, 4.0, 2.0], [0.0, 6.0, 8.0]],
    },
}


def test_one_slow_batch_says_little():
    assert summarise(a_query(batch_seconds=(2.0, 2.2, 30.0))).batch_seconds == 2.2


def test_a_query_without_a_finished_batch_has_no_batch_time():
    assert summarise(a_query(batch_seconds=())).batch_seconds is None


def test_queries_that_share_slots_add_their_rates_and_the_busiest_is_judged():
    window = a_window(
        queries=[
            a_query(name="a", offered=10, observed=9, backlog=1, batch_seconds=(4.0,), period=5.0),
            a_query(name="b", offered=20, observed=20, backlog=2, batch_seconds=(6.0,), period=10.0),
        ]
    )
    assert measure_figures(window) == pytest.approx(
        {
            "offered_per_second": 30,
            "observed_per_second": 29,
            "backlog_records": 3,
            "batch_seconds": 4.0,
            "utilisation_ratio": 0.8,
        }
    )


def test_what_was_not_measured_is_not_stated():
    back_to_back = measure_figures(a_window(queries=[a_query(period=None, batch_seconds=(3.0,))]))
    assert back_to_back["batch_seconds"] == 3.0 and "utilisation_ratio" not in back_to_back
    assert set(measure_figures(a_window(queries=()))) == {
        "offered_per_second",
        "observed_per_second",
        "backlog_records",
    }


def kept(query, detail=None):
    """The summary of a query as the journal gives it back."""
    return replace(summarise(query), detail=detail or json.loads(json.dumps(write_query(query))))


def images():
    """A pipeline of two functions that read topics of their own."""
    graph = LogicalGraph(["topic", "resize", "store"], [("topic", "resize"), ("resize", "store")])
    rows = [
        InstanceMetrics("topic", "topic", 100, 100, 10.0),
        InstanceMetrics("resize", "0", 100, 50, 4.0, 6.0),
        InstanceMetrics("store", "0", 40, 0, 2.0, 8.0),
    ]
    topics = {"resize": TopicRate(10.0, 10.0, 30.0), "store": TopicRate(5.0, 4.0, 60.0, overdue_records=20.0)}
    metrics = MetricWindow.of(graph, 0.0, 10.0, rows)
    sources = {"topic": SourceRate(10.0, 10.0, 30.0)}
    return OperatorQuery("images", "images", graph, sources, metrics, topics, latency_seconds=6.0)


def same_columns(one, other):
    return all(getattr(one, name).tolist() == getattr(other, name).tolist() for name in COLUMNS)


@pytest.mark.parametrize("detail", [None, OLD_OPERATOR_RECORD])
def test_a_query_with_operators_is_read_back_whole_also_in_the_form_of_before(detail):
    query = images()
    back = read_operator_query(kept(query, detail), 0.0, 10.0)
    assert back.graph == query.graph and back.latency_seconds == 6.0
    assert (back.sources, back.topics) == (query.sources, query.topics)
    assert back.metrics.operator.tolist() == [0, 1, 2] and same_columns(back.metrics, query.metrics)


def test_a_record_from_before_topics_had_backlogs_of_their_own_has_none():
    older = {key: value for key, value in OLD_OPERATOR_RECORD.items() if key != "overdue"}
    back = read_operator_query(kept(images(), older), 0.0, 10.0)
    assert (set(back.sources), back.topics) == ({"topic"}, {})


@pytest.mark.parametrize("detail", [None, OLD_SLOT_RECORD])
def test_a_query_on_slots_is_read_back_whole_also_in_the_form_of_before(detail):
    def stage(operator, records, useful):
        count = len(records)
        return StageExecution(
            operator, np.array(records), np.full(count, 25.0), np.array(useful), np.full(count, 0.1), 1.5
        )

    stages = (stage("read", [60.0, 40.0], [1.0, 0.5]), stage("count", [50.0], [2.0]))
    query = replace(
        a_query(offered=20.0, observed=10.0, backlog=50.0),
        graph=LogicalGraph(["read", Operator("count", scalable=False)], [("read", "count")]),
        batches=(BatchExecution(7, 2.0, 4.0, 4, 100.0, stages),),
        latency_seconds=6.0,
    )
    back = read_slot_query(kept(query, detail))
    assert back.graph == query.graph and back.sources == query.sources
    assert (back.period_seconds, back.latency_seconds) == (10.0, 6.0)
    (batch,) = back.batches
    assert replace(batch, stages=()) == replace(query.batches[0], stages=())
    assert all(same_columns(*pair) for pair in zip(batch.stages, stages, strict=True))
    assert [one.wall_seconds for one in batch.stages] == [1.5, 1.5]


def test_what_a_running_batch_and_an_idle_source_tell_is_kept_too():
    done = StageExecution(
        "read", *(np.array([value]) for value in (60.0, 25.0, 1.0, 0.1)), 1.5, np.array([0.4])
    )
    stage = RunningStage("read", 5, 1, 2, 60.0, done, np.array([3.0, 4.0]))
    waiting = RunningStage("count", 4, 0, 0, 0.0)
    over = RunningStage("scan", 1, 1, 0, 60.0, done, is_over=True)
    batch = BatchExecution(6, 2.0, 4.0, 4, 60.0, (done,), files=40, listing_seconds=0.7)
    query = replace(
        a_query(),
        batches=(batch,),
        running=RunningBatch(7, 6.0, 90.0, 4, (stage, waiting, over), new_slots=2),
        idle_seconds=12.5,
    )
    table = {"table": SourceRate(0.0, 0.0, rows_per_batch=7.0)}
    query = replace(query, sources={**query.sources, **table})
    back = read_slot_query(kept(query))
    assert back.sources == query.sources
    assert (back.idle_seconds, back.batches[0].files, back.batches[0].listing_seconds) == (12.5, 40, 0.7)
    assert back.batches[0].stages[0].cpu_seconds.tolist() == [0.4]
    assert back.running is not None
    assert replace(back.running, stages=()) == replace(query.running, stages=())
    first, second, third = back.running.stages
    assert (first.is_over, third.is_over) == (False, True)
    assert (first.tasks_total, first.tasks_done, first.tasks_running, first.records_done) == (5, 1, 2, 60.0)
    assert same_columns(first.done, done) and first.running_seconds.tolist() == [3.0, 4.0]
    assert (second.done, second.running_seconds.tolist()) == (None, [])


@pytest.mark.parametrize("counted", [0, 2, 5])
def test_ages_are_read_though_spark_counted_the_running_tasks_a_moment_later(counted):
    stage = RunningStage("read", 8, 3, counted, 0.0, None, np.array([3.0, 4.0, 5.0]))
    query = replace(a_query(), running=RunningBatch(7, 6.0, 90.0, 4, (stage,)))
    running = read_slot_query(kept(query)).running
    assert running is not None
    assert running.stages[0].tasks_running == counted
    assert running.stages[0].running_seconds.tolist() == [3.0, 4.0, 5.0]


def test_stages_of_very_many_tasks_are_kept_as_alike():
    tasks = MOST_TASKS + 1
    columns = [np.arange(tasks, dtype=np.float64)] * 4
    stage = StageExecution("count", *columns, wall_seconds=3.0)
    batch = BatchExecution(7, 0.0, 4.0, 4, 100.0, (stage,), settled=False)
    (back,) = read_slot_query(kept(replace(a_query(), batches=(batch,)))).batches
    assert (back.batch_id, back.settled, back.stages[0].tasks) == (7, False, tasks)
    assert back.stages[0].records_in.sum() == pytest.approx(columns[0].sum())


@pytest.mark.parametrize(
    "spoilt", [{"colour": 3}, {"version": 9}, {"version": 1, "operators": 3}, {"version": 2, "kind": "none"}]
)
def test_a_record_of_another_form_is_refused(spoilt):
    with pytest.raises(BadMetrics, match="recorded window"):
        read_slot_query(kept(a_query(), spoilt))
    with pytest.raises(BadMetrics, match="recorded window"):
        read_operator_query(kept(images(), spoilt), 0.0, 10.0)


def test_a_record_is_not_taken_for_one_of_the_other_kind():
    with pytest.raises(BadMetrics, match="'operators', not 'slots'"):
        read_slot_query(kept(images()))
    with pytest.raises(BadMetrics, match="'slots', not 'operators'"):
        read_operator_query(kept(a_query()), 0.0, 10.0)
