"""Diagnosis on a cluster where the answer is known: causes that were made, and batch times on other sizes.

Causes: three cases on a real cluster of four slots, read from its event log while it runs. In the word count
once FlatMap and once Count is slow and has half the tasks of the other operators, as in the paper: the
operator with the largest critical participation is the one to scale. Then jobs of many empty tasks wait for
the driver that launches them; a conventional profile, which adds up busy seconds, divides them between driver
and tasks. What-if: the same batches run on clusters of three sizes, and a replay predicts the batch time of
each from the logs of the others.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from urllib.parse import urlparse

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.diagnose.causes import sum_task_share
from penstock.diagnose.diagnosis import Diagnosis, diagnose_log
from penstock.diagnose.log.files import find_logs
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.spans import Span
from penstock.diagnose.path.summary import Summary
from penstock.diagnose.trace.events import Activity, Work
from penstock.diagnose.whatif.interference import add_interference
from penstock.diagnose.whatif.replay import replay
from penstock.diagnose.whatif.task_graph import TaskGraph, build_task_graph
from penstock.errors import ActionFailed
from penstock_lab.experiments.hot_keys import describe_logged_cluster
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row
from penstock_lab.experiments.spark_query import await_count, make_endless, stop_after
from penstock_lab.ground.spark_cluster import (
    ClusterShape,
    cluster,
    scratch_directory,
    start_cluster,
    stop_cluster,
)
from penstock_lab.workloads.word_count import WordCount, start_word_count

DRIVER, DRIVER_CASE = "driver", "driver"
STAGES = {"flat-map": 1, "count": 2}
"""Operator → its place among the stages of a batch."""
SENTENCES = 60
TASKS, SLOW_TASKS = 4, 2
SLOW_SECONDS = 0.04
"""Of a sentence, or of its twenty words: 1.2 s for each of two tasks."""
COORDINATION = (Activity.SCHEDULING, Activity.BARRIER)
"""The driver's activities for which tasks wait. Messages are left out: no profile has them."""
EMPTY_TASKS = 96
SNAPSHOT_SECONDS = 0.25
PATIENCE_SECONDS = 90.0
WHAT_IF_EXECUTORS = (1, 2, 4)
WHAT_IF_CORES = 2
WARM_UP_PER_EXECUTOR = 3
"""Each executor compiles and loads on its own, and a batch warms only a part of each."""
WHAT_IF_BATCHES = 5
MAP_TASKS, REDUCE_TASKS = 16, 8
MAP_SECONDS, REDUCE_SECONDS = 0.4, 0.6
Graphs = dict[int, list[TaskGraph]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The driver's share of one snapshot that begins so many seconds after the first."""

    at: float
    driver_share: float
    driver_profile: float


@dataclass(frozen=True, slots=True)
class MadeCause:
    """One made cause and what diagnosis found; shares are of the critical path."""

    name: str
    seconds: float
    found: str
    answer: str
    operators: Mapping[str, float]
    driver_share: float
    """The share of coordination by the driver."""
    driver_profile: float
    """Its share of all busy seconds: conventional profiling."""
    operator_profile: Mapping[str, float]
    """The share of each operator in the busy seconds of all of them."""
    snapshots: Sequence[Snapshot] = ()
    """Its course, snapshot by snapshot."""

    @property
    def named(self) -> bool:
        """Whether the made cause is the one that was found."""
        return self.found == self.name

    def make_row(self) -> Row:
        """Return the fields of the report."""
        return {
            "case": self.name,
            "found": self.found,
            "named": self.named,
            "driver_participation": self.driver_share,
            "driver_profile": self.driver_profile,
            "largest_operator": max(self.operators.values(), default=None),
            "seconds": self.seconds,
        }


def run_causes(extent: Extent, progress: Progress) -> Measurement:
    """Make each cause and diagnose it; quick looks at fewer batches."""
    batches = 2 if extent.quick else 6
    causes = []
    with (
        cluster(describe_logged_cluster("penstock bench bottlenecks")) as spark,
        scratch_directory() as scratch,
    ):
        for name in STAGES:
            progress(f"a word count whose {name} is slow")
            causes.append(_slow_down_operator(spark, scratch / name, name, batches))
        progress(f"jobs of {EMPTY_TASKS} empty tasks")
        causes.append(_slow_down_driver(spark, batches))
    summary = {f"{cause.name}_driver_participation": cause.driver_share for cause in causes}
    notes = [f"{cause.name}: {cause.answer}" for cause in causes]
    return Measurement(
        [cause.make_row() for cause in causes], summary, notes, found=causes, quick=extent.quick
    )


def _slow_down_operator(spark: SparkSession, checkpoint: Path, slow: str, batches: int) -> MadeCause:
    flat_map = slow == "flat-map"
    workload = WordCount(
        profile="",
        seconds_per_sentence=SLOW_SECONDS if flat_map else 0.0,
        seconds_per_word=0.0 if flat_map else SLOW_SECONDS / 20,
        source_partitions=SLOW_TASKS if flat_map else TASKS,
        count_partitions=TASKS if flat_map else SLOW_TASKS,
        state_partitions=TASKS,
    )
    endless, where = make_endless(workload, SENTENCES), str(checkpoint)
    with stop_after(start_word_count(spark, endless, where, trigger_seconds=0, name=slow)) as query:
        # the first batches start Python workers, which is another cause than the one that is made
        seen = await_count(query, batches + 2, PATIENCE_SECONDS)
    diagnosis = _diagnose(spark, seen[2].start, seen[batches + 1].end)
    operators = {name: share for name, share in diagnosis.whole.operator.items() if name != DRIVER}
    largest = max(operators, key=lambda name: operators[name], default="")
    found = next((name for name, place in STAGES.items() if f"{slow} {place}:" in largest), largest)
    return _describe_cause(slow, found, diagnosis)


def _slow_down_driver(spark: SparkSession, jobs: int) -> MadeCause:
    def run_job() -> None:
        spark.range(0, EMPTY_TASKS, 1, EMPTY_TASKS).write.format("noop").mode("append").save()

    run_job()
    began = time.time()
    for _ in range(jobs):
        run_job()
    diagnosis = _diagnose(spark, began, time.time())
    found = "tasks" if sum_task_share(diagnosis.whole) >= 0.5 else DRIVER
    return _describe_cause(DRIVER_CASE, found, diagnosis)


def _describe_cause(name: str, found: str, diagnosis: Diagnosis) -> MadeCause:
    whole, first = diagnosis.whole, diagnosis.whole.start_us
    share, profile = _share_coordination(whole)
    return MadeCause(
        name=name,
        seconds=whole.length_us / 1e6,
        found=found,
        answer=diagnosis.answer,
        operators=dict(whole.operator),
        driver_share=share,
        driver_profile=profile,
        operator_profile=_share_by_operator(whole.profile.work),
        snapshots=[
            Snapshot((one.start_us - first) / 1e6, *_share_coordination(one)) for one in diagnosis.windows
        ],
    )


def _share_coordination(summary: Summary) -> tuple[float, float]:
    """Return the share of the driver's coordination in the critical path, and in all busy seconds."""
    profile, labels = summary.profile.activity, [kind.label for kind in COORDINATION]
    busy = sum(seconds for kind, seconds in profile.items() if kind != Activity.WAITING.label)
    share = sum(summary.activity.get(label, 0.0) for label in labels)
    return share, sum(profile.get(label, 0.0) for label in labels) / busy if busy else 0.0


def _share_by_operator(seconds: Mapping[Work, float]) -> dict[str, float]:
    """Return shares of the time in tasks, without what the driver did for an operator."""
    run: dict[str, float] = {}
    for work, spent in seconds.items():
        if work.operator and work.operator != DRIVER and work.phase != "task launch":
            run[work.operator] = run.get(work.operator, 0.0) + spent
    total = sum(run.values())
    return {operator: spent / total for operator, spent in run.items()} if total else {}


def _diagnose(spark: SparkSession, start: float, end: float) -> Diagnosis:
    (files,) = find_logs(_find_log(spark))
    span = Span(*(round(seconds * 1e6) for seconds in (SNAPSHOT_SECONDS, start, end)))
    return diagnose_log(read_log(files.read_lines()), span)


def _find_log(spark: SparkSession) -> Path:
    """Find the application's log, once what has happened so far is written."""
    application = spark.sparkContext.applicationId
    folder = Path(urlparse(spark.sparkContext.getConf().get("spark.eventLog.dir") or "").path)
    # events wait in a queue before they are written
    time.sleep(1.0)
    found = sorted(folder.glob(f"*{application}*"))
    if not found:
        raise ActionFailed(f"there is no event log of {application} in {folder}")
    return found[0]


def run_what_if(extent: Extent, progress: Progress) -> Measurement:
    """Run the same batches on 1, 2 and 4 executors and predict each from the log of each other."""
    # There and back again: what else the machine does in these minutes then falls on all sizes alike.
    order = WHAT_IF_EXECUTORS if extent.quick else (*WHAT_IF_EXECUTORS, *reversed(WHAT_IF_EXECUTORS))
    graphs: Graphs = {executors: [] for executors in WHAT_IF_EXECUTORS}
    for executors in order:
        graphs[executors].append(_record_batches(executors, progress))
    rows = [_compare_prediction(graphs, *pair) for pair in product(WHAT_IF_EXECUTORS, repeat=2)]
    same, other = (
        [row["error"] for row in rows if (row["from_executors"] == row["executors"]) is alike]
        for alike in (True, False)
    )
    summary = {
        "median_error": float(np.median(other)),
        "largest_error": float(max(other)),
        "median_error_same_size": float(np.median(same)),
    }
    notes = [
        f"Tasks are paced (they sleep); what they need beside that they share {os.cpu_count()} cores for. "
        f"The first {WARM_UP_PER_EXECUTOR} batches for each executor are left out."
    ]
    return Measurement(rows, summary, notes)


def _record_batches(executors: int, progress: Progress) -> TaskGraph:
    progress(f"{WHAT_IF_BATCHES} batches on {executors} executors")
    with tempfile.TemporaryDirectory() as folder:
        conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": Path(folder).as_uri(),
            "spark.sql.adaptive.enabled": "false",
        }
        spark = start_cluster(ClusterShape(executors, WHAT_IF_CORES, name="what-if", conf=conf))
        try:
            for _ in range(WHAT_IF_BATCHES + WARM_UP_PER_EXECUTOR * executors):
                _run_batch(spark)
        finally:
            stop_cluster()
        (files,) = find_logs(Path(folder))
        log = read_log(files.read_lines())
        return add_interference(log, build_task_graph(log), os.cpu_count() or 1)


