"""What is offered to the functions that read from outside, taken from Spark's own progress reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import BadMetrics
from penstock.observe.progress import BatchProgress, parse_progress
from penstock.observe.sources import reader_for
from penstock.observe.spark_status import RunningQuery, SparkStatus
from penstock.observe.tracking import SourceTrack, Waiting
from penstock.pipeline.layout import Layout
from penstock.pipeline.monitor import Reading, Readings

_REPORTS = 100


class HasQuery(Protocol):
    """A function at work."""

    @property
    def query(self) -> StreamingQuery:
        """Its streaming query."""


class OutsideReadings:
    """Follows the topics from outside, for each function that reads one."""

    def __init__(
        self, spark: SparkSession, layout: Layout, queries: Mapping[str, HasQuery], period: float
    ) -> None:
        self._status, self._layout, self._queries, self._period = SparkStatus(spark), layout, queries, period
        self._tracks: dict[str, dict[int, SourceTrack]] = {
            name: {
                number: SourceTrack()
                for number, topic in enumerate(layout.reads[name])
                if topic in layout.sources
            }
            for name in layout.functions
        }
        self._newest: dict[str, BatchProgress] = {}

    def read(self, start: float, now: float) -> Readings:
        """Readings of all functions that read from outside; NaN where a rate cannot be told yet."""
        running = {query.query_id: query for query in self._status.queries()}
        readings = {}
        for name, tracks in self._tracks.items():
            if not tracks:
                continue
            query = running.get(str(self._queries[name].query.id))
            if query is not None:
                self._follow(name, query, now)
            topics = self._layout.reads[name]
            readings[name] = {
                topics[number]: Reading(*track.offered(start, now, self._period))
                for number, track in tracks.items()
            }
        return readings

    def _follow(self, name: str, query: RunningQuery, now: float) -> None:
        newest = self._newest.get(name)
        reports = self._status.progress(query, newest.start if newest else 0.0, now, _REPORTS)
        for number, report in enumerate(reports):
            try:
                progress = parse_progress(report)
            except BadMetrics:
                continue
            last = number == len(reports) - 1
            self._add(name, query, progress, now if last else math.nan)

    def _add(self, name: str, query: RunningQuery, progress: BatchProgress, now: float) -> None:
        """`now` is a number for the newest report alone: a directory is listed once a window."""
        before = self._newest.get(name)
        for number, track in self._tracks[name].items():
            if number >= len(progress.sources):
                continue
            source = progress.sources[number]
            if before is None:
                track.begin(progress.batch_id)
            elif progress.batch_id > before.batch_id + 1:
                track.missed_reports()
            waiting = None
            if reader_for(source.description).listed and not math.isnan(now):
                at_work = self._status.is_working(query)
                unread, read = self._status.unread_files(query, source.description)
                waiting = Waiting(now, unread, read, at_work)
            track.add(source, progress.start, waiting)
        self._newest[name] = progress
