"""One workload alone on a small cluster: what it sustains, and how long records take."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.bench.spark_cluster import HDFS_STATE, ClusterShape
from penstock.errors import ActionFailed
from penstock.workloads.arrivals import Committed, LoadOutcome, outcome
from penstock.workloads.catalog import Ask, Workload
from penstock.workloads.profiles import parse_profile

DAYS_AGO = 10 * 86400.0
"""A load that began so long ago never runs dry: every batch is as large as its bound."""

JIT = "-XX:+UseSerialGC -XX:-UsePerfData -Djdk.lang.Process.launchMechanism=VFORK"
"""Throughput is measured with the optimising compiler on, as a job that runs for months has it."""

HEAD_START_SECONDS = 3.0
"""A query starts before its load does: what is offered during its planning would be a backlog."""

PATIENCE_SECONDS = 180.0
"""For the few batches that tell a capacity: a workload that needs longer is offered too much by far."""

Progress = Callable[[str], None]


def workload_shape(cores: int, name: str) -> ClusterShape:
    """One executor with so many cores, which has them to itself."""
    conf = {"spark.executor.extraJavaOptions": JIT, "spark.sql.session.timeZone": "UTC"}
    return ClusterShape(1, cores, executor_memory_mb=2048, name=name, log_level="OFF", conf=conf)


@dataclass(frozen=True, slots=True)
class Pace:
    """How a workload is run."""

    warm_up_seconds: float
    seconds: float
    trigger_seconds: float = 0.0


def run_load(
    spark: SparkSession, entry: Workload, ask: Ask, checkpoint: Path, pace: Pace, progress: Progress
) -> LoadOutcome:
    """Offer the load from now on, and judge what becomes of it; too few batches are an error."""
    found, ended = watched_load(spark, entry, ask, checkpoint, pace, progress)
    if found is None:
        raise ActionFailed(
            f"{entry.name} ended fewer than three batches in {3 * pace.seconds:g} s after the warm-up "
            f"({ended}): let it run longer, or offer less"
        )
    return found


def watched_load(
    spark: SparkSession, entry: Workload, ask: Ask, checkpoint: Path, pace: Pace, progress: Progress
) -> tuple[LoadOutcome | None, int]:
    """Offer the load from now on; what happens in the warm-up is not judged. Also how many batches ended.

    Slow batches get three times the time before they are too few, and there is no outcome.
    """
    begun = time.time() + HEAD_START_SECONDS
    ask, profile = replace(ask, start=begun), parse_profile(ask.profile)
    since = begun + pace.warm_up_seconds
    found: LoadOutcome | None = None
    seen: list[Committed] = []
    with running(spark, entry, ask, checkpoint, pace.trigger_seconds) as query:
        for times in (1, 2, 3):
            for left in _until(query, since + times * pace.seconds):
                progress(f"{entry.name}: {left:.0f} s left")
            seen = committed(query)
            found = outcome(profile, begun, seen, since)
            if found is not None:
                break
    return found, sum(batch.began >= since for batch in seen)


def warm(spark: SparkSession, entry: Workload, ask: Ask, checkpoint: Path, records: int) -> None:
    """Two batches of so many records: Java and Python load and compile what the workload needs."""
    capacity(spark, entry, replace(ask, most_per_batch=records), checkpoint, batches=1, warm_up=1)


def capacity(
    spark: SparkSession, entry: Workload, ask: Ask, checkpoint: Path, batches: int, warm_up: int
) -> float:
    """Records a second while there is always a full batch waiting, by the median batch after the warm-up."""
    assert ask.most_per_batch is not None
    endless = replace(ask, profile=f"constant:{ask.most_per_batch}", start=time.time() - DAYS_AGO)
    with running(spark, entry, endless, checkpoint, 0.0) as query:
        seen: list[Committed] = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(seen) < batches + warm_up:
            check(query)
            if time.monotonic() > deadline:
                raise ActionFailed(
                    f"{entry.name} ended only {len(seen)} of {batches + warm_up} batches of "
                    f"{ask.most_per_batch} records in {PATIENCE_SECONDS:g} s"
                )
            time.sleep(0.1)
            seen = committed(query)
    rates = [(batch.end - batch.first) / (batch.ended - batch.began) for batch in seen[warm_up:]]
    return median(rates)


@contextmanager
def running(
    spark: SparkSession, entry: Workload, ask: Ask, checkpoint: Path, trigger_seconds: float
) -> Iterator[StreamingQuery]:
    """The workload's query for the length of a `with`."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", entry.state_store or HDFS_STATE)
    writer = entry.build(spark, ask).writeStream.queryName(entry.name).outputMode(entry.output_mode)
    writer = writer.format("noop") if entry.sink is None else writer.foreachBatch(entry.sink(ask))
    timed = writer.trigger(processingTime=f"{round(trigger_seconds * 1000)} milliseconds")
    query = timed.option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()


def committed(query: StreamingQuery) -> list[Committed]:
    """Batches that read something, oldest first; of several sources the one that is behind counts."""
    reports = {report["batchId"]: report for report in (json.loads(one.json) for one in query.recentProgress)}
    found = [_committed(reports[number]) for number in sorted(reports)]
    return [batch for batch in found if batch.end > batch.first]


def _committed(report: dict[str, Any]) -> Committed:
    began = datetime.fromisoformat(report["timestamp"]).timestamp()
    starts = [_records(source["startOffset"]) for source in report["sources"]]
    ends = [_records(source["endOffset"]) for source in report["sources"]]
    return Committed(began, began + report["durationMs"]["triggerExecution"] / 1000, min(starts), min(ends))


def _records(offset: dict[str, int] | None) -> int:
    return 0 if offset is None else offset["records"]


def _until(query: StreamingQuery, end: float) -> Iterator[float]:
    """Seconds left, once a second; a query that dies is an error."""
    while (left := end - time.time()) > 0:
        check(query)
        yield left
        time.sleep(min(1.0, left))


def check(query: StreamingQuery) -> None:
    """Complain about a query that has ended."""
    if not query.isActive:
        raise ActionFailed(f"the workload's query ended: {query.exception()}")
