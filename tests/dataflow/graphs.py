"""Random graphs and windows for property tests, and a plain reference of the model."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import InstanceMetrics

WINDOW_SECONDS = 10.0


@dataclass(frozen=True)
class Case:
    """A graph with a row per instance and a rate per source."""

    graph: LogicalGraph
    rows: tuple[InstanceMetrics, ...]
    source_rates: dict[str, float]


@st.composite
def graphs(draw, most=8):
    """Acyclic graphs with several sources and sinks; operators are declared in a shuffled order."""
    size = draw(st.integers(2, most))
    names = [f"o{number}" for number in range(size)]
    pairs = [(a, b) for b in range(size) for a in range(b)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1, max_size=2 * size))
    declared = draw(st.permutations(names))
    return LogicalGraph(declared, [(names[a], names[b]) for a, b in chosen])


@st.composite
def cases(draw):
    """Busy instances: every rate is measurable."""
    graph = draw(graphs())
    rows = []
    for operator in graph.operators:
        for instance in range(draw(st.integers(1, 4))):
            useful = draw(st.floats(0.01, WINDOW_SECONDS))
            records = draw(st.floats(1, 1e6))
            out = draw(st.floats(0, 1e6))
            rows.append(InstanceMetrics(operator.name, str(instance), records, out, useful))
    rates = {name: draw(st.floats(0.1, 1e6)) for name in graph.sources}
    return Case(graph, tuple(rows), rates)


def reference(case: Case) -> dict[str, float]:
    """Equations 1 to 8 as the paper writes them, by recursion over names; un-rounded."""

    def instances(name):
        return [row for row in case.rows if row.operator == name]

    def processing(name):
        return sum(row.records_in / row.useful_seconds for row in instances(name))

    def output(name):
        return sum(row.records_out / row.useful_seconds for row in instances(name))

    def target(name):
        return sum(best_output(origin) for origin, end in case.graph.edges if end == name)

    def best_output(name):
        if name in case.graph.sources:
            return case.source_rates[name]
        return output(name) / processing(name) * target(name)

    return {
        name: float(len(instances(name)))
        if name in case.graph.sources
        else target(name) / (processing(name) / len(instances(name)))
        for name in case.graph.index
    }
