"""A streaming query's progress report becomes typed values (pure: JSON in, values out)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from penstock.errors import BadMetrics


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """One source in one progress report; offsets are what the source itself wrote, decoded."""

    description: str
    start_offset: Any
    end_offset: Any
    latest_offset: Any
    input_records: float


@dataclass(frozen=True, slots=True)
class EventTimes:
    """When the events of a batch happened, by the column that has the watermark; moments in seconds."""

    mean: float
    oldest: float
    newest: float


@dataclass(frozen=True, slots=True)
class BatchTimeline:
    """Where a batch spent its time, in seconds; what Spark left out is 0."""

    offsets: float
    planning: float
    execution: float
    commit: float
    total: float

    @property
    def other(self) -> float:
        """Time between the named phases."""
        return max(0.0, self.total - self.offsets - self.planning - self.execution - self.commit)

    def phases(self, until_next: float) -> dict[str, float]:
        """Return seconds by phase until the next trigger, which the batch may leave partly idle."""
        return {
            "offsets": self.offsets,
            "planning": self.planning,
            "execution": self.execution,
            "commit": self.commit,
            "other": self.other,
            "idle": max(0.0, until_next - self.total),
        }


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One progress report; `executed` is false for a trigger that found nothing to do."""

    run_id: str
    batch_id: int
    start: float
    timeline: BatchTimeline
    input_records: float
    sources: tuple[SourceProgress, ...]
    executed: bool
    state_rows: int
    phases_ms: Mapping[str, float] = field(default_factory=dict)
    state_load_ms: float = 0.0
    state_commit_ms: float = 0.0
    event_times: EventTimes | None = None
    """None without a watermark, and for a batch without records."""
    cache_hits: float = 0.0
    cache_misses: float = 0.0
    """Block reads of RocksDB in this batch; Spark counts anew whenever it loads the state."""

    @property
    def end(self) -> float:
        """When the trigger was done."""
        return self.start + self.timeline.total


def parse_progress(report: Mapping[str, Any]) -> BatchProgress:
    """Read one progress report; raise BadMetrics where Spark reports what cannot be."""
    try:
        durations: Mapping[str, float] = report.get("durationMs") or {}
        stores = report.get("stateOperators") or ()
        return BatchProgress(
            run_id=str(report["runId"]),
            batch_id=int(report["batchId"]),
            start=_moment(report["timestamp"]),
            timeline=_timeline(durations),
            input_records=_count(report.get("numInputRows")),
            sources=tuple(_source(source) for source in report.get("sources") or ()),
            executed="addBatch" in durations,
            state_rows=sum(int(_count(op.get("numRowsTotal"))) for op in stores),
            phases_ms={name: _count(value) for name, value in durations.items()},
            state_load_ms=_custom(stores, "rocksdbLoadLatencyMs"),
            state_commit_ms=sum(_count(op.get("commitTimeMs")) for op in stores),
            event_times=_event_times(report.get("eventTime") or {}),
            cache_hits=_custom(stores, "rocksdbReadBlockCacheHitCount"),
            cache_misses=_custom(stores, "rocksdbReadBlockCacheMissCount"),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise BadMetrics(f"a progress report cannot be read: {error!r}") from error


def _custom(stores: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return a metric of the state store's own, over all operators with state."""
    return sum(_count((store.get("customMetrics") or {}).get(name)) for store in stores)


def _moment(text: Any) -> float:
    return datetime.fromisoformat(str(text)).timestamp()


def _event_times(report: Mapping[str, Any]) -> EventTimes | None:
    if not {"avg", "min", "max"} <= report.keys():
        return None
    return EventTimes(_moment(report["avg"]), _moment(report["min"]), _moment(report["max"]))


def _timeline(milliseconds: Mapping[str, float]) -> BatchTimeline:
    def seconds(*names: str) -> float:
        return sum(_count(milliseconds.get(name)) for name in names) / 1000

    return BatchTimeline(
        offsets=seconds("latestOffset", "getBatch", "getOffset"),
        planning=seconds("queryPlanning"),
        execution=seconds("addBatch"),
        commit=seconds("walCommit", "commitOffsets", "commitBatch"),
        total=seconds("triggerExecution"),
    )


def _source(report: Mapping[str, Any]) -> SourceProgress:
    return SourceProgress(
        description=str(report.get("description", "")),
        start_offset=report.get("startOffset"),
        end_offset=report.get("endOffset"),
        latest_offset=report.get("latestOffset"),
        input_records=_count(report.get("numInputRows")),
    )


def _count(value: Any) -> float:
    """Return a number that may be missing (0), and may not be NaN, infinite or negative."""
    number = 0.0 if value is None else float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{value!r} is not a count")
    return number


BATCHES = 5
"""So many are taken together: the first batch after a start finds an empty cache and misses everything."""
LEAST_READS = 10_000.0
"""Fewer reads of blocks do not make a batch slow, whatever their share of misses."""
MOST_MISSES = 0.5
CACHE_KEY = "spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB"
ROOM_KEY = "spark.executor.memoryOverhead"


def cache_advice(query: str, batches: Sequence[BatchProgress]) -> str | None:
    """Return a larger cache where most reads miss it, with the memory beside the heap that it takes."""
    recent = [batch for batch in batches if batch.executed][-BATCHES:]
    missed = sum(batch.cache_misses for batch in recent)
    reads = missed + sum(batch.cache_hits for batch in recent)
    if len(recent) < BATCHES or reads < LEAST_READS or missed <= MOST_MISSES * reads:
        return None
    return (
        f"query {query}: {missed / reads:.0%} of the block reads of its state in the last {BATCHES} batches "
        f"missed RocksDB's cache; recommended: a larger {CACHE_KEY}, and {ROOM_KEY} larger by as much "
        "for every bin that an executor holds"
    )
