"""What can be scaled, how much of it is held, and what waits before it: all that a plain rule needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import Floats, MetricWindow
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, Execution, QueryWindow
from penstock.decide.policy import ExpectedEffect, Scale
from penstock.decide.readings import shared_operator, unheld_operator, unread_source

SATURATED = 0.85
"""An operator that is idle for more of a window than useful times are wrong by has worked off its queue."""


@dataclass(frozen=True, slots=True)
class Unit:
    """An operator, or the executors: `backlog` records wait before it, `busy` is its share of useful time.

    `queued` is the part of the backlog that waits between operators, `taken` the records per second that it
    took in; executors have no such queue, and take in batches.
    """

    name: str
    held: int
    backlog: float
    busy: float
    queued: float
    taken: float
    scalable: bool


class UnitReader:
    """Reads the units of successive windows; remembers the queues between operators, which none reports.

    What waits at a source stands before the busiest operator that the source reaches, since with bounded
    queues a slow operator makes its records wait there. A queue inside grows by what is fed to an operator
    and not taken by it; where `sources` has a reading of the operator's own input, that counts instead, also
    for what waits at the source before it.
    """

    def __init__(self, unscalable: frozenset[str] = frozenset()) -> None:
        self._unscalable = unscalable
        self._queues: dict[str, float] = {}
        self._read_until = -math.inf

    def read(self, window: ApplicationWindow) -> tuple[Unit, ...] | NotReady:
        """All units of the window, sources left out; NotReady where a reading is missing or impossible."""
        if not window.queries:
            return NotReady("no query is active", "a query that reports metrics")
        for query in window.queries:
            unread = unread_source(query)
            if unread is not None:
                return unread
        if window.execution is Execution.SHARED_SLOTS:
            return _executors(window)
        return self._operators(window)

    def _operators(self, window: ApplicationWindow) -> tuple[Unit, ...] | NotReady:
        mistakable = shared_operator(window)
        if mistakable is not None:
            return mistakable
        units: list[Unit] = []
        for query in window.queries:
            missing = (
                unheld_operator(query.graph, window.parallelism) or _stranger(query) or _unreported(query)
            )
            if missing is not None:
                return missing
            units += self._units(query, window.parallelism)
        # windows that overlap would count the same records twice
        self._read_until = max(self._read_until, window.end)
        return tuple(units)

    def _units(self, query: QueryWindow, held: Mapping[str, int]) -> list[Unit]:
        graph = query.graph
        busy, taken = _busy(graph, query.metrics, held), _taken(graph, query.metrics)
        waiting = _before_busiest(query, busy)
        if query.metrics.start >= self._read_until:
            self._follow_queues(query, busy, taken)
        queued = {name: self._inside(query, name) for name in graph.index}
        return [
            Unit(
                name=operator.name,
                held=held[operator.name],
                backlog=waiting.get(number, 0.0) + queued[operator.name],
                busy=float(busy[number]),
                queued=queued[operator.name],
                taken=float(taken[number]) / query.metrics.seconds,
                scalable=operator.scalable and operator.name not in self._unscalable,
            )
            for number, operator in enumerate(graph.operators)
            if graph.upstream[number]
        ]

    def _inside(self, query: QueryWindow, name: str) -> float:
        reading = query.sources.get(name)
        if reading is not None and 0 <= reading.backlog_records < math.inf:
            return reading.backlog_records
        return self._queues.get(name, 0.0)

    def _follow_queues(self, query: QueryWindow, busy: Floats, taken: Floats) -> None:
        graph, metrics = query.graph, query.metrics
        given = np.bincount(metrics.operator, weights=metrics.records_out, minlength=len(graph.operators))
        for number, operator in enumerate(graph.operators):
            grown = sum(float(given[feed]) for feed in graph.upstream[number]) - float(taken[number])
            before = self._queues.get(operator.name, 0.0)
            self._queues[operator.name] = max(0.0, before + grown) if busy[number] >= SATURATED else 0.0


def resized(
    window: ApplicationWindow,
    changes: Mapping[str, int],
    reason: str,
    effect: ExpectedEffect,
    exact: Mapping[str, float] | None = None,
) -> Scale:
    """A change of some units that names the size of all that are held, as the journal shows it."""
    known = {operator.name for query in window.queries for operator in query.graph.operators} | {EXECUTORS}
    sizes = {name: count for name, count in window.parallelism.items() if name in known and count >= 1}
    return Scale({**sizes, **changes}, reason, effect, exact or {})


def _executors(window: ApplicationWindow) -> tuple[Unit, ...] | NotReady:
    held = window.parallelism.get(EXECUTORS, 0)
    if held < 1 or not window.executors or window.slots < 1:
        return NotReady("the application has no executors", "an executor")
    backlog = sum(
        query.sources[name].backlog_records for query in window.queries for name in query.graph.sources
    )
    return (Unit(EXECUTORS, held, backlog, _busy_slots(window), queued=0.0, taken=0.0, scalable=True),)


def _busy_slots(window: ApplicationWindow) -> float:
    """Useful task time of the batches over the slot time of the window; NaN where it was not measured."""
    seconds = window.end - window.start
    stages = [stage for query in window.queries for batch in query.batches for stage in batch.stages]
    useful = sum(float(stage.useful_seconds.sum()) for stage in stages)
    return useful / (seconds * window.slots) if seconds > 0 and stages else math.nan


def _stranger(query: QueryWindow) -> NotReady | None:
    """Metrics of an operator that the graph does not have cannot be put anywhere."""
    numbers, size = query.metrics.operator, len(query.graph.operators)
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < size):
        return NotReady(
            f"the window has an operator number outside 0 to {size - 1}", "metrics of the graph's operators"
        )
    return None


def _unreported(query: QueryWindow) -> NotReady | None:
    """An operator that says nothing must not be taken for an idle one."""
    reported = set(query.metrics.operator.tolist())
    for number, operator in enumerate(query.graph.operators):
        if query.graph.upstream[number] and number not in reported:
            return NotReady(f"no instance of {operator.name!r} reported", "a report of each instance")
    return None


def _busy(graph: LogicalGraph, metrics: MetricWindow, held: Mapping[str, int]) -> Floats:
    useful = np.bincount(metrics.operator, weights=metrics.useful_seconds, minlength=len(graph.operators))
    instances = np.array([max(1, held.get(operator.name, 1)) for operator in graph.operators])
    share: Floats = useful / (instances * metrics.seconds)
    return share


def _taken(graph: LogicalGraph, metrics: MetricWindow) -> Floats:
    """Records that each operator took in over the window."""
    records = np.bincount(metrics.operator, weights=metrics.records_in, minlength=len(graph.operators))
    return records.astype(np.float64)


def _before_busiest(query: QueryWindow, busy: Floats) -> dict[int, float]:
    """Operator number → the records that wait for it at sources; of equally busy ones the first."""
    graph = query.graph
    waiting: dict[int, float] = {}
    for name in graph.sources:
        reached = _reached(graph, graph.index[name])
        if reached and not _read_by_itself(query, graph.index[name]):
            full = min(SATURATED, max(float(busy[number]) for number in reached))
            first = next(number for number in reached if busy[number] >= full)
            waiting[first] = waiting.get(first, 0.0) + query.sources[name].backlog_records
    return waiting


def _read_by_itself(query: QueryWindow, origin: int) -> bool:
    """Whether every operator that a source feeds has a reading of its own input, as behind topics."""
    graph = query.graph
    fed = [o.name for number, o in enumerate(graph.operators) if origin in graph.upstream[number]]
    return all(name in query.sources for name in fed)


def _reached(graph: LogicalGraph, origin: int) -> list[int]:
    """The operators that records of one source come to, in topological order."""
    reached = {origin}
    for number, feeds in enumerate(graph.upstream):
        if reached.intersection(feeds):
            reached.add(number)
    return sorted(reached - {origin})
