"""Read the progress events of streaming queries."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

import orjson

from penstock.diagnose.log.application import Batch, Fields, StateOperator
from penstock.diagnose.log.fields import END_OF_TIMES, read_amount, read_name

_MOST = float(1 << 62)


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
