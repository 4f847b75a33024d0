"""The image pipeline of Elastic Pulsar Functions (section 5): two resizers and an object recogniser.

Images arrive at exponential intervals, at rates that change from one stretch to the next; the paper's
stretches of ten minutes are compressed. Service times are paced, and vary, too. Every image carries the
moment of its arrival; its response ends when the batch that recognised it has been published.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from penstock.pipeline import Pipeline, files
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
from penstock_lab.experiments.spark_query import QUICK_DECISIONS
from penstock_lab.ground.spark_cluster import ClusterShape, cluster, scratch_directory
from penstock_lab.workloads.paced import Pacer

CONF = {"spark.scheduler.mode": "FAIR", "spark.sql.files.minPartitionNum": "1"}
"""One task reads all small files: with a task each, tasks would cost more than the images."""
SHAPE = ClusterShape(2, 8, name="penstock bench images", log_level="OFF", conf=CONF)
RATES = (2.0, 8.0, 4.0, 12.0)
"""Images a second; chosen, as the service times are, so that three to seven instances are needed."""
STRETCH_SECONDS = 40.0
QUICK_RATES, QUICK_STRETCH_SECONDS = (3.0, 10.0), 15.0
DRAIN_SECONDS = 5.0
"""Time to end after the last image."""
WARM_UP_SECONDS = 14.0
RESIZE_SECONDS, RECOGNISE_SECONDS, SERVICE_VARIATION = 0.04, 0.35, 0.5
TARGET_SECONDS, UTILISATION = 1.0, 0.6
MOST = 15
IMAGES_PER_FILE = 3
"""Fewer cost too much. The number is constant because the controller counts files, not images."""
FILES_PER_BATCH = {"images": 14, "small": 5}
"""Bounds the batch of a function far behind: one of minutes shows nothing, and sizes change between batches.

A function publishes one file for each of its instances.
"""
TRIGGER = "250ms"
POLICIES = ("threshold", "queueing", "ds2")
SCHEMA = "number bigint, arrived double"
SETTINGS: Mapping[str, object] = {
    **QUICK_DECISIONS,
    "policy_interval": "4s",
    "warm_up_intervals": 0,
    "scale_down_delay": "8s",
    "utilisation": UTILISATION,
    "utilisation_low": 0.4,
    "catch_up": "30s",
    "target_rate_ratio": 100,
    "rollback": False,
    "latency_target": f"{TARGET_SECONDS:g}s",
    "control_socket": False,
}
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ImagesSeen:
    """Arrival and completion of every image that was recognised, and instances once a second.

    `unserved` are the arrivals of those that still waited at `ended`.
    """

    arrived: Floats
    finished: Floats
    instances: tuple[int, ...]
    offered: int
    unserved: Floats
    ended: float

    def list_responses(self) -> tuple[Floats, Floats]:
        """Return arrivals and response times; an image that still waits counts with what it has waited."""
        times = np.concatenate([self.finished - self.arrived, self.ended - self.unserved])
        return np.concatenate([self.arrived, self.unserved]), times


def run(extent: Extent, progress: Progress) -> Measurement:
    """Run each policy in turn under the same arrivals; quick has two short stretches instead of four."""
    rates, seconds = (QUICK_RATES, QUICK_STRETCH_SECONDS) if extent.quick else (RATES, STRETCH_SECONDS)
    seen, rows = {}, []
    with cluster(SHAPE) as spark:
        # Python workers start and Java compiles now, so that no policy has to bear it
        progress("warming up")
        run_policy(spark, "threshold", RATES[:1], WARM_UP_SECONDS)
        for policy in POLICIES:
            progress(f"{policy}: {len(rates) * seconds:.0f} s")
            seen[policy] = run_policy(spark, policy, rates, seconds)
            rows.append(make_row(policy, seen[policy]))
            progress(tell_row(rows[-1]))
    summary = summarise_rows(rows, "mean_instances", "mean_response_s", "peak_response_s")
    return Measurement(rows, summary, describe_method(rates, seconds), found=seen, quick=extent.quick)


def draw_arrivals(rates: Sequence[float], seconds_each: float, seed: int = 7) -> Floats:
    """Draw arrival times with exponential intervals; each stretch has its own rate."""
    random, times, start = np.random.default_rng(seed), [], 0.0
    for rate in rates:
        gaps = random.exponential(1 / rate, size=int(3 * rate * seconds_each) + 50)
        moments = start + np.cumsum(gaps)
        times.append(moments[moments < start + seconds_each])
        start += seconds_each
    return np.concatenate(times)


def build_pipeline(root: Path) -> Pipeline:
    """Build images → large (stored), images → small → objects."""
    pipeline = Pipeline("images", topics=files(str(root)))
    for topic, bound in FILES_PER_BATCH.items():
        pipeline.topic(topic, schema=SCHEMA, at=files(str(root), files_per_batch=bound))
    shared: dict[str, Any] = {"takes": "arrow", "schema": SCHEMA, "parallelism": (1, MOST)}
    resize, recognise = serve_paced(RESIZE_SECONDS), serve_paced(RECOGNISE_SECONDS)
    pipeline.add(resize, name="store", reads="images", writes="large", **shared)
    pipeline.add(resize, name="resize", reads="images", writes="small", **shared)
    pipeline.add(recognise, name="recognise", reads="small", writes="objects", **shared)
    return pipeline


def serve_paced(mean_seconds: float) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Make a paced function whose service times are gamma distributed and follow from the images' numbers."""
    shape = 1 / SERVICE_VARIATION**2

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        pacer = Pacer(1.0)
        for number in batch.column("number").to_pylist():
            pacer.owe(float(np.random.default_rng([number, 11]).gamma(shape, mean_seconds / shape)))
        pacer.settle()
        return batch

    return call


