"""Diagnosis of logs that a real cluster wrote, with causes that are known because they were made."""

from __future__ import annotations

import os
import signal
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.dataflow.window import EXECUTORS
from penstock.decide.manager.critical_path import UselessGrowth
from penstock.decide.manager.guardrails import Situation
from penstock.decide.manager.history import ManagerState
from penstock.decide.policy import ExpectedEffect, Scale
from penstock.decide.verdict import Rejected
from penstock.diagnose.causes import share_by_cause
from penstock.diagnose.diagnosis import diagnose_log
from penstock.diagnose.findings.stragglers import find_straggler
from penstock.diagnose.log.files import find_logs
from penstock.diagnose.log.reader import read_log
from penstock.diagnose.path.spans import Span
from penstock.diagnose.spark_follow import follow_summaries
from penstock.diagnose.spark_pipeline import event_summaries, log_summaries, path_frame, trace_summaries
from penstock.diagnose.trace.events import to_table, write_trace
from penstock.observe.spark_source import SparkSource
from penstock_lab.ground.spark_cluster import stop_cluster
from tests.diagnose.logs import many_jobs
from tests.diagnose.packers import growing
from tests.diagnose.test_follow import fed
from tests.diagnose.traces import figure_3_3, trace_of
from tests.spark.watching import watch
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 2
HOT_ROWS = 60
SECONDS_A_ROW = 0.05
FROZEN_SECONDS = 6.0
"""More than all else that the job does, on a machine that is slow as well."""


def paced(seconds_a_row):
    """A function for `mapInArrow`; it is a closure, so that workers need not import this module."""

    def pause(batches):
        for batch in batches:
            time.sleep(seconds_a_row * batch.num_rows)
            yield batch

    return pause


