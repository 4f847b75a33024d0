"""Causes that are known because they were made: does diagnosis name the slow operator, and the driver?

Three cases on a real cluster of four slots, read from its event log while it runs. In the word count once
FlatMap and once Count is slow and has half the tasks of the other operators, as in the paper: the operator
with the largest critical participation is the one to scale. Then jobs of many empty tasks: all else waits for
the driver that launches them, while a conventional profile, which adds up busy seconds, has it share them
with the tasks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from penstock.bench.report import BenchReport, Row, Target
from penstock.bench.skew import logged_shape
from penstock.bench.spark_cluster import cluster, scratch_directory
from penstock.bench.spark_experiment import DAYS_AGO, batches_of
from penstock.diagnose.answer import cause_shares, task_share
from penstock.diagnose.diagnosis import Diagnosis, Span, diagnose_log
from penstock.diagnose.event_log import read_log
from penstock.diagnose.log_files import find_logs
from penstock.diagnose.summary import Summary
from penstock.diagnose.trace import Activity, Work
from penstock.errors import ActionFailed
from penstock.workloads.word_count import WordCount, start_word_count

DRIVER, DRIVER_CASE = "driver", "driver"
STAGES = {"flat-map": 1, "count": 2}
"""Operator → its place among the stages of a batch."""
SENTENCES = 60
TASKS, SLOW_TASKS = 4, 2
SLOW_SECONDS = 0.04
"""Of a sentence, or of its twenty words: 1.2 s for each of two tasks."""
COORDINATION = (Activity.SCHEDULING, Activity.BARRIER, Activity.CONTROL_MESSAGE)
"""What the driver does for the tasks, and what they wait for from it."""
EMPTY_TASKS = 96
SNAPSHOT_SECONDS = 0.25
PATIENCE_SECONDS = 90.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What coordination by the driver has of one snapshot that begins so many seconds after the first."""

    at: float
    driver_share: float
    driver_profile: float


@dataclass(frozen=True, slots=True)
class Case:
    """One made cause and what diagnosis made of it; shares are of the critical path."""

    name: str
    seconds: float
    found: str
    answer: str
    operators: Mapping[str, float]
    driver_share: float
    """What coordination by the driver has."""
    driver_profile: float
    """What it has of all busy seconds: conventional profiling."""
    causes: Mapping[str, float]
    operator_profile: Mapping[str, float]
    """What each operator has of the busy seconds of all of them."""
    snapshots: Sequence[Snapshot] = ()
    """Its course, snapshot by snapshot."""

    @property
    def named(self) -> bool:
        """Whether the made cause is the one that was found."""
        return self.found == self.name

    def row(self) -> Row:
        """The fields of the report."""
        return {
            "case": self.name,
            "found": self.found,
            "named": self.named,
            "driver_participation": self.driver_share,
            "driver_profile": self.driver_profile,
            "largest_operator": max(self.operators.values(), default=None),
            "seconds": self.seconds,
        }


def run(quick: bool, progress: Progress) -> BenchReport:
    """All three cases; quick looks at fewer batches."""
    cases = measured(2 if quick else 6, progress)
    rows = [case.row() for case in cases]
    missed = float(sum(not case.named for case in cases))
    found = {f"{case.name}_driver_participation": case.driver_share for case in cases}
    targets = [Target("causes that diagnosis did not name", "== 0", missed)]
    notes = [f"{case.name}: {case.answer}" for case in cases]
    return BenchReport("bottlenecks", found, rows, targets, {}, notes)


def measured(batches: int, progress: Progress) -> list[Case]:
    """What diagnosis says of each made cause."""
    with cluster(logged_shape("penstock bench bottlenecks")) as spark, scratch_directory() as scratch:
        cases = []
        for name in STAGES:
            progress(f"a word count whose {name} is slow")
            cases.append(_operator(spark, scratch / name, name, batches))
        progress(f"jobs of {EMPTY_TASKS} empty tasks")
        return [*cases, _driver(spark, batches)]


