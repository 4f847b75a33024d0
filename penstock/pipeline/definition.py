"""What a pipeline is: its functions and topics, said in Python or YAML, and checked before anything runs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import BadInput
from penstock.pipeline.layout import Layout, laid_out
from penstock.pipeline.options import limits, named, seconds, several, text, topic_named, written_topic
from penstock.pipeline.topics import Location, Stream, Topic

if TYPE_CHECKING:
    from penstock.pipeline.handle import PipelineHandle

MOST_PARALLELISM = 64
"""Where no limits are given a function may have up to so many instances."""

Call = TypeVar("Call", bound=Callable[..., Any])


class Takes(Enum):
    """What a function is called with."""

    PANDAS = "pandas"
    """A pandas DataFrame of some records; gives back one."""
    ARROW = "arrow"
    """An Arrow RecordBatch of some records; gives back a RecordBatch or a Table."""
    DATAFRAME = "dataframe"
    """A PySpark DataFrame of a whole batch; gives back one. Called on the driver."""
    KEYED = "keyed"
    """(key, pandas DataFrame, state) of one key; gives back (pandas DataFrame, new state)."""
    QUERY = "query"
    """Not called at all: a streaming query that runs already."""


@dataclass(frozen=True, slots=True)
class Function:
    """One function: what it reads and writes, and within which limits it is scaled."""

    name: str
    call: Callable[..., Any]
    reads: tuple[str, ...]
    writes: str | None
    takes: Takes
    least: int
    most: int
    latency_target: float | None = None
    schema: str | None = None
    key: tuple[str, ...] = ()
    state: str | None = None
    order: str | None = None
    timeout: float | None = None

    @property
    def scalable(self) -> bool:
        """A query that runs already stays as it is; state moves, where there are executors to move it to."""
        return self.takes is not Takes.QUERY and self.least < self.most


class Pipeline:
    """Functions joined by topics; `topics` says where those lie that do not say it themselves."""

    def __init__(self, name: str, topics: Location | None = None) -> None:
        self.name = named("pipeline", name)
        self.location = topics
        self.functions: dict[str, Function] = {}
        self._topics: dict[str, Topic] = {}

    def topic(self, name: str, schema: str | None = None, at: Location | None = None) -> Topic:
        """Declare a topic: its schema, which every topic needs that no function writes, and its place."""
        if name in self._topics:
            raise BadInput(f"{self.name}: topic {name!r} is declared twice")
        declared = Topic(topic_named("topic", name), text(f"topic {name!r}", "schema", schema), at)
        self._topics[name] = declared
        return declared

    def assume(self, topic: str, schema: str) -> None:
        """Give a topic a schema that was not written down, but found."""
        self._topics[topic] = replace(self._topics.get(topic, Topic(topic)), schema=schema)

    def function(self, *, name: str | None = None, **options: Any) -> Callable[[Call], Call]:
        """Make a function of the pipeline; `add` says what can be given."""

        def decorate(call: Call) -> Call:
            self.add(call, name=name, **options)
            return call

        return decorate

    def add(  # noqa: PLR0913
        self,
        call: Callable[..., Any],
        *,
        reads: str | tuple[str, ...] | list[str],
        writes: str | None = None,
        name: str | None = None,
        parallelism: int | tuple[int, int] = (1, MOST_PARALLELISM),
        latency_target: object = None,
        schema: str | None = None,
        takes: str | None = None,
        key: str | tuple[str, ...] | list[str] = (),
        state: str | None = None,
        order: str | None = None,
        timeout: object = None,
    ) -> Function:
        """Add a function.

        `schema` is that of the records it writes. `key` with `state` (the schema of what is kept for each
        key) makes it a keyed stateful one; `key` alone brings records of one key to one instance, and
        `order` sorts them there by a column. `timeout` bounds one call.
        """
        called = named("function", name or str(getattr(call, "__name__", "")))
        place = f"function {called!r}"
        topics, written = self._joined(called, reads, writes)
        kept, ordered = several(place, "key", key), text(place, "order", order)
        if ordered and not kept:
            raise BadInput(f"{place}: order needs a key, for records are ordered within one")
        least, most = limits(place, parallelism)
        kind = _takes(place, takes, text(place, "state", state), kept)
        target, bound = seconds(place, "latency_target", latency_target), seconds(place, "timeout", timeout)
        function = Function(
            called, call, topics, written, kind, least, most, target, text(place, "schema", schema), kept,
            state, ordered, bound,
        )  # fmt: skip
        self.functions[called] = function
        return function

    def existing(
        self, name: str, query: Any, *, reads: str | tuple[str, ...] | list[str], writes: str | None = None
    ) -> Function:
        """Register a streaming query that runs already: it is watched as one instance, and never changed."""
        topics, written = self._joined(named("function", name), reads, writes)
        function = Function(name, query, topics, written, Takes.QUERY, 1, 1)
        self.functions[name] = function
        return function

    def _joined(self, name: str, reads: object, writes: object) -> tuple[tuple[str, ...], str | None]:
        """The topics of a new function, as it reads and writes them."""
        if name in self.functions:
            raise BadInput(f"{self.name}: function {name!r} is defined twice")
        place = f"{self.name}: function {name!r}"
        topics = tuple(topic_named(f"{place} reads", one) for one in several(place, "reads", reads))
        if not topics:
            raise BadInput(f"{place} reads no topic")
        return topics, written_topic(f"{place} writes", writes)

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics, declared or only named by functions; a writer's schema is its topic's."""
        found = dict(self._topics)
        for function in self.functions.values():
            for name in (*function.reads, *([function.writes] if function.writes else [])):
                found.setdefault(name, Topic(name))
        for function in self.functions.values():
            if function.writes and function.schema and found[function.writes].schema is None:
                declared = found[function.writes]
                found[function.writes] = Topic(declared.name, function.schema, declared.at)
        return found

    def layout(self, fixed: frozenset[str] = frozenset()) -> Layout:
        """The graph of functions and topics, some of which are not scaled; BadInput names what is wrong."""
        if not self.functions:
            raise BadInput(f"{self.name}: the pipeline has no functions")
        declared = frozenset(self._topics)
        _check_topics(self, declared)
        return laid_out(
            {name: (one.reads, one.writes) for name, one in self.functions.items()},
            fixed | {name for name, one in self.functions.items() if not one.scalable},
        )

    def check(self) -> Layout:
        """All that must hold before the pipeline can run: the graph, schemas and places."""
        layout = self.layout()
        for name, topic in self.topics.items():
            self._check_topic(name, topic)
        return layout

    def _check_topic(self, name: str, topic: Topic) -> None:
        touching = [one for one in self.functions.values() if name in (*one.reads, one.writes)]
        if all(one.takes is Takes.QUERY for one in touching):
            return  # what a query that runs already reads and writes is its own affair
        place = topic.at or self.location
        if place is None:
            raise BadInput(
                f"{self.name}: topic {name!r} has no place; give topics=files(...) or kafka(...), in YAML at:"
            )
        written = [one for one in self.functions.values() if one.writes == name]
        if isinstance(place, Stream):
            if written:
                raise BadInput(
                    f"{self.name}: function {written[0].name!r} writes topic {name!r}, which is only read"
                )
            return
        if topic.schema is None:
            wanted = f"schema= of function {written[0].name!r}" if written else f"topic({name!r}, schema=...)"
            raise BadInput(f"{self.name}: topic {name!r} has no schema; give {wanted}")
        for one in written:
            if one.schema is not None and _squeezed(one.schema) != _squeezed(topic.schema):
                raise BadInput(
                    f"{self.name}: function {one.name!r} writes {one.schema!r} to topic {name!r}, "
                    f"whose schema is {topic.schema!r}"
                )

    def run(self, spark: Any, **options: Any) -> PipelineHandle:
        """Start every function as a streaming query, and the controller that sizes them."""
        from penstock.pipeline.spark_run import run

        return run(self, spark, **options)


