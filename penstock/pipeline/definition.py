"""A pipeline: its functions and topics, written in Python or YAML, and checked before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import BadInput
from penstock.pipeline.topics import Layout, Location, Stream, Topic, lay_out
from penstock.units.fields import parse_duration, suggest_name

if TYPE_CHECKING:
    from penstock.pipeline.handle import PipelineHandle

MOST_PARALLELISM = 64
"""Where no limits are given a function may have up to so many instances."""

Call = TypeVar("Call", bound=Callable[..., Any])


class Takes(Enum):
    """The form in which a function is given its records."""

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
    fuse: bool = True
    """Whether it may run as one query with a neighbour."""

    @property
    def scalable(self) -> bool:
        """A query that runs already stays as it is; state moves, where there are executors to move it to."""
        return self.takes is not Takes.QUERY and self.least < self.most


class Pipeline:
    """Functions joined by topics; `topics` says where those lie that do not say it themselves."""

    def __init__(self, name: str, topics: Location | None = None) -> None:
        self.name = check_name("pipeline", name)
        self.location = topics
        self.functions: dict[str, Function] = {}
        self._topics: dict[str, Topic] = {}

    def topic(
        self, name: str, schema: str | None = None, at: Location | None = None, kept: bool = True
    ) -> Topic:
        """Declare a topic: its schema, which every topic needs that no function writes, and its place.

        A topic that is `kept` is always written; any other may be left out where its functions are fused.
        """
        if name in self._topics:
            raise BadInput(f"{self.name}: topic {name!r} is declared twice")
        place = f"topic {check_topic('topic', name)!r}"
        declared = Topic(name, parse_text(place, "schema", schema), at, parse_switch(place, "kept", kept))
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
        fuse: bool = True,
    ) -> Function:
        """Add a function.

        `schema` is that of the records it writes. `key` with `state` (the schema of what is kept for each
        key) makes it a keyed stateful one; `key` alone brings records of one key to one instance, and
        `order` sorts them there by a column. `timeout` bounds one call. Without `fuse` it never runs as one
        query with a neighbour.
        """
        called = check_name("function", name or str(getattr(call, "__name__", "")))
        place = f"function {called!r}"
        topics, written = self._join(called, reads, writes)
        kept, ordered = parse_names(place, "key", key), parse_text(place, "order", order)
        if ordered and not kept:
            raise BadInput(f"{place}: order needs a key, for records are ordered within one")
        least, most = parse_limits(place, parallelism)
        kind = _choose_form(place, takes, parse_text(place, "state", state), kept)
        target = parse_seconds(place, "latency_target", latency_target)
        bound, shape = parse_seconds(place, "timeout", timeout), parse_text(place, "schema", schema)
        joins = parse_switch(place, "fuse", fuse)
        function = Function(
            called, call, topics, written, kind, least, most, target, shape, kept, state, ordered, bound,
            joins,
        )  # fmt: skip
        self.functions[called] = function
        return function

    def existing(
        self, name: str, query: Any, *, reads: str | tuple[str, ...] | list[str], writes: str | None = None
    ) -> Function:
        """Register a streaming query that runs already: it is watched as one instance, and never changed."""
        topics, written = self._join(check_name("function", name), reads, writes)
        function = Function(name, query, topics, written, Takes.QUERY, 1, 1, fuse=False)
        self.functions[name] = function
        return function

    def _join(self, name: str, reads: object, writes: object) -> tuple[tuple[str, ...], str | None]:
        """Return the topics of a new function, as it reads and writes them."""
        if name in self.functions:
            raise BadInput(f"{self.name}: function {name!r} is defined twice")
        place = f"{self.name}: function {name!r}"
        topics = tuple(check_topic(f"{place} reads", one) for one in parse_names(place, "reads", reads))
        if not topics:
            raise BadInput(f"{place} reads no topic")
        return topics, check_written(f"{place} writes", writes)

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics, declared or only named by functions; a writer's schema is its topic's."""
        found = dict(self._topics)
        for function in self.functions.values():
            for name in (*function.reads, *([function.writes] if function.writes else [])):
                found.setdefault(name, Topic(name))
        for function in self.functions.values():
            if function.writes and function.schema and found[function.writes].schema is None:
                found[function.writes] = replace(found[function.writes], schema=function.schema)
        return found

    def layout(self, fixed: frozenset[str] = frozenset()) -> Layout:
        """Build the graph of functions and topics, some not scaled; BadInput names what is wrong."""
        if not self.functions:
            hint = "add one with `pipeline.function`, in YAML under functions:"
            raise BadInput(f"{self.name}: the pipeline has no functions; {hint}")
        _check_names(self, frozenset(self._topics))
        unscalable = {name for name, one in self.functions.items() if not one.scalable}
        joined = {name: (one.reads, one.writes) for name, one in self.functions.items()}
        return lay_out(joined, fixed | unscalable)

    def check(self) -> Layout:
        """Check all that must hold before the pipeline can run: the graph, schemas and places."""
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
            if one.schema is not None and _squeeze(one.schema) != _squeeze(topic.schema):
                raise BadInput(
                    f"{self.name}: function {one.name!r} writes {one.schema!r} to topic {name!r}, "
                    f"whose schema is {topic.schema!r}"
                )

    def run(self, spark: Any, **options: Any) -> PipelineHandle:
        """Start every function as a streaming query, and the controller that sizes them."""
        from penstock.pipeline.spark_run import run

        return run(self, spark, **options)


