"""What every policy of the registry keeps: pure, never raising, only what is held, and always a reason."""

from __future__ import annotations

import dataclasses
import math
import re
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import BatchExecution, InstanceMetrics, MetricWindow
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import (
    EXECUTORS,
    ExecutorState,
    SlotQuery,
    SlotWindow,
    SourceRate,
    TopicRate,
)
from penstock.decide.manager.proposals import object_to_proposal
from penstock.decide.policy import Hold, Policy, Scale
from penstock.decide.registry import POLICIES
from penstock.settings.model import Settings
from tests.dataflow.synthetic_batches import word_count
from tests.decide.pipelines import Pipeline

every_policy = pytest.mark.parametrize("name", sorted(POLICIES))
LOOK_AT_BATCHES_ALONE = {"dynamic-allocation", "trigger-interval"}
SETTINGS = [Settings(), Settings(latency_target=2.0), Settings(latency_target=0.01, max_executors=4)]


def on_operators(offered=50.0, backlog=0.0, held=1):
    pipeline = Pipeline({"parse": 40.0, "count": 30.0}, {"parse": held, "count": held}, backlog=backlog)
    return pipeline.run(offered)


def on_slots(rate=100.0, backlog=0.0, executors=2):
    query = word_count()
    names = [stage.operator for stage in query.stages]
    batches = query.runs([rate * 10 * factor for factor in (0.8, 1.0, 1.2, 1.1)], 5 * executors)
    window = SlotQuery(
        query_id="q",
        name="words",
        graph=LogicalGraph(names, pairwise(names)),
        sources={"flatmap": SourceRate(rate, rate, backlog)},
        batches=batches,
        period_seconds=10.0,
        latency_seconds=12.0,
    )
    states = tuple(ExecutorState(str(number), "host", 5) for number in range(executors))
    held = {EXECUTORS: executors}
    return SlotWindow("app", 0.0, 40.0, held, (window,), executors=states, slots_per_executor=5)


def stories(window_of):
    return [
        window_of(*story) for story in ((10.0,), (300.0,), (300.0, 5000.0), (10.0, 0.0, 4), (0.0, 0.0, 2))
    ]


def with_query(window, **changes):
    return dataclasses.replace(window, queries=(dataclasses.replace(window.queries[0], **changes),))


def with_sources(window, reading):
    return with_query(window, sources=dict.fromkeys(window.queries[0].sources, reading))


def hostile_batches(window):
    broken = BatchExecution(7, 0.0, math.nan, 4, math.nan, ())
    unsettled = tuple(dataclasses.replace(one, settled=False) for one in window.queries[0].batches)
    for bad in (math.nan, math.inf, -1.0):
        yield with_query(window, period_seconds=bad)
    for batches in ((), (broken,), unsettled):
        yield with_query(window, batches=batches)


def hostile_metrics(window):
    graph = window.queries[0].graph
    idle = [InstanceMetrics(o.name, "0", 0.0, 0.0, 0.0) for o in graph.operators]
    untimed = [InstanceMetrics(o.name, "0", 10.0, 10.0, 0.0) for o in graph.operators]
    for rows in ([], idle, untimed):
        yield with_query(window, metrics=MetricWindow.of(graph, 0.0, 10.0, rows))
    for bad in (math.nan, math.inf, -1.0):
        yield with_query(window, topics={graph.names[-1]: TopicRate(bad, bad, bad, bad)})
    yield with_query(window, topics={"nobody": TopicRate(1.0, 1.0, 1.0, 1.0)})