def _check_topics(pipeline: Pipeline, declared: frozenset[str]) -> None:
    """A topic is known by its declaration or by its writer; names must tell functions and topics apart."""
    written = {one.writes for one in pipeline.functions.values() if one.writes}
    for function in pipeline.functions.values():
        for topic in function.reads:
            if topic not in declared and topic not in written:
                near = difflib.get_close_matches(topic, [*declared, *written], n=1)
                raise BadInput(
                    f"{pipeline.name}: function {function.name!r} reads the unknown topic {topic!r}: "
                    "no function writes it, and it is not declared"
                    + (f"; did you mean {near[0]!r}?" if near else "")
                )
    for name in pipeline.functions:
        if name in declared or name in written:
            raise BadInput(f"{pipeline.name}: {name!r} is the name of a function and of a topic")


def _takes(place: str, given: str | None, state: str | None, key: tuple[str, ...]) -> Takes:
    known = [one.value for one in Takes if one is not Takes.QUERY]
    if given is not None and given not in known:
        raise BadInput(f"{place}: takes {given!r}, not one of {', '.join(known)}")
    if (state is not None or given == Takes.KEYED.value) and not (state and key):
        raise BadInput(f"{place}: a keyed stateful function needs both key and state")
    if state is not None and given not in (None, Takes.KEYED.value):
        raise BadInput(f"{place}: takes {given!r}, but with state it is called with keys")
    if state is not None:
        return Takes.KEYED
    return Takes(given) if given else Takes.PANDAS


def _squeezed(schema: str) -> str:
    return re.sub(r"\s+", " ", schema.replace(",", " , ")).strip().lower()
