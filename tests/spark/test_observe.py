"""What is seen of real queries on a real cluster, with the UI off and no event log."""

import json
import time

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

from penstock.dataflow.readiness import NotReady
from penstock.observe.settings import ObserveSettings
from penstock.observe.spark_source import SparkSource
from tests.spark.watching import query_of, watch
from tests.waiting import PATIENCE_SECONDS, wait_for

pytestmark = pytest.mark.spark
HELD = 2

ROWS = 60
FILES, RECORDS_PER_FILE = 30, 25
SCAN = "MicroBatchScan + MapInArrow passed_on"


@pytest.fixture(scope="module")
def spark(local_cluster):
    session = local_cluster(held=HELD)
    session.conf.set("spark.sql.shuffle.partitions", 2)
    return session


@pytest.fixture
def source(spark):
    return SparkSource(spark)


def numbers(spark):
    """Exactly ROWS records in every batch."""
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()


def started(frame, name, checkpoint, seconds=1, mode="append"):
    writer = frame.writeStream.format("noop").outputMode(mode).queryName(name)
    return (
        writer.option("checkpointLocation", str(checkpoint / name))
        .trigger(processingTime=f"{seconds} seconds")
        .start()
    )


def keyed_counts(spark):
    def passed_on(batches):  # defined here, so that it travels to executors that do not know this module
        yield from batches

    passed = numbers(spark).mapInArrow(passed_on, "timestamp timestamp, value bigint")
    return passed.withColumn("key", sf.col("value") % 7).repartition(3, "key").groupBy("key").count()


def stages_of(batch):
    return {stage.operator: stage for stage in batch.stages}


def test_nothing_to_see_before_a_query_starts(spark, source):
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.eventLog.enabled", "false") == "false"
    assert source.observe(time.time()) == NotReady("the first window has just begun", "one policy interval")
    seen = source.observe(time.time())
    assert isinstance(seen, NotReady)
    assert seen.reason == "no streaming query is active"


def test_operators_records_and_executors_of_a_stateful_query(spark, source, tmp_path):
    query = started(keyed_counts(spark), "counts", tmp_path, mode="update")
    window, seen = watch(source, "counts", lambda seen: any(b.batch_id >= 2 for b in seen.batches))
    state = "HashAggregate + StateStoreRestore + StateStoreSave"
    assert [operator.name for operator in seen.graph.operators] == [SCAN, "HashAggregate", state]
    assert seen.graph.edges == ((SCAN, "HashAggregate"), ("HashAggregate", state))

    newest = seen.batches[-1]
    stages = stages_of(newest)
    assert newest.input_records == ROWS
    assert newest.slots == 4
    assert (stages[SCAN].records_in.sum(), stages[SCAN].records_out.sum()) == (ROWS, ROWS)
    assert (stages["HashAggregate"].records_in.sum(), stages["HashAggregate"].tasks) == (ROWS, 3)
    assert stages["HashAggregate"].records_out.sum() == 7
    assert (stages[state].records_in.sum(), stages[state].tasks) == (7, 2)
    assert all(stage.useful_seconds.sum() > 0 for stage in newest.stages)
    assert 0 < newest.serial_seconds < newest.seconds

    assert seen.period_seconds == 1
    assert [executor.cores for executor in window.executors] == [2, 2]
    assert all(executor.memory_bytes > 0 and executor.host for executor in window.executors)
    assert (window.slots, window.parallelism) == (4, {"executors": 2})
    assert sum(executor.state_bins for executor in window.executors) == 2
    assert seen.latency_by == "arrivals at the source"
    # the window may hold a faster batch beside the newest, and its mean lies between them
    assert min(batch.seconds for batch in seen.batches) < seen.latency_seconds <= seen.oldest_latency_seconds
    assert newest.seconds < seen.oldest_latency_seconds
    # a batch that came late is followed at once by the next one, and takes what would have come later
    watch(source, "counts", as_much_read_as_offered)
    query.stop()


def as_much_read_as_offered(seen):
    rate = seen.sources[SCAN]
    return rate.offered_per_second == pytest.approx(rate.observed_per_second, rel=0.5)


def fill(folder):
    folder.mkdir()
    lines = "".join(json.dumps({"a": number}) + "\n" for number in range(RECORDS_PER_FILE))
    for number in range(FILES):
        (folder / f"{number}.json").write_text(lines)
    (folder / "_SUCCESS").touch()


def test_files_that_wait_are_a_backlog(spark, source, tmp_path):
    folder = tmp_path / "in"
    fill(folder)
    stream = spark.readStream.schema("a int").option("maxFilesPerTrigger", 1).json(str(folder))
    query = started(stream, "files", tmp_path)
    known = lambda seen: seen.sources["Scan json"].offered_per_second >= 0  # noqa: E731
    _, seen = watch(source, "files", known)
    rate = seen.sources["Scan json"]
    assert rate.offered_per_second == 0
    read = sum(report.numInputRows for report in query.recentProgress)
    left = FILES * RECORDS_PER_FILE - read
    assert rate.backlog_records == pytest.approx(left, abs=3 * RECORDS_PER_FILE)
    assert rate.backlog_records % RECORDS_PER_FILE == 0
    query.stop()


