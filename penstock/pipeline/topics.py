"""Topics: where they lie, and the graph that they make with functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.errors import BadGraph, BadInput


@dataclass(frozen=True, slots=True)
class Files:
    """Topics as directories under one root that driver and executors share."""

    root: str
    files_per_batch: int | None = None
    """Files that a batch reads at most; None reads all that are there."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """Topics of a Kafka cluster; records travel as JSON in the value."""

    servers: str
    records_per_batch: int | None = None
    prefix: str = ""
    """Put before the topic's name, where several pipelines share a cluster."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A topic that is only read: any format of `spark.readStream`."""

    form: str
    options: Mapping[str, str] = field(default_factory=dict)


Location: TypeAlias = Files | Kafka | Stream


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic by name; the schema is Spark's own notation, such as `number bigint, word string`."""

    name: str
    schema: str | None = None
    at: Location | None = None
    kept: bool = False
    """Whether it is written in any case, for readers outside the pipeline."""


def files(root: str, *, files_per_batch: int | None = None) -> Files:
    """Keep topics as directories of Parquet files under this root; nothing needs to be installed."""
    return Files(str(root), _at_least_one("files_per_batch", files_per_batch))


def kafka(servers: str, *, records_per_batch: int | None = None, prefix: str = "") -> Kafka:
    """Keep topics in the Kafka cluster at these bootstrap servers."""
    return Kafka(servers, _at_least_one("records_per_batch", records_per_batch), prefix)


def stream(form: str, **options: object) -> Stream:
    """Read a topic, and never write it, in any format that `spark.readStream` knows."""
    return Stream(form, {key: str(value) for key, value in options.items()})


def _at_least_one(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise BadInput(f"{name} is {value!r}, not a whole number of 1 or more")
    return value


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
        """List the functions that read a topic."""
        return tuple(name for name in self.functions if topic in self.reads[name])

    def writers(self, topic: str) -> tuple[str, ...]:
        """List the functions that write a topic."""
        return tuple(name for name in self.functions if self.writes[name] == topic)

    def depth(self, name: str) -> int:
        """Return how many functions records have passed at most before this one."""
        fed_by = [writer for topic in self.reads[name] for writer in self.writers(topic)]
        return 1 + max((self.depth(writer) for writer in fed_by), default=-1)


def lay_out_status(functions: Mapping[str, Mapping[str, Any]]) -> Layout:
    """Build the graph of functions as a status has them."""
    return lay_out({name: (tuple(one["reads"]), one["writes"]) for name, one in functions.items()})


def lay_out(functions: Mapping[str, Joined], unscalable: frozenset[str] = frozenset()) -> Layout:
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
