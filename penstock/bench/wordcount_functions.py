"""The word count of Dhalion and DS2 (section 5.2) as two functions with instances of their own.

As in the paper a word costs about a tenth of a sentence, a sentence has 20 words, and the right answer is 10
instances of split and 20 of count. Each policy starts from the same few instances, one after the other on one
cluster that is warm.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.bench.report import BenchReport, Row, Target
from penstock.bench.spark_cluster import ClusterShape, cluster, scratch_directory
from penstock.journal.records import ActionRecord
from penstock.journal.store import journal_at
from penstock.pipeline import Pipeline, files, stream
from penstock.pipeline.handle import PipelineHandle
from penstock.workloads.paced import Pacer
from penstock.workloads.sentences import WORDS_PER_SENTENCE
from penstock.workloads.word_count import count_batch, split_batch

SHAPE = ClusterShape(
    executors=4,
    cores=14,
    executor_memory_mb=640,
    name="penstock bench wordcount-functions",
    log_level="OFF",
    conf={"spark.scheduler.mode": "FAIR"},
)
RATE = 30.0
UTILISATION = 0.75
NEEDED: Mapping[str, float] = {"split": 9.4, "count": 19.3}
"""Instances that keep up at this utilisation; whole ones are 10 and 20, with room for what is not paced."""
OPTIMAL = {name: math.ceil(needed) for name, needed in NEEDED.items()}
START = {"split": 3, "count": 6}
MOST = 32
SENTENCES_PER_BATCH = 400
FILES_PER_BATCH = 10
"""A function far behind would otherwise read all that waits in one batch of minutes.

Of less in a batch the right sizes would not keep up on two cores: what a batch of thirty tasks costs beside
its service times, some three seconds, must fit into the quarter of the time for which instances are idle.
"""
WARM_UP_SECONDS = 12.0

SETTINGS: Mapping[str, object] = {
    "policy_interval": "6s",
    "warm_up_intervals": 1,
    "activation_intervals": 1,
    "scale_down_delay": "6s",
    "largest_step_down": 1.0,
    "utilisation": UTILISATION,
    "utilisation_low": 0.5,
    "catch_up": "7d",
    "rollback": False,
    "control_socket": False,
}
SECONDS: Mapping[str, float] = {"ds2": 180, "dhalion": 300, "threshold": 300}
QUICK_SECONDS = 100.0

PUBLISHED: dict[str, Any] = {
    "dhalion_steps": 6,
    "dhalion_split_instances": 22,
    "dhalion_count_instances": 30,
    "dhalion_seconds_to_converge": 2000,
    "ds2_steps": 1,
    "ds2_split_instances": 10,
    "ds2_count_instances": 20,
    "ds2_seconds_to_converge": 60,
}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """Records offered and read at one moment, and the instances held."""

    at: float
    waiting: float
    sizes: Mapping[str, int]

    @property
    def instances(self) -> int:
        """Of all functions."""
        return sum(self.sizes.values())


def run(quick: bool, progress: Progress) -> BenchReport:
    """Each policy in turn on the same load; quick runs ds2 and threshold for a shorter time."""
    systems = {"ds2": QUICK_SECONDS, "threshold": QUICK_SECONDS} if quick else SECONDS
    rows = []
    with cluster(SHAPE) as spark:
        run_system(spark, "threshold", WARM_UP_SECONDS)
        for system, seconds in systems.items():
            progress(f"{system}: {seconds:.0f} s")
            rows.append(run_system(spark, system, seconds)[0])
            progress(", ".join(f"{key} {value}" for key, value in rows[-1].items()))
    return BenchReport("wordcount-functions", summary(rows), rows, targets(rows), PUBLISHED, notes(systems))


def run_system(spark: Any, system: str, seconds: float) -> tuple[Row, list[Sample]]:
    """One policy on topics and with a journal of its own: its row, and its course."""
    with scratch_directory() as scratch:
        journal = scratch / "journal.db"
        origin = time.time()
        handle = pipeline_of(scratch / "topics", origin).run(
            spark,
            policy=system,
            settings={**SETTINGS, "journal": str(journal)},
            trigger="500ms",
            start_at=START,
        )
        try:
            samples = watched(handle, origin, seconds)
            final = {name: one["parallelism"] for name, one in handle.status()["functions"].items()}
        finally:
            handle.stop()
        actions = actions_in(journal, f"{spark.sparkContext.applicationId}.words")
    return row_of(system, origin, samples, actions, final), samples


def pipeline_of(root: Path, origin: float) -> Pipeline:
    """sentences → split → words → count → counts."""
    pipeline = Pipeline("words", topics=files(str(root), files_per_batch=FILES_PER_BATCH))
    load = stream(
        "penstock-load",
        profile=f"constant:{RATE:g}",
        partitions=4,
        start=origin,
        maxRecordsPerBatch=SENTENCES_PER_BATCH,
    )
    pipeline.topic("sentences", at=load)
    per_sentence = NEEDED["split"] * UTILISATION / RATE
    per_word = NEEDED["count"] * UTILISATION / (RATE * WORDS_PER_SENTENCE)
    shared: dict[str, Any] = {"parallelism": (1, MOST), "takes": "arrow"}
    pipeline.add(
        paced_call(lambda batch: split_batch(batch.select(["sentence"])), per_sentence),
        name="split",
        reads="sentences",
        writes="words",
        schema="word string",
        **shared,
    )
    pipeline.add(
        paced_call(count_batch, per_word),
        name="count",
        reads="words",
        writes="counts",
        schema="word string, seen bigint",
        **shared,
    )
    return pipeline


def paced_call(
    transform: Callable[[pa.RecordBatch], pa.RecordBatch], seconds_per_record: float
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function that takes this long for each record; defined inside, so it travels to workers whole."""

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        pacer = Pacer(seconds_per_record)
        pacer.serve(len(batch))
        pacer.settle()
        return transform(batch)

    return call


