"""Reads a window for a decision: whether it can be decided by, what is scaled, and what waits before it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import Floats, MetricWindow
from penstock.dataflow.rates import SATURATED
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import (
    EXECUTORS,
    ApplicationWindow,
    OperatorQuery,
    OperatorWindow,
    QueryWindow,
    SlotWindow,
)
from penstock.decide.policy import ExpectedEffect, Scale


def count_held(window: SlotWindow, least: int = 1) -> int | NotReady:
    """Return how many executors are held; without a slot, or with fewer than `least`, nothing is decided."""
    held = window.parallelism.get(EXECUTORS, least)
    if held < least or not window.executors or window.slots < 1:
        return NotReady("the application has no executors", "an executor")
    if EXECUTORS not in window.parallelism:
        return NotReady("how many executors are held is unknown", "their number")
    return held


def find_unread_source(query: QueryWindow) -> NotReady | None:
    """Name a source whose offered rate or backlog is unknown, negative, NaN or infinite."""
    for name in query.graph.sources:
        source = query.sources.get(name)
        if source is None:
            return NotReady(f"the offered rate of source {name!r} is unknown", "a reading of the source")
        readings = (source.offered_per_second, source.backlog_records)
        if not all(math.isfinite(reading) and reading >= 0 for reading in readings):
            told = "offered {}/s, backlog {}".format(*readings)
            return NotReady(f"the reading of source {name!r} cannot be right: {told}", "another reading")
    for name, topic in query.topics.items() if isinstance(query, OperatorQuery) else ():
        if not 0 <= topic.overdue_records < math.inf:
            reason = f"the backlog of {name!r} cannot be right: {topic.overdue_records}"
            return NotReady(reason, "another reading")
    return None


def mark_unscalable(graph: LogicalGraph, unscalable: frozenset[str]) -> LogicalGraph:
    """Mark the operators that settings name; return the same graph if there is none."""
    if not unscalable or not any(o.name in unscalable and o.scalable for o in graph.operators):
        return graph
    marked = [Operator(o.name, o.scalable and o.name not in unscalable) for o in graph.operators]
    return LogicalGraph(marked, graph.edges)


def find_shared_operator(window: OperatorWindow) -> NotReady | None:
    """Name an operator of two queries: parallelism is keyed by the operator alone."""
    if len(window.queries) == 1:
        return None
    seen: set[str] = set()
    for query in window.queries:
        for operator in query.graph.operators:
            if operator.name in seen:
                return NotReady(f"operator {operator.name!r} belongs to two queries", "names that differ")
            seen.add(operator.name)
    return None


def find_unheld_operator(graph: LogicalGraph, held: Mapping[str, int]) -> NotReady | None:
    """Name an operator of which no instance is held: a size for it could not be put into effect.

    Sources are not scaled (equation 7 of DS2), so what is held of them need not be known.
    """
    for name in graph.fed:
        if held.get(name, 0) < 1:
            return NotReady(f"no instance of {name!r} is held", "the parallelism of each operator")
    return None


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
    and not taken by it; where `topics` has a reading of the operator's own input, that counts instead, also
    for what waits at the source before it.
    """

    def __init__(self, unscalable: frozenset[str] = frozenset()) -> None:
        self._unscalable = unscalable
        self._queues: dict[str, float] = {}
        self._read_until = -math.inf

    def read(self, window: ApplicationWindow) -> tuple[Unit, ...] | NotReady:
        """Read all units but sources; NotReady if a reading is missing or impossible."""
        if not window.queries:
            return NotReady("no query is active", "a query that reports metrics")
        for query in window.queries:
            unread = find_unread_source(query)
            if unread is not None:
                return unread
        if isinstance(window, SlotWindow):
            return _read_executors(window)
        return self._operators(window)

    def _operators(self, window: OperatorWindow) -> tuple[Unit, ...] | NotReady:
        mistakable = find_shared_operator(window)
        if mistakable is not None:
            return mistakable
        units: list[Unit] = []
        for query in window.queries:
            missing = (
                find_unheld_operator(query.graph, window.parallelism)
                or _find_stranger(query)
                or _find_unreported(query)
            )
            if missing is not None:
                return missing
            units += self._units(query, window.parallelism)
        # windows that overlap would count the same records twice
        self._read_until = max(self._read_until, window.end)
        return tuple(units)

    def _units(self, query: OperatorQuery, held: Mapping[str, int]) -> list[Unit]:
        graph = query.graph
        busy, taken = measure_busy(graph, query.metrics, held), _count_taken(graph, query.metrics)
        waiting = _find_waiting(query, busy)
        if query.metrics.start >= self._read_until:
            self._follow_queues(query, taken)
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

    def _inside(self, query: OperatorQuery, name: str) -> float:
        reading = query.topics.get(name)
        if reading is not None and 0 <= reading.backlog_records < math.inf:
            return reading.backlog_records
        return self._queues.get(name, 0.0)

    def _follow_queues(self, query: OperatorQuery, taken: Floats) -> None:
        graph, metrics = query.graph, query.metrics
        busy = _measure_working(graph, metrics)
        given = np.bincount(metrics.operator, weights=metrics.records_out, minlength=len(graph.operators))
        for number, operator in enumerate(graph.operators):
            grown = sum(float(given[feed]) for feed in graph.upstream[number]) - float(taken[number])
            before = self._queues.get(operator.name, 0.0)
            # an operator that has time left has worked off its queue; instances that do nothing may be dead
            self._queues[operator.name] = max(0.0, before + grown) if busy[number] >= SATURATED else 0.0


