from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import InstanceMetrics, MetricWindow
from penstock.dataflow.rates import (
    SATURATED,
    UNEVEN,
    OperatorRates,
    find_busiest_shares,
    find_growing_queues,
    find_uneven_loads,
    measure_rates,
)
from penstock.dataflow.readiness import NotReady
from penstock.errors import BadMetrics
from tests.dataflow.graphs import WINDOW_SECONDS, cases

GRAPH = LogicalGraph(["source", "map"], [("source", "map")])
SOURCE = InstanceMetrics("source", "0", 0, 1_000, 5.0)


def measured(*rows, expected=None, graph=GRAPH):
    return measure_rates(graph, MetricWindow.of(graph, 0, WINDOW_SECONDS, rows), expected)


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
        measure_rates(GRAPH, window)


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


def shares_of(*shares, records=None):
    """One window of map, whose instances work for these shares of it; records follow the work."""
    counts = [100 * share for share in shares] if records is None else records
    rows = [
        InstanceMetrics("map", str(number), count, count, share * WINDOW_SECONDS)
        for number, (share, count) in enumerate(zip(shares, counts, strict=True))
    ]
    return MetricWindow.of(GRAPH, 0, WINDOW_SECONDS, [SOURCE, *rows])


class TestUnevenLoads:
    def test_a_hot_key_is_found_and_told(self):
        load = find_uneven_loads(GRAPH, shares_of(1.0, 0.1, 0.05, 0.1))["map"]
        assert (load.instances, load.busy_instances) == (4, 1)
        assert load.is_hot and load.gets_more
        assert str(load) == (
            "map: 1 of 4 instances is busy 100% of the time, the median 10% "
            "(with more records: a key is hot, or partitions are uneven); more instances would not help"
        )

    def test_several_hot_keys_are_counted(self):
        load = find_uneven_loads(GRAPH, shares_of(0.3, 0.9, 0.95, 0.3, 0.2))["map"]
        assert load.busy_instances == 2
        assert "2 of 5 instances are busy 95% of the time, the median 30%" in str(load)

    def test_of_two_instances_the_other_is_compared(self):
        assert "the other 40%" in str(find_uneven_loads(GRAPH, shares_of(0.4, 0.9))["map"])

    def test_a_slow_instance_gets_no_more_records(self):
        load = find_uneven_loads(GRAPH, shares_of(1.0, 0.3, 0.3, records=[10, 10, 10]))["map"]
        assert load.is_hot and not load.gets_more
        assert "(being slow)" in str(load)

    def test_an_instance_with_time_left_is_not_hot(self):
        assert not find_uneven_loads(GRAPH, shares_of(0.6, 0.1, 0.1))["map"].is_hot

    @pytest.mark.parametrize(
        "shares",
        [
            (1.0,),
            (1.0, 0.7, 0.7),  # headroom, or a few instances more, make up for that
            (0.5, 0.5, 1.0, 1.0),  # as with twelve partitions for eight instances: twelve would be even
            (1.0, 1.0, 0.0),  # one has failed
            (0.0, 0.0, 0.0),
        ],
    )
    def test_what_more_instances_help_is_even_enough(self, shares):
        assert find_uneven_loads(GRAPH, shares_of(*shares)) == {}

    def test_sources_and_foreign_operators_do_not_count(self):
        rows = [InstanceMetrics("source", str(n), 0, 10, useful) for n, useful in enumerate((9.0, 1.0, 1.0))]
        window = MetricWindow.of(GRAPH, 0, WINDOW_SECONDS, [*rows, InstanceMetrics("map", "0", 1, 1, 1.0)])
        assert find_uneven_loads(GRAPH, window) == {}
        foreign = dataclasses.replace(shares_of(1.0, 0.1), operator=np.array([0, 7, 7]))
        assert find_uneven_loads(GRAPH, foreign) == {} and find_growing_queues(GRAPH, foreign, 0.95) == []

    @given(shares=st.lists(st.sampled_from([0.0, 0.1, 0.13, 0.3, 0.55, 0.9, 1.0]), min_size=1, max_size=12))
    def test_it_is_uneven_where_the_busiest_works_half_as_long_again_as_the_upper_median(self, shares):
        busiest, *others = sorted(shares, reverse=True)
        # of an even number of instances the upper of the two in the middle, of two the other one
        place = max(1, (len(shares) - 1) // 2)
        typical = [busiest, *others][place] if others else busiest
        uneven = (
            bool(others) and busiest > 0 and busiest * WINDOW_SECONDS >= UNEVEN * typical * WINDOW_SECONDS
        )
        assert bool(find_busiest_shares(GRAPH, shares_of(*shares))) == uneven

    @given(shares=st.lists(st.floats(0, 1), min_size=1, max_size=30), data=st.data())
    def test_the_order_of_instances_does_not_matter_and_half_of_them_are_never_hot(self, shares, data):
        found = find_uneven_loads(GRAPH, shares_of(*shares))
        assert found == find_uneven_loads(GRAPH, shares_of(*data.draw(st.permutations(shares))))
        for load in found.values():
            assert load.busiest == pytest.approx(max(shares)) and load.is_hot == (load.busiest >= SATURATED)
            assert load.busiest >= UNEVEN * load.typical * (1 - 1e-9)
            assert load.busy_instances == 1 or load.busy_instances < len(shares) / 2


class TestGrowingQueues:
    @pytest.mark.parametrize(
        ("taken", "share", "grows"),
        [
            (500.0, 1.0, True),
            (960.0, 1.0, False),  # it takes what it is sent
            (500.0, 0.5, False),  # it has time left, so it gets no more
        ],
    )
    def test_what_is_sent_and_not_taken_waits_before_an_operator_without_time_left(self, taken, share, grows):
        row = InstanceMetrics("map", "0", taken, taken, share * WINDOW_SECONDS)
        window = MetricWindow.of(GRAPH, 0, WINDOW_SECONDS, [SOURCE, row])
        assert find_growing_queues(GRAPH, window, 0.95) == (["map"] if grows else [])
