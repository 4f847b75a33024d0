"""Queries of experiments: run a workload, wait for batches, measure capacity, attach the autopilot."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.dataflow.window import EXECUTORS
from penstock.errors import ActionFailed, PenstockError
from penstock.journal.records import ActionRecord
from penstock.journal.store import journal_at
from penstock.runtime.attach import attach
from penstock.simulate.profiles import parse_profile
from penstock_lab.experiments.batches import BatchSeen, LoadOutcome, measure_load, read_reports
from penstock_lab.experiments.measurement import Progress, shorten_error
from penstock_lab.ground.spark_cluster import ClusterShape
from penstock_lab.workloads.catalog import Ask, Workload
from penstock_lab.workloads.state_stores import HDFS_STATE
from penstock_lab.workloads.word_count import WordCount

DAYS_AGO = 10 * 86400.0
"""A load that began so long ago never runs dry: every batch is as large as its bound."""
SILENCE_SECONDS = 180.0
ENDING_SECONDS = 60.0
HEAD_START_SECONDS = 3.0
"""A query starts before its load does: what is offered during its planning would be a backlog."""
JIT = "-XX:+UseSerialGC -XX:-UsePerfData -Djdk.lang.Process.launchMechanism=VFORK"
"""Throughput is measured with the optimising compiler on, as a job that runs for months has it."""
QUICK_DECISIONS: Mapping[str, object] = {
    "warm_up_intervals": 1,
    "activation_intervals": 1,
    "largest_step_down": 1.0,
}
"""Settings that experiments of minutes share: a policy decides at once, and may shrink in one step."""


@contextmanager
def note_failure(failures: list[str], case: str) -> Iterator[None]:
    """Note a case that Spark or Penstock could not run: an hour of other cases must not be lost with it."""
    try:
        yield
    except (PenstockError, PySparkException, Py4JError) as problem:
        reason = shorten_error(str(problem)) or type(problem).__name__
        failures.append(f"{case} could not be measured: {reason}")


def list_batches(query: StreamingQuery) -> list[BatchSeen]:
    """Return the query's finished batches that read something, oldest first."""
    return read_reports(json.loads(progress.json) for progress in query.recentProgress)


def check_query(query: StreamingQuery) -> None:
    """Raise if the query has ended."""
    if not query.isActive:
        reason = shorten_error(str(query.exception())) if query.exception() else "it was stopped"
        raise ActionFailed(f"the query {query.name} ended: {reason}")


def await_state(
    query: StreamingQuery, reached: Callable[[], bool], seconds: float = SILENCE_SECONDS, what: str = ""
) -> None:
    """Wait until the running query has come to a state."""
    deadline = time.monotonic() + seconds
    while not reached():
        check_query(query)
        if time.monotonic() > deadline:
            raise ActionFailed(
                f"the query {query.name} got no further in {seconds:g} s{what and f': {what}'}"
            )
        time.sleep(0.1)


def await_count(query: StreamingQuery, count: int, seconds: float = SILENCE_SECONDS) -> list[BatchSeen]:
    """Return the query's batches once so many have ended since it began."""
    await_state(query, lambda: len(list_batches(query)) >= count, seconds, f"{count} batches were awaited")
    return list_batches(query)


def await_batches(query: StreamingQuery, count: int, seconds: float = SILENCE_SECONDS) -> list[BatchSeen]:
    """Return the next so many batches that begin and end from now on."""
    begun = time.time()

    def list_fresh() -> list[BatchSeen]:
        return [batch for batch in list_batches(query) if batch.start >= begun]

    await_state(query, lambda: len(list_fresh()) >= count, seconds, f"{count} batches were awaited")
    return list_fresh()


def await_moment(
    query: StreamingQuery, moment: float, tell: Callable[[float], None] = lambda _left: None
) -> None:
    """Wait until a moment of the clock while the query runs; `tell` is called each second with those left."""
    while (left := moment - time.time()) > 0:
        check_query(query)
        tell(left)
        time.sleep(min(1.0, left))


@contextmanager
def attach_autopilot(
    spark: SparkSession, settings: Mapping[str, Any], policy: str | None = None
) -> Iterator[None]:
    """Attach the autopilot for the length of a `with`, and wait until it has ended."""
    autopilot = attach(spark, settings=dict(settings), **({"policy": policy} if policy else {}))
    try:
        yield
    finally:
        autopilot.detach()
        # one that is still at work would disturb what is measured next
        if not autopilot.ended_within(ENDING_SECONDS):
            raise ActionFailed(f"the autopilot has not ended {ENDING_SECONDS:g} s after it was detached")


