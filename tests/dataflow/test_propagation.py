from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import MetricWindow
from penstock.dataflow.propagation import (
    correct_shortfall,
    find_bottlenecks,
    limit_targets,
    propagate_rates,
    propagate_targets,
    round_up,
    size_operators,
)
from penstock.dataflow.rates import OperatorRates, measure_rates
from penstock.errors import BadMetrics
from tests.dataflow.graphs import WINDOW_SECONDS, cases, graphs, reference


def rates_of(graph, figures):
    """Rates from {operator: (instances, true processing per instance, true output per instance)}."""
    rows = [figures[operator.name] for operator in graph.operators]
    count = np.array([row[0] for row in rows])
    processing = np.array([row[0] * float(row[1]) for row in rows])
    output = np.array([row[0] * float(row[2]) for row in rows])
    return OperatorRates(count, processing, output, processing, output)


def exact_of(graph, figures, source_rates):
    rates = rates_of(graph, figures)
    exact = size_operators(graph, rates, propagate_targets(graph, rates, source_rates))
    return dict(zip(graph.names, exact, strict=True))


def chain(*names):
    return LogicalGraph(names, pairwise(names))


def test_the_example_of_figure_2():
    # o1 takes 10/s and puts out 100/s; o2 is seen at 100/s and could do 200/s. At 40/s o1 needs 4 and
    # then puts out 400/s, for which o2 needs 2.
    graph = chain("source", "o1", "o2")
    figures = {"source": (1, 0, 40), "o1": (1, 10, 100), "o2": (1, 200, 0)}
    assert exact_of(graph, figures, {"source": 40}) == {"source": 1, "o1": 4, "o2": 2}


@pytest.mark.parametrize(("splitters", "counters"), [(1, 1), (3, 2), (22, 30), (10, 20)])
def test_the_word_count_of_section_5_2_from_any_start(splitters, counters):
    # 1M sentences a minute of 20 words; FlatMap does 100K sentences, Count 1M words a minute.
    graph = chain("source", "flatmap", "count")
    figures = {"source": (1, 0, 1e6), "flatmap": (splitters, 1e5, 2e6), "count": (counters, 1e6, 0)}
    exact = exact_of(graph, figures, {"source": 1e6})
    assert exact == pytest.approx({"source": 1, "flatmap": 10, "count": 20})
    assert [round_up(need) for need in exact.values()] == [1, 10, 20]


def test_the_two_phases_of_section_5_3_when_scaling_is_linear():
    # 2M sentences a second end at 19 and 11 instances; half the rate needs half of the exact figures,
    # 9.5 and 5.5, so 10 and 6.
    graph = chain("source", "flatmap", "count")
    figures = {"source": (1, 0, 2e6), "flatmap": (10, 2e6 / 19, 4e7 / 19), "count": (5, 4e7 / 11, 0)}
    first = exact_of(graph, figures, {"source": 2e6})
    second = exact_of(graph, figures, {"source": 1e6})
    assert [round_up(need) for need in first.values()] == [1, 19, 11]
    assert second == pytest.approx({"source": 1, "flatmap": 9.5, "count": 5.5})


def test_values_flow_downstream_before_they_are_rounded():
    # 15/s on 10/s needs 1.5; rounding to 2 first would send 20/s on, and ask for 2 instead of 1.5.
    graph = chain("source", "a", "b")
    exact = exact_of(graph, {"source": (1, 0, 15), "a": (1, 10, 10), "b": (1, 10, 0)}, {"source": 15})
    assert exact == {"source": 1, "a": 1.5, "b": 1.5}


def test_an_operator_that_feeds_several_gives_each_all_of_its_output():
    graph = LogicalGraph(["source", "split", "x", "y"], [("source", "split"), ("split", "x"), ("split", "y")])
    figures = {"source": (1, 0, 100), "split": (1, 50, 25), "x": (1, 10, 0), "y": (2, 25, 0)}
    assert exact_of(graph, figures, {"source": 100}) == {"source": 1, "split": 2, "x": 5, "y": 2}


def test_an_operator_with_several_inputs_takes_their_sum():
    # 100/s straight and 40/s · 0.5 by way of the filter: 120/s into a join of 60/s.
    graph = LogicalGraph(
        ["bids", "people", "filter", "join"],
        [("bids", "join"), ("people", "filter"), ("filter", "join")],
    )
    figures = {"bids": (2, 0, 50), "people": (1, 0, 40), "filter": (1, 80, 40), "join": (1, 60, 6)}
    exact = exact_of(graph, figures, {"bids": 100, "people": 40})
    assert exact == {"bids": 2, "people": 1, "filter": 0.5, "join": 2}


def test_a_source_without_a_rate_is_an_error():
    graph = chain("source", "map")
    with pytest.raises(BadMetrics, match="no rate is given for the source 'source'"):
        propagate_targets(graph, rates_of(graph, {"source": (1, 0, 1), "map": (1, 1, 1)}), {"map": 3})


