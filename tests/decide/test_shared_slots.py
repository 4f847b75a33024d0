"""Sizing an application whose stages share slots: two steps to the optimum, and never by accident."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.batches import BatchExecution
from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import MetricWindow
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import (
    EXECUTORS,
    ApplicationWindow,
    Execution,
    ExecutorState,
    QueryWindow,
    SourceRate,
)
from penstock.decide.ds2_settings import Ds2Settings
from penstock.decide.policy import Hold, Scale
from penstock.decide.shared_slots import SharedSlots
from tests.dataflow.synthetic_batches import TrueQuery, TrueStage, word_count

EMPTY = np.array([])
PERIOD = 10.0


def chain(query: TrueQuery) -> LogicalGraph:
    names = [stage.operator for stage in query.stages]
    return LogicalGraph(names, pairwise(names))


def query_window(
    graph: LogicalGraph,
    batches: tuple[BatchExecution, ...],
    offered: Mapping[str, float],
    backlog: float = 0.0,
    period: float | None = PERIOD,
    name: str = "words",
) -> QueryWindow:
    return QueryWindow(
        query_id=name,
        name=name,
        graph=graph,
        metrics=MetricWindow(0.0, 10.0, EMPTY.astype(np.int64), EMPTY, EMPTY, EMPTY, EMPTY),
        sources={source: SourceRate(rate, rate, backlog) for source, rate in offered.items()},
        batches=batches,
        period_seconds=period,
    )


def window(*queries: QueryWindow, executors: int = 2, cores: int = 5) -> ApplicationWindow:
    return ApplicationWindow(
        application="app",
        start=0.0,
        end=10.0,
        execution=Execution.SHARED_SLOTS,
        parallelism={EXECUTORS: executors},
        queries=queries,
        executors=tuple(ExecutorState(str(number), "host", cores) for number in range(executors)),
        slots_per_executor=cores,
    )


def words(
    query: TrueQuery, rate: float, slots: int, backlog: float = 0.0, sizes: tuple[float, ...] | None = None
) -> QueryWindow:
    """The word count at a rate, its batches as large as what arrives in a period, more or less."""
    given_sizes = sizes or tuple(rate * PERIOD * factor for factor in (0.8, 1.0, 1.2, 1.1, 0.9, 1.0))
    return query_window(chain(query), query.runs(given_sizes, slots), {"flatmap": rate}, backlog)


def usual_seconds(query: TrueQuery, records: float, slots: int) -> float:
    """The median batch, drawn apart so that asking changes nothing."""
    apart = replace(query, random=np.random.default_rng(99))
    return float(np.median([batch.seconds for batch in apart.runs((records,) * 21, slots)]))


def best_executors(query: TrueQuery, rate: float, cores: int) -> int:
    """What a search over sizes finds to be the least that keeps the headroom."""
    sizes = range(1, 50)
    return next(e for e in sizes if usual_seconds(query, rate * PERIOD, e * cores) <= 0.8 * PERIOD)


class Cluster:
    """The true query on executors that change as told, one window at a time."""

    def __init__(self, query: TrueQuery, rate: float, executors: int, cores: int) -> None:
        self.query, self.rate, self.executors, self.cores = query, rate, executors, cores
        self._next_batch, self._backlog = 0, 0.0

    def observe(self, batches: int = 6) -> ApplicationWindow:
        slots, ran = self.executors * self.cores, []
        for _ in range(batches):
            arrived = self.rate * PERIOD + self._backlog
            size = min(arrived, 2 * self.rate * PERIOD)
            batch = self.query.run(self._next_batch, self._next_batch * PERIOD, size, slots)
            self._backlog = max(0.0, arrived - size + self.rate * (batch.seconds - PERIOD))
            self._next_batch += 1
            ran.append(batch)
        graph = chain(self.query)
        return window(
            query_window(graph, tuple(ran), {"flatmap": self.rate}, self._backlog),
            executors=self.executors,
            cores=self.cores,
        )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rate", [120.0, 250.0, 400.0])
@pytest.mark.parametrize("cores", [2, 5])
@pytest.mark.parametrize("start", ["under", "over"])
def test_two_steps_reach_the_optimum_within_one_executor(start, cores, rate, seed):
    stages = tuple(replace(stage, tasks=60, per_task=0.1) for stage in word_count().stages[:2])
    query = replace(word_count(noise=0.08, outliers=0.003, seed=seed), stages=stages)
    optimum = best_executors(query, rate, cores)
    first = max(1, optimum // 3) if start == "under" else 2 * optimum + 1
    cluster, policy = Cluster(query, rate, first, cores), SharedSlots(Ds2Settings())
    path = [first]
    for _ in range(8):
        answer = policy.propose(cluster.observe())
        if isinstance(answer, Scale):
            cluster.executors = answer.parallelism[EXECUTORS]
            path.append(cluster.executors)
    arrived = next(steps for steps, size in enumerate(path) if abs(size - optimum) <= 1)
    assert arrived <= 2
    assert all(abs(size - optimum) <= 1 for size in path[arrived:]), "and stays there"
    assert usual_seconds(query, rate * PERIOD, cluster.executors * cores) < PERIOD, "and keeps up"


def test_a_scale_out_says_what_a_reader_needs():
    query = word_count()
    answer = SharedSlots(Ds2Settings()).propose(window(words(query, 200.0, 5), executors=1))
    assert isinstance(answer, Scale)
    assert answer.parallelism == {EXECUTORS: 2}
    slots = answer.expected.figures["slots_needed"]
    assert answer.reason.startswith(f"needs {slots:.0f} slots for 200 records/s (batch ")
    assert ": holds 5, 2 executors have 10" in answer.reason
    assert answer.exact == {EXECUTORS: slots / 5}
    figures = answer.expected.figures
    assert figures["offered_per_second"] == 200
    assert figures["utilisation_ratio"] == pytest.approx(figures["batch_seconds"] / PERIOD)
    assert figures["utilisation_ratio"] <= 0.8


def test_a_hold_carries_the_prediction_for_what_is_held():
    query = word_count()
    answer = SharedSlots(Ds2Settings()).propose(window(words(query, 200.0, 10)))
    assert isinstance(answer, Hold)
    assert answer.figures["batch_seconds"] == pytest.approx(query.seconds(2000, 10), rel=0.05)
    assert answer.figures["slots_needed"] <= 10
    assert "holds 10" in answer.reason


def test_an_over_provisioned_application_shrinks_to_what_keeps_the_headroom():
    query = word_count()
    answer = SharedSlots(Ds2Settings()).propose(window(words(query, 100.0, 30), executors=6))
    assert isinstance(answer, Scale)
    assert answer.parallelism[EXECUTORS] < 6
    assert answer.expected.figures["utilisation_ratio"] <= 0.8


def test_a_backlog_asks_for_more_than_the_rate():
    query, policy = word_count(), SharedSlots(Ds2Settings(catch_up_seconds=60))
    calm = policy.propose(window(words(query, 100.0, 10)))
    behind = SharedSlots(Ds2Settings(catch_up_seconds=60)).propose(
        window(words(query, 100.0, 10, backlog=12000))
    )
    assert isinstance(calm, Scale | Hold)
    assert isinstance(behind, Scale)
    assert behind.parallelism[EXECUTORS] > 2
    assert "a backlog of 12,000 records" in behind.reason


def test_too_few_tasks_are_named_and_not_scaled_for():
    stages = (TrueStage("scan", 40, 0.0, 0.001), TrueStage("narrow", 4, 0.0, 0.02))
    query = TrueQuery(stages)
    batches = query.runs((1000.0, 2000.0, 1500.0, 3000.0), 10)
    answer = SharedSlots(Ds2Settings()).propose(window(query_window(chain(query), batches, {"scan": 250.0})))
    assert isinstance(answer, Hold | Scale)
    assert "more executors would not help narrow: it has 4 tasks; more partitions would" in answer.reason
    if isinstance(answer, Scale):
        assert answer.parallelism[EXECUTORS] < 8, "40 slots would shorten the scan by a moment"


def test_a_fixed_cost_that_fills_the_period_is_named():
    query = TrueQuery((TrueStage("state", 10, 12.0, 0.001),))
    batches = query.runs((1000.0, 2000.0, 1500.0, 3000.0), 10)
    answer = SharedSlots(Ds2Settings()).propose(window(query_window(chain(query), batches, {"state": 100.0})))
    assert isinstance(answer, Hold)
    assert "more executors would not help state: each of its tasks takes 1" in answer.reason


def test_a_serial_part_that_fills_the_period_is_named():
    query = TrueQuery((TrueStage("a", 10, 0.1, 0.001),), per_batch=15.0)
    batches = query.runs((1000.0, 2000.0, 1500.0, 3000.0), 10)
    answer = SharedSlots(Ds2Settings()).propose(window(query_window(chain(query), batches, {"a": 100.0})))
    assert isinstance(answer, Hold | Scale)
    assert "15.0 s of each batch pass outside tasks" in answer.reason


@pytest.mark.parametrize("tagged_in", ["settings", "graph"])
def test_an_unscalable_operator_is_the_bottleneck_and_nothing_grows(tagged_in):
    query = TrueQuery((TrueStage("scan", 40, 0.0, 0.001), TrueStage("sink", 40, 0.0, 0.05)))
    operators = [Operator("scan"), Operator("sink", scalable=tagged_in == "settings")]
    graph = LogicalGraph(operators, [("scan", "sink")])
    batches = query.runs((1000.0, 2000.0, 1500.0, 3000.0), 10)
    names = frozenset({"sink"}) if tagged_in == "settings" else frozenset()
    view = window(query_window(graph, batches, {"scan": 400.0}))
    answer = SharedSlots(Ds2Settings(unscalable=names)).propose(view)
    assert isinstance(answer, Hold)
    assert "sink cannot be scaled and is the bottleneck" in answer.reason
    free = SharedSlots(Ds2Settings()).propose(
        replace(view, queries=(replace(view.queries[0], graph=chain(query)),))
    )
    assert isinstance(free, Scale)


def test_allowed_slots_are_not_passed():
    query = word_count()
    answer = SharedSlots(Ds2Settings(max_slots=10)).propose(window(words(query, 2000.0, 10)))
    assert isinstance(answer, Hold)
    assert "no more than 10 slots are allowed" in answer.reason


def test_slots_of_several_queries_add_up():
    query = word_count()
    one = replace(words(query, 150.0, 10), query_id="one", name="one")
    two = replace(words(query, 150.0, 10), query_id="two", name="two")
    alone = SharedSlots(Ds2Settings()).propose(window(one, executors=10))
    both = SharedSlots(Ds2Settings()).propose(window(one, two, executors=10))
    assert isinstance(alone, Scale)
    assert isinstance(both, Scale)
    assert both.expected.figures["slots_needed"] == pytest.approx(
        2 * alone.expected.figures["slots_needed"], abs=4
    )
    assert "one needs" in both.reason
    assert "two needs" in both.reason
    assert "together" in both.reason


def test_a_query_that_cannot_be_judged_lets_nothing_shrink_but_lets_others_grow():
    query = word_count()
    busy, new = words(query, 200.0, 5), replace(words(query, 1.0, 5), query_id="new", name="new", batches=())
    held = SharedSlots(Ds2Settings()).propose(window(busy, new, executors=9))
    assert isinstance(held, NotReady)
    assert held.reason.startswith("new: no batch finished")
    grown = SharedSlots(Ds2Settings()).propose(window(busy, new, executors=1))
    assert isinstance(grown, Scale)
    assert "new is not known yet" in grown.reason


def test_an_idle_query_keeps_what_it_last_needed():
    query, policy = word_count(), SharedSlots(Ds2Settings())
    busy, other = words(query, 200.0, 10), replace(words(query, 200.0, 10), query_id="other", name="other")
    before = policy.propose(window(busy, other, executors=9))
    after = policy.propose(window(busy, replace(other, batches=()), executors=9))
    assert isinstance(before, Scale)
    assert isinstance(after, Scale)
    assert after.parallelism == before.parallelism
    assert "other keeps the" in after.reason


def test_two_sources_feed_one_operator():
    # left 100/s · 2 + right 50/s · 1 = 250 records/s into the join, at 0.01 s each: 2.5 slots of work
    left, right, join = (
        TrueStage("left", 10, 0, 0.001),
        TrueStage("right", 10, 0, 0.001),
        TrueStage("join", 10, 0, 0.01),
    )
    batches = []
    for number, factor in enumerate((0.5, 1.0, 1.5, 2.0)):
        parts = [
            TrueQuery((replace(left, selectivity=2.0),)).run(number, number * 10.0, 1000 * factor, 5),
            TrueQuery((right,)).run(number, number * 10.0, 500 * factor, 5),
            TrueQuery((join,)).run(number, number * 10.0, 2500 * factor, 5),
        ]
        stages = tuple(part.stages[0] for part in parts)
        seconds = 0.3 + sum(stage.wall_seconds for stage in stages)
        batches.append(BatchExecution(number, number * 10.0, seconds, 5, 1500 * factor, stages))
    graph = LogicalGraph(["left", "right", "join"], [("left", "join"), ("right", "join")])
    view = query_window(graph, tuple(batches), {"left": 100.0, "right": 50.0})
    answer = SharedSlots(Ds2Settings()).propose(window(view, executors=1))
    assert isinstance(answer, Hold)
    # on five slots: (1 + 0.5) / 5 for the scans, 25 / 5 for the join
    assert answer.figures["batch_seconds"] == pytest.approx(0.3 + 0.3 + 5.0, rel=0.03)
    assert answer.figures["offered_per_second"] == 150


def test_without_a_trigger_the_latency_target_sets_the_period():
    query = word_count()
    view = replace(words(query, 100.0, 10), period_seconds=None)
    default = SharedSlots(Ds2Settings(default_period_seconds=20)).propose(window(view))
    target = SharedSlots(Ds2Settings(latency_target_seconds=16)).propose(window(view))
    for answer, period in ((default, 20.0), (target, 8.0)):
        assert isinstance(answer, Hold | Scale)
        figures = answer.figures if isinstance(answer, Hold) else answer.expected.figures
        assert figures["period_seconds"] == period


def test_equal_batches_still_give_the_plain_ds2_answer():
    query = TrueQuery((TrueStage("a", 40, 0.0, 0.01),), per_batch=0.0)
    batches = query.runs((2000.0,) * 5, 10)
    answer = SharedSlots(Ds2Settings()).propose(window(query_window(chain(query), batches, {"a": 400.0})))
    assert isinstance(answer, Hold | Scale)
    figures = answer.figures if isinstance(answer, Hold) else answer.expected.figures
    # 0.01 s · 400/s = 4 slots of work, 5 with headroom
    assert figures["slots_needed"] == 5


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
    answer = SharedSlots(Ds2Settings()).propose(window(view))
    assert isinstance(answer, NotReady)
    assert reason in answer.reason


def test_batches_without_records_are_idle():
    answer = SharedSlots(Ds2Settings()).propose(window(words(word_count(), 10.0, 10, sizes=(0.0, 0.0))))
    assert answer == NotReady("idle: no records in the window", "records")


def test_records_that_the_source_stage_does_not_count_are_not_ready():
    view = words(word_count(), 10.0, 10)
    silent = tuple(
        replace(batch, stages=(replace(batch.stages[0], records_in=np.zeros(15)), *batch.stages[1:]))
        for batch in view.batches
    )
    answer = SharedSlots(Ds2Settings()).propose(window(replace(view, batches=silent)))
    assert isinstance(answer, NotReady)
    assert "report no records" in answer.reason


def test_an_operator_that_never_ran_is_not_ready():
    view = words(word_count(), 10.0, 10)
    graph = LogicalGraph(
        ["flatmap", "count", "state", "sink"], [("flatmap", "count"), ("count", "state"), ("state", "sink")]
    )
    answer = SharedSlots(Ds2Settings()).propose(window(replace(view, graph=graph)))
    assert isinstance(answer, NotReady)
    assert "sink has not run" in answer.reason


def test_an_operator_that_the_graph_does_not_know_is_not_ready():
    view = words(word_count(), 10.0, 10)
    answer = SharedSlots(Ds2Settings()).propose(
        window(replace(view, graph=LogicalGraph(["flatmap", "count"], [("flatmap", "count")])))
    )
    assert isinstance(answer, NotReady)
    assert "state has run but is not in the graph" in answer.reason


def test_broken_metrics_are_not_ready():
    view = words(word_count(), 10.0, 10)
    broken = tuple(replace(batch, seconds=math.nan) for batch in view.batches)
    answer = SharedSlots(Ds2Settings()).propose(window(replace(view, batches=broken)))
    assert isinstance(answer, NotReady)
    assert "usable metrics" in answer.reason


def test_no_query_and_no_executors_are_not_ready():
    policy, view = SharedSlots(Ds2Settings()), words(word_count(), 10.0, 10)
    assert policy.propose(window()) == NotReady("no streaming query is active", "a streaming query")
    answer = policy.propose(replace(window(view), executors=()))
    assert answer == NotReady("the application has no executors", "an executor")


def test_a_low_rate_is_no_idle_application():
    answer = SharedSlots(Ds2Settings()).propose(window(words(word_count(), 0.5, 10)))
    assert isinstance(answer, Scale)
    assert answer.parallelism[EXECUTORS] == 1
    assert "for 0.5 records/s" in answer.reason


def test_nothing_is_released_while_a_quiet_source_has_a_backlog():
    view = words(word_count(), 100.0, 30)
    quiet = replace(view, sources={"flatmap": SourceRate(0.0, 100.0, 500.0)})
    answer = SharedSlots(Ds2Settings()).propose(window(quiet, executors=6))
    assert isinstance(answer, Hold)
    assert "nothing is offered now" in answer.reason


def test_an_unknown_backlog_counts_as_none():
    view = words(word_count(), 200.0, 10)
    unknown = replace(view, sources={"flatmap": SourceRate(200.0, 200.0, math.nan)})
    policy = SharedSlots(Ds2Settings())
    assert policy.propose(window(unknown)) == SharedSlots(Ds2Settings()).propose(window(view))


def test_memory_of_queries_is_bounded():
    policy, view = SharedSlots(Ds2Settings()), words(word_count(), 200.0, 10)
    for number in range(100):
        policy.propose(window(replace(view, query_id=str(number))))
    assert len(policy._learned) == 64


def test_a_new_plan_is_learned_afresh():
    policy, query = SharedSlots(Ds2Settings()), word_count()
    policy.propose(window(words(query, 200.0, 10)))
    other = TrueQuery((TrueStage("scan", 20, 0.1, 0.001),))
    view = query_window(chain(other), other.runs((500.0, 1000.0, 1500.0), 10), {"scan": 100.0})
    assert isinstance(policy.propose(window(view)), Scale | Hold)


@settings(max_examples=50, deadline=None)
@given(st.floats(1, 2000), st.integers(1, 8), st.integers(1, 8), st.floats(0, 1e6), st.integers(0, 99))
def test_any_load_gives_a_sane_answer(rate, executors, cores, backlog, seed):
    query = word_count(noise=0.1, outliers=0.02, seed=seed)
    view = window(words(query, rate, executors * cores, backlog), executors=executors, cores=cores)
    answer = SharedSlots(Ds2Settings()).propose(view)
    assert isinstance(answer, Hold | Scale)
    figures = answer.figures if isinstance(answer, Hold) else answer.expected.figures
    assert all(math.isfinite(value) and value >= 0 for value in figures.values())
    if isinstance(answer, Scale):
        assert answer.parallelism[EXECUTORS] >= 1
        assert answer.parallelism[EXECUTORS] * cores <= 15 + cores - 1, "no stage has more than 15 tasks"


def test_batches_during_a_change_of_executors_are_not_believed():
    query = words(word_count(), 60.0, 10)
    unsettled = replace(query, batches=tuple(replace(batch, settled=False) for batch in query.batches))
    answer = SharedSlots(Ds2Settings()).propose(window(unsettled))
    assert isinstance(answer, NotReady)
    assert "executors came or went" in answer.reason


def test_one_settled_batch_is_enough_and_alone_counts():
    query = words(word_count(), 60.0, 10)
    first, *rest = query.batches
    wild = replace(first, batch_id=999, seconds=first.seconds * 50, settled=False)
    mixed = replace(query, batches=(*rest, wild))
    assert SharedSlots(Ds2Settings()).propose(window(mixed)) == SharedSlots(Ds2Settings()).propose(
        window(replace(query, batches=tuple(rest)))
    )
