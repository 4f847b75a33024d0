"""Sums along paths equal those over all paths, listed one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.graph import LogicalGraph
from penstock.decide.queueing.plan import find_slowest_path, time_paths_through
from tests.dataflow.graphs import graphs

DIAMOND = LogicalGraph(
    ["source", "a", "b", "c", "join"], [("source", "a"), ("a", "b"), ("a", "c"), ("b", "join"), ("c", "join")]
)


def all_paths(graph):
    """Every path from a source to a sink, by recursion."""
    after = {o.name: [t for origin, t in graph.edges if origin == o.name] for o in graph.operators}

    def onwards(name):
        return [(name, *rest) for target in after[name] for rest in onwards(target)] or [(name,)]

    return [path for source in graph.sources for path in onwards(source)]


def test_by_hand():
    seconds = {"a": 1.0, "b": 2.0, "c": 0.5, "join": 1.0}
    assert find_slowest_path(DIAMOND, seconds) == (4.0, ("a", "b", "join"))
    assert time_paths_through(DIAMOND, seconds, max) == {"a": 4.0, "b": 4.0, "c": 2.5, "join": 4.0}
    assert time_paths_through(DIAMOND, seconds, min) == {"a": 2.5, "b": 4.0, "c": 2.5, "join": 2.5}


@given(graphs(most=7), st.data())
def test_as_over_all_paths(graph, data):
    fed = [o.name for o in graph.operators if o.name not in graph.sources]
    seconds = {name: data.draw(st.floats(0, 100)) for name in fed}
    paths = all_paths(graph)
    totals = [sum(seconds.get(name, 0.0) for name in path) for path in paths]
    total, path = find_slowest_path(graph, seconds)
    assert total == pytest.approx(max(totals))
    assert sum(seconds[name] for name in path) == pytest.approx(total)
    for pick in (min, max):
        found = time_paths_through(graph, seconds, pick)
        for name in fed:
            own = pick(t for t, p in zip(totals, paths, strict=True) if name in p)
            assert found[name] == pytest.approx(own)