def hostile(window):
    """The window with everything wrong that can be, one thing at a time."""
    query = window.queries[0]
    fixed = LogicalGraph([Operator(o.name, scalable=False) for o in query.graph.operators], query.graph.edges)
    for bad in (math.nan, math.inf, -1.0):
        yield with_sources(window, SourceRate(bad, bad, bad))
        yield with_sources(window, SourceRate(10.0, bad, 0.0))
        yield with_sources(window, SourceRate(10.0, 10.0, bad))
        yield with_query(window, latency_seconds=bad)
    yield with_sources(window, SourceRate(1e308, 1.0, 1e308))
    yield with_sources(window, SourceRate(0.0, 0.0, 0.0))
    yield with_query(window, sources={})
    yield with_query(window, sources={"nobody": SourceRate(1.0, 1.0)})
    yield with_query(window, graph=fixed)
    yield from hostile_batches(window) if isinstance(window, SlotWindow) else hostile_metrics(window)
    yield dataclasses.replace(window, queries=())
    yield dataclasses.replace(window, queries=(query, query))
    yield dataclasses.replace(window, executors=())
    yield dataclasses.replace(window, parallelism={})
    yield dataclasses.replace(window, parallelism={"nobody": 3})
    yield dataclasses.replace(window, parallelism=dict.fromkeys(window.parallelism, 0))
    yield dataclasses.replace(window, parallelism={**window.parallelism, "nobody": 3})
    yield dataclasses.replace(window, slots_per_executor=0)
    yield dataclasses.replace(window, start=window.end)


def check(answer, window):
    """What holds of every answer."""
    assert isinstance(answer, NotReady | Hold | Scale)
    assert answer.reason.strip()
    if isinstance(answer, Hold | Scale):
        assert not re.search(r"\b(nan|inf)\b", answer.reason), answer.reason
        figures = answer.figures if isinstance(answer, Hold) else answer.expected.figures
        assert all(math.isfinite(value) for value in figures.values()), figures
    if isinstance(answer, Scale):
        assert set(answer.parallelism) <= set(window.parallelism)
        assert all(isinstance(size, int) and size >= 1 for size in answer.parallelism.values())
        assert any(size != window.parallelism[unit] for unit, size in answer.parallelism.items())
        assert answer.expected.summary
        assert object_to_proposal(answer, window.parallelism) is None


@every_policy
@pytest.mark.parametrize("window_of", [on_operators, on_slots])
@pytest.mark.parametrize("given_settings", SETTINGS)
class TestEveryPolicy:
    def test_answers_are_well_formed(self, name, window_of, given_settings):
        policy = POLICIES[name].make(given_settings)
        for window in stories(window_of):
            check(policy.propose(window), window)

    def test_the_same_windows_give_the_same_answers(self, name, window_of, given_settings):
        windows = stories(window_of)
        one, other = (POLICIES[name].make(given_settings) for _ in range(2))
        assert [one.propose(w) for w in windows] == [other.propose(w) for w in windows]

    def test_hostile_windows_never_raise_and_never_change_anything_blindly(
        self, name, window_of, given_settings
    ):
        for window in hostile(window_of()):
            check(POLICIES[name].make(given_settings).propose(window), window)

    def test_a_hostile_window_does_not_spoil_the_next(self, name, window_of, given_settings):
        policy = POLICIES[name].make(given_settings)
        for window in hostile(window_of()):
            policy.propose(window)
        after = window_of(30.0)
        check(policy.propose(after), after)

    def test_an_unknown_offered_rate_is_no_ground_for_a_change(self, name, window_of, given_settings):
        window = with_sources(window_of(), SourceRate(math.nan, math.nan, math.nan))
        answer = POLICIES[name].make(given_settings).propose(window)
        assert name in LOOK_AT_BATCHES_ALONE or not isinstance(answer, Scale)


@every_policy
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=30, deadline=None)
@given(
    offered=st.floats(0, 1e6),
    backlog=st.floats(0, 1e9),
    held=st.integers(1, 12),
    target=st.one_of(st.none(), st.floats(0.01, 100)),
)
def test_any_load_gives_a_well_formed_answer(name, offered, backlog, held, target):
    policy = POLICIES[name].make(Settings(latency_target=target))
    window = on_operators(offered, backlog, held)
    check(policy.propose(window), window)


@every_policy
def test_the_registry_says_when_to_choose_it(name):
    entry = POLICIES[name]
    for text in (entry.summary, entry.needs, entry.promises, entry.choose_when):
        assert text
        assert not text.endswith(".")


@every_policy
def test_it_is_a_policy_of_its_own_name(name):
    policy: Policy = POLICIES[name].make(Settings())
    assert policy.name == name
