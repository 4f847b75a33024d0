from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.errors import BadGraph
from tests.dataflow.graphs import graphs


def test_numbers_follow_the_flow_whatever_the_order_of_declaration():
    graph = LogicalGraph(["sink", "map", "source"], [("map", "sink"), ("source", "map")])
    assert [operator.name for operator in graph.operators] == ["source", "map", "sink"]
    assert graph.upstream == ((), (0,), (1,))


def test_several_sources_and_sinks():
    graph = LogicalGraph(
        ["bids", "people", "join", "log", "store"],
        [("bids", "join"), ("people", "join"), ("join", "log"), ("join", "store")],
    )
    assert graph.sources == ("bids", "people")
    assert graph.sinks == ("log", "store")
    assert graph.is_source.tolist() == [True, True, False, False, False]


def test_an_operator_alone_is_source_and_sink():
    graph = LogicalGraph(["only"], [])
    assert graph.sources == graph.sinks == ("only",)


def test_sources_and_tagged_operators_are_not_scalable():
    graph = LogicalGraph(
        ["source", Operator("sort", scalable=False), "sink"], [("source", "sort"), ("sort", "sink")]
    )
    assert graph.is_scalable.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("operators", "edges", "message"),
    [
        ([], [], "no operators"),
        (["a", "a"], [], "'a' is declared twice"),
        (["a", "b"], [("a", "c")], "unknown operator 'c'"),
        (["a", "b"], [("c", "b")], "unknown operator 'c'"),
        (["a", "b"], [("a", "b"), ("a", "b")], "'a' → 'b' is declared twice"),
        (["a"], [("a", "a")], "cycle: a → a"),
        (["a", "b"], [("a", "b"), ("b", "a")], "cycle: (a → b → a|b → a → b)"),
    ],
)
def test_a_bad_graph_is_refused_by_name(operators, edges, message):
    with pytest.raises(BadGraph, match=message):
        LogicalGraph(operators, edges)


def test_a_cycle_is_named_without_what_leads_to_it_or_follows_it():
    edges = [("in", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "out")]
    with pytest.raises(BadGraph) as caught:
        LogicalGraph(["in", "a", "b", "c", "out"], edges)
    named = str(caught.value).removeprefix("the graph has a cycle: ").split(" → ")
    assert named[0] == named[-1]
    assert set(named) == {"a", "b", "c"}
    assert all(step in edges for step in pairwise(named))


def test_equality_ignores_the_order_of_declaration():
    one = LogicalGraph(["a", "b", "c"], [("a", "b"), ("a", "c")])
    other = LogicalGraph(["c", "b", "a"], [("a", "c"), ("a", "b")])
    assert one == other
    assert hash(one) == hash(other)
    assert one != LogicalGraph(["a", "b", "c"], [("a", "b")])
    assert one != "a graph"
    assert "('a', 'b')" in repr(one)


@given(graphs())
def test_every_edge_leads_to_a_higher_number(graph):
    assert all(graph.index[origin] < graph.index[target] for origin, target in graph.edges)
    assert sum(len(feeds) for feeds in graph.upstream) == len(graph.edges)
    assert set(graph.sources) == {o.name for o in graph.operators} - {target for _, target in graph.edges}
