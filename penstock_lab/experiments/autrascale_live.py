"""AuTraScale on the proving ground: a query and a pipeline of two functions with a latency target.

DS2 runs first, and so says what throughput alone needs and which latency that has. The target is below that
latency. AuTraScale then searches at one rate, the rate changes, and it searches again with what it learned.
Payments are scored in numpy, on hosts with quotas: all computing is real.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.journal.records import ActionRecord
from penstock.journal.store import journal_at
from penstock.pipeline import Pipeline, files, stream
from penstock.simulate.profiles import parse_profile
from penstock_lab.experiments.batches import find_latencies
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row, tell_row, tell_settings
from penstock_lab.experiments.spark_query import (
    QUICK_DECISIONS,
    attach_autopilot,
    await_moment,
    list_batches,
    note_failure,
    read_size_changes,
    stop_after,
)
from penstock_lab.ground.hosts import HostShape
from penstock_lab.ground.proving_ground import ProvingGround
from penstock_lab.ground.spark_cluster import cluster, executor_ids, scratch_directory
from penstock_lab.workloads.scoring import Scoring, build_scoring, choose_layers, score_payments
from penstock_lab.workloads.source import LoadSource

WORKERS, HOST = 8, HostShape(cores=1, cpu=0.15)
QUERY, PIPELINE = "query", "pipeline"
OURS, DS2, DRS = "autrascale", "ds2", "drs"
HEADROOM = 0.8
"""The latency target over the latency that DS2's size has at the first rate."""
TAIL_SECONDS = 30.0
"""The end of each rate, over which its latency is taken."""
QUERY_SECONDS_PER_RECORD, QUERY_RATES = 0.001, (300, 390)
PIPELINE_SECONDS: Mapping[str, float] = {"prepare": 0.0004, "score": 0.001}
"""Of a core, for each record; a host has 0.15 cores."""
PIPELINE_RATES = (180, 234)
MOST_INSTANCES = 5
SETTINGS: Mapping[str, object] = {
    **QUICK_DECISIONS,
    "scale_down_delay": "0s",
    "rollback": False,
    "control_socket": False,
    "autrascale_changes_per_hour": 3600,
    "fuse": "never",
}
"""Trials follow each other within minutes, and two functions stay two."""
INTERVALS = {QUERY: "8s", PIPELINE: "5s"}
"""The policy interval, in which some batches end."""
TRIED, CHOSEN, TRANSFERRED = "latency search", "expected_improvement", "learned from"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Seconds of the first and of the second rate, for a search and for a policy that computes its size."""

    search: tuple[float, float]
    compute: tuple[float, float]


LENGTHS = {QUERY: Lengths((330.0, 210.0), (110.0, 90.0)), PIPELINE: Lengths((270.0, 180.0), (80.0, 70.0))}
QUICK_LENGTHS = Lengths((200.0, 110.0), (60.0, 50.0))


@dataclass(slots=True)
class SizeCourse:
    """One policy on one load: sizes by the moment, latencies of batches, and the changes that it made."""

    origin: float
    lengths: tuple[float, float]
    sizes: list[tuple[float, int]] = field(default_factory=list)
    batches: list[tuple[float, float, float]] = field(default_factory=list)
    """End, records and mean latency."""
    actions: Sequence[ActionRecord] = ()

    def find_span(self, number: int) -> tuple[float, float]:
        """Return begin and end of a rate."""
        begin = self.origin + sum(self.lengths[:number])
        return begin, begin + self.lengths[number]

    def find_size(self, number: int) -> int | None:
        """Return the size held when a rate ended."""
        begin, end = self.find_span(number)
        return next((size for at, size in reversed(self.sizes) if begin <= at <= end), None)

    def measure_latency(self, number: int) -> float | None:
        """Return the mean latency of the records of the last batches of a rate."""
        _, end = self.find_span(number)
        tail = [(records, late) for at, records, late in self.batches if end - TAIL_SECONDS <= at <= end]
        total = sum(records for records, _ in tail)
        return sum(records * late for records, late in tail) / total if total else None

    def list_trials(self, number: int) -> list[ActionRecord]:
        """Return the sizes that were tried for their latency at a rate."""
        begin, end = self.find_span(number)
        return [one for one in self.actions if begin <= one.intended_at < end and TRIED in one.reason]


def run(extent: Extent, progress: Progress) -> Measurement:
    """Run both cases; quick has the pipeline alone, shorter and without DRS."""
    rows: list[Row] = []
    failures: list[str] = []
    cases = (PIPELINE,) if extent.quick else (QUERY, PIPELINE)
    conf = {"spark.scheduler.mode": "FAIR"}
    with ProvingGround(WORKERS, HOST) as ground, cluster(ground.shape("autrascale", conf=conf)) as spark:
        spark.dataSource.register(LoadSource)
        for case in cases:
            lengths = QUICK_LENGTHS if extent.quick else LENGTHS[case]
            with note_failure(failures, case):
                rows += run_case(spark, case, lengths, extent.quick, progress)
        notes = [f"{ground.describe()['ground']}, {WORKERS} hosts of {HOST.cpu:g} cores", *describe_method()]
    return Measurement(rows, notes=notes, failures=failures, quick=extent.quick)


def run_case(spark: SparkSession, case: str, lengths: Lengths, quick: bool, progress: Progress) -> list[Row]:
    """Run DS2, then the others with a target below its latency."""
    follow = make_query_run() if case == QUERY else make_pipeline_run()
    rows: list[Row] = []
    target = float("inf")
    systems = (DS2, OURS) if quick or case == QUERY else (DS2, OURS, DRS)
    for system in systems:
        settings = {**SETTINGS, "policy_interval": INTERVALS[case]}
        settings |= {} if system == DS2 else {"latency_target": f"{target:.2f}s"}
        seconds = lengths.search if system == OURS else lengths.compute
        progress(f"{case}, {system}: {sum(seconds):.0f} s")
        with scratch_directory() as scratch:
            settings["journal"] = str(scratch / "journal.db")
            course = follow(PolicyRun(spark, scratch, system, settings, seconds))
        target = choose_target(course) if system == DS2 else target
        rows.append(make_row(case, system, target, course, settings))
        progress(tell_row(rows[-1]))
    return rows


def choose_target(course: SizeCourse) -> float:
    """Return a target that the size for throughput alone misses."""
    latency = course.measure_latency(0)
    return float("inf") if latency is None else HEADROOM * latency


def make_row(
    case: str, system: str, target: float, course: SizeCourse, settings: Mapping[str, object]
) -> Row:
    """Reduce a policy's course to sizes, latencies and trials at both rates."""
    trials = [course.list_trials(number) for number in (0, 1)]
    row: Row = {"case": case, "system": system, "target_s": round(target, 2)}
    for number, name in enumerate(("first", "second")):
        latency = course.measure_latency(number)
        row[f"{name}_size"] = course.find_size(number)
        row[f"{name}_latency_s"] = None if latency is None else round(latency, 2)
        row[f"{name}_trials"] = len(trials[number])
    every = [*trials[0], *trials[1]]
    row["chosen_by_improvement"] = sum(CHOSEN in one.expected.figures for one in every)
    row["transferred_trials"] = sum(TRANSFERRED in one.reason for one in trials[1])
    row["settings"] = tell_settings(settings)
    return row


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """A policy that is to be followed on a load, with its settings and the seconds of both rates."""

    spark: SparkSession
    scratch: Path
    system: str
    settings: Mapping[str, object]
    seconds: tuple[float, float]


