from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import InstanceMetrics, MetricWindow
from penstock.dataflow.rates import OperatorRates, operator_rates
from penstock.dataflow.readiness import NotReady
from penstock.errors import BadMetrics
from tests.dataflow.graphs import WINDOW_SECONDS, cases

GRAPH = LogicalGraph(["source", "map"], [("source", "map")])
SOURCE = InstanceMetrics("source", "0", 0, 1_000, 5.0)


def measured(*rows, expected=None, graph=GRAPH):
    return operator_rates(graph, MetricWindow.of(graph, 0, WINDOW_SECONDS, rows), expected)


def test_true_rates_count_useful_time_and_observed_rates_all_time():
    # Two instances over 10 s: 100 records in 2 s and 300 in 5 s → 50/s and 60/s true (equation 1),
    # outputs 200 in 2 s and 300 in 5 s → 100/s and 60/s (equation 2); observed 40/s and 50/s (3, 4).
    rates = measured(
        SOURCE, InstanceMetrics("map", "0", 100, 200, 2.0), InstanceMetrics("map", "1", 300, 300, 5.0)
    )
    assert isinstance(rates, OperatorRates)
    assert rates.instances.tolist() == [1, 2]
    assert rates.true_processing.tolist() == [0, 110]
    assert rates.true_output.tolist() == [200, 160]
    assert rates.observed_processing.tolist() == [0, 40]
    assert rates.observed_output.tolist() == [100, 50]
    assert rates.selectivity.tolist() == pytest.approx([0, 160 / 110])


def test_an_operator_without_reports_is_not_ready():
    answer = measured(SOURCE)
    assert isinstance(answer, NotReady)
    assert "no instance of 'map'" in answer.reason


@pytest.mark.parametrize("expected", [3, 1])
def test_missing_and_surplus_instances_are_not_ready(expected):
    rows = [InstanceMetrics("map", str(number), 10, 10, 1.0) for number in range(2)]
    answer = measured(SOURCE, *rows, expected={"map": expected})
    assert isinstance(answer, NotReady)
    assert f"2 instances of 'map' reported, {expected} are expected" in answer.reason


def test_an_idle_operator_is_not_ready():
    answer = measured(SOURCE, InstanceMetrics("map", "0", 0, 0, 0.0))
    assert isinstance(answer, NotReady)
    assert "'map' was idle" in answer.reason


def test_useful_time_without_records_is_idle_too():
    answer = measured(SOURCE, InstanceMetrics("map", "0", 0, 0, 3.0))
    assert isinstance(answer, NotReady)
    assert "'map' was idle" in answer.reason


def test_records_in_zero_useful_time_are_not_ready():
    busy = InstanceMetrics("map", "0", 10, 10, 1.0)
    answer = measured(SOURCE, busy, InstanceMetrics("map", "1", 10, 10, 0.0))
    assert isinstance(answer, NotReady)
    assert "'map' processed records in zero useful time" in answer.reason


def test_a_rate_beyond_all_measure_is_not_ready():
    answer = measured(SOURCE, InstanceMetrics("map", "0", 1e300, 1, 1e-300))
    assert isinstance(answer, NotReady)
    assert "too large" in answer.reason


def test_an_idle_source_is_no_obstacle():
    quiet = InstanceMetrics("source", "0", 0, 0, 0.0)
    assert isinstance(measured(quiet, InstanceMetrics("map", "0", 10, 10, 1.0)), OperatorRates)


def test_an_idle_instance_counts_as_fast_as_the_others():
    # 50/s measured on one of two instances: the pair is worth 100/s, not 50/s.
    rates = measured(
        SOURCE, InstanceMetrics("map", "0", 100, 100, 2.0), InstanceMetrics("map", "1", 0, 0, 0.0)
    )
    assert isinstance(rates, OperatorRates)
    assert rates.true_processing[1] == 100
    assert rates.observed_processing[1] == 10


def test_an_operator_number_outside_the_graph_is_an_error():
    one = np.ones(1)
    window = MetricWindow(0, 1, np.array([2]), one, one, one, one)
    with pytest.raises(BadMetrics, match="outside 0 to 1"):
        operator_rates(GRAPH, window)


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_reports_does_not_matter(case, random):
    shuffled = list(case.rows)
    random.shuffle(shuffled)
    one = measured(*case.rows, graph=case.graph)
    other = measured(*shuffled, graph=case.graph)
    for field in dataclasses.fields(OperatorRates):
        assert getattr(one, field.name) == pytest.approx(getattr(other, field.name), rel=1e-12)


@given(cases())
def test_observed_never_exceeds_true(case):
    rates = measured(*case.rows, graph=case.graph)
    assert (rates.observed_processing <= rates.true_processing * (1 + 1e-12)).all()
    assert (rates.observed_output <= rates.true_output * (1 + 1e-12)).all()
