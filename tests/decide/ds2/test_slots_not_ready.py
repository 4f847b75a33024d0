"""Batches on slots that say nothing shrink nothing: broken, missing, idle or unsettled ones."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, SourceRate
from penstock.decide.ds2.slots import SharedSlots
from penstock.decide.goals import Goals
from penstock.decide.policy import Hold, Scale
from tests.dataflow.synthetic_batches import TrueQuery, TrueStage, word_count
from tests.decide.slot_windows import chain, query_window, window, words

NOT_READY = {
    "no batches": ({"batches": ()}, "no batch finished"),
    "unknown rate": ({"sources": {"flatmap": SourceRate(math.nan, 1.0)}}, "offered rate of source 'flatmap'"),
    "missing source": ({"sources": {}}, "offered rate of source 'flatmap'"),
    "negative rate": ({"sources": {"flatmap": SourceRate(-1.0, 1.0)}}, "offered rate of source 'flatmap'"),
    "nothing offered": ({"sources": {"flatmap": SourceRate(0.0, 0.0)}}, "idle"),
    "another graph": ({"graph": LogicalGraph(["flatmap", "count", "state", "extra"], [])}, "unknown"),
}


@pytest.mark.parametrize("case", NOT_READY)
def test_what_cannot_be_judged_is_not_ready(case):
    change, reason = NOT_READY[case]
    view = replace(words(word_count(), 10.0, 10), **change)
    answer = SharedSlots(Goals()).propose(window(view))
    assert isinstance(answer, NotReady)
    assert reason in answer.reason


def test_batches_without_records_are_idle():
    answer = SharedSlots(Goals()).propose(window(words(word_count(), 10.0, 10, sizes=(0.0, 0.0))))
    assert answer == NotReady("idle: no records in the window", "records")


def test_records_that_the_source_stage_does_not_count_are_not_ready():
    view = words(word_count(), 10.0, 10)
    silent = tuple(
        replace(batch, stages=(replace(batch.stages[0], records_in=np.zeros(15)), *batch.stages[1:]))
        for batch in view.batches
    )
    answer = SharedSlots(Goals()).propose(window(replace(view, batches=silent)))
    assert isinstance(answer, NotReady)
    assert "report no records" in answer.reason


def test_an_operator_that_never_ran_is_not_ready():
    view = words(word_count(), 10.0, 10)
    graph = LogicalGraph(
        ["flatmap", "count", "state", "sink"], [("flatmap", "count"), ("count", "state"), ("state", "sink")]
    )
    answer = SharedSlots(Goals()).propose(window(replace(view, graph=graph)))
    assert isinstance(answer, NotReady)
    assert "sink has not run" in answer.reason


def test_an_operator_that_the_graph_does_not_know_is_not_ready():
    view = words(word_count(), 10.0, 10)
    answer = SharedSlots(Goals()).propose(
        window(replace(view, graph=LogicalGraph(["flatmap", "count"], [("flatmap", "count")])))
    )
    assert isinstance(answer, NotReady)
    assert "state has run but is not in the graph" in answer.reason


def test_broken_metrics_are_not_ready():
    view = words(word_count(), 10.0, 10)
    broken = tuple(replace(batch, seconds=math.nan) for batch in view.batches)
    answer = SharedSlots(Goals()).propose(window(replace(view, batches=broken)))
    assert isinstance(answer, NotReady)
    assert "usable metrics" in answer.reason


def test_no_query_and_no_executors_are_not_ready():
    policy, view = SharedSlots(Goals()), words(word_count(), 10.0, 10)
    assert policy.propose(window()) == NotReady("no streaming query is active", "a streaming query")
    answer = policy.propose(replace(window(view), executors=()))
    assert answer == NotReady("the application has no executors", "an executor")


def test_a_low_rate_is_no_idle_application():
    answer = SharedSlots(Goals()).propose(window(words(word_count(), 0.5, 10)))
    assert isinstance(answer, Scale)
    assert answer.parallelism[EXECUTORS] == 1
    assert "for 0.5 records/s" in answer.reason


def test_nothing_is_released_while_a_quiet_source_has_a_backlog():
    view = words(word_count(), 100.0, 30)
    quiet = replace(view, sources={"flatmap": SourceRate(0.0, 100.0, 500.0)})
    answer = SharedSlots(Goals()).propose(window(quiet, executors=6))
    assert isinstance(answer, Hold)
    assert "nothing is offered now" in answer.reason


def test_an_unknown_backlog_counts_as_none():
    view = words(word_count(), 200.0, 10)
    unknown = replace(view, sources={"flatmap": SourceRate(200.0, 200.0, math.nan)})
    policy = SharedSlots(Goals())
    assert policy.propose(window(unknown)) == SharedSlots(Goals()).propose(window(view))


def test_memory_of_queries_is_bounded():
    policy, view = SharedSlots(Goals()), words(word_count(), 200.0, 10)
    for number in range(100):
        policy.propose(window(replace(view, query_id=str(number))))
    assert len(policy._learned) == 64


def test_a_new_plan_is_learned_afresh():
    policy, query = SharedSlots(Goals()), word_count()
    policy.propose(window(words(query, 200.0, 10)))
    other = TrueQuery((TrueStage("scan", 20, 0.1, 0.001),))
    view = query_window(chain(other), other.runs((500.0, 1000.0, 1500.0), 10), {"scan": 100.0})
    assert isinstance(policy.propose(window(view)), Scale | Hold)


@settings(max_examples=50, deadline=None)
@given(st.floats(1, 2000), st.integers(1, 8), st.integers(1, 8), st.floats(0, 1e6), st.integers(0, 99))
def test_any_load_gives_a_sane_answer(rate, executors, cores, backlog, seed):
    query = word_count(noise=0.1, outliers=0.02, seed=seed)
    view = window(words(query, rate, executors * cores, backlog), executors=executors, cores=cores)
    answer = SharedSlots(Goals()).propose(view)
    assert isinstance(answer, Hold | Scale)
    figures = answer.figures if isinstance(answer, Hold) else answer.expected.figures
    assert all(math.isfinite(value) and value >= 0 for value in figures.values())
    if isinstance(answer, Scale):
        assert answer.parallelism[EXECUTORS] >= 1
        assert answer.parallelism[EXECUTORS] * cores <= 15 + cores - 1, "no stage has more than 15 tasks"


def test_batches_during_a_change_of_executors_are_not_believed():
    query = words(word_count(), 60.0, 10)
    unsettled = replace(query, batches=tuple(replace(batch, settled=False) for batch in query.batches))
    answer = SharedSlots(Goals()).propose(window(unsettled))
    assert isinstance(answer, NotReady)
    assert "executors came or went" in answer.reason


def test_one_settled_batch_is_enough_and_alone_counts():
    query = words(word_count(), 60.0, 10)
    first, *rest = query.batches
    wild = replace(first, batch_id=999, seconds=first.seconds * 50, settled=False)
    mixed = replace(query, batches=(*rest, wild))
    assert SharedSlots(Goals()).propose(window(mixed)) == SharedSlots(Goals()).propose(
        window(replace(query, batches=tuple(rest)))
    )
