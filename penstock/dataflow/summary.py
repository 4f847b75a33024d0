"""The part of a window that is kept: the figures of its queries, and their form in the journal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import (
    BatchExecution,
    Floats,
    MetricWindow,
    RunningBatch,
    RunningStage,
    StageExecution,
)
from penstock.dataflow.window import (
    ApplicationWindow,
    CriticalWindow,
    OperatorBatches,
    OperatorQuery,
    QueryWindow,
    SlotQuery,
    SourceRate,
    TopicRate,
)
from penstock.errors import BadGraph, BadMetrics

VERSION = 2
"""Version 1 had no kind, and the readings of topics among those of sources."""
SLOTS, OPERATORS = "slots", "operators"
MOST_BATCHES = 2
"""The latest batches of a window tell as much as all of them."""
MOST_TASKS = 256
"""A stage with more tasks is kept as if they were alike."""
DIGITS = 5
OVERRUN = 1.05
"""Times its period that a batch may take: less is noise."""

_Plain = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QuerySummary:
    """One query over one window; rates of all its sources together, None where nothing was measured."""

    name: str
    offered_per_second: float
    observed_per_second: float
    backlog_records: float
    batch_seconds: float | None = None
    period_seconds: float | None = None
    latency_seconds: float | None = None
    timeline_seconds: Mapping[str, float] = field(default_factory=dict)
    critical: Mapping[str, object] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    """The query as policies saw it, as `write_query` writes it; only the journal keeps it."""


def summarise(query: QueryWindow) -> QuerySummary:
    """Reduce a query's window to its figures; the batch time is the median, so one slow batch says little."""
    summary = QuerySummary(
        name=query.name,
        offered_per_second=sum(source.offered_per_second for source in query.sources.values()),
        observed_per_second=sum(source.observed_per_second for source in query.sources.values()),
        backlog_records=sum(source.backlog_records for source in query.waiting),
        latency_seconds=query.latency_seconds,
    )
    if not isinstance(query, SlotQuery):
        return summary
    settled = [batch.seconds for batch in query.batches if batch.settled]
    seconds = settled or [batch.seconds for batch in query.batches]
    return replace(
        summary,
        batch_seconds=median(seconds) if seconds else None,
        period_seconds=query.period_seconds,
        timeline_seconds=dict(query.timeline_seconds),
        critical=write_critical(query.critical[-1]) if query.critical else {},
    )


def is_behind(query: QuerySummary) -> bool:
    """Tell whether batches overrun their period, or more than a period's records are backlog.

    Metric, alert, report, dashboard and Spark UI tab all mean this by behind. The manager takes the same
    overrun for noise, but asks of several windows whether a backlog grows: one that shrinks needs no action.
    """
    period = query.period_seconds or query.batch_seconds or 0.0
    if query.period_seconds and (query.batch_seconds or 0.0) > OVERRUN * query.period_seconds:
        return True
    rates = (query.offered_per_second, query.observed_per_second)
    fastest = max((rate for rate in rates if math.isfinite(rate)), default=0.0)
    return math.isfinite(query.backlog_records) and query.backlog_records > fastest * period


def measure_figures(window: ApplicationWindow) -> Mapping[str, float]:
    """Measure an application under the names in which policies state what they expect.

    Rates add up. Batch time and utilisation are those of the busiest query, as in the predictions.
    """
    queries = [summarise(query) for query in window.queries]
    figures = {
        "observed_per_second": sum(query.observed_per_second for query in queries),
        "offered_per_second": sum(query.offered_per_second for query in queries),
        "backlog_records": sum(query.backlog_records for query in queries),
    }
    batches = [query.batch_seconds for query in queries if query.batch_seconds is not None]
    busy = [
        (query.batch_seconds / query.period_seconds, query.batch_seconds)
        for query in queries
        if query.batch_seconds is not None and query.period_seconds
    ]
    if busy:
        figures["utilisation_ratio"], figures["batch_seconds"] = max(busy)
    elif batches:
        figures["batch_seconds"] = max(batches)
    latencies = [query.latency_seconds for query in queries if query.latency_seconds is not None]
    if latencies:
        figures["latency_seconds"] = max(latencies)
    return figures


def find_largest(shares: Mapping[str, float]) -> tuple[str, float] | None:
    """Find the largest share with its name; None where there is none."""
    return max(shares.items(), key=lambda item: item[1], default=None)


def write_critical(found: CriticalWindow) -> dict[str, object]:
    """Reduce a critical window to what is kept: the answer, the causes, the largest share of each kind."""
    largest = {
        "activity": find_largest(found.activity),
        "worker": find_largest(found.worker),
        "operator": find_largest(found.operator),
    }
    return {
        "batch_id": found.batch_id,
        "at": found.end,
        "seconds": found.end - found.start,
        "causes": dict(found.causes),
        "answer": found.answer,
        "task_share": found.task_share,
        "gain_of_slots": found.gain_of_slots,
        **{kind: {"name": one[0], "share": one[1]} for kind, one in largest.items() if one},
    }