def _check_names(pipeline: Pipeline, declared: frozenset[str]) -> None:
    """Check that each topic is declared or written, and that no function has the name of a topic."""
    written = {one.writes for one in pipeline.functions.values() if one.writes}
    for function in pipeline.functions.values():
        for topic in function.reads:
            if topic not in declared and topic not in written:
                nearest = suggest_name(topic, [*declared, *written], list_all=False)
                raise BadInput(
                    f"{pipeline.name}: function {function.name!r} reads the unknown topic {topic!r}: "
                    f"no function writes it, and it is not declared{nearest}"
                )
    for name in pipeline.functions:
        if name in declared or name in written:
            raise BadInput(f"{pipeline.name}: {name!r} is the name of a function and of a topic")


def _choose_form(place: str, given: str | None, state: str | None, key: tuple[str, ...]) -> Takes:
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


def _squeeze(schema: str) -> str:
    return re.sub(r"\s+", " ", schema.replace(",", " , ")).strip().lower()


DEAD_LETTERS = "{}.dead"
"""The topic of a function's dead letters; no function may write one of such a name."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_name(kind: str, name: object) -> str:
    """Check the name of a pipeline or function: it becomes part of paths, query names and pools."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadInput(
            f"{kind}: {name!r} is not a name of letters, digits, - and _ that starts with a letter"
        )
    return name


def check_topic(place: str, name: object) -> str:
    """Check the name of a topic, as Kafka has them, that can be a directory."""
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise BadInput(f"{place}: {name!r} is not a topic's name: letters, digits, ., - and _, no _ in front")
    return name


def check_written(place: str, name: object) -> str | None:
    """Check the topic that a function writes, if it does."""
    if name is None:
        return None
    written = check_topic(place, name)
    if written.endswith(DEAD_LETTERS.format("")):
        raise BadInput(f"{place}: {written!r} is a name for dead letters")
    return written


def parse_names(place: str, option: str, given: object) -> tuple[str, ...]:
    """Return one text or a list of them, none twice."""
    texts = (given,) if isinstance(given, str) else given
    if not isinstance(texts, tuple | list) or not all(isinstance(one, str) and one for one in texts):
        raise BadInput(f"{place}: {option} is {given!r}, not a name or a list of names")
    for number, one in enumerate(texts):
        if one in texts[:number]:
            raise BadInput(f"{place}: {option} names {one!r} twice")
    return tuple(texts)


def parse_text(place: str, option: str, given: object) -> str | None:
    """Return a text, where there is one."""
    if given is None:
        return None
    if not isinstance(given, str) or not given.strip():
        raise BadInput(f"{place}: {option} is {given!r}, not a text")
    return given


def parse_switch(place: str, option: str, given: object) -> bool:
    """Return yes or no."""
    if not isinstance(given, bool):
        raise BadInput(f"{place}: {option} is {given!r}, neither true nor false")
    return given


def parse_limits(place: str, given: object) -> tuple[int, int]:
    """Return the least and the most instances; a single number is both."""
    pair = (given, given) if isinstance(given, int) else given
    if isinstance(pair, tuple | list) and len(pair) == 2:
        least, most = pair
        whole = all(isinstance(one, int) and not isinstance(one, bool) for one in pair)
        if whole and 1 <= least <= most:
            return least, most
    raise BadInput(f"{place}: parallelism {given!r} is not a number or (least, most), from 1 on")


def parse_seconds(place: str, option: str, given: object) -> float | None:
    """Return a duration above zero, where there is one."""
    try:
        found = None if given is None else parse_duration(given)
    except ValueError as error:
        raise BadInput(f"{place}: {option}: {error}") from None
    if found is not None and found <= 0:
        raise BadInput(f"{place}: {option} is {given!r}, not above 0")
    return found
