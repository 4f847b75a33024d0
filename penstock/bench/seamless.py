"""What a change of one function's parallelism does to another function: between batches, and by a restart.

Two paced functions read the same topic. One changes its parallelism every few seconds, the other stays as it
is and must not notice. Beside it the same changes by stopping the pipeline and starting it anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.bench.report import BenchReport, Row, Target
from penstock.bench.spark_cluster import ClusterShape, cluster, scratch_directory
from penstock.bench.wordcount_functions import paced_call
from penstock.pipeline import Pipeline, files, stream
from penstock.pipeline.handle import PipelineHandle
from penstock.pipeline.monitor import BatchDone

SHAPE = ClusterShape(
    executors=2,
    cores=5,
    name="penstock bench seamless",
    log_level="OFF",
    conf={"spark.scheduler.mode": "FAIR"},
)
RATE, SECONDS_PER_RECORD = 100.0, 0.01
SIZES = (4, 2, 3, 5, 2)
LEAST_AWAY = 20
"""Of fewer batches a 99th percentile says nothing, and none is given."""
AROUND_SECONDS = 4.0
"""What counts as near a change: from its moment on, and so long after it."""


@dataclass(frozen=True, slots=True)
class Course:
    """How many changes, how far apart, and how long nothing is counted at first."""

    changes: int
    every_seconds: float
    warm_up_seconds: float


FULL, QUICK = Course(15, 12.0, 30.0), Course(4, 7.0, 20.0)

SEAMLESS, RESTART = "between batches", "stop and restart"
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Seen:
    """The batches of the function that stays as it is, and when the other one changed."""

    batches: tuple[BatchDone, ...]
    changes: tuple[float, ...]
    since: float


def run(quick: bool, progress: Progress) -> BenchReport:
    """Both ways, one after the other on one cluster; quick makes fewer changes."""
    course = QUICK if quick else FULL
    rows = []
    with cluster(SHAPE) as spark:
        for system, way in ((SEAMLESS, _scaled), (RESTART, _restarted)):
            progress(f"{system}: {course.changes} changes")
            with scratch_directory() as scratch:
                rows.append(row_of(system, way(spark, scratch, course)))
            progress(", ".join(f"{key} {value}" for key, value in rows[-1].items()))
    return BenchReport("seamless", summary(rows), rows, targets(rows), {}, notes(course))


def pipeline_of(root: Path, origin: float) -> Pipeline:
    """ticks → steady, ticks → changing."""
    pipeline = Pipeline("ticks", topics=files(str(root)))
    load: dict[str, Any] = {"profile": f"constant:{RATE:g}", "content": "numbers", "partitions": 2}
    pipeline.topic("numbers", at=stream("penstock-load", start=origin, **load))
    for name, limits in (("steady", (2, 2)), ("changing", (1, 5))):
        pipeline.add(
            paced_call(lambda batch: batch, SECONDS_PER_RECORD),
            name=name,
            reads="numbers",
            writes=f"{name}-done",
            schema="number bigint",
            takes="arrow",
            parallelism=limits,
        )
    return pipeline


def _start(spark: Any, scratch: Path, origin: float, size: int) -> PipelineHandle:
    settings = {"journal": str(scratch / "journal.db"), "mode": "observe", "control_socket": False}
    return pipeline_of(scratch / "topics", origin).run(
        spark, settings=settings, trigger="1s", start_at={"changing": size}
    )


def _scaled(spark: Any, scratch: Path, course: Course) -> Seen:
    handle = _start(spark, scratch, time.time(), 2)
    try:
        handle.wait(course.warm_up_seconds)
        since, at = time.time(), []
        for size in _first(SIZES, course.changes):
            handle.wait(course.every_seconds)
            at.append(time.time())
            handle.scale("changing", size)
        handle.wait(course.every_seconds)
        return Seen(handle.batches("steady"), tuple(at), since)
    finally:
        handle.stop()


def _restarted(spark: Any, scratch: Path, course: Course) -> Seen:
    origin, at = time.time(), []
    batches: list[BatchDone] = []
    handle = _start(spark, scratch, origin, 2)
    try:
        handle.wait(course.warm_up_seconds)
        since = time.time()
        for size in _first(SIZES, course.changes):
            handle.wait(course.every_seconds)
            at.append(time.time())
            handle.stop()
            batches += handle.batches("steady")
            handle = _start(spark, scratch, origin, size)
        handle.wait(course.every_seconds)
        return Seen((*batches, *handle.batches("steady")), tuple(at), since)
    finally:
        handle.stop()


def _first(sizes: Sequence[int], count: int) -> list[int]:
    return [size for size, _ in zip(cycle(sizes), range(count), strict=False)]


def row_of(system: str, seen: Seen) -> Row:
    """Batches near changes against all others of the same function."""
    counted = [batch for batch in seen.batches if batch.start >= seen.since]
    near = [batch for batch in counted if _is_near(batch, seen.changes)]
    away = [batch.end - batch.start for batch in counted if not _is_near(batch, seen.changes)]
    p99 = float(np.percentile(away, 99)) if len(away) >= LEAST_AWAY else None
    slow = [batch for batch in near if p99 is not None and batch.end - batch.start > p99]
    gaps = [later.end - earlier.end for earlier, later in pairwise(counted)]
    return {
        "system": system,
        "changes": len(seen.changes),
        "batches_away": len(away),
        "batches_near": len(near),
        "batch_p50_away_s": _rounded(float(np.median(away)) if away else None),
        "batch_p99_away_s": _rounded(p99),
        "batch_p50_near_s": _rounded(float(np.median([b.end - b.start for b in near])) if near else None),
        "slowest_near_s": _rounded(max((b.end - b.start for b in near), default=None)),
        "slower_than_p99": len(slow) if p99 is not None and near else None,
        "longest_pause_s": _rounded(max(gaps, default=None)),
        "records_per_second": _rounded(_rate(counted)),
        "records_per_second_near": _rounded(_rate_near(counted, seen.changes)),
    }


def _rate_near(batches: Sequence[BatchDone], changes: Sequence[float]) -> float | None:
    """Records of the batches that ended within the seconds after each change."""
    if not changes:
        return None
    served = [b.records for b in batches if any(at < b.end <= at + AROUND_SECONDS for at in changes)]
    return sum(served) / (AROUND_SECONDS * len(changes))


def _is_near(batch: BatchDone, changes: Iterable[float]) -> bool:
    return any(batch.start < at + AROUND_SECONDS and batch.end > at for at in changes)


def _rate(batches: Sequence[BatchDone]) -> float | None:
    if len(batches) < 2:
        return None
    return sum(batch.records for batch in batches[1:]) / (batches[-1].end - batches[0].end)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def targets(rows: list[Row]) -> list[Target]:
    """No batch of the other function may be slower than its own 99th percentile."""
    ours = next((row for row in rows if row["system"] == SEAMLESS), None)
    slow = ours["slower_than_p99"] if ours else None
    return [Target("batches of the other function near a change over its own p99", "== 0", slow)]


def summary(rows: list[Row]) -> dict[str, float]:
    """The pauses of both ways."""
    names = {SEAMLESS: "seamless", RESTART: "restart"}
    return {
        f"{names[row['system']]}_{key}": row[key]
        for row in rows
        for key in ("longest_pause_s", "records_per_second", "slowest_near_s")
        if row[key] is not None
    }


def notes(course: Course) -> list[str]:
    """What a reader should know."""
    sizes = ", ".join(map(str, sorted(set(SIZES))))
    return [
        f"{RATE:g} records/s of {SECONDS_PER_RECORD * 1000:g} ms each to both functions; one changes every "
        f"{course.every_seconds:g} s among {sizes} instances, the other keeps 2",
        f"near a change: batches that overlap with the {AROUND_SECONDS:g} s after it",
    ]
