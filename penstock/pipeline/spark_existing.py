"""A streaming query that the user started himself, watched as a function of a pipeline; it is not changed."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import BadMetrics
from penstock.observe.progress import parse_progress
from penstock.pipeline.definition import Function
from penstock.pipeline.monitor import BatchDone, InstanceWork, Monitor


class ExistingQuery:
    """One instance, whose batches are those that Spark reports."""

    def __init__(self, function: Function, monitor: Monitor) -> None:
        self.function = function
        self._monitor, self._seen = monitor, -1.0

    @property
    def query(self) -> StreamingQuery:
        """The user's own query."""
        query: StreamingQuery = self.function.call  # type: ignore[assignment]
        return query

    def poll(self) -> None:
        """Take in the batches that were reported since the last call."""
        for report in self.query.recentProgress:
            batch = batch_of(self.function.name, json.loads(report.json))
            if batch is not None and batch.start > self._seen:
                self._seen = batch.start
                self._monitor.finished(batch)

    def stop(self) -> None:
        """The query is the user's: it runs on."""

    def failure(self) -> str | None:
        """Why the query has ended; None while it runs."""
        if self.query.isActive:
            return None
        problem = self.query.exception()
        return str(problem).partition("\n")[0] if problem is not None else "the query has ended"


def batch_of(function: str, report: dict[str, Any]) -> BatchDone | None:
    """A progress report as a batch; None for a trigger that found nothing to do.

    Where the sink does not count what it wrote, what was read is taken instead.
    """
    try:
        progress = parse_progress(report)
    except BadMetrics:
        return None
    if not progress.executed:
        return None
    written = (report.get("sink") or {}).get("numOutputRows", -1)
    out = float(written) if isinstance(written, int) and written >= 0 else progress.input_records
    work = InstanceWork(0, progress.input_records, out, 0.0, progress.timeline.execution)
    return BatchDone(function, progress.batch_id, progress.start, progress.end, 1, (work,))
