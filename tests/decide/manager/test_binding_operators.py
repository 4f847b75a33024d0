"""Where a target is missed, what binds is corrected: saturated operators, neither idle nor uneven ones."""

from __future__ import annotations

from itertools import pairwise

import pytest

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import InstanceMetrics, MetricWindow
from penstock.dataflow.window import OperatorQuery, OperatorWindow, SourceRate, TopicRate
from penstock.decide.manager.manager import Accepted, NothingToDo, Rejected, ScalingManager
from penstock.decide.policy import Hold
from tests.decide.manager_run import EAGER
from tests.decide.situations import INTERVAL, hold, scale

HOT = [1.0, 0.1, 0.1, 0.1]
EVEN = [0.3] * 4


def query(now, name="q", topics=None, fixed=(), read=0.5, **busy):
    """A chain of operators, each with a share of useful time for each instance; half of 1,000 is read."""
    names = ["source", *busy]
    graph = LogicalGraph([Operator(one, one not in fixed) for one in names], pairwise(names))
    rows = [InstanceMetrics("source", "0", 0, 10, 0.1)]
    rows += [
        InstanceMetrics(one, str(number), 1000 * share, 1000 * share, share * INTERVAL)
        for one, shares in busy.items()
        for number, share in enumerate(shares)
    ]
    waiting = (1 - read) * 1000.0 * now
    sources = {"source": SourceRate(1000.0, read * 1000.0, waiting)}
    metrics = MetricWindow.of(graph, now - INTERVAL, now, rows)
    inner = {
        one: TopicRate(1000.0, share * 1000.0, (1 - share) * 1000.0 * now)
        for one, share in (topics or {}).items()
    }
    return OperatorQuery(name, name, graph, sources, metrics, inner)


def decide(*queries, answer=None, **settings):
    """Two windows, in which the backlog grows; each query is a function of the time."""
    manager = ScalingManager(EAGER.change(activation_intervals=2, **settings))
    for now in (INTERVAL, 2 * INTERVAL):
        made = tuple(one(now) for one in queries)
        rows = [(made_one.graph.names, made_one.metrics.operator.tolist()) for made_one in made]
        held = {name: numbers.count(n) for names, numbers in rows for n, name in enumerate(names)}
        verdict = manager.judge(now, OperatorWindow("app", now - INTERVAL, now, held, made), answer or hold())
    return verdict


def sizes(verdict):
    assert isinstance(verdict, Accepted), verdict
    return {name: count for name, count in verdict.action.parallelism.items() if name != "source"}


def test_operators_that_are_saturated_are_corrected_and_others_not():
    verdict = decide(lambda now: query(now, split=[0.9] * 4, sort=[0.7] * 4, store=[0.2] * 4))
    assert sizes(verdict) == {"split": 8, "sort": 4, "store": 4}
    assert "offered is 2.00 times observed" in verdict.action.reason


def test_where_no_operator_seems_saturated_the_busiest_are_corrected():
    # costs are missed: at twice the rate sort would work as long as split does now, store would not
    verdict = decide(lambda now: query(now, split=[0.6] * 4, sort=[0.3] * 4, store=[0.29] * 4))
    assert sizes(verdict) == {"split": 8, "sort": 8, "store": 4}


def test_an_operator_with_a_hot_instance_is_named_and_not_corrected():
    verdict = decide(lambda now: query(now, split=HOT, sort=EVEN))
    assert isinstance(verdict, NothingToDo)
    assert "split: 1 of 4 instances is busy 100% of the time, the median 10%" in verdict.reason
    assert "a key is hot" in verdict.reason


def test_a_slow_instance_is_not_called_a_hot_key():
    made = query(INTERVAL, split=HOT)
    slow = MetricWindow.of(
        made.graph,
        0,
        INTERVAL,
        [
            InstanceMetrics("source", "0", 0, 10, 0.1),
            *(InstanceMetrics("split", str(n), 100, 100, share * INTERVAL) for n, share in enumerate(HOT)),
        ],
    )

    def with_a_slow_instance(now):
        made = query(now, split=HOT)
        return OperatorQuery("q", "q", made.graph, made.sources, slow)

    assert "(being slow)" in decide(with_a_slow_instance).reason


def test_what_would_be_hot_at_the_offered_rate_is_not_corrected_either():
    verdict = decide(lambda now: query(now, split=[0.6, 0.1, 0.1, 0.1], sort=EVEN))
    assert isinstance(verdict, NothingToDo)
    assert "split: 1 of 4 instances is busy 60% of the time" in verdict.reason


def test_beside_a_hot_instance_a_saturated_operator_is_corrected():
    verdict = decide(lambda now: query(now, split=HOT, sort=[0.95] * 4))
    assert sizes(verdict) == {"split": 4, "sort": 8}
    assert any("split: 1 of 4 instances" in note for note in verdict.notes)


def test_a_rejection_names_the_hot_instance_too():
    fewer = scale({"source": 1, "split": 3, "sort": 4})
    verdict = decide(lambda now: query(now, split=HOT, sort=EVEN), answer=fewer)
    assert isinstance(verdict, Rejected) and verdict.guardrail == "falling-behind"
    assert "split: 1 of 4 instances" in verdict.reason


def test_what_the_policy_has_said_of_a_hot_instance_is_not_repeated():
    text = "split: 1 of 4 instances is busy 99% of the time, the median 11%"
    said = Hold(f"{text} (with more records: a key is hot, or partitions are uneven); "
                "more instances would not help")  # fmt: skip
    verdict = decide(lambda now: query(now, split=HOT, sort=EVEN), answer=said)
    assert verdict == NothingToDo(said.reason)


def test_an_operator_with_a_topic_of_its_own_is_corrected_by_what_it_reads_of_it():
    # sort reads a third of what comes, split all of it, however busy it is
    verdict = decide(
        lambda now: query(now, topics={"split": 1.0, "sort": 1 / 3}, read=1.0, split=[1.0] * 4, sort=EVEN)
    )
    assert sizes(verdict) == {"split": 4, "sort": 12}


def test_a_topic_whose_reader_has_a_hot_instance_asks_for_nothing():
    verdict = decide(lambda now: query(now, topics={"split": 1.0, "sort": 0.5}, split=EVEN, sort=HOT))
    assert isinstance(verdict, NothingToDo)


def test_a_query_that_keeps_up_is_left_alone():
    def behind(now):
        return query(now, split=[0.9] * 4)

    def keeping_up(now):
        made = query(now, name="other", read=1.0, sort=[0.9] * 4)
        graph = LogicalGraph(["clicks", "sort"], [("clicks", "sort")])
        return OperatorQuery("other", "other", graph, {"clicks": made.sources["source"]}, made.metrics)

    assert sizes(decide(behind, keeping_up)) == {"split": 8, "clicks": 1, "sort": 4}


def test_nothing_is_corrected_where_an_operator_that_cannot_be_scaled_binds():
    verdict = decide(lambda now: query(now, fixed=("sort",), split=EVEN, sort=[0.95] * 4))
    assert isinstance(verdict, NothingToDo)


@pytest.mark.parametrize(("ratio", "corrected"), [(1.0, True), (1.9, True), (2.0, False), (100.0, False)])
def test_a_ratio_of_one_is_the_strictest(ratio, corrected):
    verdict = decide(lambda now: query(now, split=[0.9] * 4), target_rate_ratio=ratio)
    assert isinstance(verdict, Accepted) == corrected
