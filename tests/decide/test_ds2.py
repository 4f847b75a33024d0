from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import InstanceMetrics, MetricWindow
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, Execution, QueryWindow, SourceRate
from penstock.decide.ds2 import Ds2Policy
from penstock.decide.ds2_settings import Ds2Settings
from penstock.decide.policy import Hold, Policy, Scale
from penstock.errors import BadSettings

PLAIN = Ds2Settings(utilisation=1.0)
GRAPH = LogicalGraph(["source", "flatmap", "count"], [("source", "flatmap"), ("flatmap", "count")])
SECONDS = 60.0

# Records a minute and instance: the word count of section 5.2.
SPLIT, WORDS, COUNT = 100_000, 20, 1_000_000


def query(splitters, counters, offered=1_000_000, observed=None, backlog=0.0, graph=GRAPH, name="words"):
    """One minute in which every operator was busy for half of the time."""
    rows = [InstanceMetrics("source", "0", 0, offered, 30.0)]
    rows += [InstanceMetrics("flatmap", str(n), SPLIT / 2, SPLIT * WORDS / 2, 30.0) for n in range(splitters)]
    rows += [InstanceMetrics("count", str(n), COUNT / 2, 0, 30.0) for n in range(counters)]
    sources = {"source": SourceRate(offered / 60, (observed or offered) / 60, backlog)}
    return QueryWindow(name, name, graph, MetricWindow.of(graph, 0, SECONDS, rows), sources)


def window(*queries, **held):
    parallelism = {"source": 1, **held}
    return ApplicationWindow("app", 0, SECONDS, Execution.PER_OPERATOR, parallelism, queries)


def propose(splitters, counters, settings=PLAIN, **figures):
    asked = window(query(splitters, counters, **figures), flatmap=splitters, count=counters)
    return Ds2Policy(settings).propose(asked)


def test_it_is_a_policy():
    policy: Policy = Ds2Policy(PLAIN)
    assert policy.name == "ds2"


@pytest.mark.parametrize(("splitters", "counters"), [(1, 1), (5, 40), (22, 30)])
def test_the_word_count_is_sized_in_one_step_from_any_start(splitters, counters):
    answer = propose(splitters, counters)
    assert isinstance(answer, Scale)
    assert answer.parallelism == {"source": 1, "flatmap": 10, "count": 20}
    assert answer.exact == pytest.approx({"source": 1, "flatmap": 10, "count": 20})


def test_the_reason_names_what_changes_and_nothing_else():
    answer = propose(4, 20)
    assert isinstance(answer, Scale)
    assert "flatmap 4 → 10" in answer.reason
    assert "count" not in answer.reason
    assert "source" not in answer.reason


def test_a_long_reason_is_cut_and_counted():
    names = [f"step-{number}" for number in range(12)]
    graph = LogicalGraph(["source", *names], [("source", name) for name in names])
    rows = [InstanceMetrics("source", "0", 0, 10, 1.0)]
    rows += [InstanceMetrics(name, "0", 10, 0, 1.0) for name in names]
    metrics = MetricWindow.of(graph, 0, SECONDS, rows)
    wide = QueryWindow("q", "q", graph, metrics, {"source": SourceRate(20, 20)})
    answer = Ds2Policy(PLAIN).propose(window(wide, **dict.fromkeys(names, 1)))
    assert isinstance(answer, Scale)
    assert answer.reason.endswith("step-7 1 → 2 and 4 more")


def test_the_expected_effect_can_be_compared_later():
    answer = propose(1, 1)
    assert isinstance(answer, Scale)
    assert answer.expected.summary == "every source is read at its offered rate"
    assert answer.expected.figures == pytest.approx(
        {
            "offered_per_second": 1_000_000 / 60,
            "observed_per_second": 1_000_000 / 60,
            "fullest_operator_ratio": 1.0,
            "instances": 31.0,
        }
    )


def test_the_right_size_is_held():
    answer = propose(10, 20)
    assert isinstance(answer, Hold)
    assert answer.figures["fullest_operator_ratio"] == pytest.approx(1.0)