def watched(handle: PipelineHandle, origin: float, seconds: float) -> list[Sample]:
    """Sample twice a second; a function that fails ends the benchmark."""
    samples = []
    while time.time() < origin + seconds:
        handle.wait(0.5)
        now, functions = time.time(), handle.status()["functions"]
        sentences = RATE * (now - origin) - functions["split"]["records_read"]
        words = functions["split"]["records_written"] - functions["count"]["records_read"]
        sizes = {name: one["parallelism"] for name, one in functions.items()}
        samples.append(Sample(now, max(0.0, sentences) + max(0.0, words), sizes))
    return samples


def actions_in(journal: Path, application: str) -> list[ActionRecord]:
    """What was done, oldest first."""
    with closing(journal_at(str(journal))) as opened:
        return list(opened.actions(application))


def row_of(
    system: str,
    origin: float,
    samples: list[Sample],
    actions: list[ActionRecord],
    final: Mapping[str, int],
) -> Row:
    """One policy in the fields of the report."""
    ended = [action.ended_at or action.intended_at for action in actions]
    return {
        "system": system,
        "steps": len(actions),
        "final": dict(final),
        "optimal": dict(OPTIMAL),
        "seconds_to_converge": round(max(ended) - origin, 1) if ended else None,
        "backlog_record_seconds": round(integral(samples, lambda one: one.waiting)),
        "instance_seconds": round(integral(samples, lambda one: float(one.instances))),
        "sizes": [dict(action.planned) for action in actions],
    }


def integral(samples: list[Sample], value: Callable[[Sample], float]) -> float:
    """A value over time, by the trapezoidal rule."""
    return sum((b.at - a.at) * (value(a) + value(b)) / 2 for a, b in pairwise(samples))


def targets(rows: list[Row]) -> list[Target]:
    """What is promised of DS2."""
    ours = next((row for row in rows if row["system"] == "ds2"), None)
    off = sum(abs(ours["final"][name] - best) for name, best in OPTIMAL.items()) if ours else None
    return [
        Target("steps of ds2", "== 1", ours["steps"] if ours else None),
        Target("instances of ds2 off the right answer", "== 0", off),
    ]


def summary(rows: list[Row]) -> dict[str, float]:
    """The figures of each system that are numbers."""
    named = ("steps", "seconds_to_converge", "backlog_record_seconds", "instance_seconds")
    found = {f"{row['system']}_{key}": row[key] for row in rows for key in named if row[key] is not None}
    for row in rows:
        found[f"{row['system']}_instances"] = sum(row["final"].values())
    return found


def notes(systems: Mapping[str, float]) -> list[str]:
    """What a reader should know."""
    return [
        f"{RATE:g} sentences/s; service times are paced, so that {NEEDED['split']:g} instances of split and "
        f"{NEEDED['count']:g} of count are busy {UTILISATION:.0%} of the time",
        f"all start at {START['split']} and {START['count']} instances; a batch reads at most "
        f"{SENTENCES_PER_BATCH} sentences or {FILES_PER_BATCH} files",
        "a system is stopped after "
        + ", ".join(f"{seconds:.0f} s ({name})" for name, seconds in systems.items())
        + ": one that still changes sizes then has not converged; what comes first, for Java and Python to "
        "get warm, is not counted",
        "settings: " + ", ".join(f"{key}={value}" for key, value in SETTINGS.items()),
        "published figures are of Heron on other machines; the load's ratios are the same",
    ]
