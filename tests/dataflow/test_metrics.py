from __future__ import annotations

import math

import numpy as np
import pytest

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import InstanceMetrics, MetricWindow
from penstock.errors import BadMetrics

GRAPH = LogicalGraph(["source", "map"], [("source", "map")])


def row(operator="map", instance="0", **values):
    figures = {"records_in": 1.0, "records_out": 1.0, "useful_seconds": 1.0, **values}
    return InstanceMetrics(operator, instance, **figures)


def test_rows_become_columns_in_the_order_of_the_graph():
    window = MetricWindow.of(GRAPH, 0, 10, [row("map", records_in=7), row("source", records_in=3)])
    assert window.operator.tolist() == [1, 0]
    assert window.records_in.tolist() == [7, 3]
    assert window.seconds == 10


def test_a_window_may_be_empty():
    assert len(MetricWindow.of(GRAPH, 0, 1, []).operator) == 0


@pytest.mark.parametrize("column", ["records_in", "records_out", "useful_seconds", "waiting_seconds"])
@pytest.mark.parametrize("value", [math.nan, -1.0, math.inf])
def test_impossible_values_are_refused_and_the_column_named(column, value):
    with pytest.raises(BadMetrics, match=column):
        MetricWindow.of(GRAPH, 0, 10, [row(instance="0"), row(instance="1", **{column: value})])


def test_an_unknown_operator_is_named():
    with pytest.raises(BadMetrics, match="unknown operator 'filter'"):
        MetricWindow.of(GRAPH, 0, 10, [row("filter")])


def test_an_instance_that_reports_twice_is_named():
    with pytest.raises(BadMetrics, match="'3' of 'map' reported twice"):
        MetricWindow.of(GRAPH, 0, 10, [row(instance="3"), row(instance="3")])


@pytest.mark.parametrize("end", [5.0, 4.0, math.nan])
def test_a_window_ends_after_it_starts(end):
    with pytest.raises(BadMetrics, match="not after its start"):
        MetricWindow.of(GRAPH, 5.0, end, [])


def test_columns_have_one_length():
    one, two = np.ones(1), np.ones(2)
    with pytest.raises(BadMetrics, match="records_out has 2 values for 1 instances"):
        MetricWindow(0, 1, np.zeros(1, dtype=np.int64), one, two, one, one)
