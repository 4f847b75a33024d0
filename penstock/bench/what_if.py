"""Batch times that a replay predicts, against those of a cluster of that size."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.bench.report import BenchReport, Row, Target
from penstock.bench.spark_cluster import ClusterShape, start_cluster, stop_cluster
from penstock.diagnose.event_log import read_log
from penstock.diagnose.interference import with_interference
from penstock.diagnose.log_files import find_logs
from penstock.diagnose.replay import TaskGraph, replay, task_graph

EXECUTORS = (1, 2, 4)
CORES = 2
WARM_UP_PER_EXECUTOR = 3
"""Each executor compiles and loads on its own, and a batch warms only a part of each."""
BATCHES = 5
MAP_TASKS, REDUCE_TASKS = 16, 8
MAP_SECONDS, REDUCE_SECONDS = 0.4, 0.6

Graphs = dict[int, list[TaskGraph]]


def run(quick: bool, progress: Callable[[str], None]) -> BenchReport:
    """Runs the same batches on 1, 2 and 4 executors and predicts each from the log of each other."""
    # There and back again: what else the machine does in these minutes then falls on all sizes alike.
    order = EXECUTORS if quick else (*EXECUTORS, *reversed(EXECUTORS))
    graphs: Graphs = {executors: [] for executors in EXECUTORS}
    for executors in order:
        graphs[executors].append(_measured(executors, BATCHES, progress))
    rows = [_row(graphs, source, target) for source in EXECUTORS for target in EXECUTORS]
    errors = [row["error"] for row in rows if row["from_executors"] != row["executors"]]
    summary = {
        "median_error": float(np.median(errors)),
        "largest_error": float(max(errors)),
        "median_error_same_size": float(
            np.median([row["error"] for row in rows if row["from_executors"] == row["executors"]])
        ),
    }
    targets = [Target("median error of predicted batch time", "< 0.1", summary["median_error"])]
    notes = [
        f"Tasks are paced (they sleep); what they need beside that they share {os.cpu_count()} cores for. "
        f"The first {WARM_UP_PER_EXECUTOR} batches for each executor are left out."
    ]
    return BenchReport("what-if", summary, rows, targets, {}, notes)


def _measured(executors: int, batches: int, progress: Callable[[str], None]) -> TaskGraph:
    progress(f"{batches} batches on {executors} executors")
    with tempfile.TemporaryDirectory() as folder:
        conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": Path(folder).as_uri(),
            "spark.sql.adaptive.enabled": "false",
        }
        spark = start_cluster(ClusterShape(executors=executors, cores=CORES, name="what-if", conf=conf))
        try:
            for _ in range(batches + WARM_UP_PER_EXECUTOR * executors):
                _batch(spark)
        finally:
            stop_cluster()
        (files,) = find_logs(Path(folder))
        log = read_log(files.lines())
        return with_interference(log, task_graph(log), os.cpu_count() or 1)


def _batch(spark: SparkSession) -> None:
    mapped = spark.range(0, MAP_TASKS, 1, MAP_TASKS).mapInArrow(_paced(MAP_SECONDS), "id long")
    mapped.repartition(REDUCE_TASKS).mapInArrow(_paced(REDUCE_SECONDS), "id long").count()


def _paced(seconds: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(seconds)
        yield from batches

    return work


def _row(graphs: Graphs, source: int, target: int) -> Row:
    predicted = _median_batch(graphs[source], source, target * CORES)
    measured = _measured_batch(graphs[target], target)
    return {
        "case": f"{target} executors from {source}",
        "from_executors": source,
        "executors": target,
        "predicted_s": predicted,
        "measured_s": measured,
        "error": abs(predicted - measured) / measured,
    }


def _median_batch(graphs: list[TaskGraph], executors: int, slots: int) -> float:
    replayed = [replay(graph, slots).job_seconds for graph in graphs]
    return _median([[found[job] for job in sorted(found)] for found in replayed], executors)


def _measured_batch(graphs: list[TaskGraph], executors: int) -> float:
    return _median([[job.measured_seconds for job in graph.jobs] for graph in graphs], executors)


def _median(rounds: list[list[float]], executors: int) -> float:
    """The median over all rounds, without the batches that warm executors up."""
    warm = [seconds for each in rounds for seconds in each[WARM_UP_PER_EXECUTOR * executors :]]
    return float(np.median(warm))