Follow = Callable[[PolicyRun], SizeCourse]


def _profile(rates: Sequence[int], seconds: tuple[float, float]) -> str:
    return f"steps:0={rates[0]},{seconds[0]:.0f}={rates[1]}"


def make_query_run() -> Follow:
    """Return how a policy runs on the query, whose layers take as long as is asked for on this machine."""
    return partial(_follow_query, choose_layers(QUERY_SECONDS_PER_RECORD))


def _follow_query(layers: int, asked: PolicyRun) -> SizeCourse:
    course = SizeCourse(time.time() + 3.0, asked.seconds)
    profile = _profile(QUERY_RATES, asked.seconds)
    load = Scoring(profile, layers, source_partitions=WORKERS, start=course.origin)
    writer = build_scoring(asked.spark, load).writeStream.outputMode("update").format("noop")
    writer = writer.trigger(processingTime="4 seconds").queryName("scoring")
    started = writer.option("checkpointLocation", str(asked.scratch / "checkpoint")).start()
    chosen = {**asked.settings, "max_executors": WORKERS}
    with stop_after(started) as query, attach_autopilot(asked.spark, chosen, asked.system):
        await_moment(query, course.origin + sum(asked.seconds), partial(_note_executors, asked.spark, course))
        shape = parse_profile(profile)
        for batch in list_batches(query):
            (late,) = find_latencies(shape, course.origin, [batch], (50,))
            course.batches.append((batch.end, batch.records_read - batch.first, late))
    course.actions = read_size_changes(str(asked.settings["journal"]), asked.spark.sparkContext.applicationId)
    return course