def _run_batch(spark: SparkSession) -> None:
    mapped = spark.range(0, MAP_TASKS, 1, MAP_TASKS).mapInArrow(_pace_task(MAP_SECONDS), "id long")
    mapped.repartition(REDUCE_TASKS).mapInArrow(_pace_task(REDUCE_SECONDS), "id long").count()


def _pace_task(seconds: float) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(seconds)
        yield from batches

    return work


def _compare_prediction(graphs: Graphs, source: int, target: int) -> Row:
    replayed = [replay(graph, target * WHAT_IF_CORES).job_seconds for graph in graphs[source]]
    predicted = _find_median([[found[job] for job in sorted(found)] for found in replayed], source)
    seen = [[job.measured_seconds for job in graph.jobs] for graph in graphs[target]]
    measured = _find_median(seen, target)
    return {
        "case": f"{target} executors from {source}",
        "from_executors": source,
        "executors": target,
        "predicted_s": predicted,
        "measured_s": measured,
        "error": abs(predicted - measured) / measured,
    }


def _find_median(rounds: list[list[float]], executors: int) -> float:
    """Return the median over all rounds, without the batches that warm executors up."""
    warm = [seconds for each in rounds for seconds in each[WARM_UP_PER_EXECUTOR * executors :]]
    return float(np.median(warm))
