"""A pipeline at work while this process leads: its queries, what is seen of them, and the loop over both."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import ExpectedEffect, Scale
from penstock.errors import ActionFailed, BadMetrics, PenstockError
from penstock.observe.progress import BatchProgress, parse_progress
from penstock.observe.sources.files import FileTrack
from penstock.observe.sources.spark_files import SparkFiles
from penstock.observe.sources.tracking import Track, begin_track
from penstock.observe.spark_status import RunningQuery, SparkStatus
from penstock.pipeline.batches import BatchDone, InstanceWork
from penstock.pipeline.board import Board, SizeMemory
from penstock.pipeline.definition import Function, Pipeline
from penstock.pipeline.monitor import Monitor, Readings, TopicReading
from penstock.pipeline.spark_query import FunctionQuery
from penstock.pipeline.topics import Layout
from penstock.runtime.loop import Cycle, Loop

log = logging.getLogger(__name__)

_REPORTS = 100
_CHANGES_TOLD = 10


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
            batch = parse_batch(self.function.name, json.loads(report.json))
            if batch is not None and batch.start > self._seen:
                self._seen = batch.start
                self._monitor.take_in(batch)

    def describe(self, now: float) -> dict[str, Any]:
        """Return how it stands; Penstock never starts it again."""
        return {"restarts": 0, "trouble": None, "at_batch_seconds": None}

    def stop(self) -> None:
        """Do nothing: the query is the user's, and runs on."""

    def failure(self) -> str | None:
        """Return why the query has ended; None while it runs."""
        if self.query.isActive:
            return None
        problem = self.query.exception()
        return str(problem).partition("\n")[0] if problem is not None else "the query has ended"