def executor_processes(application):
    """Executor id → process id, of the executors of this application."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if application in words and "--executor-id" in words:
            found[words[words.index("--executor-id") + 1]] = int(folder.name)
    return found


def slow_shuffle(spark, folder):
    """A task that fetches from an executor which is frozen meanwhile; gives that executor, and when it was.

    The only task says first in which process it runs, and waits; only behind that does it fetch.
    """
    here, go = str(folder / "here"), str(folder / "go")

    def wait(_):
        # the parent of a Python worker is a daemon, whose parent is the executor
        daemon = os.getppid()
        Path(here + ".new").write_text(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
        Path(here + ".new").rename(here)
        while not Path(go).exists():
            time.sleep(0.05)
        return [(0, "")]

    context = spark.sparkContext
    shuffled = context.parallelize(range(400), 4).map(lambda number: (number, "x" * 1000)).partitionBy(1)
    shuffled.count()
    both = context.parallelize([0], 1).mapPartitions(wait).union(shuffled).coalesce(1)
    began = time.time()
    job = threading.Thread(target=both.count)
    job.start()
    wait_for("the task to say where it runs", Path(here).exists)
    processes = executor_processes(context.applicationId)
    ((other, process),) = (
        (name, one) for name, one in processes.items() if one != int(Path(here).read_text())
    )
    os.kill(process, signal.SIGSTOP)
    try:
        Path(go).touch()
        time.sleep(FROZEN_SECONDS)
    finally:
        os.kill(process, signal.SIGCONT)
    job.join()
    return other, began, time.time()


def undisturbed(work, within=3.0, tries=5):
    """From when to when the work went on; again if the machine held it up, which is a cause of its own."""
    spans = []
    while len(spans) < tries and not (spans and spans[-1][1] - spans[-1][0] <= within):
        began = time.time()
        work()
        spans.append((began, time.time()))
    return min(spans, key=lambda span: span[1] - span[0])


def is_calm(critical):
    """Whether two batches in a row took no more than a second beside the hot task: nothing held them up."""
    limit = SECONDS_A_ROW * HOT_ROWS + 1.0
    return len(critical) >= 2 and all(one.end - one.start <= limit for one in critical[-2:])


def test_a_live_query_tells_what_it_waits_for_and_does_not_grow_for_it(local_cluster, tmp_path):
    spark = local_cluster(held=HELD)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 68).load()
    keys = rows.selectExpr(f"cast(if(value % 68 < {HOT_ROWS}, 0, value % 68) as int) key")
    query = (
        keys.repartition(4, "key").mapInArrow(paced(SECONDS_A_ROW), "key int")
        .writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .queryName("skewed").trigger(processingTime="4 seconds").start()
    )  # fmt: skip
    try:
        source = SparkSource(spark)
        window, seen = watch(source, "skewed", lambda found: found.batches and is_calm(found.critical))
    finally:
        query.stop()
    newest = seen.critical[-1]
    assert sum(newest.activity.values()) == pytest.approx(1)
    assert "MapInArrow" in newest.hot_task.operator
    assert newest.hot_task.seconds >= SECONDS_A_ROW * HOT_ROWS
    assert newest.hot_task.share > 0.5
    assert newest.operator[newest.hot_task.operator] > 0.5
    assert newest.gain_of_slots < 0.1
    assert "MapInArrow" in newest.answer
    growth = Scale({EXECUTORS: 4}, "more", ExpectedEffect("faster"))
    opinion = UselessGrowth().apply(growth, Situation(window.end, window, ManagerState(), behind=False))
    assert isinstance(opinion, Rejected) and "waits for one task of" in opinion.reason


def other_application(lines):
    return [line.replace(b'"App ID":"app-1"', b'"App ID":"app-2"') for line in lines]


def test_logs_that_grow_are_followed_window_after_window(local_cluster, tmp_path):
    spark = local_cluster(held=HELD)
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    logs, told = tmp_path / "logs", []
    rolled = logs / "eventlog_v2_app-1"
    rolled.mkdir(parents=True)
    (rolled / "appstatus_app-1.inprogress").touch()
    lines = many_jobs(12).lines
    thirds = [b"".join(line + b"\n" for line in lines[low : low + 30]) for low in range(0, len(lines), 30)]
    text = b"".join(line + b"\n" for line in other_application(lines))
    cuts = [len(text) * number // len(thirds) for number in range(len(thirds) + 1)]
    packed = list(growing("zstd", [text[low:high] for low, high in pairwise(cuts)]))
    query = (
        follow_summaries(spark, str(logs), 2.0)
        .writeStream.foreachBatch(lambda frame, _: told.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    try:
        for number, piece in enumerate(thirds):
            # one log grows inside its frame; the other rolls, and its newest line is not whole yet
            (logs / "app-2.zstd.inprogress").write_bytes(packed[number])
            (rolled / f"events_{number + 1}_app-1").write_bytes(piece[:-5])
            if number:
                (rolled / f"events_{number}_app-1").write_bytes(thirds[number - 1])
            query.processAllAvailable()
        (rolled / f"events_{len(thirds)}_app-1").write_bytes(thirds[-1])
        query.processAllAvailable()
    finally:
        query.stop()
    expected = [summary for summary, _ in fed(lines, 30)[1]]
    assert {row.name for row in told if row.summary == "ended"} == {str(logs / "app-2.zstd"), str(rolled)}
    for application in ("app-1", "app-2"):
        mine = [row for row in told if row.application == application]
        starts = [row.start_us for row in mine if row.summary == "answer"]
        assert starts == [summary.start_us for summary in expected]
        last = {row.name: row.participation for row in mine
                if row.summary == "worker" and row.start_us == starts[-1]}  # fmt: skip
        assert last == pytest.approx(expected[-1].worker, abs=0.05)


def test_the_pipeline_gives_the_same_summaries(local_cluster, tmp_path):
    log = tmp_path / "app-1"
    log.write_bytes(b"".join(line + b"\n" for line in many_jobs(12).lines))
    trace = tmp_path / "engine.parquet"
    write_trace(trace_of(figure_3_3(), scale=1_000_000), trace)
    spark = local_cluster(held=HELD)
    rows = log_summaries(path_frame(spark, [str(log), "/missing"]), 2.0).collect()
    assert [row.summary for row in rows if row.application == "/missing"] == ["error"]
    shares: dict[int, float] = {}
    for row in rows:
        if row.summary == "activity":
            shares[row.start_us] = shares.get(row.start_us, 0.0) + row.participation
    assert len(shares) > 1
    assert list(shares.values()) == pytest.approx([1.0] * len(shares))
    by_path = {(r.summary, r.name): r.participation
               for r in trace_summaries(path_frame(spark, [str(trace)])).collect()}  # fmt: skip
    assert max((key for key in by_path if key[0] == "worker"), key=by_path.get) == ("worker", "W2")
    rows = to_table(trace_of(figure_3_3(), scale=1_000_000)).to_pylist()
    named = [{**row, "application": "engine", "sequence": number} for number, row in enumerate(rows)]
    schema = (
        "time_us long, worker string, kind string, activity string, correlation long, remote string, "
        "operator string, phase string, application string, sequence long"
    )
    frame = spark.createDataFrame(named, schema)
    by_rows = {(r.summary, r.name): r.participation for r in event_summaries(frame).collect()}
    assert by_rows == pytest.approx(by_path)


@pytest.fixture(scope="module")
def logged(local_cluster, tmp_path_factory):
    """The log of a hot partition, a driver that dawdles, a stage with too few slots, and a slow shuffle.

    With it come the moments between them, and the executor that was slow to answer.
    """
    folder = tmp_path_factory.mktemp("logs")
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compression.codec": "zstd",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        # executors of one host would read each other's files without asking
        "spark.shuffle.readHostLocalDisk": "false",
        # partitions that prefer no executor are put together in their order
        "spark.shuffle.reduceLocality.enabled": "false",
    }
    spark = local_cluster(executors=2, conf=conf)
    spark.range(4).repartition(4).mapInArrow(paced(SECONDS_A_ROW), "id long").count()
    began = time.time()
    frame = spark.range(0, HOT_ROWS + 8, 1, 2).selectExpr(f"cast(if(id < {HOT_ROWS}, 0, id) as int) key")
    frame.repartition(4, "key").mapInArrow(paced(SECONDS_A_ROW), "key int").count()
    between = time.time()
    for _ in range(2):
        time.sleep(1.5)
        spark.range(10).count()
    ended = time.time()
    few, after = undisturbed(
        lambda: (
            spark.range(0, 24, 1, 24)
            .mapInArrow(paced(0.2), "id long")
            .write.format("noop")
            .mode("append")
            .save()
        )
    )
    slow, frozen, thawed = slow_shuffle(spark, tmp_path_factory.mktemp("signals"))
    stop_cluster()
    (files,) = find_logs(folder)
    return files, (began, between, ended, few, after, frozen, thawed), slow


def diagnosis(logged, first, last):
    files, moments, _ = logged
    log = read_log(files.read_lines())
    return log, diagnose_log(log, Span(None, round(moments[first] * 1e6), round(moments[last] * 1e6)))


@pytest.mark.own_cluster
def test_the_skewed_partition_is_named(logged):
    log, found = diagnosis(logged, 0, 1)
    assert max(share_by_cause(found.whole), key=share_by_cause(found.whole).get) == "run"
    straggler = find_straggler(log, max((i for i in found.whole.operator if "MapInArrow" in i),
                                        key=found.whole.operator.get))  # fmt: skip
    assert straggler is not None
    assert straggler.seconds >= SECONDS_A_ROW * HOT_ROWS
    worker = max((name for name in found.whole.worker if name != "driver"), key=found.whole.worker.get)
    assert worker.startswith(f"executor {straggler.executor} slot")
    assert found.whole.worker[worker] > 0.5
    assert sum(found.whole.activity.values()) == pytest.approx(1)
    assert log.is_complete


@pytest.mark.own_cluster
def test_the_slow_driver_is_named(logged):
    _, found = diagnosis(logged, 1, 2)
    assert next(iter(share_by_cause(found.whole))) == "program"
    assert "more executors would not help" in found.answer


@pytest.mark.own_cluster
def test_the_stage_with_too_few_slots_is_named(logged):
    _, found = diagnosis(logged, 3, 4)
    finding = found.findings[0]
    assert finding.cause == "run"
    assert "MapInArrow" in finding.sentence
    assert finding.advice == "Its 24 tasks share 4 slots: more executors would shorten it."


@pytest.mark.own_cluster
def test_the_slow_shuffle_and_its_channel_are_named(logged):
    _, found = diagnosis(logged, 5, 6)
    shares = share_by_cause(found.whole)
    assert next(iter(shares)) == "fetch"
    assert shares["fetch"] > 0.5
    assert "is fetching shuffle data" in found.answer
    source, target, share = found.whole.communication[0]
    assert source == f"executor {logged[2]} shuffle"
    assert target.startswith("executor ") and not target.startswith(f"executor {logged[2]} ")
    assert share > 0.5


@pytest.mark.own_cluster
def test_the_replay_on_the_measured_slots_is_close_to_the_measured_time(logged):
    _, found = diagnosis(logged, 0, 2)
    assert found.what_if.replayed_seconds == pytest.approx(found.what_if.measured_seconds, rel=0.05)