def write_query(query: QueryWindow) -> dict[str, Any]:
    """Write all that policies look at as plain data, in a few thousand characters."""
    plain: dict[str, Any] = {
        "version": VERSION,
        "operators": [[operator.name, operator.scalable] for operator in query.graph.operators],
        "edges": [list(edge) for edge in query.graph.edges],
        "sources": {name: _plain_source(rate) for name, rate in query.sources.items()},
    }
    match query:
        case SlotQuery():
            batches = [_plain_batch(batch) for batch in query.batches[-MOST_BATCHES:]]
            running = _plain_running(query.running) if query.running is not None else None
            return plain | {
                "kind": SLOTS,
                "batches": batches,
                "running": running,
                "idle_seconds": query.idle_seconds,
            }
        case OperatorQuery():
            topics = {name: [*_plain_rate(rate), rate.overdue_records] for name, rate in query.topics.items()}
            batched = {name: list(astuple(one)) for name, one in query.batches.items()}
            metrics = _plain_metrics(query.metrics)
            return plain | {
                "kind": OPERATORS,
                "topics": topics,
                "operator_batches": batched,
                "metrics": metrics,
            }


def read_slot_query(kept: QuerySummary) -> SlotQuery:
    """Read a query on slots back; BadMetrics if its detail is none that `write_query` writes."""
    with _reading(kept.detail, SLOTS) as plain:
        return SlotQuery(
            query_id=kept.name,
            name=kept.name,
            graph=_graph(plain),
            sources={name: _source(rates) for name, rates in plain["sources"].items()},
            batches=tuple(_batch(batch) for batch in plain["batches"]),
            period_seconds=kept.period_seconds,
            latency_seconds=kept.latency_seconds,
            # records of before know neither
            running=_running(running) if (running := plain.get("running")) else None,
            idle_seconds=float(plain.get("idle_seconds", 0.0)),
        )


def read_operator_query(kept: QuerySummary, start: float, end: float) -> OperatorQuery:
    """Read a query with operators back; BadMetrics if its detail is none that `write_query` writes."""
    with _reading(kept.detail, OPERATORS) as plain:
        graph = _graph(plain)
        return OperatorQuery(
            query_id=kept.name,
            name=kept.name,
            graph=graph,
            sources={
                name: _source(plain["sources"][name]) for name in graph.sources if name in plain["sources"]
            },
            topics={name: TopicRate(*map(float, rates)) for name, rates in _plain_topics(plain).items()},
            batches={
                name: OperatorBatches(*told) for name, told in plain.get("operator_batches", {}).items()
            },
            metrics=_metrics(plain["metrics"], start, end),
            latency_seconds=kept.latency_seconds,
        )


@contextmanager
def _reading(plain: _Plain, kind: str) -> Iterator[_Plain]:
    """Check version and kind, and report whatever else cannot be read as BadMetrics."""
    try:
        if plain["version"] not in (1, VERSION):
            raise BadMetrics(f"a recorded window has version {plain['version']!r}, not 1 or {VERSION}")
        if plain["version"] == VERSION and plain["kind"] != kind:
            raise BadMetrics(f"a recorded window is of kind {plain['kind']!r}, not {kind!r}")
        yield plain
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, BadGraph) as error:
        raise BadMetrics(f"a recorded window cannot be read: {error!r}") from error


def _plain_topics(plain: _Plain) -> Mapping[str, Sequence[float]]:
    """Return the topics of a record; version 1 has their rates in `sources` and the rest in `overdue`."""
    if plain["version"] == 1:
        return {
            name: [*plain["sources"][name], overdue] for name, overdue in plain.get("overdue", {}).items()
        }
    topics: Mapping[str, Sequence[float]] = plain["topics"]
    return topics


def _plain_rate(rate: SourceRate) -> list[float]:
    return [rate.offered_per_second, rate.observed_per_second, rate.backlog_records]


def _plain_source(rate: SourceRate) -> list[float]:
    return [*_plain_rate(rate), *([rate.rows_per_batch] if rate.rows_per_batch else [])]


def _source(plain: Sequence[float]) -> SourceRate:
    rates, rows = plain[:3], plain[3:]
    return SourceRate(*map(float, rates), rows_per_batch=float(rows[0]) if rows else 0.0)


def _graph(plain: _Plain) -> LogicalGraph:
    return LogicalGraph(
        [Operator(name, bool(scalable)) for name, scalable in plain["operators"]],
        [(origin, target) for origin, target in plain["edges"]],
    )


