"""Read the events of Spark SQL: executions and their plans, progress of streaming queries, cached data.

Spark writes updates of cached blocks only with `spark.eventLog.logBlockUpdates.enabled`, or into the metrics
of tasks with `spark.taskMetrics.trackUpdatedBlockStatuses`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from penstock.diagnose.log.application import (
    Batch,
    Eviction,
    Fields,
    FileScan,
    PlanNode,
    SqlExecution,
    StateOperator,
)
from penstock.diagnose.log.fields import END_OF_TIMES, read_amount, read_name
from penstock.diagnose.log.plans import describe_scopes, list_nodes, list_scan_metrics

_MOST = float(1 << 62)

NoteTime = Callable[[int], int]
_BLOCK = re.compile(r"^rdd_(\d+)_\d+$")


class SqlEvents:
    """The SQL executions of a log so far; `note_time` checks a time and keeps the latest."""

    def __init__(self, note_time: NoteTime) -> None:
        self.executions: dict[int, SqlExecution] = {}
        self._note_time = note_time
        self._plans: dict[tuple[PlanNode, ...], tuple[PlanNode, ...]] = {}
        self._counters: dict[int, tuple[int, str, str]] = {}

    def resume(self, executions: Mapping[int, SqlExecution]) -> None:
        """Continue with these executions; files that running ones are yet to count stay unknown."""
        self.executions = dict(executions)

    def start(self, event: Fields, line: int) -> None:
        """Read the start of an execution."""
        number, plan = int(event["executionId"]), event.get("sparkPlanInfo") or {}
        execution = SqlExecution(
            self._note_time(int(event["time"])),
            line,
            execution=number,
            description=read_name(event.get("description") or ""),
        )
        self.executions[number] = execution
        self._take_plan(execution, plan)

    def update(self, event: Fields, line: int) -> None:
        """Read the plan that an adaptive query goes on with."""
        execution = self.executions.get(int(event["executionId"]))
        if execution:
            self._take_plan(execution, event.get("sparkPlanInfo") or {})

    def end(self, event: Fields, line: int) -> None:
        """Read the end of an execution."""
        execution = self.executions.get(int(event["executionId"]))
        if execution:
            execution.ended, execution.ended_at_line = self._note_time(int(event["time"])), line

    def count(self, event: Fields, line: int) -> None:
        """Read what the driver counted for an execution: the files of its scans and their bytes."""
        for number, value in event.get("accumUpdates") or ():
            known = self._counters.get(int(number))
            if not known or known[0] not in self.executions:
                continue
            execution, table, what = self.executions[known[0]], known[1], known[2]
            scan = execution.scans.get(table, FileScan())
            added = read_amount(value, _MOST)
            scan = replace(scan, **{what: getattr(scan, what) + added})
            execution.scans = {**execution.scans, table: scan}

    def _take_plan(self, execution: SqlExecution, plan: Fields) -> None:
        # stages that ran before keep the words of the plan that they were in
        execution.scopes = {**execution.scopes, **describe_scopes(plan)}
        nodes = list_nodes(plan)
        # a query has the same plan in each of its batches
        execution.nodes = self._plans.setdefault(nodes, nodes)
        for number, table, what in list_scan_metrics(plan):
            self._counters[number] = (execution.execution, table, what)


def read_progress(event: Fields, line: int) -> tuple[Fields, Batch]:
    """Return the progress of a query as logged, and the batch that it tells of."""
    progress = event["progress"]
    if isinstance(progress, str):
        progress = orjson.loads(progress)
    start = _read_moment(progress["timestamp"])
    phases = {
        read_name(name): read_amount(value) for name, value in (progress.get("durationMs") or {}).items()
    }
    if not 0 <= start + phases.get("triggerExecution", 0.0) < END_OF_TIMES:
        raise ValueError("a batch ends at no time in milliseconds")
    sources = [one for one in progress.get("sources") or () if isinstance(one, dict)]
    return progress, Batch(
        run=read_name(progress.get("runId", "")),
        start=start,
        phases=phases,
        line=line,
        query=read_name(progress["id"]),
        number=int(progress.get("batchId", -1)),
        rows_in=_sum_told(sources, "numInputRows"),
        offered_per_second=_sum_told(sources, "inputRowsPerSecond"),
        processed_per_second=_sum_told(sources, "processedRowsPerSecond"),
        rows_out=_read_told((progress.get("sink") or {}).get("numOutputRows")),
        watermark=_read_watermark(progress.get("eventTime") or {}),
        states=tuple(_read_state(one) for one in progress.get("stateOperators") or ()),
    )


def _read_moment(text: Any) -> int:
    return round(datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp() * 1000)


def _read_watermark(times: Fields) -> int:
    """Return the watermark, or -1: before the first record it is the epoch."""
    with suppress(KeyError, ValueError, OverflowError):
        found = _read_moment(times["watermark"])
        return found if found > 0 else -1
    return -1


def _read_told(value: Any) -> float:
    """Return a count that Spark may leave out, or tell as -1 or NaN; then it is 0."""
    with suppress(TypeError, ValueError, OverflowError):
        return read_amount(value, _MOST)
    return 0.0


def _sum_told(parts: Iterable[Fields], name: str) -> float:
    return sum(_read_told(part.get(name)) for part in parts)


def _read_state(told: Fields) -> StateOperator:
    return StateOperator(
        name=read_name(told.get("operatorName", "")),
        rows=_read_told(told.get("numRowsTotal")),
        updated=_read_told(told.get("numRowsUpdated")),
        removed=_read_told(told.get("numRowsRemoved")),
        late=_read_told(told.get("numRowsDroppedByWatermark")),
        memory_bytes=_read_told(told.get("memoryUsedBytes")),
        update_ms=_read_told(told.get("allUpdatesTimeMs")),
        removal_ms=_read_told(told.get("allRemovalsTimeMs")),
        commit_ms=_read_told(told.get("commitTimeMs")),
        measures={
            read_name(name): _read_told(value) for name, value in (told.get("customMetrics") or {}).items()
        },
    )


class CachedBlocks:
    """The memory that each cached block holds so far, and what was evicted, by RDD."""

    def __init__(self, evictions: Mapping[int, Eviction] | None = None) -> None:
        self.evictions = dict(evictions or {})
        self._held: dict[int, dict[str, float]] = {}
        self._names: dict[int, str] = {}

    def read_names(self, rdds: Iterable[Fields]) -> None:
        """Keep the names of RDDs that are cached in memory."""
        for rdd in rdds:
            if (rdd.get("Storage Level") or {}).get("Use Memory"):
                self._names[int(rdd["RDD ID"])] = read_name(rdd.get("Name") or "")

    def update(self, event: Fields) -> None:
        """Read the event of one block."""
        told = event["Block Updated Info"]
        self._take(str(told["Block ID"]), told.get("Memory Size", 0), told.get("Disk Size", 0))

    def update_many(self, blocks: Iterable[Fields]) -> None:
        """Read the blocks that a task changed."""
        for block in blocks:
            status = block["Status"]
            self._take(str(block["Block ID"]), status.get("Memory Size", 0), status.get("Disk Size", 0))

    def forget(self, event: Fields) -> None:
        """Forget the blocks of an RDD that the program gave back."""
        self._held.pop(int(event["RDD ID"]), None)

    def _take(self, block: str, memory: float, disk: float) -> None:
        found = _BLOCK.match(block)
        if not found:
            return
        rdd, held = int(found[1]), read_amount(memory, _MOST)
        before = self._held.setdefault(rdd, {}).get(block, 0.0)
        self._held[rdd][block] = held
        if before > 0 and held == 0:
            known = self.evictions.get(rdd, Eviction(self._names.get(rdd, "")))
            to_disk = known.to_disk + (read_amount(disk, _MOST) > 0)
            self.evictions[rdd] = replace(
                known, blocks=known.blocks + 1, bytes=known.bytes + before, to_disk=to_disk
            )
