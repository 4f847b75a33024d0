from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import InstanceMetrics, MetricWindow
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import (
    EXECUTORS,
    OperatorQuery,
    OperatorWindow,
    SlotWindow,
    SourceRate,
    TopicRate,
)
from penstock.decide.ds2.policy import Ds2Policy
from penstock.decide.goals import Goals
from penstock.decide.policy import Hold, Scale

PLAIN = Goals(utilisation=1.0)
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
    return OperatorQuery(name, name, graph, sources, MetricWindow.of(graph, 0, SECONDS, rows))


def window(*queries, **held):
    parallelism = {"source": 1, **held}
    return OperatorWindow("app", 0, SECONDS, parallelism, queries)


def propose(splitters, counters, goals=PLAIN, **figures):
    asked = window(query(splitters, counters, **figures), flatmap=splitters, count=counters)
    return Ds2Policy(goals).propose(asked)


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
    wide = OperatorQuery("q", "q", graph, {"source": SourceRate(20, 20)}, metrics)
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
    answer = propose(10, 20, PLAIN.change(utilisation=0.8))
    assert isinstance(answer, Scale)
    # 10 / 0.8 = 12.5 and 20 / 0.8 = 25
    assert answer.parallelism == {"source": 1, "flatmap": 13, "count": 25}


def test_a_backlog_is_read_within_the_catch_up_time():
    # 1M records in 600 s is 100K a minute more: 11 and 22.
    answer = propose(10, 20, backlog=1_000_000)
    assert isinstance(answer, Scale)
    assert answer.parallelism == {"source": 1, "flatmap": 11, "count": 22}


def test_a_shortfall_that_the_model_does_not_explain_is_left_to_the_manager():
    assert isinstance(propose(10, 20, observed=400_000), Hold)


class TestUnscalable:
    def test_the_bottleneck_is_named_and_the_rest_sized_for_what_it_takes(self):
        # flatmap stays at 4 instances, so 40 % of the sentences pass: 8M words need 8 counters.
        answer = propose(4, 1, PLAIN.change(unscalable_operators=tuple({"flatmap"})))
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
        answer = propose(2, 4, PLAIN.change(unscalable_operators=tuple({"count"})))
        assert isinstance(answer, Hold)
        assert "bottleneck: count" in answer.reason

    def test_one_that_keeps_up_is_left_alone(self):
        answer = propose(12, 1, PLAIN.change(unscalable_operators=tuple({"flatmap"})))
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
    clicks = OperatorQuery("clicks", "clicks", graph, {"clicks": SourceRate(30, 10)}, metrics)
    answer = Ds2Policy(PLAIN).propose(window(query(10, 20), clicks, flatmap=10, count=20, clicks=1, clean=1))
    assert isinstance(answer, Scale)
    assert answer.parallelism == {"source": 1, "flatmap": 10, "count": 20, "clicks": 1, "clean": 3}
    assert "clean 1 → 3" in answer.reason


def test_shared_slots_are_left_to_their_own_rule():
    asked = SlotWindow("app", 0, SECONDS, {EXECUTORS: 1}, ())
    assert isinstance(Ds2Policy(PLAIN).propose(asked), NotReady)


@given(
    splitters=st.integers(1, 60),
    counters=st.integers(1, 60),
    offered=st.floats(1_000, 5_000_000),
    utilisation=st.floats(0.3, 1.0),
)
def test_one_step_then_hold(splitters, counters, offered, utilisation):
    settings = PLAIN.change(utilisation=utilisation)
    answer = propose(splitters, counters, settings, offered=offered)
    if isinstance(answer, Scale):
        size = answer.parallelism
        assert isinstance(propose(size["flatmap"], size["count"], settings, offered=offered), Hold)
        assert size["flatmap"] * SPLIT * utilisation >= offered * (1 - 1e-8)


def skewed(shares, splitters, offered, backlog, observed=None, topics=None):
    """One minute in which the counters work for these shares of it, all at the same speed."""
    words = [share * COUNT for share in shares]
    taken = sum(words) / WORDS
    rows = [InstanceMetrics("source", "0", 0, taken, 30.0)]
    rows += [
        InstanceMetrics(
            "flatmap", str(n), taken / splitters, sum(words) / splitters, taken / splitters / SPLIT * SECONDS
        )
        for n in range(splitters)
    ]
    rows += [InstanceMetrics("count", str(n), words[n], 0, share * SECONDS) for n, share in enumerate(shares)]
    read = taken if observed is None else observed
    source = SourceRate(offered / SECONDS, read / SECONDS, backlog)
    asked = OperatorQuery("words", "words", GRAPH, {"source": source},
                          MetricWindow.of(GRAPH, 0, SECONDS, rows), topics or {})  # fmt: skip
    return window(asked, flatmap=splitters, count=len(shares))


