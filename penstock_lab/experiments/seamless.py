"""How changing one function's parallelism disturbs another function: between batches, and by a restart.

Two paced functions read the same topic. One changes its parallelism every few seconds, the other stays as it
is and must not notice. For comparison the same changes are made by stopping and restarting the pipeline.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.pipeline import Pipeline, files, stream
from penstock.pipeline.batches import BatchDone
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
from penstock_lab.experiments.word_count.functions import pace_call
from penstock_lab.ground.spark_cluster import ClusterShape, cluster, scratch_directory
from penstock_lab.workloads.source import LoadSource

FAIR = {"spark.scheduler.mode": "FAIR"}
SHAPE = ClusterShape(2, 5, name="penstock bench seamless", log_level="OFF", conf=FAIR)
RATE, SECONDS_PER_RECORD = 100.0, 0.01
SIZES = (4, 2, 3, 5, 2)
LEAST_AWAY = 20
"""A 99th percentile of fewer batches says nothing, and none is given."""
AROUND_SECONDS = 4.0
"""A batch is near a change if it overlaps with this many seconds after it."""


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The number of changes, the seconds between them, and a warm-up that does not count."""

    changes: int
    every_seconds: float
    warm_up_seconds: float


FULL, QUICK = ChangePlan(15, 12.0, 30.0), ChangePlan(4, 7.0, 20.0)
SETTINGS = {"mode": "observe", "control_socket": False}
SEAMLESS, RESTART = "between batches", "stop and restart"


@dataclass(frozen=True, slots=True)
class ChangesSeen:
    """The batches of the function that stays as it is, and when the other one changed."""

    batches: tuple[BatchDone, ...]
    changes: tuple[float, ...]
    since: float


def run(extent: Extent, progress: Progress) -> Measurement:
    """Change both ways, one after the other on one cluster; quick makes fewer changes."""
    plan = QUICK if extent.quick else FULL
    rows = []
    with cluster(SHAPE) as spark:
        for system, way in ((SEAMLESS, _scale_live), (RESTART, _restart)):
            progress(f"{system}: {plan.changes} changes")
            with scratch_directory() as scratch:
                rows.append(make_row(system, way(spark, scratch, plan)))
            progress(tell_row(rows[-1]))
    return Measurement(rows, summarise_both(rows), describe_method(plan))


def build_pipeline(root: Path, origin: float) -> Pipeline:
    """Build ticks → steady, ticks → changing."""
    pipeline = Pipeline("ticks", topics=files(str(root)))
    load: dict[str, Any] = {"profile": f"constant:{RATE:g}", "content": "numbers", "partitions": 2}
    pipeline.topic("numbers", at=stream("penstock-load", start=origin, **load))
    for name, limits in (("steady", (2, 2)), ("changing", (1, 5))):
        pipeline.add(
            pace_call(lambda batch: batch, SECONDS_PER_RECORD),
            name=name,
            reads="numbers",
            writes=f"{name}-done",
            schema="number bigint",
            takes="arrow",
            parallelism=limits,
        )
    return pipeline


def _start(spark: Any, scratch: Path, origin: float, size: int) -> PipelineHandle:
    settings = {**SETTINGS, "journal": str(scratch / "journal.db")}
    spark.dataSource.register(LoadSource)
    return build_pipeline(scratch / "topics", origin).run(
        spark, settings=settings, trigger="1s", start_at={"changing": size}
    )


def _scale_live(spark: Any, scratch: Path, plan: ChangePlan) -> ChangesSeen:
    handle, at = _start(spark, scratch, time.time(), 2), []
    try:
        handle.wait(plan.warm_up_seconds)
        since = time.time()
        for size in islice(cycle(SIZES), plan.changes):
            handle.wait(plan.every_seconds)
            at.append(time.time())
            handle.scale("changing", size)
        handle.wait(plan.every_seconds)
        return ChangesSeen(handle.batches("steady"), tuple(at), since)
    finally:
        handle.stop()


def _restart(spark: Any, scratch: Path, plan: ChangePlan) -> ChangesSeen:
    origin, at = time.time(), []
    batches: list[BatchDone] = []
    handle = _start(spark, scratch, origin, 2)
    try:
        handle.wait(plan.warm_up_seconds)
        since = time.time()
        for size in islice(cycle(SIZES), plan.changes):
            handle.wait(plan.every_seconds)
            at.append(time.time())
            handle.stop()
            batches += handle.batches("steady")
            handle = _start(spark, scratch, origin, size)
        handle.wait(plan.every_seconds)
        return ChangesSeen((*batches, *handle.batches("steady")), tuple(at), since)
    finally:
        handle.stop()


def make_row(system: str, seen: ChangesSeen) -> Row:
    """Compare batches near changes with all others of the same function."""
    counted = [batch for batch in seen.batches if batch.start >= seen.since]
    near, away = (
        [batch.end - batch.start for batch in counted if _is_near(batch, seen.changes) is close]
        for close in (True, False)
    )
    p99 = float(np.percentile(away, 99)) if len(away) >= LEAST_AWAY else None
    gaps = [later.end - earlier.end for earlier, later in pairwise(counted)]
    figures = {
        "batch_p50_away_s": float(np.median(away)) if away else None,
        "batch_p99_away_s": p99,
        "batch_p50_near_s": float(np.median(near)) if near else None,
        "slowest_near_s": max(near, default=None),
        "slower_than_p99": sum(seconds > p99 for seconds in near) if p99 is not None and near else None,
        "longest_pause_s": max(gaps, default=None),
        "records_per_second": sum(batch.records for batch in counted[1:]) / sum(gaps) if gaps else None,
        "records_per_second_near": _measure_rate_near(counted, seen.changes),
    }
    return {
        "system": system,
        "changes": len(seen.changes),
        "batches_away": len(away),
        "batches_near": len(near),
        **{name: None if value is None else round(value, 3) for name, value in figures.items()},
        "settings": tell_settings(SETTINGS),
    }


def _measure_rate_near(batches: Sequence[BatchDone], changes: Sequence[float]) -> float | None:
    """Return the rate of the batches that ended within the seconds after each change."""
    if not changes:
        return None
    served = [b.records for b in batches if any(at < b.end <= at + AROUND_SECONDS for at in changes)]
    return sum(served) / (AROUND_SECONDS * len(changes))


def _is_near(batch: BatchDone, changes: Iterable[float]) -> bool:
    return any(batch.start < at + AROUND_SECONDS and batch.end > at for at in changes)


def summarise_both(rows: list[Row]) -> dict[str, float]:
    """Return the pauses of both ways."""
    names = {SEAMLESS: "seamless", RESTART: "restart"}
    named = [{**row, "system": names[row["system"]]} for row in rows]
    return summarise_rows(named, "longest_pause_s", "records_per_second", "slowest_near_s")


def describe_method(plan: ChangePlan) -> list[str]:
    """Tell how the figures were measured."""
    sizes = ", ".join(map(str, sorted(set(SIZES))))
    return [
        f"{RATE:g} records/s of {SECONDS_PER_RECORD * 1000:g} ms each to both functions; one changes every "
        f"{plan.every_seconds:g} s among {sizes} instances, the other keeps 2",
        f"near a change: batches that overlap with the {AROUND_SECONDS:g} s after it",
    ]