def _plain_batch(batch: BatchExecution) -> dict[str, Any]:
    return {
        "id": batch.batch_id,
        "start": batch.start,
        "seconds": batch.seconds,
        "slots": batch.slots,
        "records": batch.input_records,
        "settled": batch.settled,
        "files": batch.files,
        "listing": batch.listing_seconds,
        "stages": [_plain_stage(stage) for stage in batch.stages],
    }


def _plain_stage(stage: StageExecution) -> dict[str, Any]:
    # what tasks send and wait for counts as a sum alone
    columns = [
        stage.records_in,
        _mean(stage.records_out),
        stage.useful_seconds,
        _mean(stage.waiting_seconds),
        _mean(stage.cpu_seconds),
    ]
    if stage.tasks > MOST_TASKS:
        columns = [_mean(column) for column in columns]
    return {
        "operator": stage.operator,
        "wall": stage.wall_seconds,
        "tasks": stage.tasks,
        "columns": [_round_figures(column) for column in columns],
    }


def _plain_running(batch: RunningBatch) -> dict[str, Any]:
    return {
        "id": batch.batch_id,
        "start": batch.start,
        "seconds": batch.seconds,
        "slots": batch.slots,
        "new": batch.new_slots,
        "stages": [_plain_running_stage(stage) for stage in batch.stages],
    }


def _plain_running_stage(stage: RunningStage) -> dict[str, Any]:
    ages = stage.running_seconds
    return {
        "operator": stage.operator,
        "tasks": [stage.tasks_total, stage.tasks_done, stage.tasks_running],
        "records": stage.records_done,
        "ages": _round_figures(ages if len(ages) <= MOST_TASKS else _mean(ages)),
        "done": _plain_stage(stage.done) if stage.done is not None else None,
        "over": stage.is_over,
    }


def _plain_metrics(metrics: MetricWindow) -> dict[str, Any]:
    columns = metrics.records_in, metrics.records_out, metrics.useful_seconds, metrics.waiting_seconds
    return {"operator": metrics.operator.tolist(), "columns": [_round_figures(column) for column in columns]}


def _mean(column: Floats) -> Floats:
    return np.array([column.mean()]) if len(column) else column


def _round_figures(column: Floats) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in column.tolist()]


def _batch(plain: _Plain) -> BatchExecution:
    return BatchExecution(
        batch_id=int(plain["id"]),
        start=float(plain["start"]),
        seconds=float(plain["seconds"]),
        slots=int(plain["slots"]),
        input_records=float(plain["records"]),
        stages=tuple(_stage(stage) for stage in plain["stages"]),
        settled=bool(plain["settled"]),
        files=int(files) if (files := plain.get("files")) is not None else None,
        listing_seconds=float(plain.get("listing", 0.0)),
    )


def _running(plain: _Plain) -> RunningBatch:
    return RunningBatch(
        batch_id=int(plain["id"]),
        start=float(plain["start"]),
        seconds=float(plain["seconds"]),
        slots=int(plain["slots"]),
        stages=tuple(_running_stage(stage) for stage in plain["stages"]),
        new_slots=int(plain.get("new", 0)),
    )


def _running_stage(plain: _Plain) -> RunningStage:
    total, done, running = map(int, plain["tasks"])
    # Spark counts running tasks at another moment than it lists them
    ages = np.array(plain["ages"], dtype=np.float64)
    return RunningStage(
        operator=str(plain["operator"]),
        tasks_total=total,
        tasks_done=done,
        tasks_running=running,
        records_done=float(plain["records"]),
        done=_stage(plain["done"]) if plain["done"] is not None else None,
        running_seconds=np.repeat(ages, max(1, running)) if len(ages) == 1 else ages,
        is_over=bool(plain.get("over", False)),
    )


def _stage(plain: _Plain) -> StageExecution:
    tasks = int(plain["tasks"])
    records_in, records_out, useful, waiting = (_column(values, tasks) for values in plain["columns"][:4])
    cpu = next((_column(values, tasks) for values in plain["columns"][4:] if values), np.array([]))
    wall = float(plain["wall"])
    return StageExecution(str(plain["operator"]), records_in, records_out, useful, waiting, wall, cpu)


def _column(values: Sequence[float], tasks: int) -> Floats:
    column = np.array(values, dtype=np.float64)
    if len(column) not in (1, tasks):
        raise ValueError(f"{len(column)} values for {tasks} tasks")
    return np.broadcast_to(column, (tasks,)).copy()


def _metrics(plain: _Plain, start: float, end: float) -> MetricWindow:
    columns = [np.array(values, dtype=np.float64) for values in plain["columns"]]
    return MetricWindow(start, end, np.array(plain["operator"], dtype=np.int64), *columns)