class Camera(threading.Thread):
    """Sends images as they arrive, some at a time, as another program would.

    `send` gets the number of the first image and the moments at which these arrived.
    """

    def __init__(self, moments: Floats, send: Callable[[int, Floats], None], at_a_time: int = 1) -> None:
        super().__init__(name="camera", daemon=True)
        self.origin = time.time()
        self._moments, self._send, self._at_a_time = moments, send, at_a_time
        self._ended = threading.Event()

    def run(self) -> None:
        """Send until the last image, or until stopped."""
        self.origin = time.time()
        for first in range(0, len(self._moments), self._at_a_time):
            moments = self.origin + self._moments[first : first + self._at_a_time]
            if self._ended.wait(max(0.0, moments[-1] - time.time())):
                return
            self._send(first, moments)

    def stop(self) -> None:
        """End before the last image."""
        self._ended.set()
        if self.ident is not None:
            self.join(timeout=5)


def make_camera(topic: Path, moments: Floats) -> Camera:
    """Make a camera that writes images into their topic, a few in a file."""
    topic.mkdir(parents=True, exist_ok=True)
    return Camera(moments, partial(_write_file, topic), IMAGES_PER_FILE)


def _write_file(topic: Path, first: int, arrived: Floats) -> None:
    """Write a hidden file first: readers must not see half of one."""
    numbers = pa.array(range(first, first + len(arrived)), pa.int64())
    hidden = topic / f".{first}.parquet"
    pq.write_table(pa.table({"number": numbers, "arrived": arrived}), hidden)
    hidden.rename(topic / f"{first:09d}.parquet")


def run_policy(spark: Any, policy: str, rates: Sequence[float], seconds_each: float) -> ImagesSeen:
    """Run one policy on topics of its own, from one instance each."""
    with scratch_directory() as scratch:
        topics, moments = scratch / "topics", draw_arrivals(rates, seconds_each)
        settings = {**SETTINGS, "journal": str(scratch / "journal.db")}
        camera = make_camera(topics / "images", moments)
        handle = build_pipeline(topics).run(spark, policy=policy, settings=settings, trigger=TRIGGER)
        try:
            camera.start()
            instances, published = _watch(handle, len(rates) * seconds_each)
            ended = time.time()
        finally:
            camera.stop()
            handle.stop()
        numbers, arrived, finished = read_recognised(topics / "objects", published)
    left = np.setdiff1d(np.arange(len(moments)), numbers)
    return ImagesSeen(arrived, finished, tuple(instances), len(moments), camera.origin + moments[left], ended)


