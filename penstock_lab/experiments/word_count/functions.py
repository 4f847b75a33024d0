"""The word count of Dhalion and DS2 (section 5.2) as two functions with instances of their own.

As in the paper a word costs about a tenth of a sentence, a sentence has 20 words, and the right answer is 10
instances of split and 20 of count. Each policy starts from the same few instances, one after the other on one
cluster that is warm.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.journal.records import ActionRecord
from penstock.journal.store import journal_at
from penstock.pipeline import Pipeline, files, stream
from penstock.pipeline.handle import PipelineHandle
from penstock_lab.experiments.measurement import (
    Extent,
    Measurement,
    Progress,
    Row,
    summarise_rows,
    tell_row,
    tell_settings,
)
from penstock_lab.experiments.spark_query import QUICK_DECISIONS, note_failure
from penstock_lab.ground.spark_cluster import ClusterShape, cluster, scratch_directory
from penstock_lab.workloads.paced import Pacer
from penstock_lab.workloads.records import WORDS_PER_SENTENCE
from penstock_lab.workloads.source import LoadSource
from penstock_lab.workloads.word_count import count_batch, split_batch

FAIR = {"spark.scheduler.mode": "FAIR"}
SHAPE = ClusterShape(4, 14, 640, name="penstock bench wordcount-functions", log_level="OFF", conf=FAIR)
RATE = 30.0
UTILISATION = 0.75
NEEDED: Mapping[str, float] = {"split": 9.4, "count": 19.3}
"""Instances that keep up at this utilisation; rounded up, 10 and 20 leave room for what is not paced."""
OPTIMAL = {name: math.ceil(needed) for name, needed in NEEDED.items()}
START = {"split": 3, "count": 6}
MOST = 32
SENTENCES_PER_BATCH = 400
FILES_PER_BATCH = 10
"""Bounds the batch of a function far behind, which would take minutes otherwise.

With a lower bound the right sizes would not keep up on two cores: the fixed cost of a batch of thirty tasks,
some three seconds, must fit into the quarter of the time in which instances are idle.
"""
WARM_UP_SECONDS = 12.0
SETTINGS: Mapping[str, object] = {
    **QUICK_DECISIONS,
    "policy_interval": "6s",
    "scale_down_delay": "6s",
    "utilisation": UTILISATION,
    "utilisation_low": 0.5,
    "catch_up": "7d",
    "rollback": False,
    "control_socket": False,
    "fuse": "never",
}
"""Each function is sized on its own, as in the paper."""
SECONDS: Mapping[str, float] = {"ds2": 180, "dhalion": 300, "threshold": 300}
QUICK_SECONDS = 100.0
REPORTED = ("ds2", "dhalion")
"""The systems that the paper compares."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Records that wait at one moment, and the instances of each function."""

    at: float
    waiting: float
    sizes: Mapping[str, int]


def run(extent: Extent, progress: Progress) -> Measurement:
    """Run each policy in turn on the same load; quick runs ds2 and threshold for a shorter time."""
    systems = {"ds2": QUICK_SECONDS, "threshold": QUICK_SECONDS} if extent.quick else SECONDS
    if extent.report:
        systems = {system: SECONDS[system] for system in REPORTED}
    rows: list[Row] = []
    courses: dict[str, list[Sample]] = {}
    failures: list[str] = []
    with cluster(SHAPE) as spark:
        progress("warming up")
        run_system(spark, "threshold", WARM_UP_SECONDS)
        for system, seconds in systems.items():
            progress(f"{system}: {seconds:.0f} s")
            with note_failure(failures, system):
                row, courses[system] = run_system(spark, system, seconds)
                rows.append(row)
                progress(tell_row(row))
    summary = summarise_systems(rows)
    return Measurement(rows, summary, describe_method(systems), failures, courses, extent.quick)


def run_system(spark: Any, system: str, seconds: float) -> tuple[Row, list[Sample]]:
    """Run one policy on topics and with a journal of its own; return its row and its course."""
    with scratch_directory() as scratch:
        journal = scratch / "journal.db"
        origin = time.time()
        spark.dataSource.register(LoadSource)
        settings = {**SETTINGS, "journal": str(journal)}
        pipeline = build_pipeline(scratch / "topics", origin)
        handle = pipeline.run(spark, policy=system, settings=settings, trigger="500ms", start_at=START)
        try:
            samples = sample_pipeline(handle, origin, seconds)
            final = {name: one["parallelism"] for name, one in handle.status()["functions"].items()}
        finally:
            handle.stop()
        with closing(journal_at(str(journal))) as opened:
            actions = opened.actions(f"{spark.sparkContext.applicationId}.words")
    return make_row(system, origin, samples, actions, final), samples