def _operator(spark: SparkSession, checkpoint: Path, slow: str, batches: int) -> Case:
    workload = WordCount(
        profile=f"constant:{SENTENCES}",
        seconds_per_sentence=SLOW_SECONDS if slow == "flat-map" else 0.0,
        seconds_per_word=SLOW_SECONDS / 20 if slow == "count" else 0.0,
        source_partitions=SLOW_TASKS if slow == "flat-map" else TASKS,
        count_partitions=SLOW_TASKS if slow == "count" else TASKS,
        state_partitions=TASKS,
        start=time.time() - DAYS_AGO,
        max_records_per_batch=SENTENCES,
    )
    query = start_word_count(spark, workload, str(checkpoint), trigger_seconds=0, name=slow)
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        # the first batches start Python workers, which is another cause than the one that is made
        while len(seen := batches_of(query)) < batches + 2:
            if not query.isActive or time.monotonic() > deadline:
                raise ActionFailed(f"the word count got no further: {query.exception()}")
            time.sleep(0.1)
    finally:
        query.stop()
    diagnosis = _diagnosed(spark, seen[2].start, seen[batches + 1].end)
    operators = {name: share for name, share in diagnosis.whole.operator.items() if name != DRIVER}
    largest = max(operators, key=lambda name: operators[name], default="")
    found = next((name for name, place in STAGES.items() if f"{slow} {place}:" in largest), largest)
    return _case(slow, found, diagnosis)


def _driver(spark: SparkSession, jobs: int) -> Case:
    def job() -> None:
        spark.range(0, EMPTY_TASKS, 1, EMPTY_TASKS).write.format("noop").mode("append").save()

    job()
    began = time.time()
    for _ in range(jobs):
        job()
    diagnosis = _diagnosed(spark, began, time.time())
    return _case(DRIVER_CASE, "tasks" if task_share(diagnosis.whole) >= 0.5 else DRIVER, diagnosis)


def _case(name: str, found: str, diagnosis: Diagnosis) -> Case:
    whole, first = diagnosis.whole, diagnosis.whole.start_us
    share, profile = _coordination(whole)
    return Case(
        name=name,
        seconds=whole.length_us / 1e6,
        found=found,
        answer=diagnosis.answer,
        operators=dict(whole.operator),
        driver_share=share,
        driver_profile=profile,
        causes=cause_shares(whole),
        operator_profile=_by_operator(whole.profile.work),
        snapshots=[Snapshot((one.start_us - first) / 1e6, *_coordination(one)) for one in diagnosis.windows],
    )


def _coordination(summary: Summary) -> tuple[float, float]:
    """What the driver's coordination has of the critical path, and of all busy seconds."""
    profile, labels = summary.profile.activity, [kind.label for kind in COORDINATION]
    busy = sum(seconds for kind, seconds in profile.items() if kind != Activity.WAITING.label)
    share = sum(summary.activity.get(label, 0.0) for label in labels)
    return share, sum(profile.get(label, 0.0) for label in labels) / busy if busy else 0.0


def _by_operator(seconds: Mapping[Work, float]) -> dict[str, float]:
    """Shares of the time in tasks; what the driver did for an operator is not in them."""
    run: dict[str, float] = {}
    for work, spent in seconds.items():
        if work.operator and work.operator != DRIVER and work.phase != "task launch":
            run[work.operator] = run.get(work.operator, 0.0) + spent
    total = sum(run.values())
    return {operator: spent / total for operator, spent in run.items()} if total else {}


def _diagnosed(spark: SparkSession, start: float, end: float) -> Diagnosis:
    (files,) = find_logs(_log_of(spark))
    return diagnose_log(
        read_log(files.lines()), Span(round(SNAPSHOT_SECONDS * 1e6), round(start * 1e6), round(end * 1e6))
    )


def _log_of(spark: SparkSession) -> Path:
    """Where the application's log lies, once what has happened so far is written."""
    application = spark.sparkContext.applicationId
    folder = Path(urlparse(spark.sparkContext.getConf().get("spark.eventLog.dir") or "").path)
    # events wait in a queue before they are written
    time.sleep(1.0)
    found = sorted(folder.glob(f"*{application}*"))
    if not found:
        raise ActionFailed(f"there is no event log of {application} in {folder}")
    return found[0]