@pytest.mark.parametrize("rate", [math.nan, math.inf, -1])
def test_an_impossible_source_rate_is_an_error(rate):
    graph = chain("source", "map")
    with pytest.raises(BadMetrics, match="the rate of source 'source'"):
        propagate_targets(graph, rates_of(graph, {"source": (1, 0, 1), "map": (1, 1, 1)}), {"source": rate})


def test_nothing_after_an_operator_that_drops_everything():
    graph = chain("source", "drop", "sink")
    figures = {"source": (1, 0, 10), "drop": (1, 10, 0), "sink": (3, 10, 0)}
    assert exact_of(graph, figures, {"source": 10})["sink"] == 0


@pytest.mark.parametrize(
    ("exact", "whole"),
    [(10.000000000000002, 10), (10.0, 10), (10.0001, 11), (0.0, 1), (1e-12, 1), (19.999999999999996, 20)],
)
def test_the_ceiling_is_blind_to_floating_point_dust(exact, whole):
    assert round_up(exact) == whole


def test_the_ceiling_of_a_monstrous_need_is_still_a_number():
    assert 10**15 < round_up(1e300) == round_up(math.inf)


def test_the_shortfall_is_that_of_the_worst_source_that_put_out_anything():
    graph = chain("source", "a", "b")
    assert correct_shortfall(graph, [1, 2, 4], [1, 2, 4], [(30, 10), (12, 10), (5, 0)], 1.5) == [1, 6, 12]
    assert correct_shortfall(graph, [1, 2, 4], [1, 2, 4], [(5, 0)], 1.5) == [1, 2, 4]
    # a ratio that is allowed, and a size that the model itself asks for, are left alone
    assert correct_shortfall(graph, [1, 2, 4], [1, 2, 4], [(30, 10)], 3.0) == [1, 2, 4]
    assert correct_shortfall(graph, [1, 3, 4], [1, 2, 4], [(30, 10)], 1.5) == [1, 3, 4]


class TestUnscalableOperators:
    def graph(self):
        edges = [("source", "parse"), ("parse", "sort"), ("sort", "store")]
        return LogicalGraph(["source", "parse", Operator("sort", scalable=False), "store"], edges)

    def figures(self, sort=25):
        return {"source": (1, 0, 100), "parse": (1, 20, 20), "sort": (1, sort, sort), "store": (1, 5, 0)}

    def test_what_follows_is_sized_for_what_can_arrive(self):
        graph, figures = self.graph(), self.figures()
        targets = propagate_targets(graph, rates_of(graph, figures), {"source": 100})
        assert targets == [100, 100, 100, 25]

    @pytest.mark.parametrize(("sort", "stored"), [(100, 95), (25, 30)])
    def test_what_is_queued_is_taken_in_beside_what_is_fed_and_passed_on(self, sort, stored):
        graph, rates = self.graph(), rates_of(self.graph(), self.figures(sort=sort))
        targets = propagate_targets(graph, rates, {"source": 60}, {"parse": 30, "store": 5})
        assert targets == [60, 90, 90, stored]

    def test_the_overloaded_one_is_named_with_the_share_it_can_take(self):
        graph, rates = self.graph(), rates_of(self.graph(), self.figures())
        targets = propagate_targets(graph, rates, {"source": 100})
        assert find_bottlenecks(graph, rates, targets) == {"sort": 0.25}

    def test_what_feeds_nothing_else_is_not_scaled_for_nothing(self):
        graph, rates = self.graph(), rates_of(self.graph(), self.figures())
        targets = propagate_targets(graph, rates, {"source": 100})
        admitted = limit_targets(graph, targets, find_bottlenecks(graph, rates, targets))
        assert admitted == [25, 25, 100, 25]

    def test_another_consumer_keeps_the_full_rate(self):
        names = ["source", "parse", Operator("sort", scalable=False), "count"]
        graph = LogicalGraph(names, [("source", "parse"), ("parse", "sort"), ("parse", "count")])
        admitted = limit_targets(graph, [100.0, 100.0, 100.0, 100.0], {"sort": 0.25})
        assert admitted == [100, 100, 100, 100]

    def test_two_in_a_row_multiply(self):
        names = ["source", Operator("a", scalable=False), Operator("b", scalable=False)]
        graph = LogicalGraph(names, [("source", "a"), ("a", "b")])
        admitted = limit_targets(graph, [100.0, 100.0, 50.0], {"a": 0.5, "b": 0.5})
        assert admitted == [25, 100, 50]

    def test_one_that_keeps_up_changes_nothing(self):
        graph, rates = self.graph(), rates_of(self.graph(), self.figures(sort=100))
        targets = propagate_targets(graph, rates, {"source": 100})
        assert targets == [100, 100, 100, 100]
        assert find_bottlenecks(graph, rates, targets) == {}


def evaluate(case):
    window = MetricWindow.of(case.graph, 0, WINDOW_SECONDS, case.rows)
    rates = measure_rates(case.graph, window)
    exact = size_operators(case.graph, rates, propagate_targets(case.graph, rates, case.source_rates))
    return dict(zip(case.graph.names, exact, strict=True))