def _note_executors(spark: SparkSession, course: SizeCourse, _left: float) -> None:
    course.sizes.append((time.time(), len(executor_ids(spark))))


def make_pipeline_run() -> Follow:
    """Return how a policy runs on the pipeline."""
    layers = {name: choose_layers(seconds) for name, seconds in PIPELINE_SECONDS.items()}
    return partial(_follow_pipeline, layers)


def _follow_pipeline(layers: Mapping[str, int], asked: PolicyRun) -> SizeCourse:
    course = SizeCourse(time.time() + 3.0, asked.seconds)
    pipeline = build_pipeline(
        asked.scratch / "topics", layers, _profile(PIPELINE_RATES, asked.seconds), course.origin
    )
    handle = pipeline.run(asked.spark, policy=asked.system, settings=dict(asked.settings), trigger="1s")
    try:
        while time.time() < course.origin + sum(asked.seconds):
            handle.wait(1.0)
            sizes = [one["parallelism"] for one in handle.status()["functions"].values()]
            course.sizes.append((time.time(), sum(sizes)))
            known = {end for end, _, _ in course.batches}
            course.batches += [
                (one.end, one.records, one.latency_seconds)
                for one in handle.batches("score")
                if one.end not in known and np.isfinite(one.latency_seconds)
            ]
    finally:
        handle.stop()
    with closing(journal_at(str(asked.settings["journal"]))) as journal:
        course.actions = journal.actions(f"{asked.spark.sparkContext.applicationId}.{pipeline.name}")
    return course


def build_pipeline(root: Path, layers: Mapping[str, int], profile: str, origin: float) -> Pipeline:
    """Build numbers → prepare → prepared → score → scores."""
    pipeline = Pipeline("scores", topics=files(str(root)))
    load: dict[str, Any] = {"profile": profile, "partitions": 2, "start": origin, "content": "numbers"}
    pipeline.topic("numbers", at=stream("penstock-load", **load))
    shared: dict[str, Any] = {"takes": "arrow", "parallelism": (1, MOST_INSTANCES)}
    pipeline.add(score_with(layers["prepare"]), name="prepare", reads="numbers", writes="prepared",
                 schema="number bigint, score double", **shared)  # fmt: skip
    pipeline.add(score_with(layers["score"]), name="score", reads="prepared", writes="scores",
                 schema="number bigint, score double", **shared)  # fmt: skip
    return pipeline


def score_with(layers: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Make a function that scores payments by a network of so many layers."""

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = batch.column("number")
        scores = score_payments(numbers.to_numpy().astype(np.uint64), layers)
        return pa.RecordBatch.from_arrays([numbers, pa.array(scores)], names=["number", "score"])

    return call


def describe_method() -> list[str]:
    """Tell how the figures were measured."""
    return [
        f"the latency target is {HEADROOM:g} times what DS2's size has at the first rate: throughput alone "
        "does not meet it, by choice",
        f"query: {QUERY_RATES[0]} and then {QUERY_RATES[1]} payments/s, a trigger of 4 s; size is executors",
        f"pipeline: {PIPELINE_RATES[0]} and then {PIPELINE_RATES[1]} payments/s through two functions, a "
        "trigger of 1 s; size is the sum of their instances",
        "DRS needs operators with instances of their own, and so is not asked about the query",
        f"latency is the mean over the records of the last {TAIL_SECONDS:g} s of a rate, by Spark's reports "
        "and the load's own clock (query), or by the moments that records carry (pipeline)",
    ]