def test_utilisation_leaves_headroom():
    answer = propose(10, 20, dataclasses.replace(PLAIN, utilisation=0.8))
    assert isinstance(answer, Scale)
    # 10 / 0.8 = 12.5 and 20 / 0.8 = 25
    assert answer.parallelism == {"source": 1, "flatmap": 13, "count": 25}


def test_a_backlog_is_read_within_the_catch_up_time():
    # 1M records in 600 s is 100K a minute more: 11 and 22.
    answer = propose(10, 20, backlog=1_000_000)
    assert isinstance(answer, Scale)
    assert answer.parallelism == {"source": 1, "flatmap": 11, "count": 22}


class TestTargetRateRatio:
    def test_off_by_default(self):
        assert isinstance(propose(10, 20, observed=400_000), Hold)

    def test_a_shortfall_that_the_model_does_not_explain_scales_by_the_ratio(self):
        settings = dataclasses.replace(PLAIN, target_rate_ratio=1.5)
        answer = propose(10, 20, settings, observed=500_000)
        assert isinstance(answer, Scale)
        assert answer.parallelism == {"source": 1, "flatmap": 20, "count": 40}

    def test_a_shortfall_within_the_ratio_is_accepted(self):
        settings = dataclasses.replace(PLAIN, target_rate_ratio=2.0)
        assert isinstance(propose(10, 20, settings, observed=500_000), Hold)

    def test_a_scale_up_explains_the_shortfall(self):
        settings = dataclasses.replace(PLAIN, target_rate_ratio=1.5)
        answer = propose(5, 20, settings, observed=500_000)
        assert isinstance(answer, Scale)
        assert answer.parallelism == {"source": 1, "flatmap": 10, "count": 20}


class TestUnscalable:
    def test_the_bottleneck_is_named_and_the_rest_sized_for_what_it_takes(self):
        # flatmap stays at 4 instances, so 40 % of the sentences pass: 8M words need 8 counters.
        answer = propose(4, 1, dataclasses.replace(PLAIN, unscalable=frozenset({"flatmap"})))
        assert isinstance(answer, Scale)
        assert answer.parallelism == {"source": 1, "flatmap": 4, "count": 8}
        assert "bottleneck: flatmap cannot be scaled and takes 40% of its target" in answer.reason
        assert answer.expected.figures["observed_per_second"] == pytest.approx(400_000 / 60)

    def test_a_tag_of_the_graph_counts_as_well(self):
        tagged = LogicalGraph(["source", Operator("flatmap", scalable=False), "count"], GRAPH.edges)
        answer = propose(4, 8, graph=tagged)
        assert isinstance(answer, Hold)
        assert "bottleneck: flatmap" in answer.reason

    def test_what_only_feeds_the_bottleneck_is_not_scaled_for_nothing(self):
        # count stays at 4 instances, 20 % of the words: FlatMap needs 2, not 10.
        answer = propose(2, 4, dataclasses.replace(PLAIN, unscalable=frozenset({"count"})))
        assert isinstance(answer, Hold)
        assert "bottleneck: count" in answer.reason

    def test_one_that_keeps_up_is_left_alone(self):
        answer = propose(12, 1, dataclasses.replace(PLAIN, unscalable=frozenset({"flatmap"})))
        assert isinstance(answer, Scale)
        assert answer.parallelism == {"source": 1, "flatmap": 12, "count": 20}
        assert "bottleneck" not in answer.reason


