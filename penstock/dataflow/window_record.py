"""A query's window as plain data and back: what a policy was shown, so that another can be asked later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.dataflow.batches import BatchExecution, StageExecution
from penstock.dataflow.graph import LogicalGraph, Operator
from penstock.dataflow.metrics import Floats, MetricWindow
from penstock.dataflow.window import QueryWindow, SourceRate
from penstock.errors import BadGraph, BadMetrics

VERSION = 1
MOST_BATCHES = 2
"""The latest batches of a window tell what the earlier ones do."""
MOST_TASKS = 256
"""A stage with more tasks is kept as if they were alike."""
DIGITS = 5

_Plain = Mapping[str, Any]


def plain_query(query: QueryWindow) -> dict[str, Any]:
    """All that policies look at, in a few thousand characters."""
    return {
        "version": VERSION,
        "operators": [[operator.name, operator.scalable] for operator in query.graph.operators],
        "edges": [list(edge) for edge in query.graph.edges],
        "sources": {
            name: [rate.offered_per_second, rate.observed_per_second, rate.backlog_records]
            for name, rate in query.sources.items()
        },
        "overdue": dict(query.overdue_records),
        "batches": [_plain_batch(batch) for batch in query.batches[-MOST_BATCHES:]],
        # slots that are shared are judged by batches, instances by their own metrics
        "metrics": None if query.batches else _plain_metrics(query.metrics),
    }


def query_from(query_id: str, plain: _Plain, start: float, end: float, rest: _Plain) -> QueryWindow:
    """The window again; BadMetrics where it is not what `plain_query` writes.

    `rest` has the name, the period and the latency, which are kept beside.
    """
    try:
        if plain["version"] != VERSION:
            raise BadMetrics(f"a window of version {plain['version']!r}, not {VERSION}")
        graph = LogicalGraph(
            [Operator(name, bool(scalable)) for name, scalable in plain["operators"]],
            [(origin, target) for origin, target in plain["edges"]],
        )
        return QueryWindow(
            query_id=query_id,
            name=rest["name"],
            graph=graph,
            metrics=_metrics(plain["metrics"], start, end),
            sources={name: SourceRate(*map(float, rates)) for name, rates in plain["sources"].items()},
            batches=tuple(_batch(batch) for batch in plain["batches"]),
            period_seconds=rest["period_seconds"],
            latency_seconds=rest["latency_seconds"],
            overdue_records={name: float(records) for name, records in plain.get("overdue", {}).items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, BadGraph) as error:
        raise BadMetrics(f"a recorded window cannot be read: {error!r}") from error


def _plain_batch(batch: BatchExecution) -> dict[str, Any]:
    return {
        "id": batch.batch_id,
        "start": batch.start,
        "seconds": batch.seconds,
        "slots": batch.slots,
        "records": batch.input_records,
        "settled": batch.settled,
        "stages": [_plain_stage(stage) for stage in batch.stages],
    }


def _plain_stage(stage: StageExecution) -> dict[str, Any]:
    # what tasks send and wait for counts as a sum alone
    columns = [stage.records_in, _mean(stage.records_out), stage.useful_seconds, _mean(stage.waiting_seconds)]
    if stage.tasks > MOST_TASKS:
        columns = [_mean(column) for column in columns]
    return {
        "operator": stage.operator,
        "wall": stage.wall_seconds,
        "tasks": stage.tasks,
        "columns": [_rounded(column) for column in columns],
    }


def _plain_metrics(metrics: MetricWindow) -> dict[str, Any]:
    columns = metrics.records_in, metrics.records_out, metrics.useful_seconds, metrics.waiting_seconds
    return {"operator": metrics.operator.tolist(), "columns": [_rounded(column) for column in columns]}


def _mean(column: Floats) -> Floats:
    return np.array([column.mean()]) if len(column) else column


def _rounded(column: Floats) -> list[float]:
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
    )


def _stage(plain: _Plain) -> StageExecution:
    tasks = int(plain["tasks"])
    records_in, records_out, useful, waiting = (_column(values, tasks) for values in plain["columns"])
    wall = float(plain["wall"])
    return StageExecution(str(plain["operator"]), records_in, records_out, useful, waiting, wall)


def _column(values: Sequence[float], tasks: int) -> Floats:
    column = np.array(values, dtype=np.float64)
    if len(column) not in (1, tasks):
        raise ValueError(f"{len(column)} values for {tasks} tasks")
    return np.broadcast_to(column, (tasks,)).copy()


def _metrics(plain: _Plain | None, start: float, end: float) -> MetricWindow:
    if plain is None:
        nothing = np.zeros(0)
        return MetricWindow(start, end, np.zeros(0, dtype=np.int64), nothing, nothing, nothing, nothing)
    columns = [np.array(values, dtype=np.float64) for values in plain["columns"]]
    return MetricWindow(start, end, np.array(plain["operator"], dtype=np.int64), *columns)
