"""Batches that do not end, batches of several jobs, and queries without batches, on a real cluster."""

from __future__ import annotations

import json
import time
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import functions as sf

from penstock.dataflow.metrics import RunningBatch
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import NoBatchYet, SlotQuery, SlotWindow
from penstock.observe.running import BegunBatch
from penstock.observe.spark_source import SparkSource
from penstock.observe.spark_status import SparkStatus
from tests.spark.test_observe_files import RECORDS, write
from tests.spark.watching import query_of
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 2

FILES = 4


@pytest.fixture(scope="module")
def spark(local_cluster):
    session = local_cluster(held=HELD)
    session.conf.set("spark.sql.shuffle.partitions", 2)
    return session


def files_of(spark, folder: Path):
    return spark.readStream.schema("a int").json(str(folder))


def held_back(release: Path):
    """The second task waits until the file is there."""
    place = str(release)

    def passed_on(batches):  # defined here, so that it travels to executors that do not know this module
        import time
        from pathlib import Path

        from pyspark import TaskContext

        while TaskContext.get().partitionId() == 1 and not Path(place).exists():
            time.sleep(0.1)
        yield from batches

    return passed_on


def test_a_first_batch_that_does_not_end_is_evidence(spark, tmp_path):
    folder, release = tmp_path / "in", tmp_path / "release"
    folder.mkdir()
    for number in range(FILES):
        write(folder, str(number))
    source = SparkSource(spark)
    source.observe(time.time())
    query = (
        files_of(spark, folder)
        .repartition(2)
        .mapInArrow(held_back(release), "a int")
        .writeStream.format("noop")
        .queryName("held")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )

    def running() -> tuple[SlotQuery, RunningBatch] | None:
        seen = source.observe(time.time())
        if not isinstance(seen, NoBatchYet) or not isinstance(seen.window, SlotWindow):
            return None
        for one in seen.window.queries:
            last = one.running.stages[-1] if one.running else None
            if one.running and last and last.tasks_running == 1 and last.tasks_done == 1:
                return one, one.running
        return None

    seen, batch = wait_for("a running batch", running, every=1)
    scan, held = batch.stages
    assert query.lastProgress is None
    assert (batch.batch_id, batch.slots) == (0, 4)
    assert (scan.is_over, scan.records_done, scan.tasks_done) == (True, FILES * RECORDS, scan.tasks_total)
    assert (held.is_over, held.tasks_total) == (False, 2)
    assert held.records_done == pytest.approx(FILES * RECORDS / 2, abs=2 * FILES)
    assert held.done is not None
    assert held.done.tasks == 1
    assert held.running_seconds.tolist() == [pytest.approx(batch.seconds, abs=batch.seconds)]
    assert [operator.name for operator in seen.graph.operators] == [scan.operator, held.operator]
    assert seen.single_run
    rate = seen.sources[scan.operator]
    assert rate.backlog_records == FILES * RECORDS
    release.touch()
    assert query.awaitTermination(60)


def test_a_batch_that_runs_tells_what_its_source_offered_as_it_began(spark, tmp_path):
    release = tmp_path / "release"
    release.touch()
    status = SparkStatus(spark)
    query = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=100, numPartitions=2)
        .load()
        .selectExpr("cast(value as int) a")
        .mapInArrow(held_back(release), "a int")
        .writeStream.format("noop")
        .queryName("told")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    wait_for("two batches", lambda: query.lastProgress and query.lastProgress["batchId"] >= 1)
    release.unlink()
    (running,) = [one for one in status.queries() if one.name == "told"]

    def held() -> BegunBatch | None:
        before = query.lastProgress["timestamp"]
        time.sleep(2)
        begun = status.begun_batch(running)
        return begun if query.lastProgress["timestamp"] == before and status.is_working(running) else None

    begun = wait_for("a batch that is held", held)
    last = query.lastProgress
    assert begun.batch_id == last["batchId"] + 1
    (source,) = begun.sources
    assert source.description == last["sources"][0]["description"]
    assert source.end_offset["offset"] == json.loads(last["sources"][0]["endOffset"])["offset"] + 100
    assert begun.at == pytest.approx(time.time(), abs=60)
    assert begun.at > datetime.fromisoformat(last["timestamp"]).timestamp()
    release.touch()
    query.stop()


def test_three_actions_of_a_batch_stay_three_operators_whatever_it_reads(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder, "first")
    source = SparkSource(spark)
    source.observe(time.time())
    out = str(tmp_path / "out")

    def three_actions(batch, _number):
        batch.groupBy((sf.col("a") % 3).alias("k")).count().write.mode("append").parquet(out + "1")
        batch.count()
        batch.filter("a < 3").write.mode("append").parquet(out + "2")

    query = (
        files_of(spark, folder)
        .writeStream.foreachBatch(three_actions)
        .queryName("three")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
    seen: dict[int, tuple[SlotQuery, int | None]] = {}

    def batches() -> bool:
        window = query_of(source.observe(time.time()), "three")
        for batch in window.batches if window else ():
            seen[batch.batch_id] = (window, batch.files)
            if batch.batch_id == 0 and batch.files == 1:
                for number in range(12):
                    write(folder, f"more{number}")
        return sum(files or 0 for _, files in seen.values()) == 13

    wait_for("a small and a large batch", batches, every=2)
    query.stop()
    names = [[operator.name for operator in window.graph.operators] for window, _ in seen.values()]
    assert len(names[0]) == len(set(names[0])) == 5
    assert names[1:] == names[:-1]
    assert {window.jobs_per_batch for window, _ in seen.values()} == {5}
    newest = max(seen)
    read = seen[newest][0].batches[-1]
    leaves = dict.fromkeys(seen[newest][0].graph.sources, 0.0)
    for stage in read.stages:
        if stage.operator in leaves:
            leaves[stage.operator] += stage.records_in.sum()
    assert set(leaves.values()) == {RECORDS * (seen[newest][1] or 0)}
    assert all(len(stage.cpu_seconds) == stage.tasks for stage in read.stages)


def test_a_query_that_runs_all_its_tasks_at_once_is_named_and_they_are_reserved(spark, tmp_path):
    """Continuous mode holds its slots as real-time mode does, and needs no Kafka to be tried."""
    source = SparkSource(spark)
    source.observe(time.time())
    numbers = spark.readStream.format("rate").option("rowsPerSecond", 5).option("numPartitions", 2).load()
    at_once = (
        numbers.writeStream.format("noop")
        .queryName("at once")
        .option("checkpointLocation", str(tmp_path / "at-once"))
        .trigger(continuous="10 seconds")
        .start()
    )

    def known() -> NotReady | None:
        seen = source.observe(time.time())
        return seen if isinstance(seen, NotReady) and "tasks all run at once" in seen.reason else None

    told = wait_for("the tasks of the query", known, every=1, patience=60)
    assert told.reason.startswith(
        "query at once runs in continuous mode, which Penstock does not size yet; its 2 tasks all run at once"
        "; 2 slots are needed at once, one for each task: "
    )
    assert "missing" not in told.reason
    batches = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 10)
        .load()
        .writeStream.format("noop")
        .queryName("batches")
        .option("checkpointLocation", str(tmp_path / "batches"))
        .trigger(processingTime="1 second")
        .start()
    )

    def both() -> SlotWindow | None:
        window = source.observe(time.time())
        return window if isinstance(window, SlotWindow) and window.queries[0].batches else None

    window = wait_for("a window beside it", both, every=1, patience=60)
    assert (window.reserved_slots, window.reserved_for) == (2, ("at once",))
    assert [query.name for query in window.queries] == ["batches"]
    at_once.stop()
    batches.stop()