def scale_units(
    window: ApplicationWindow,
    changes: Mapping[str, int],
    reason: str,
    effect: ExpectedEffect,
    exact: Mapping[str, float] | None = None,
) -> Scale:
    """Change some units; the proposal names the sizes of all that are held, as the journal shows them."""
    known = {operator.name for query in window.queries for operator in query.graph.operators} | {EXECUTORS}
    sizes = {name: count for name, count in window.parallelism.items() if name in known and count >= 1}
    return Scale({**sizes, **changes}, reason, effect, exact or {})


def _read_executors(window: SlotWindow) -> tuple[Unit, ...] | NotReady:
    held = count_held(window)
    if isinstance(held, NotReady):
        return held
    backlog = sum(
        query.sources[name].backlog_records for query in window.queries for name in query.graph.sources
    )
    return (
        Unit(EXECUTORS, held, backlog, _measure_busy_slots(window), queued=0.0, taken=0.0, scalable=True),
    )


def _measure_busy_slots(window: SlotWindow) -> float:
    """Useful task time of the batches over the slot time of the window; NaN where it was not measured."""
    seconds = window.end - window.start
    stages = [stage for query in window.queries for batch in query.batches for stage in batch.stages]
    useful = sum(float(stage.useful_seconds.sum()) for stage in stages)
    return useful / (seconds * window.slots) if seconds > 0 and stages else math.nan


def _find_stranger(query: OperatorQuery) -> NotReady | None:
    """Metrics of an operator that the graph does not have cannot be put anywhere."""
    numbers, size = query.metrics.operator, len(query.graph.operators)
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < size):
        return NotReady(
            f"the window has an operator number outside 0 to {size - 1}", "metrics of the graph's operators"
        )
    return None


def _find_unreported(query: OperatorQuery) -> NotReady | None:
    """Name an operator without a report: it must not be taken for an idle one."""
    reported = set(query.metrics.operator.tolist())
    for number, operator in enumerate(query.graph.operators):
        if query.graph.upstream[number] and number not in reported:
            return NotReady(f"no instance of {operator.name!r} reported", "a report of each instance")
    return None


def measure_busy(graph: LogicalGraph, metrics: MetricWindow, held: Mapping[str, int]) -> Floats:
    """Return the share of the window in which the mean instance of each operator worked."""
    useful = np.bincount(metrics.operator, weights=metrics.useful_seconds, minlength=len(graph.operators))
    instances = np.array([max(1, held.get(operator.name, 1)) for operator in graph.operators])
    share: Floats = useful / (instances * metrics.seconds)
    return share


def _measure_working(graph: LogicalGraph, metrics: MetricWindow) -> Floats:
    """Return the share of the window in which those instances worked that worked at all.

    Where fewer than half did, or one alone, it is a hot key or few partitions, and all of them count.
    """
    size = len(graph.operators)
    useful = np.bincount(metrics.operator, weights=metrics.useful_seconds, minlength=size)
    active = np.bincount(metrics.operator, weights=metrics.useful_seconds > 0, minlength=size)
    reported = np.bincount(metrics.operator, minlength=size)
    counted = np.where((active > 1) & (2 * active >= reported), active, reported)
    share: Floats = useful / (np.maximum(counted, 1) * metrics.seconds)
    return share


def _count_taken(graph: LogicalGraph, metrics: MetricWindow) -> Floats:
    """Count the records that each operator took in over the window."""
    records = np.bincount(metrics.operator, weights=metrics.records_in, minlength=len(graph.operators))
    return records.astype(np.float64)


def _find_waiting(query: OperatorQuery, busy: Floats) -> dict[int, float]:
    """Operator number → the records that wait for it at sources; of equally busy ones the first."""
    graph = query.graph
    waiting: dict[int, float] = {}
    for name in graph.sources:
        reached = _list_reached(graph, graph.index[name])
        if reached and not _read_by_itself(query, graph.index[name]):
            full = min(SATURATED, max(float(busy[number]) for number in reached))
            first = next(number for number in reached if busy[number] >= full)
            waiting[first] = waiting.get(first, 0.0) + query.sources[name].backlog_records
    return waiting


def _read_by_itself(query: OperatorQuery, origin: int) -> bool:
    """Tell whether every operator that a source feeds has a reading of its own input, as behind topics."""
    graph = query.graph
    fed = [o.name for number, o in enumerate(graph.operators) if origin in graph.upstream[number]]
    return all(name in query.topics for name in fed)


def _list_reached(graph: LogicalGraph, origin: int) -> list[int]:
    """List the operators that records of one source reach, in topological order."""
    reached = {origin}
    for number, feeds in enumerate(graph.upstream):
        if reached.intersection(feeds):
            reached.add(number)
    return sorted(reached - {origin})