class TestNotReady:
    def test_without_a_query(self):
        answer = Ds2Policy(PLAIN).propose(window())
        assert isinstance(answer, NotReady)
        assert "no query" in answer.reason

    def test_with_an_instance_that_did_not_report(self):
        answer = Ds2Policy(PLAIN).propose(window(query(3, 2), flatmap=4, count=2))
        assert isinstance(answer, NotReady)
        assert "3 instances of 'flatmap' reported, 4 are expected" in answer.reason

    def test_with_an_operator_of_which_nothing_is_held(self):
        answer = Ds2Policy(PLAIN).propose(window(query(3, 2), flatmap=3))
        assert isinstance(answer, NotReady)
        assert "no instance of 'count' is held" in answer.reason

    def test_with_an_idle_operator(self):
        asked = query(1, 1)
        idle = dataclasses.replace(asked.metrics, records_in=asked.metrics.records_in * 0)
        answer = Ds2Policy(PLAIN).propose(
            window(dataclasses.replace(asked, metrics=idle), flatmap=1, count=1)
        )
        assert isinstance(answer, NotReady)
        assert "'flatmap' was idle" in answer.reason

    def test_without_an_offered_rate(self):
        asked = dataclasses.replace(query(1, 1), sources={})
        answer = Ds2Policy(PLAIN).propose(window(asked, flatmap=1, count=1))
        assert isinstance(answer, NotReady)
        assert "offered rate of source 'source' is unknown" in answer.reason

    def test_with_rates_beyond_all_measure(self):
        asked = dataclasses.replace(query(1, 1), sources={"source": SourceRate(1e308, 1.0)})
        answer = Ds2Policy(PLAIN).propose(window(asked, flatmap=1, count=1))
        assert isinstance(answer, NotReady)
        assert "too large" in answer.reason

    @pytest.mark.parametrize("impossible", [math.nan, math.inf, -1.0])
    @pytest.mark.parametrize("key", ["offered_per_second", "backlog_records"])
    def test_with_an_impossible_reading_of_the_source(self, key, impossible):
        reading = dataclasses.replace(SourceRate(1.0, 1.0), **{key: impossible})
        asked = dataclasses.replace(query(1, 1), sources={"source": reading})
        answer = Ds2Policy(PLAIN).propose(window(asked, flatmap=1, count=1))
        assert isinstance(answer, NotReady)
        assert "source 'source' cannot be right" in answer.reason

    def test_with_two_operators_of_one_name(self):
        asked = window(query(1, 1), query(1, 1, name="again"), flatmap=1, count=1)
        answer = Ds2Policy(PLAIN).propose(asked)
        assert isinstance(answer, NotReady)
        assert "belongs to two queries" in answer.reason


def test_several_queries_are_sized_together():
    graph = LogicalGraph(["clicks", "clean"], [("clicks", "clean")])
    rows = [InstanceMetrics("clicks", "0", 0, 10, 1.0), InstanceMetrics("clean", "0", 10, 10, 1.0)]
    metrics = MetricWindow.of(graph, 0, SECONDS, rows)
    clicks = QueryWindow("clicks", "clicks", graph, metrics, {"clicks": SourceRate(30, 10)})
    answer = Ds2Policy(PLAIN).propose(window(query(10, 20), clicks, flatmap=10, count=20, clicks=1, clean=1))
    assert isinstance(answer, Scale)
    assert answer.parallelism == {"source": 1, "flatmap": 10, "count": 20, "clicks": 1, "clean": 3}
    assert "clean 1 → 3" in answer.reason


def test_shared_slots_are_left_to_their_own_rule():
    asked = dataclasses.replace(window(), execution=Execution.SHARED_SLOTS)
    assert isinstance(Ds2Policy(PLAIN).propose(asked), NotReady)


@given(
    splitters=st.integers(1, 60),
    counters=st.integers(1, 60),
    offered=st.floats(1_000, 5_000_000),
    utilisation=st.floats(0.3, 1.0),
)
def test_one_step_then_hold(splitters, counters, offered, utilisation):
    settings = dataclasses.replace(PLAIN, utilisation=utilisation)
    answer = propose(splitters, counters, settings, offered=offered)
    if isinstance(answer, Scale):
        size = answer.parallelism
        assert isinstance(propose(size["flatmap"], size["count"], settings, offered=offered), Hold)
        assert size["flatmap"] * SPLIT * utilisation >= offered * (1 - 1e-8)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("utilisation", 0.0),
        ("utilisation", 1.1),
        ("utilisation", math.nan),
        ("catch_up_seconds", 0.0),
        ("default_period_seconds", -1.0),
        ("latency_target_seconds", 0.0),
        ("max_slots", 0),
        ("target_rate_ratio", 0.9),
    ],
)
def test_settings_out_of_range_are_named(key, value):
    with pytest.raises(BadSettings, match=key):
        Ds2Settings(**{key: value})