def sizes(answer, asked):
    return answer.parallelism if isinstance(answer, Scale) else asked.parallelism


class TestHotKeys:
    # 1.0 + 9 · 0.1 of 10 counters do 1.9M words in a minute, 95,000 sentences
    HOT = (1.0, *[0.1] * 9)

    def test_a_backlog_asks_for_no_instances_that_would_catch_nothing_up(self):
        answer = Ds2Policy(PLAIN).propose(skewed(self.HOT, 5, offered=500_000, backlog=1e9))
        assert isinstance(answer, Hold)
        assert "count: 1 of 10 instances is busy 100% of the time" in answer.reason
        assert "a key is hot" in answer.reason

    def test_what_the_rates_need_is_asked_for_all_the_same(self):
        answer = Ds2Policy(PLAIN).propose(skewed(self.HOT, 5, offered=600_000, backlog=1e9))
        assert isinstance(answer, Scale)
        assert answer.parallelism == {"source": 1, "flatmap": 6, "count": 12}
        assert "count: 1 of 10 instances is busy" in answer.reason

    def test_one_that_produces_less_while_held_back_is_told_as_well(self):
        answer = Ds2Policy(PLAIN).propose(skewed(self.HOT, 5, offered=500_000, backlog=0.0))
        assert isinstance(answer, Hold) and "count: 1 of 10 instances is busy" in answer.reason

    def test_nothing_is_told_where_it_keeps_up(self):
        answer = Ds2Policy(PLAIN).propose(skewed(self.HOT, 5, offered=95_000, backlog=0.0))
        assert "instances is busy" not in answer.reason

    def test_an_instance_that_has_time_left_lets_as_much_be_caught_up_with(self):
        # half of the time is left: 95,000 sentences more, though the backlog would ask for 100M
        half = tuple(share / 2 for share in self.HOT)
        answer = Ds2Policy(PLAIN).propose(skewed(half, 1, offered=47_500, backlog=1e9))
        assert isinstance(answer, Scale)
        assert answer.exact["count"] == pytest.approx(95_000 * WORDS / COUNT)
        assert "count: 1 of 10 instances is busy 50% of the time" in answer.reason

    def test_an_operator_before_the_hot_one_catches_up_with_a_topic_of_its_own(self):
        topics = {
            "flatmap": TopicRate(500_000 / 60, 95_000 / 60, 1e6, 1e6),
            "count": TopicRate(1e7 / 60, 1.9e6 / 60, 1e9, 1e9),
        }
        asked = skewed(self.HOT, 5, offered=500_000, backlog=0.0, topics=topics)
        answer = Ds2Policy(PLAIN).propose(asked)
        assert isinstance(answer, Scale)
        # 1M in 600 s are 100,000 a minute more, passed on as 2M words; what waits for count itself is not
        assert answer.exact == pytest.approx({"source": 1, "flatmap": 6, "count": 12})


@given(
    busy=st.floats(0.85, 1.0),
    others=st.lists(st.floats(0.01, 0.5), min_size=1, max_size=30),
    spare=st.floats(0.0, 1.0),
    backlog=st.floats(0, 1e12),
    utilisation=st.floats(0.3, 1.0),
)
def test_with_a_hot_instance_a_growing_backlog_raises_no_size(busy, others, spare, backlog, utilisation):
    shares = (busy, *others)
    read, capacity = sum(shares) * COUNT / WORDS, len(shares) * COUNT / WORDS
    offered = read + spare * (capacity - read)
    splitters = math.ceil(capacity / SPLIT)
    policy = Ds2Policy(PLAIN.change(utilisation=utilisation))
    asked, without = (skewed(shares, splitters, offered, waiting) for waiting in (backlog, 0.0))
    assert sizes(policy.propose(asked), asked) == sizes(policy.propose(without), without)


@given(
    share=st.floats(0.05, 1.0),
    counters=st.integers(1, 30),
    backlog=st.floats(0, 1e9),
    short=st.floats(0.1, 1.0),
)
def test_with_even_load_a_backlog_is_caught_up_with(share, counters, backlog, short):
    offered = share * counters * COUNT / WORDS
    asked = skewed((share,) * counters, 30, offered, backlog, observed=short * offered)
    answer = Ds2Policy(PLAIN).propose(asked)
    wanted = math.ceil((offered + backlog / 10) * WORDS / COUNT * (1 - 1e-9))
    assert sizes(answer, asked)["count"] == max(1, wanted)
