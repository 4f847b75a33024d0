"""The trigger-interval rule: its band, its doubling rounds, its limits, and a day in its life."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import Hold, Scale
from tests.decide.built import built
from tests.decide.pipelines import Pipeline
from tests.fakes import a_query, a_window


def policy(**settings):
    return built("trigger-interval", **settings)


def window(seconds, held=2, period=10.0):
    return a_window(executors=held, queries=(a_query(batch_seconds=seconds, period=period),))


@pytest.mark.parametrize(
    ("seconds", "held", "wanted"),
    [(9.1, 2, 3), (9.0, 2, 2), (5.0, 2, 2), (4.9, 2, 1), (4.9, 1, 1), (4.9, 30, 27), (100.0, 64, 64)],
)
def test_the_band_by_hand(seconds, held, wanted):
    answer = policy().propose(window((seconds,), held))
    assert (answer.parallelism if isinstance(answer, Scale) else {EXECUTORS: held}) == {EXECUTORS: wanted}


def test_one_slow_batch_says_little():
    assert isinstance(policy().propose(window((7.0, 60.0, 7.0))), Hold)


def test_the_slowest_query_decides():
    quick, slow = a_query(batch_seconds=(1.0,)), a_query(name="slow", batch_seconds=(9.5,))
    answer = policy().propose(a_window(queries=(quick, slow)))
    assert answer.reason == "2 → 3 executors: batches of slow take 95% of their interval, more than 90%"


def test_a_limit_that_binds_is_reported():
    answer = policy(most=2).propose(window((20.0,)))
    assert isinstance(answer, Hold) and "no more than 2 executors are allowed" in answer.reason


@pytest.mark.parametrize("period", [None, 0.0, math.nan])
def test_without_an_interval_there_is_nothing_to_compare(period):
    assert isinstance(policy().propose(window((5.0,), period=period)), NotReady)


def test_operators_without_batches_are_not_for_it():
    assert isinstance(policy().propose(Pipeline({"a": 5.0}).run(1.0)), NotReady)


def test_story_load_up_stable_and_down():
    asked, held, told = policy(), 2, []
    for work in [12.0] * 2 + [96.0] * 8 + [12.0] * 30:
        # the work of a batch in executor-seconds, spread evenly
        answer = asked.propose(window((work / held,), held))
        held = answer.parallelism[EXECUTORS] if isinstance(answer, Scale) else held
        told.append((held, answer.reason))
    assert [size for size, _ in told[:10]] == [2, 2, 3, 5, 9, 17, 17, 17, 17, 17]
    # 17 where 11 would do: 96 / 17 is over half of the interval, so they stay
    assert "take 56% of their interval; the range is 50% to 90%" in told[9][1]
    assert told[-1][0] == 2
    assert told[10][1] == "17 → 16 executors: batches of words take 7% of their interval, less than 50%"
    assert "the range is" in told[-1][1]


@given(st.floats(0, 1e6), st.integers(1, 80))
def test_within_the_limits(seconds, held):
    answer = policy().propose(window((seconds,), held))
    if isinstance(answer, Scale):
        wanted = answer.parallelism[EXECUTORS]
        assert wanted >= 1
        assert wanted <= 64 or wanted < held