def _watch(handle: PipelineHandle, seconds: float) -> tuple[list[int], dict[int, float]]:
    """Sample instances while images come, and note when each batch of the recogniser was published."""
    begun, instances = time.time(), []
    published: dict[int, float] = {}
    while time.time() < begun + seconds + DRAIN_SECONDS:
        handle.wait(1.0)
        if time.time() < begun + seconds:
            functions = handle.status()["functions"]
            instances.append(sum(one["parallelism"] for one in functions.values()))
        published |= {batch.batch_id: batch.end for batch in handle.batches("recognise")}
    return instances, published


def read_recognised(topic: Path, published: Mapping[int, float]) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Read number, arrival and completion of all images in the last topic, whose directories name batches."""
    numbers, arrived, finished = [np.zeros(0, np.int64)], [np.zeros(0)], [np.zeros(0)]
    for file in topic.glob("*/*.parquet"):
        end = published.get(int(file.parent.name.rpartition("-")[2]))
        if end is not None:
            table = pq.read_table(file, columns=["number", "arrived"])
            numbers.append(table.column("number").to_numpy())
            arrived.append(table.column("arrived").to_numpy())
            finished.append(np.full(len(table), end))
    return np.concatenate(numbers), np.concatenate(arrived), np.concatenate(finished)


def make_row(policy: str, seen: ImagesSeen) -> Row:
    """Reduce one policy to the fields of the report."""
    arrived, times = seen.list_responses()
    known = len(times) > 0
    return {
        "system": policy,
        "mean_instances": round(float(np.mean(seen.instances)), 2),
        "max_instances": int(max(seen.instances)),
        "mean_response_s": round(float(times.mean()), 2) if known else None,
        "peak_response_s": round(float(times.max()), 2) if known else None,
        "seconds_over_target": count_seconds_over(arrived, times, TARGET_SECONDS) if known else None,
        "seconds_over_5_s": count_seconds_over(arrived, times, 5.0) if known else None,
        "images": seen.offered,
        "recognised": len(seen.finished),
        "settings": tell_settings(SETTINGS),
    }


def average_by_second(arrived: Floats, times: Floats) -> tuple[Floats, Floats]:
    """Return the seconds in which images arrived, and the mean response time of those of each."""
    seconds, which = np.unique(np.floor(arrived), return_inverse=True)
    return seconds, np.bincount(which, weights=times) / np.bincount(which)


def count_seconds_over(arrived: Floats, times: Floats, target: float) -> int:
    """Count the seconds whose images took longer than the target on average."""
    return int((average_by_second(arrived, times)[1] > target).sum())


def describe_method(rates: Sequence[float], seconds_each: float) -> list[str]:
    """Tell how the figures were measured."""
    return [
        f"rates of {', '.join(f'{rate:g}' for rate in rates)} images/s, {seconds_each:g} s each where the "
        "paper has ten minutes; rates and service times are ours, for the paper only draws them",
        f"service times are paced, gamma distributed, with a coefficient of variation of "
        f"{SERVICE_VARIATION:g}: "
        f"{RESIZE_SECONDS:g} s for a resizer, {RECOGNISE_SECONDS:g} s for the recogniser",
        "a batch takes as long as its slowest instance, and some time by itself: so sizes aim at "
        f"{UTILISATION:.0%} of what instances can serve",
        f"images come {IMAGES_PER_FILE} in a file, and each waits for the last of its file; "
        "a response ends when the batch with the image has been published; an image waits for batches of two "
        "functions, whose fixed costs no number of instances takes away, and no policy here knows of them",
        f"images that still wait {DRAIN_SECONDS:g} s after the last one count with the time they have waited",
    ]
