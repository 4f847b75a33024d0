"""One word count on one fresh cluster, sized by Penstock, by Spark's dynamic allocation, or by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.attach import attach
from penstock.bench.spark_cluster import (
    ClusterShape,
    SlotRecorder,
    cluster,
    executor_ids,
    hold_executors,
    scratch_directory,
    start_cluster,
    stop_cluster,
)
from penstock.bench.traces import BatchSeen, SlotsSeen
from penstock.dataflow.window import EXECUTORS
from penstock.errors import ActionFailed
from penstock.journal.records import ActionRecord, DecisionRecord
from penstock.journal.store import journal_at
from penstock.workloads.word_count import WordCount, start_word_count

DS2 = "ds2"
DYNAMIC_ALLOCATION = "dynamic-allocation"

DAYS_AGO = 10 * 86400.0
"""A load that began so long ago never runs dry: every batch is as large as its bound."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A load from a starting size; seconds count from the start of the query."""

    workload: WordCount
    shape: ClusterShape
    trigger_seconds: float
    executors_at_start: int
    load_after_seconds: float
    end_after_seconds: float
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """What an experiment showed; `origin` is when the load's profile began."""

    origin: float
    ended: float
    batches: tuple[BatchSeen, ...]
    slots: tuple[SlotsSeen, ...]
    actions: tuple[ActionRecord, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()


def run_ds2(experiment: Experiment) -> Run:
    """Penstock with DS2, attached when the load begins."""
    with cluster(experiment.shape, experiment.executors_at_start) as spark, scratch_directory() as scratch:
        journal = str(scratch / "journal.db")
        settings = {**experiment.settings, "journal": journal, "control_socket": False}

        def steer(until: Callable[[float], None]) -> None:
            until(experiment.load_after_seconds)
            autopilot = attach(spark, policy=DS2, settings=settings)
            try:
                until(experiment.end_after_seconds)
            finally:
                autopilot.detach()

        run = _watched(spark, experiment, scratch, steer)
        return _recorded(run, journal, spark.sparkContext.applicationId)


def run_dynamic_allocation(experiment: Experiment) -> Run:
    """Spark's own dynamic allocation with shuffle tracking; the rest of its settings as Spark has them."""
    conf = {
        **experiment.shape.conf,
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.initialExecutors": str(experiment.executors_at_start),
        "spark.dynamicAllocation.maxExecutors": str(experiment.shape.executors),
    }
    spark = start_cluster(replace(experiment.shape, conf=conf))
    try:
        _wait_for_executors(spark, experiment.executors_at_start)
        with scratch_directory() as scratch:
            return _watched(spark, experiment, scratch, lambda until: until(experiment.end_after_seconds))
    finally:
        stop_cluster()


def batch_seconds_by_slots(
    experiment: Experiment, sizes: list[int], records: Mapping[str, int], batches: int
) -> Iterator[tuple[str, int, tuple[float, ...]]]:
    """What batches of each load (name → records a batch) take on each number of executors.

    Sizes go down, and executors leave while no query runs, so that no batch has to be repeated. Below a size
    whose batches outlast the trigger interval a load is not tried.
    """
    carried = dict(records)
    with cluster(experiment.shape) as spark, scratch_directory() as scratch:
        for executors in sorted(sizes, reverse=True):
            hold_executors(spark, executors)
            for load, count in list(carried.items()):
                seconds = _batch_seconds(spark, experiment, scratch / load, count, batches)
                if median(seconds) > experiment.trigger_seconds:
                    del carried[load]
                yield load, executors * experiment.shape.cores, seconds


def _batch_seconds(
    spark: SparkSession, experiment: Experiment, checkpoint: Path, records: int, batches: int
) -> tuple[float, ...]:
    """Batches of exactly so many records, one after the other; the first two warm things up."""
    endless = replace(
        experiment.workload,
        profile=f"constant:{records}",
        start=time.time() - DAYS_AGO,
        max_records_per_batch=records,
    )
    with _query(spark, endless, checkpoint, trigger_seconds=0) as query:
        seen: list[BatchSeen] = []
        while len(seen) < batches + 2:
            _check(query)
            time.sleep(0.2)
            seen = batches_of(query)
    return tuple(batch.seconds for batch in seen[2 : batches + 2])


def _watched(
    spark: SparkSession,
    experiment: Experiment,
    scratch: Path,
    steer: Callable[[Callable[[float], None]], None],
) -> Run:
    """Run the load from now on, sample the slots, and collect what was seen."""
    origin = time.time()
    workload = replace(experiment.workload, start=origin)

    def until(seconds: float) -> None:
        while time.time() < origin + seconds:
            _check(query)
            time.sleep(0.2)

    trigger = experiment.trigger_seconds
    with (
        SlotRecorder(spark, experiment.shape.cores) as recorder,
        _query(spark, workload, scratch / "checkpoint", trigger) as query,
    ):
        steer(until)
        ended, batches = time.time(), batches_of(query)
    slots = tuple(SlotsSeen(at, count) for at, count in recorder.samples)
    return Run(origin, ended, tuple(batches), slots)


@contextmanager
def _query(
    spark: SparkSession, workload: WordCount, checkpoint: Path, trigger_seconds: float
) -> Iterator[StreamingQuery]:
    query = start_word_count(spark, workload, str(checkpoint), trigger_seconds=trigger_seconds)
    try:
        yield query
    finally:
        query.stop()


def batches_of(query: StreamingQuery) -> list[BatchSeen]:
    """The query's finished batches that had records, oldest first, each once."""
    reports = [json.loads(progress.json) for progress in query.recentProgress]
    batches = {report["batchId"]: _batch(report) for report in reports if report["numInputRows"]}
    return [batches[number] for number in sorted(batches)]


def _batch(report: dict[str, Any]) -> BatchSeen:
    return BatchSeen(
        start=datetime.fromisoformat(report["timestamp"]).timestamp(),
        seconds=report["durationMs"]["triggerExecution"] / 1000,
        records=report["numInputRows"],
        records_read=report["sources"][0]["endOffset"]["records"],
    )


def _check(query: StreamingQuery) -> None:
    if not query.isActive:
        raise ActionFailed(f"the query of the experiment ended: {query.exception()}")


def _wait_for_executors(spark: SparkSession, count: int, timeout_seconds: float = 90) -> None:
    deadline = time.monotonic() + timeout_seconds
    while len(executor_ids(spark)) < count:
        if time.monotonic() > deadline:
            raise ActionFailed(f"{len(executor_ids(spark))} of {count} executors came up")
        time.sleep(0.2)


def _recorded(run: Run, path: str, application: str) -> Run:
    """With the changes of size and the decisions; that state moved afterwards is no step."""
    with closing(journal_at(path)) as journal:
        actions = tuple(action for action in journal.actions(application) if EXECUTORS in action.planned)
        return replace(run, actions=actions, decisions=journal.decisions(application))
