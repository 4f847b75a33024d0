"""The graph of functions and topics, as policies see it and as it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.errors import BadGraph, BadInput

Joined = tuple[tuple[str, ...], str | None]
"""The topics that a function reads, and the one it writes."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Functions in topological order, with topics between them.

    `graph` has an operator for every function, and one for every topic that no function writes: these are
    the sources, which no policy scales.
    """

    graph: LogicalGraph
    reads: Mapping[str, tuple[str, ...]]
    writes: Mapping[str, str | None]

    @property
    def functions(self) -> tuple[str, ...]:
        """Functions in topological order."""
        return tuple(one.name for one in self.graph.operators if one.name in self.reads)

    @property
    def sources(self) -> tuple[str, ...]:
        """Topics that come from outside."""
        return self.graph.sources

    def readers(self, topic: str) -> tuple[str, ...]:
        """Functions that read a topic."""
        return tuple(name for name in self.functions if topic in self.reads[name])

    def writers(self, topic: str) -> tuple[str, ...]:
        """Functions that write a topic."""
        return tuple(name for name in self.functions if self.writes[name] == topic)

    def depth(self, name: str) -> int:
        """How many functions records have passed at most before this one."""
        fed_by = [writer for topic in self.reads[name] for writer in self.writers(topic)]
        return 1 + max((self.depth(writer) for writer in fed_by), default=-1)


def laid_out(functions: Mapping[str, Joined], unscalable: frozenset[str]) -> Layout:
    """Build the graph; a cycle is an error that names the functions on it."""
    written = {writes for _, writes in functions.values() if writes}
    outside = list(dict.fromkeys(t for reads, _ in functions.values() for t in reads if t not in written))
    operators = [Operator(name, scalable=False) for name in outside]
    operators += [Operator(name, name not in unscalable) for name in functions]
    edges: dict[tuple[str, str], None] = {}
    for name, (reads, _) in functions.items():
        for topic in reads:
            feeding = [other for other, (_, writes) in functions.items() if writes == topic] or [topic]
            edges.update(dict.fromkeys((origin, name) for origin in feeding))
    try:
        graph = LogicalGraph(operators, edges)
    except BadGraph as error:
        raise BadInput(f"functions and topics: {error}") from error
    return Layout(
        graph,
        {name: reads for name, (reads, _) in functions.items()},
        {name: writes for name, (_, writes) in functions.items()},
    )
