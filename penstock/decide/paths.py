"""Response times along the paths of a dataflow (Elastic Pulsar Functions, equation 4).

The paths are not listed, since a graph may have exponentially many: sums along the longest and the
shortest need one visit each.
Operators that are not in `seconds`, the sources among them, take no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.dataflow.graph import LogicalGraph

Pick = Callable[[Iterable[float]], float]


def slowest_path(graph: LogicalGraph, seconds: Mapping[str, float]) -> tuple[float, tuple[str, ...]]:
    """Equation 4 for the path that takes longest, and the operators on it, sources left out."""
    totals: list[float] = []
    paths: list[tuple[str, ...]] = []
    for operator, feeds in zip(graph.operators, graph.upstream, strict=True):
        before = max(feeds, key=lambda feed: totals[feed], default=None)
        own = (operator.name,) if feeds else ()
        totals.append((totals[before] if before is not None else 0.0) + seconds.get(operator.name, 0.0))
        paths.append((paths[before] if before is not None else ()) + own)
    last = max(range(len(totals)), key=totals.__getitem__)
    return totals[last], paths[last]


def through(graph: LogicalGraph, seconds: Mapping[str, float], pick: Pick) -> dict[str, float]:
    """Operator → the time of a path through it: the longest with `pick=max`, the shortest with `min`."""
    own = [seconds.get(operator.name, 0.0) for operator in graph.operators]
    until = list(own)
    for number, feeds in enumerate(graph.upstream):
        if feeds:
            until[number] += pick(until[feed] for feed in feeds)
    after: list[list[float]] = [[] for _ in own]
    rest = [0.0] * len(own)
    for number in reversed(range(len(own))):
        rest[number] = pick(after[number]) if after[number] else 0.0
        for feed in graph.upstream[number]:
            after[feed].append(own[number] + rest[number])
    return {o.name: until[n] + rest[n] for n, o in enumerate(graph.operators) if graph.upstream[n]}
