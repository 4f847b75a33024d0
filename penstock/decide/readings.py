"""Whether a window can be decided by at all: sources read, operators held, names unmistakable."""

from __future__ import annotations

import math
from collections.abc import Mapping

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, QueryWindow


def unread_source(query: QueryWindow) -> NotReady | None:
    """Name a source whose offered rate or backlog is unknown, negative, NaN or infinite."""
    for name in query.graph.sources:
        source = query.sources.get(name)
        if source is None:
            return NotReady(f"the offered rate of source {name!r} is unknown", "a reading of the source")
        readings = (source.offered_per_second, source.backlog_records)
        if not all(math.isfinite(reading) and reading >= 0 for reading in readings):
            told = "offered {}/s, backlog {}".format(*readings)
            return NotReady(f"the reading of source {name!r} cannot be right: {told}", "another reading")
    for name, records in query.overdue_records.items():
        if not 0 <= records < math.inf:
            reason = f"the backlog of {name!r} cannot be right: {records}"
            return NotReady(reason, "another reading")
    return None


def tagged(graph: LogicalGraph, unscalable: frozenset[str]) -> LogicalGraph:
    """The graph with the operators that settings tag; the same graph when there is none."""
    if not unscalable or not any(o.name in unscalable and o.scalable for o in graph.operators):
        return graph
    marked = [Operator(o.name, o.scalable and o.name not in unscalable) for o in graph.operators]
    return LogicalGraph(marked, graph.edges)


def shared_operator(window: ApplicationWindow) -> NotReady | None:
    """Parallelism is keyed by operator alone, so a name must not stand for two of them."""
    if len(window.queries) == 1:
        return None
    seen: set[str] = set()
    for query in window.queries:
        for operator in query.graph.operators:
            if operator.name in seen:
                return NotReady(f"operator {operator.name!r} belongs to two queries", "names that differ")
            seen.add(operator.name)
    return None


def unheld_operator(graph: LogicalGraph, held: Mapping[str, int]) -> NotReady | None:
    """Name an operator of which no instance is held: a size for it could not be put into effect.

    Sources are not scaled (equation 7 of DS2), so what is held of them need not be known.
    """
    for name in graph.fed:
        if held.get(name, 0) < 1:
            return NotReady(f"no instance of {name!r} is held", "the parallelism of each operator")
    return None