def build_pipeline(root: Path, origin: float) -> Pipeline:
    """Build sentences → split → words → count → counts."""
    pipeline = Pipeline("words", topics=files(str(root), files_per_batch=FILES_PER_BATCH))
    load: dict[str, Any] = {"profile": f"constant:{RATE:g}", "partitions": 4, "start": origin}
    at_most = stream("penstock-load", **load, maxRecordsPerBatch=SENTENCES_PER_BATCH)
    pipeline.topic("sentences", at=at_most)
    per_sentence = NEEDED["split"] * UTILISATION / RATE
    per_word = NEEDED["count"] * UTILISATION / (RATE * WORDS_PER_SENTENCE)
    split = pace_call(lambda batch: split_batch(batch.select(["sentence"])), per_sentence)
    count, counted = pace_call(count_batch, per_word), "word string, seen bigint"
    shared: dict[str, Any] = {"parallelism": (1, MOST), "takes": "arrow"}
    pipeline.add(split, name="split", reads="sentences", writes="words", schema="word string", **shared)
    pipeline.add(count, name="count", reads="words", writes="counts", schema=counted, **shared)
    return pipeline


def pace_call(
    transform: Callable[[pa.RecordBatch], pa.RecordBatch], seconds_per_record: float
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Make a function of batches that takes this long for each record."""

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        pacer = Pacer(seconds_per_record)
        pacer.serve(len(batch))
        pacer.settle()
        return transform(batch)

    return call


def sample_pipeline(handle: PipelineHandle, origin: float, seconds: float) -> list[Sample]:
    """Sample twice a second; a function that fails ends the experiment."""
    samples = []
    while time.time() < origin + seconds:
        handle.wait(0.5)
        now, functions = time.time(), handle.status()["functions"]
        sentences = RATE * (now - origin) - functions["split"]["records_read"]
        words = functions["split"]["records_written"] - functions["count"]["records_read"]
        sizes = {name: one["parallelism"] for name, one in functions.items()}
        samples.append(Sample(now, max(0.0, sentences) + max(0.0, words), sizes))
    return samples


def make_row(
    system: str,
    origin: float,
    samples: list[Sample],
    actions: Sequence[ActionRecord],
    final: Mapping[str, int],
) -> Row:
    """Reduce one policy to the fields of the report."""
    ended = [action.ended_at or action.intended_at for action in actions]
    return {
        "system": system,
        "steps": len(actions),
        "final": dict(final),
        "optimal": dict(OPTIMAL),
        "seconds_to_converge": round(max(ended) - origin, 1) if ended else None,
        "backlog_record_seconds": round(integrate(samples, lambda one: one.waiting)),
        "instance_seconds": round(integrate(samples, lambda one: sum(one.sizes.values()))),
        "sizes": [dict(action.planned) for action in actions],
        "settings": tell_settings(SETTINGS),
    }


def integrate(samples: list[Sample], value: Callable[[Sample], float]) -> float:
    """Integrate a value over time, by the trapezoidal rule."""
    return sum((b.at - a.at) * (value(a) + value(b)) / 2 for a, b in pairwise(samples))


def summarise_systems(rows: list[Row]) -> dict[str, float]:
    """Return the figures of each system that are numbers."""
    figures = ("steps", "seconds_to_converge", "backlog_record_seconds", "instance_seconds")
    instances = {f"{row['system']}_instances": sum(row["final"].values()) for row in rows}
    return {**summarise_rows(rows, *figures), **instances}


def describe_method(systems: Mapping[str, float]) -> list[str]:
    """Tell how the figures were measured."""
    return [
        f"{RATE:g} sentences/s; service times are paced, so that {NEEDED['split']:g} instances of split and "
        f"{NEEDED['count']:g} of count are busy {UTILISATION:.0%} of the time",
        f"all start at {START['split']} and {START['count']} instances; a batch reads at most "
        f"{SENTENCES_PER_BATCH} sentences or {FILES_PER_BATCH} files",
        "a system is stopped after "
        + ", ".join(f"{seconds:.0f} s ({name})" for name, seconds in systems.items())
        + ": one that still changes sizes then has not converged; what comes first, for Java and Python to "
        "get warm, is not counted",
        "published figures are of Heron on other machines; the load's ratios are the same",
    ]