@given(cases())
def test_the_traversal_agrees_with_the_equations_as_written(case):
    assert evaluate(case) == pytest.approx(reference(case), rel=1e-9)


def test_a_join_behind_a_fan_out_by_hand():
    # 60/s and 20/s go into clean, which keeps half: 40/s, to join and to count. join also has what people
    # send, 10/s, and 6/s of a queue of its own: 56/s. It puts out two for each, 112/s, to store.
    graph = LogicalGraph(
        ["bids", "asks", "people", "clean", "join", "count", "store"],
        [("bids", "clean"), ("asks", "clean"), ("clean", "join"), ("clean", "count"), ("people", "join"),
         ("join", "store")],
    )  # fmt: skip
    figures = {
        "bids": (1, 0, 60), "asks": (3, 0, 10), "people": (1, 0, 10), "clean": (2, 25, 12.5),
        "join": (1, 28, 56), "count": (5, 16, 0), "store": (4, 7, 0),
    }  # fmt: skip
    rates = rates_of(graph, figures)
    targets = propagate_targets(graph, rates, {"bids": 60, "asks": 20, "people": 10}, {"join": 6})
    by_name = dict(zip(graph.names, targets, strict=True))
    assert by_name == {
        "bids": 60,
        "asks": 20,
        "people": 10,
        "clean": 80,
        "join": 56,
        "count": 40,
        "store": 112,
    }
    exact = dict(zip(graph.names, size_operators(graph, rates, targets), strict=True))
    # 80 / 25, 56 / 28, 40 / 16, 112 / 7; sources keep what they have
    assert exact == {"bids": 1, "asks": 3, "people": 1, "clean": 3.2, "join": 2, "count": 2.5, "store": 16}


@given(cases(), st.lists(st.floats(0, 100), min_size=1, max_size=5))
def test_columns_of_moments_agree_with_the_equations_at_each_of_them(case, factors):
    window = MetricWindow.of(case.graph, 0, WINDOW_SECONDS, case.rows)
    rates = measure_rates(case.graph, window)
    columns = {name: rate * np.array(factors) for name, rate in case.source_rates.items()}
    found = propagate_rates(case.graph, rates.selectivity.tolist(), columns)
    for moment, factor in enumerate(factors):
        sources = {name: rate * factor for name, rate in case.source_rates.items()}
        needed = reference(type(case)(case.graph, case.rows, sources))
        at_once = size_operators(case.graph, rates, [float(column[moment]) for column in found])
        assert dict(zip(case.graph.names, at_once, strict=True)) == pytest.approx(needed, rel=1e-9)


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_operators_edges_and_reports_does_not_matter(case, random):
    names, edges, rows = [o.name for o in case.graph.operators], list(case.graph.edges), list(case.rows)
    for values in (names, edges, rows):
        random.shuffle(values)
    other = type(case)(LogicalGraph(names, edges), tuple(rows), case.source_rates)
    assert evaluate(other) == pytest.approx(evaluate(case), rel=1e-9)


@given(cases(), st.floats(0.01, 100))
def test_need_is_linear_in_the_source_rates(case, factor):
    scaled = {name: rate * factor for name, rate in case.source_rates.items()}
    before, after = evaluate(case), evaluate(type(case)(case.graph, case.rows, scaled))
    for name in case.graph.index:
        expected = before[name] if name in case.graph.sources else before[name] * factor
        assert after[name] == pytest.approx(expected, rel=1e-9)


@st.composite
def linear_systems(draw):
    """Operators whose capacity grows linearly with their instances, at any start."""
    graph = draw(graphs())
    figures = {
        operator.name: (draw(st.integers(1, 50)), draw(st.floats(1, 1e4)), draw(st.floats(0, 1e4)))
        for operator in graph.operators
    }
    return graph, figures, {name: draw(st.floats(1, 1e5)) for name in graph.sources}


@given(linear_systems())
def test_one_step_is_enough_neither_too_much_nor_too_little(system):
    """Properties 1 and 2, and convergence in one step where scaling is linear (section 3.4)."""
    graph, figures, source_rates = system
    rates = rates_of(graph, figures)
    targets = propagate_targets(graph, rates, source_rates)
    wanted = [round_up(need) for need in size_operators(graph, rates, targets)]
    # beyond this a float64 no longer holds every whole number, and no one has so many instances
    assume(max(wanted) < 1e9)
    after = {o.name: (n, *figures[o.name][1:]) for o, n in zip(graph.operators, wanted, strict=True)}
    again = size_operators(graph, rates_of(graph, after), targets)
    assert [round_up(need) for need in again] == wanted
    for operator, count, target in zip(graph.operators, wanted, targets, strict=True):
        capacity = figures[operator.name][1]
        if operator.name not in graph.sources:
            assert count * capacity >= target * (1 - 1e-8)
            assert count == 1 or (count - 1) * capacity < target