def parse_batch(function: str, report: dict[str, Any]) -> BatchDone | None:
    """Parse a progress report as a batch; None for a trigger that found nothing to do.

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


Queries = Mapping[str, FunctionQuery | ExistingQuery]


class OutsideReadings:
    """Follows the topics from outside, for each function that reads one."""

    def __init__(self, spark: SparkSession, layout: Layout, queries: Queries, period: float) -> None:
        self._status, self._layout, self._queries, self._period = SparkStatus(spark), layout, queries, period
        self._files = SparkFiles(spark, self._status)
        self._outside = {
            name: [number for number, topic in enumerate(layout.reads[name]) if topic in layout.sources]
            for name in layout.functions
        }
        self._tracks: dict[str, dict[int, Track]] = {name: {} for name in layout.functions}
        self._newest: dict[str, BatchProgress] = {}

    def read(self, start: float, now: float) -> Readings:
        """Read for all functions that read from outside; NaN where a rate cannot be told yet."""
        running = {query.query_id: query for query in self._status.queries()}
        readings = {}
        for name, outside in self._outside.items():
            if not outside:
                continue
            query = running.get(str(self._queries[name].query.id))
            if query is not None:
                self._follow(name, query, now)
            readings[name] = {
                self._layout.reads[name][number]: self._read(name, number, start, now) for number in outside
            }
        return readings

    def _read(self, name: str, number: int, start: float, now: float) -> TopicReading:
        track = self._tracks[name].get(number)
        if track is None:
            return TopicReading(math.nan, 0.0)
        return TopicReading(*track.measure_offered(start, now, self._period, at_rest=False))

    def _follow(self, name: str, query: RunningQuery, now: float) -> None:
        newest = self._newest.get(name)
        reports = self._status.progress(query, newest.start if newest else 0.0, now, _REPORTS)
        self._look(name, query, now)
        for report in reports:
            try:
                self._add(name, parse_progress(report))
            except BadMetrics:
                continue

    def _look(self, name: str, query: RunningQuery, now: float) -> None:
        """List the directories, and read the logs, of those of its sources that are files."""
        tracks = self._tracks[name]
        if not tracks:
            described = self._files.descriptions(query)
            known = [number for number in self._outside[name] if number < len(described)]
            tracks |= {number: begin_track(described[number]) for number in known}
        for number, track in tracks.items():
            if isinstance(track, FileTrack):
                track.look(self._files.look(query, number, now))

    def _add(self, name: str, progress: BatchProgress) -> None:
        before = self._newest.get(name)
        for number, track in self._tracks[name].items():
            if number >= len(progress.sources):
                continue
            if before is not None and progress.batch_id > before.batch_id + 1:
                track.missed_reports()
            track.add(progress.sources[number], progress.start)
        self._newest[name] = progress


class PipelineSource:
    """The windows that the loop sees of a pipeline."""

    def __init__(self, board: Board, monitor: Monitor, readings: OutsideReadings, queries: Queries) -> None:
        self._board, self._monitor, self._readings, self._queries = board, monitor, readings, queries
        self._last = time.time()

    def observe(self, now: float) -> ApplicationWindow | NotReady:
        """Return the window since the last one."""
        for one in self._queries.values():
            if isinstance(one, ExistingQuery):
                one.poll()
        readings = self._readings.read(self._last, now)
        seen = self._monitor.observe(now, self._board.sizes, readings)
        if isinstance(seen, ApplicationWindow):
            self._last = now
        return seen


class Term:
    """From the start of all queries to their stop; stepped by one thread, asked by any."""

    def __init__(
        self,
        pipeline: Pipeline,
        queries: Queries,
        board: Board,
        monitor: Monitor,
        loop: Loop,
        sizes: SizeMemory,
        executors_follow: bool = False,
        close: Callable[[], None] | None = None,
    ) -> None:
        self.queries = queries
        self._pipeline, self._layout = pipeline, pipeline.layout()
        self._board, self._monitor, self._loop, self._sizes = board, monitor, loop, sizes
        self._asked = board.wanted if executors_follow else {}
        self._close = close
        self._why = "executors follow the sum of instances"
        self._told: list[str] = []
        self._lock = threading.Lock()

    def tick(self, now: float) -> Cycle:
        """Start again what was broken off, do what was asked for by hand, then one cycle of the loop."""
        for name, query in self.queries.items():
            if isinstance(query, FunctionQuery):
                self._tend(name, query, now)
        self._order()
        cycle = self._loop.tick(now)
        if cycle.window is not None:
            self._review_groups(now)
        self._sizes.keep(now, self._board)
        return cycle

    def _tend(self, name: str, query: FunctionQuery, now: float) -> None:
        """Let a query rest that the one before passes by, and have every other one run."""
        query.mend(now)
        if self._board.plan.is_passed_by(name):
            query.rest(now)
        else:
            query.wake()

    def _review_groups(self, now: float) -> None:
        """Fuse and part functions by what the newest window shows."""
        figures = self._monitor.figures()
        behind = {name for name, one in figures.items() if one.backlog_records > self._two_batches(name)}
        behind |= {name for name, query in self.queries.items() if query.failure()}
        for told in self._board.plan.review(now, self._monitor.batches, behind):
            log.info("%s: %s", self._pipeline.name, told)
            self._told = [*self._told, told][-_CHANGES_TOLD:]

    def _two_batches(self, name: str) -> float:
        """Count the records of two batches: one under way and one that waits are no backlog."""
        return 2 * max((one.records for one in self._monitor.batches(name)), default=0.0)

    @property
    def fusing(self) -> dict[str, Any]:
        """Which functions run as one query, and what changed lately in that."""
        return {"groups": [list(group) for group in self._board.plan.groups], "changes": list(self._told)}

    def scale(self, function: str, parallelism: int | None) -> int:
        """Pin a function, from its next batch on, or give it back."""
        size = self._board.pin(function, parallelism)
        if parallelism is not None:
            with self._lock:
                self._asked[function], self._why = size, "set by hand"
        return size

    def _order(self) -> None:
        """Have the loop record what was asked for, and let executors and state follow it."""
        with self._lock:
            asked = dict(self._asked)
        if not asked or self._loop.actuator is None:
            return
        try:
            self._loop.order(Scale(asked, self._why, ExpectedEffect("as whoever asked for it expects")))
        except ActionFailed:
            return  # another action is under way; the sizes hold already, and the rest comes after it
        with self._lock:
            self._asked = {name: size for name, size in self._asked.items() if asked.get(name) != size}

    @property
    def gone(self) -> bool:
        """Whether Spark itself was stopped."""
        return all(isinstance(one, FunctionQuery) and one.spark_is_gone() for one in self.queries.values())

    def batches(self, function: str) -> tuple[BatchDone, ...]:
        """Return the newest batches of a function."""
        return self._monitor.batches(function)

    def failures(self) -> list[str]:
        """Return why functions no longer run, each with its name."""
        return [f"{name}: {why}" for name, query in self.queries.items() if (why := query.failure())]

    def decisions(self) -> list[dict[str, Any]]:
        """Return what was decided lately."""
        return [one.plain() for one in self._loop.timeline.decisions[-10:]]

    @property
    def totals(self) -> dict[str, Any]:
        """Counts of decisions and actions since the start."""
        return self._loop.timeline.totals

    def function(self, name: str) -> dict[str, Any]:
        """Return how a function stands, as plain data."""
        figures, query = self._monitor.figures().get(name), self.queries[name]
        least, most = self._board.limits[name]
        return {
            "reads": list(self._layout.reads[name]),
            "writes": self._layout.writes[name],
            "latency_target": self._pipeline.functions[name].latency_target,
            "parallelism": self._board.in_effect[name],
            "least": least,
            "most": most,
            "pinned": name in self._board.pinned,
            "fused_with": [one for one in self._board.plan.group_of(name) if one != name],
            **self._monitor.count_totals(name),
            **(asdict(figures) if figures is not None else self._monitor.measure_newest(name)),
            **query.describe(time.time()),
            "error": query.failure(),
        }

    def leave(self) -> None:
        """Close what the loop has open; the queries run on."""
        self._loop.leave(time.time())

    def stop(self) -> None:
        """Stop all queries, each between two batches."""
        stoppers = [threading.Thread(target=one.stop, daemon=True) for one in self.queries.values()]
        for stopper in stoppers:
            stopper.start()
        for stopper in stoppers:
            stopper.join()
        if self._close is not None:
            try:
                self._close()
            except PenstockError as problem:
                log.warning("%s: %s", self._pipeline.name, problem)
