"""Diagnosis of logs that a real cluster wrote, with causes that are known because they were made."""

from __future__ import annotations

import time

import pytest

from penstock.bench.spark_cluster import stop_cluster
from penstock.diagnose.answer import cause_shares, find_straggler
from penstock.diagnose.diagnosis import Span, diagnose_log
from penstock.diagnose.event_log import read_log
from penstock.diagnose.log_files import find_logs
from penstock.diagnose.spark_pipeline import event_summaries, log_summaries, path_frame, trace_summaries
from penstock.diagnose.trace import to_table
from penstock.diagnose.trace_files import write_trace
from tests.diagnose.test_participation import figure_3_3
from tests.diagnose.traces import trace_of

pytestmark = pytest.mark.spark
HOT_ROWS = 60
SECONDS_A_ROW = 0.05


def paced(seconds_a_row):
    """A function for `mapInArrow`; it is a closure, so that workers need not import this module."""

    def pause(batches):
        for batch in batches:
            time.sleep(seconds_a_row * batch.num_rows)
            yield batch

    return pause


@pytest.fixture(scope="module")
def logged(local_cluster, tmp_path_factory):
    """The log of a job with one hot partition, then of a driver that dawdles."""
    folder = tmp_path_factory.mktemp("logs")
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compression.codec": "zstd",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
    }
    spark = local_cluster(executors=2, cores=2, conf=conf)
    spark.range(4).repartition(4).mapInArrow(paced(SECONDS_A_ROW), "id long").count()
    began = time.time()
    frame = spark.range(0, HOT_ROWS + 8, 1, 2).selectExpr(f"cast(if(id < {HOT_ROWS}, 0, id) as int) key")
    frame.repartition(4, "key").mapInArrow(paced(SECONDS_A_ROW), "key int").count()
    between = time.time()
    for _ in range(2):
        time.sleep(1.5)
        spark.range(10).count()
    ended = time.time()
    stop_cluster()
    (files,) = find_logs(folder)
    return files, (began, between, ended)


def diagnosis(logged, first, last):
    files, moments = logged
    log = read_log(files.lines())
    return log, diagnose_log(log, Span(None, round(moments[first] * 1e6), round(moments[last] * 1e6)))


def test_the_skewed_partition_is_named(logged):
    log, found = diagnosis(logged, 0, 1)
    assert max(cause_shares(found.whole), key=cause_shares(found.whole).get) == "run"
    straggler = find_straggler(log, max((i for i in found.whole.operator if "MapInArrow" in i),
                                        key=found.whole.operator.get))  # fmt: skip
    assert straggler is not None
    assert straggler.seconds >= SECONDS_A_ROW * HOT_ROWS
    worker = max((name for name in found.whole.worker if name != "driver"), key=found.whole.worker.get)
    assert worker.startswith(f"executor {straggler.executor} slot")
    assert found.whole.worker[worker] > 0.5
    assert sum(found.whole.activity.values()) == pytest.approx(1)
    assert log.is_complete


def test_the_slow_driver_is_named(logged):
    _, found = diagnosis(logged, 1, 2)
    assert next(iter(cause_shares(found.whole))) == "program"
    assert "more executors would not help" in found.answer


def test_the_replay_on_the_measured_slots_is_close_to_the_measured_time(logged):
    _, found = diagnosis(logged, 0, 2)
    assert found.what_if.replayed_seconds == pytest.approx(found.what_if.measured_seconds, rel=0.05)


def test_the_pipeline_gives_the_same_summaries(logged, local_cluster, tmp_path):
    files, _ = logged
    trace = tmp_path / "engine.parquet"
    write_trace(trace_of(figure_3_3(), scale=1_000_000), trace)
    spark = local_cluster(executors=2, cores=2)
    rows = log_summaries(path_frame(spark, [str(files.path), "/missing"]), 10.0).collect()
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
