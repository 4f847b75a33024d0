"""Windows to try policies with: ordinary loads on operators and on slots, and each of them spoilt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.dataflow.costs.model import makespan
from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import BatchExecution, InstanceMetrics, MetricWindow, StageExecution
from penstock.dataflow.window import (
    EXECUTORS,
    ApplicationWindow,
    ExecutorState,
    OperatorQuery,
    OperatorWindow,
    SlotQuery,
    SlotWindow,
    SourceRate,
    TopicRate,
)

SECONDS = 10.0
CAPACITIES = {"parse": 40.0, "count": 30.0}
"""Operator → records per second of one instance."""
STAGES = {"flatmap": (0.15, 0.008, 20.0), "count": (0.15, 0.0006, 0.05), "state": (0.21, 0.0, 1.0)}
"""Stage → slot-seconds per task, slot-seconds per record, and records out per record in."""
TASKS, SLOTS_EACH, SERIAL_SECONDS = 15, 5, 0.5
IMPOSSIBLE = (math.nan, math.inf, -1.0)

WindowMaker = Callable[..., ApplicationWindow]


def on_operators(offered: float = 50.0, backlog: float = 0.0, held: int = 1) -> OperatorWindow:
    """Show a chain of two operators, each with so many instances of its own."""
    names = ["source", *CAPACITIES]
    graph = LogicalGraph(names, pairwise(names))
    read = min(offered + backlog / SECONDS, *(held * each for each in CAPACITIES.values()))
    left = max(0.0, backlog + (offered - read) * SECONDS)
    rows = [InstanceMetrics("source", "0", 0.0, read * SECONDS, 1.0)]
    for name, each in CAPACITIES.items():
        share = read * SECONDS / held
        rows += [InstanceMetrics(name, str(number), share, share, share / each) for number in range(held)]
    metrics = MetricWindow.of(graph, 0.0, SECONDS, rows)
    sources = {"source": SourceRate(offered, read, left)}
    query = OperatorQuery("q", "pipeline", graph, sources, metrics)
    return OperatorWindow("app", 0.0, SECONDS, {"source": 1, **dict.fromkeys(CAPACITIES, held)}, (query,))


def on_slots(rate: float = 100.0, backlog: float = 0.0, executors: int = 2) -> SlotWindow:
    """Show a query of three stages on executors of five slots, with four finished batches."""
    graph = LogicalGraph(STAGES, pairwise(STAGES))
    slots = SLOTS_EACH * executors
    sizes = [rate * SECONDS * factor for factor in (0.8, 1.0, 1.2, 1.1)]
    query = SlotQuery(
        query_id="q",
        name="words",
        graph=graph,
        sources={"flatmap": SourceRate(rate, rate, backlog)},
        batches=tuple(_run_batch(number, records, slots) for number, records in enumerate(sizes)),
        period_seconds=SECONDS,
        latency_seconds=12.0,
    )
    states = tuple(ExecutorState(str(number), "host", SLOTS_EACH) for number in range(executors))
    held = {EXECUTORS: executors}
    return SlotWindow(
        "app", 0.0, 4 * SECONDS, held, (query,), executors=states, slots_per_executor=SLOTS_EACH
    )


def _run_batch(number: int, records: float, slots: int) -> BatchExecution:
    read, stages = records, []
    for name, (per_task, per_record, selectivity) in STAGES.items():
        taken = np.full(TASKS, records / TASKS)
        useful = per_task * max(0.3, 1 + 0.05 * (slots - 5)) + per_record * taken
        wall = makespan(useful, slots)
        stages.append(StageExecution(name, taken, taken * selectivity, useful, np.zeros(TASKS), wall))
        records *= selectivity
    seconds = SERIAL_SECONDS + sum(stage.wall_seconds for stage in stages)
    return BatchExecution(number, SECONDS * number, seconds, slots, read, tuple(stages))


def tell_stories(window_of: WindowMaker) -> list[ApplicationWindow]:
    """Show little load, much, a backlog, far too many held, and nothing offered."""
    loads = ((10.0,), (300.0,), (300.0, 5000.0), (10.0, 0.0, 4), (0.0, 0.0, 2))
    return [window_of(*load) for load in loads]


def with_sources(window: ApplicationWindow, reading: SourceRate) -> ApplicationWindow:
    """Show the window with this reading of every source."""
    return _with_query(window, sources=dict.fromkeys(window.queries[0].sources, reading))


def _with_query(window: ApplicationWindow, **changes: Any) -> ApplicationWindow:
    return replace(window, queries=(replace(window.queries[0], **changes),))  # type: ignore[arg-type]


def spoil(window: ApplicationWindow) -> Iterator[ApplicationWindow]:
    """Show the window with everything wrong that can be, one thing at a time."""
    query = window.queries[0]
    fixed = LogicalGraph([Operator(o.name, scalable=False) for o in query.graph.operators], query.graph.edges)
    for bad in IMPOSSIBLE:
        yield with_sources(window, SourceRate(bad, bad, bad))
        yield with_sources(window, SourceRate(10.0, bad, 0.0))
        yield with_sources(window, SourceRate(10.0, 10.0, bad))
        yield _with_query(window, latency_seconds=bad)
    yield with_sources(window, SourceRate(1e308, 1.0, 1e308))
    yield with_sources(window, SourceRate(0.0, 0.0, 0.0))
    yield _with_query(window, sources={})
    yield _with_query(window, sources={"nobody": SourceRate(1.0, 1.0)})
    yield _with_query(window, graph=fixed)
    yield from _spoil_batches(window) if isinstance(window, SlotWindow) else _spoil_metrics(window)
    yield replace(window, queries=())  # type: ignore[arg-type]
    yield replace(window, queries=(query, query))  # type: ignore[arg-type]
    yield replace(window, executors=())
    yield replace(window, parallelism={})
    yield replace(window, parallelism={"nobody": 3})
    yield replace(window, parallelism=dict.fromkeys(window.parallelism, 0))
    yield replace(window, parallelism={**window.parallelism, "nobody": 3})
    yield replace(window, slots_per_executor=0)
    yield replace(window, start=window.end)


def _spoil_batches(window: SlotWindow) -> Iterator[ApplicationWindow]:
    broken = BatchExecution(7, 0.0, math.nan, 4, math.nan, ())
    unsettled = tuple(replace(one, settled=False) for one in window.queries[0].batches)
    for bad in IMPOSSIBLE:
        yield _with_query(window, period_seconds=bad)
    for batches in ((), (broken,), unsettled):
        yield _with_query(window, batches=batches)


def _spoil_metrics(window: OperatorWindow) -> Iterator[ApplicationWindow]:
    graph = window.queries[0].graph
    idle = [InstanceMetrics(o.name, "0", 0.0, 0.0, 0.0) for o in graph.operators]
    untimed = [InstanceMetrics(o.name, "0", 10.0, 10.0, 0.0) for o in graph.operators]
    for rows in ([], idle, untimed):
        yield _with_query(window, metrics=MetricWindow.of(graph, 0.0, SECONDS, rows))
    for bad in IMPOSSIBLE:
        yield _with_query(window, topics={graph.names[-1]: TopicRate(bad, bad, bad, bad)})
    yield _with_query(window, topics={"nobody": TopicRate(1.0, 1.0, 1.0, 1.0)})