def test_a_static_table_beside_files_is_not_taken_for_the_stream(spark, source, tmp_path):
    folder, table = tmp_path / "in", 7
    fill(folder)
    spark.range(table).selectExpr("cast(id as int) a", "id * 10 as b").write.parquet(str(tmp_path / "table"))
    static = spark.read.parquet(str(tmp_path / "table"))
    stream = spark.readStream.schema("a int").option("maxFilesPerTrigger", 1).json(str(folder))
    query = started(stream.join(static, "a"), "enriched", tmp_path)

    def rates(seen):
        return {"json" if "json" in name else "table": rate for name, rate in seen.sources.items()}

    _, seen = watch(source, "enriched", lambda seen: rates(seen)["json"].offered_per_second >= 0)
    read = {name: stage.records_in.sum() for name, stage in stages_of(seen.batches[-1]).items()}
    assert {"json" if "json" in name else "table": count for name, count in read.items()} == {
        "json": RECORDS_PER_FILE,
        "table": table,
    }
    left = FILES * RECORDS_PER_FILE - sum(report.sources[0].numInputRows for report in query.recentProgress)
    assert rates(seen)["json"].backlog_records == pytest.approx(left, abs=3 * RECORDS_PER_FILE)
    # the table is read whole with every batch, and offered by nobody
    unoffered = rates(seen)["table"]
    assert (unoffered.offered_per_second, unoffered.backlog_records) == (0, 0)
    assert unoffered.rows_per_batch == table
    query.stop()


def test_several_queries_at_once_each_with_its_own_operators(spark, source, tmp_path):
    """A self-join, several actions on one batch, and a job description of the user's own."""
    left = numbers(spark).select(sf.col("value").alias("a"), sf.col("timestamp").alias("t1"))
    right = numbers(spark).select(sf.col("value").alias("b"), sf.col("timestamp").alias("t2"))
    near = sf.expr("a = b and t1 between t2 - interval 1 second and t2 + interval 1 second")
    joined = left.withWatermark("t1", "1 second").join(right.withWatermark("t2", "1 second"), near)

    def several_actions(batch, _number):
        batch.sparkSession.sparkContext.setJobDescription("my own words")
        batch.count()
        batch.filter("value % 2 = 0").count()

    timed = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    queries = [
        started(joined, "joined", tmp_path, seconds=2),
        started(timed.withWatermark("timestamp", "1 second"), "timed", tmp_path, seconds=2),
        numbers(spark)
        .writeStream.foreachBatch(several_actions)
        .queryName("actions")
        .trigger(processingTime="2 seconds")
        .option("checkpointLocation", str(tmp_path / "actions"))
        .start(),
    ]
    seen = {}

    def all_seen():
        window = source.observe(time.time())
        for name in ("joined", "actions", "timed"):
            query = query_of(window, name)
            if query is not None and query.batches and query.batches[-1].batch_id >= 1:
                seen[name] = query
        return len(seen) == 3

    wait_for("windows of all queries", all_seen, every=2)
    for query in queries:
        query.stop()

    join = seen["joined"]
    assert len(join.graph.sources) == 2
    assert "StreamingSymmetricHashJoin" in join.graph.index
    assert {target for _, target in join.graph.edges} == {"StreamingSymmetricHashJoin"}
    stages = stages_of(join.batches[-1])
    assert [stages[side].records_in.sum() for side in join.graph.sources] == [ROWS, ROWS]
    assert set(join.sources) == set(join.graph.sources)

    # the rows of a batch are made for it and bear times of 1970, which are nobody's latency
    assert join.latency_by == "arrivals at the source"
    assert seen["timed"].latency_by == "event times"
    assert 0 < seen["timed"].latency_seconds <= seen["timed"].oldest_latency_seconds < 60

    actions = seen["actions"]
    assert len(actions.graph.sources) == 2
    stages = stages_of(actions.batches[-1])
    assert [stages[scan].records_in.sum() for scan in actions.graph.sources] == [ROWS, ROWS]
    assert len(stages) == 4
    assert set(actions.sources) == set(actions.graph.sources)
    offered = [rate.offered_per_second for rate in actions.sources.values()]
    assert offered[0] == pytest.approx(offered[1]) and offered[0] > 0


def test_a_query_that_fails_and_one_that_restarts_while_observed(spark, source, tmp_path):
    frame = numbers(spark).withColumn("checked", sf.expr(f"assert_true(value < {2 * ROWS})"))
    failing = started(frame, "failing", tmp_path)
    steady = started(numbers(spark), "steady", tmp_path)
    watch(source, "steady", lambda seen: bool(seen.batches))
    # a query has its exception a moment before Spark takes it off the list of those that run
    with pytest.raises(StreamingQueryException):
        failing.awaitTermination(PATIENCE_SECONDS)
    window, _ = watch(source, "steady", lambda seen: bool(seen.batches))
    assert query_of(window, "failing") is None

    steady.stop()
    again = started(numbers(spark), "steady", tmp_path)
    assert again.id == steady.id
    said = []

    def restarted():
        seen = source.observe(time.time())
        said.extend(getattr(seen, "warnings", ()))
        query = query_of(seen, "steady")
        return query is not None and query.batches and query

    query = wait_for("the restarted query", restarted, every=1)
    newest = again.lastProgress.batchId
    assert query.batches[-1].batch_id <= newest
    assert all(batch.batch_id > steady.lastProgress.batchId for batch in query.batches)
    again.stop()
    # the first window after it may still hold a batch that ended just before
    wait_for("nothing to see", lambda: isinstance(source.observe(time.time()), NotReady))


def test_a_stage_with_more_tasks_than_are_read_is_not_taken_for_a_cheap_one(spark, tmp_path):
    source = SparkSource(spark, ObserveSettings(max_tasks_per_stage=2))
    query = started(keyed_counts(spark), "wide", tmp_path, mode="update")
    wait_for("some batches", lambda: query.lastProgress and query.lastProgress.batchId >= 1)
    source.observe(time.time() - 1)
    seen = source.observe(time.time())
    assert isinstance(seen, NotReady)
    assert "a stage has more than 2 tasks (max_tasks_per_stage)" in seen.reason
    query.stop()
