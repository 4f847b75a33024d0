"""The reactive baselines: the HPA's rule for lag and for CPU, and a day in the life of each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import Hold, Scale
from tests.dataflow.synthetic_batches import word_count
from tests.decide.built import built
from tests.decide.pipelines import Pipeline
from tests.decide.slot_windows import window as on_slots
from tests.decide.slot_windows import words
from tests.fakes import a_query, a_window

HASTY = {"stabilisation_seconds": 0.0}


def by_lag(**settings):
    return built("reactive-lag", **{"records_per_instance": 100.0, **settings})


def by_cpu(**settings):
    return built("reactive-cpu", **settings)


class TestRate:
    @pytest.mark.parametrize(
        ("offered", "held", "wanted"),
        [
            (450, 2, 5),  # ceil(450 / 100), as KEDA's average value
            (210, 2, 2),  # 5 % over: within the tolerance
            (100, 4, 1),
            (5000, 2, 6),  # four more than held at most
        ],
    )
    def test_sizes_by_hand(self, offered, held, wanted):
        policy = built("reactive-rate", rate_per_instance=100.0, **HASTY)
        answer = policy.propose(a_window(executors=held, queries=(a_query(offered=float(offered)),)))
        assert (answer.parallelism if isinstance(answer, Scale) else {EXECUTORS: held}) == {EXECUTORS: wanted}

    def test_the_reason_gives_rate_and_target(self):
        policy = built("reactive-rate", rate_per_instance=100.0)
        answer = policy.propose(a_window(queries=(a_query(offered=450.0),)))
        told = "executors 2 → 5: 450 records/s are offered, 100/s are right for an instance"
        assert answer.reason == told


class TestLag:
    @pytest.mark.parametrize(
        ("backlog", "held", "wanted"),
        [
            (450, 2, 5),  # ceil(450 / 100)
            (210, 2, 2),  # 5 % over: within the tolerance
            (225, 2, 3),
            (190, 2, 2),
            (100, 2, 1),
            (0, 5, 1),
            (5000, 2, 6),  # four more than held at most
            (5000, 8, 16),  # twice what is held at most
            (1e9, 60, 64),
        ],
    )
    def test_sizes_by_hand(self, backlog, held, wanted):
        answer = by_lag(**HASTY).propose(a_window(executors=held, queries=(a_query(backlog=backlog),)))
        assert (answer.parallelism if isinstance(answer, Scale) else {EXECUTORS: held}) == {EXECUTORS: wanted}

    def test_the_reason_gives_lag_and_target(self):
        answer = by_lag().propose(a_window(queries=(a_query(backlog=450.0),)))
        assert answer.reason == "executors 2 → 5: 450 records wait, 100 are right for an instance"

    def test_a_reduction_waits_for_the_stabilisation_time(self):
        policy = by_lag(stabilisation_seconds=30.0)
        answers = [
            policy.propose(a_window(end=10.0 * n, executors=4, queries=(a_query(backlog=0.0),)))
            for n in range(1, 6)
        ]
        assert [type(answer) for answer in answers] == [Hold, Hold, Hold, Scale, Scale]
        assert answers[3].parallelism == {EXECUTORS: 1}


class TestCpu:
    @pytest.mark.parametrize(
        ("offered", "held", "wanted"),
        [
            (95.0, 1, 2),  # busy 0.95 of 0.8: 1.19
            (85.0, 1, 1),  # 1.06: within the tolerance
            (100.0, 5, 2),  # busy 0.2 of 0.8: 5 / 4
            (1000.0, 1, 2),  # never more than fully busy, so never more than 1.25 at once
        ],
    )
    def test_sizes_by_hand(self, offered, held, wanted):
        answer = by_cpu(**HASTY).propose(Pipeline({"parse": 100.0}, {"parse": held}).run(offered))
        assert (answer.parallelism["parse"] if isinstance(answer, Scale) else held) == wanted

    def test_on_slots_task_time_counts(self):
        query = words(word_count(), 100.0, 10)
        # six batches would take a minute; the window says ten seconds, so slots look busy all the time
        answer = by_cpu(**HASTY).propose(on_slots(query))
        assert isinstance(answer, Scale) and answer.parallelism[EXECUTORS] > 2
        assert "of the time, 80% is right" in answer.reason

    def test_without_tasks_nothing_is_known(self):
        answer = by_cpu().propose(a_window())
        assert answer == NotReady("the load of executors was not measured", "useful time of its work")


def test_what_cannot_be_scaled_is_left_alone():
    pipeline = Pipeline({"parse": 100.0}, fixed=frozenset({"parse"}))
    answer = by_cpu().propose(pipeline.run(500.0))
    assert isinstance(answer, Hold)
    assert "the highest load: parse, busy for 100% of the time" in answer.reason


@pytest.mark.parametrize("policy", [by_lag(stabilisation_seconds=60.0), by_cpu(stabilisation_seconds=60.0)])
def test_story_load_up_stable_and_down(policy):
    pipeline = Pipeline({"parse": 100.0, "store": 50.0})
    quiet = pipeline.steered(policy, [30.0] * 3)
    assert all(isinstance(answer, Hold) for answer in quiet)

    up = pipeline.steered(policy, [400.0] * 30)
    assert isinstance(next(answer for answer in up if isinstance(answer, Scale)), Scale)
    assert max(answer.parallelism["store"] for answer in up if isinstance(answer, Scale)) >= 8

    down = pipeline.steered(policy, [10.0] * 40)
    assert isinstance(down[-1], Hold)
    assert pipeline.held == {"source": 1, "parse": 1, "store": 1}


@given(st.floats(0, 1e12), st.integers(1, 80))
def test_within_the_limits(backlog, held):
    answer = by_lag(**HASTY).propose(a_window(executors=held, queries=(a_query(backlog=backlog),)))
    if isinstance(answer, Scale):
        assert 1 <= answer.parallelism[EXECUTORS] <= 64