def read_size_changes(path: str, application: str) -> tuple[ActionRecord, ...]:
    """Return the changes of size from a journal, oldest first; moved state is no step."""
    with closing(journal_at(path)) as journal:
        return tuple(action for action in journal.actions(application) if EXECUTORS in action.planned)


def make_endless(workload: WordCount, records: int) -> WordCount:
    """Return a word count whose batches are always of so many records, since its load never runs dry."""
    profile, start = f"constant:{records}", time.time() - DAYS_AGO
    return replace(workload, profile=profile, start=start, max_records_per_batch=records)


@contextmanager
def stop_after(query: StreamingQuery) -> Iterator[StreamingQuery]:
    """Stop the query at the end of a `with`."""
    try:
        yield query
    finally:
        query.stop()


@contextmanager
def run_workload(
    spark: SparkSession, entry: Workload, ask: Ask, checkpoint: Path, trigger_seconds: float
) -> Iterator[StreamingQuery]:
    """Run the workload's query for the length of a `with`."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", entry.state_store or HDFS_STATE)
    writer = entry.build(spark, ask).writeStream.queryName(entry.name).outputMode(entry.output_mode)
    writer = writer.format("noop") if entry.sink is None else writer.foreachBatch(entry.sink(ask))
    timed = writer.trigger(processingTime=f"{round(trigger_seconds * 1000)} milliseconds")
    with stop_after(timed.option("checkpointLocation", str(checkpoint)).start()) as query:
        yield query


def describe_workload_cluster(cores: int, name: str) -> ClusterShape:
    """Describe one executor with so many cores, which has them to itself."""
    conf = {"spark.executor.extraJavaOptions": JIT, "spark.sql.session.timeZone": "UTC"}
    return ClusterShape(1, cores, executor_memory_mb=2048, name=name, log_level="OFF", conf=conf)


@dataclass(frozen=True, slots=True)
class RunLength:
    """The length of a run: warm-up, what is judged, and the trigger interval."""

    warm_up_seconds: float
    seconds: float
    trigger_seconds: float = 0.0


def run_load(
    spark: SparkSession, entry: Workload, ask: Ask, checkpoint: Path, pace: RunLength, progress: Progress
) -> LoadOutcome:
    """Offer the load from now on and reduce it to an outcome; too few batches are an error."""
    found, ended = watch_load(spark, entry, ask, checkpoint, pace, progress)
    if found is None:
        raise ActionFailed(
            f"{entry.name} ended fewer than three batches in {3 * pace.seconds:g} s after the warm-up "
            f"({ended}): let it run longer, or offer less"
        )
    return found


def watch_load(
    spark: SparkSession, entry: Workload, ask: Ask, checkpoint: Path, pace: RunLength, progress: Progress
) -> tuple[LoadOutcome | None, int]:
    """Offer the load from now on; return its outcome after the warm-up, and how many batches ended.

    Slow batches get three times the time; if they are too few even then, there is no outcome.
    """
    begun = time.time() + HEAD_START_SECONDS
    ask, profile = replace(ask, start=begun), parse_profile(ask.profile)
    since = begun + pace.warm_up_seconds
    found: LoadOutcome | None = None
    seen: list[BatchSeen] = []
    with run_workload(spark, entry, ask, checkpoint, pace.trigger_seconds) as query:
        for times in (1, 2, 3):
            until = since + times * pace.seconds
            await_moment(query, until, lambda left: progress(f"{entry.name}: {left:.0f} s left"))
            seen = list_batches(query)
            found = measure_load(profile, begun, seen, since)
            if found is not None:
                break
    return found, sum(batch.start >= since for batch in seen)


def warm_up(spark: SparkSession, entry: Workload, ask: Ask, checkpoint: Path, records: int) -> None:
    """Run two batches of so many records, so that Java and Python load and compile what they need."""
    measure_capacity(spark, entry, replace(ask, max_records_per_batch=records), checkpoint, batches=1)


def measure_capacity(spark: SparkSession, entry: Workload, ask: Ask, checkpoint: Path, batches: int) -> float:
    """Measure records a second while a full batch always waits: the median batch after a first one."""
    endless = replace(ask, profile=f"constant:{ask.max_records_per_batch}", start=time.time() - DAYS_AGO)
    with run_workload(spark, entry, endless, checkpoint, 0.0) as query:
        seen = await_count(query, batches + 1)
    return median((batch.records_read - batch.first) / batch.seconds for batch in seen[1:])
