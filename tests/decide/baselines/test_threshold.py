"""The threshold policy: its three intervals, one instance at a time, and a day in its life."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.window import EXECUTORS, TopicRate
from penstock.decide.policy import Hold, Scale
from tests.decide.built import built
from tests.decide.pipelines import Pipeline
from tests.fakes import a_query, a_window

LIMITED = {"most": 3}


def on_executors(backlog, held, settings=LIMITED):
    asked = a_window(executors=held, queries=(a_query(backlog=backlog),))
    return built("threshold", **settings).propose(asked)


@pytest.mark.parametrize(
    ("backlog", "held", "wanted"),
    [
        # [0, 50] low load, (50, 150] in range, (150, ∞) overload
        (0, 2, 1),
        (50, 2, 1),
        (50.1, 2, 2),
        (150, 2, 2),
        (150.1, 2, 3),
        (1e9, 2, 3),
        (0, 1, 1),
        (1e9, 3, 3),
    ],
)
def test_three_intervals_and_two_limits(backlog, held, wanted):
    answer = on_executors(backlog, held)
    if wanted == held:
        assert isinstance(answer, Hold)
    else:
        assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: wanted}


def test_reasons_give_the_backlog_and_the_threshold():
    assert on_executors(400, 2).reason == "executors 2 → 3: its backlog of 400 is over 150"
    assert on_executors(7, 2).reason == "executors 2 → 1: its backlog of 7 is at most 50"
    assert "the largest is 100, the range 50 to 150 records" in on_executors(100, 2).reason


def test_a_limit_that_binds_is_reported():
    assert "executors is overloaded and holds the most allowed, 3" in on_executors(400, 3).reason


class TestOperators:
    def test_what_waits_outside_stands_before_the_bottleneck(self):
        pipeline = Pipeline({"parse": 100.0, "store": 50.0}, {"parse": 1, "store": 1})
        answer = built("threshold", **LIMITED).propose(pipeline.run(80.0))
        assert isinstance(answer, Scale) and answer.parallelism == {"source": 1, "parse": 1, "store": 2}
        assert answer.reason == "store 1 → 2: its backlog of 300 is over 150"

    def test_queues_inside_are_followed(self):
        pipeline = Pipeline({"parse": 100.0, "store": 50.0}, unbounded=True)
        policy = built("threshold", **LIMITED)
        # 10 records a second too many: 100, then 200 wait
        assert isinstance(policy.propose(pipeline.run(60.0)), Hold)
        answer = policy.propose(pipeline.run(60.0))
        assert isinstance(answer, Scale) and answer.reason == "store 1 → 2: its backlog of 200 is over 150"

    def test_the_same_window_seen_twice_counts_once(self):
        window = Pipeline({"parse": 100.0, "store": 50.0}, unbounded=True).run(60.0)
        policy = built("threshold", **LIMITED)
        assert policy.propose(window) == policy.propose(window)

    def test_a_reading_of_the_inner_queue_counts_instead(self):
        window = Pipeline({"parse": 100.0, "store": 50.0}, {"store": 2}, unbounded=True).run(60.0)
        read = dataclasses.replace(window.queries[0], topics={"store": TopicRate(60.0, 50.0, 120.0)})
        answer = built("threshold", **LIMITED).propose(dataclasses.replace(window, queries=(read,)))
        assert isinstance(answer, Hold) and "the largest is 120" in answer.reason

    def test_several_move_at_once(self):
        pipeline = Pipeline({"parse": 100.0, "store": 50.0}, {"parse": 3}, unbounded=True)
        answer = built("threshold", **LIMITED).propose(pipeline.run(80.0))
        assert isinstance(answer, Scale) and answer.parallelism == {"source": 1, "parse": 2, "store": 2}

    def test_what_cannot_be_scaled_is_named(self):
        pipeline = Pipeline({"parse": 100.0, "store": 50.0}, fixed=frozenset({"store"}))
        answer = built("threshold", **LIMITED).propose(pipeline.run(80.0))
        assert isinstance(answer, Hold) and "store is overloaded and cannot be scaled" in answer.reason


def test_story_load_up_stable_and_down():
    pipeline = Pipeline({"recognise": 10.0})
    policy = built("threshold", most=15)

    quiet = pipeline.steered(policy, [8.0, 8.0])
    assert [type(answer) for answer in quiet] == [Hold, Hold]

    # 35 a second on 10: the backlog passes 150 and one instance a window is added until it shrinks
    pipeline.steered(policy, [35.0] * 3)
    assert pipeline.held["recognise"] == 4
    rising = [pipeline.held["recognise"]]
    for _ in range(20):
        pipeline.steered(policy, [35.0])
        rising.append(pipeline.held["recognise"])
    assert max(abs(later - earlier) for earlier, later in pairwise(rising)) == 1
    # an empty backlog says nothing of the need, so it hunts around 3.5 instances for ever
    assert (min(rising), max(rising)) == (2, 6)

    down = pipeline.steered(policy, [2.0] * 30)
    assert pipeline.held["recognise"] == 1
    assert isinstance(down[-1], Hold)
    assert any("is at most 50" in answer.reason for answer in down)


@given(st.floats(0, 1e9), st.integers(1, 6), st.integers(1, 4), st.integers(0, 4))
def test_never_more_than_one_step_and_within_limits(backlog, held, least, more):
    settings = {"least": least, "most": least + more}
    answer = on_executors(backlog, held, settings)
    wanted = answer.parallelism[EXECUTORS] if isinstance(answer, Scale) else held
    assert abs(wanted - held) <= 1
    if wanted > held:
        assert wanted <= settings["most"]
    if wanted < held:
        assert wanted >= settings["least"]
