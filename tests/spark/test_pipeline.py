"""Pipelines on a real cluster: the same results as one batch job, whatever happens to the parallelism."""

import json
import os
import random
import time

import httpx
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import functions as sf

from penstock.errors import ActionFailed
from penstock.pipeline import Pipeline, files, kafka, stream
from penstock.pipeline.spark_topics import Written, dead_letters, publish, read_topic
from penstock.pipeline.timestamps import ARRIVED, ENTERED
from penstock.pipeline.topics import Topic
from penstock.runtime.control import find_running
from penstock_lab.ground.kafka_broker import connector_jars
from tests.runtime.telemetry.test_exposition import read_samples
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 3

FILES, PER_FILE = 6, 400
RECORDS = FILES * PER_FILE


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("topics")


def settings(root, **others):
    return {
        "journal": str(root / "journal.db"),
        "runtime_directory": str(root / "run"),
        "policy_interval": "2s",
        **others,
    }


def numbers(root, parts):
    """Files of the topic from outside, as any program may write it; nobody sees half of one."""
    folder = root / "numbers"
    folder.mkdir(exist_ok=True)
    for part in parts:
        values = range(part * PER_FILE, (part + 1) * PER_FILE)
        pd.DataFrame({"number": values}).to_parquet(folder / f".{part}.parquet", index=False)
        (folder / f".{part}.parquet").rename(folder / f"{part}.parquet")


def chain(root, name="chain"):
    """pandas → DataFrame → keyed: every kind of function but Arrow, with records that fail."""
    pipeline = Pipeline(name, topics=files(str(root), files_per_batch=2))
    pipeline.topic("numbers", schema="number bigint")

    @pipeline.function(
        reads="numbers", writes="squares", schema="number bigint, square bigint", parallelism=(1, 5)
    )
    def square(batch):
        if (batch["number"] % 997 == 13).any():
            raise ValueError("an unlucky number")
        return batch.assign(square=batch["number"] ** 2)

    @pipeline.function(
        reads="squares",
        writes="odds",
        schema="key bigint, square bigint",
        takes="dataframe",
        parallelism=(1, 3),
    )
    def odd(frame):
        return frame.where("number % 2 = 1").select((sf.col("number") % 7).alias("key"), "square")

    @pipeline.function(
        reads="odds", writes="totals", schema="key bigint, total bigint", key="key", state="total bigint",
        parallelism=2,
    )  # fmt: skip
    def total(key, batch, state):
        now = (state[0] if state else 0) + int(batch["square"].sum())
        return pd.DataFrame({"key": [key[0]], "total": [now]}), (now,)

    return pipeline


def halving(root):
    """A second pipeline, of one Arrow function, over the same topic."""
    pipeline = Pipeline("halving", topics=files(str(root), files_per_batch=4))
    pipeline.topic("numbers", schema="number bigint")

    @pipeline.function(
        reads="numbers", writes="halves", schema="half double", takes="arrow", parallelism=(1, 4)
    )
    def halve(batch):
        return pa.table({"half": pc.divide(pc.cast(batch.column("number"), pa.float64()), 2.0)})

    return pipeline


def read(handle, function):
    return handle.status()["functions"][function]["records_read"]


def until(condition, handles, seconds=180):
    """Wait for what these pipelines bring about; none of their functions may fail meanwhile."""

    def attempt():
        for handle in handles:
            failed = {n: f["error"] for n, f in handle.status()["functions"].items() if f["error"]}
            assert not failed, failed
        return condition()

    stories = [handle.status for handle in handles]
    wait_for("the pipeline", attempt, patience=seconds, seen=lambda: [tell() for tell in stories])


def as_one_batch_job(spark, root):
    """The same transforms in one batch query over the same records."""
    lucky = spark.read.parquet(str(root / "numbers")).where("number % 997 != 13")
    squares = lucky.selectExpr("number", "number * number as square")
    odds = squares.where("number % 2 = 1").selectExpr("number % 7 as key", "square")
    return odds, odds.groupBy("key").agg(sf.sum("square").alias("total"))


def rows(frame):
    return sorted(tuple(row) for row in frame.collect())


def topic(spark, root, name):
    return spark.read.option("recursiveFileLookup", "true").parquet(str(root / name))


def test_results_equal_one_batch_job_while_parallelism_changes_and_the_pipeline_restarts(spark, root):
    numbers(root, range(FILES // 2))
    unlucky = [number for number in range(RECORDS) if number % 997 == 13]
    odds = sum(number % 2 for number in range(RECORDS) if number not in unlucky)
    served = settings(root, metrics="127.0.0.1:0")
    halves = halving(root).run(spark, policy="threshold", settings=served, trigger="500ms")
    first = chain(root).run(spark, policy="ds2", settings=settings(root), trigger="100ms")
    seeds = random.Random(3)

    def resize(handle, least, most):
        handle.scale("square", seeds.randint(least, most))
        handle.scale("odd", seeds.randint(1, 3))
        return read(handle, "square") >= PER_FILE

    until(lambda: resize(first, 1, 2), [first, halves])
    asked = find_running(root / "run" / "pipelines", "chain").ask("status")["status"]
    assert asked["functions"]["square"]["pinned"] is True
    read_before = read(first, "total")
    first.stop()
    assert [one.query.exception() for one in first.queries.values()] == [None] * 3
    again = chain(root).run(spark, policy="ds2", settings=settings(root), trigger="100ms")
    runs = [one.query.runId for one in again.queries.values()]
    # in both runs there are batches of sizes that the other has not, however many a run ends in time
    resize(again, 3, 5)
    numbers(root, range(FILES // 2, FILES))
    until(lambda: resize(again, 3, 5) and odds_written(root) == odds, [again, halves])
    until(lambda: read(halves, "halve") == RECORDS, [halves])
    check_metrics(halves)

    wanted_odds, wanted_totals = as_one_batch_job(spark, root)
    assert rows(topic(spark, root, "odds").select("key", "square")) == rows(wanted_odds)
    until(lambda: final_totals(root) == rows(wanted_totals), [again])
    dead = rows(dead_letters(spark, files(str(root)), "square"))
    assert sorted(json.loads(record)["number"] for record, _ in dead) == unlucky
    assert {error for _, error in dead} == {"ValueError: an unlucky number"}
    assert sorted(value for (value,) in rows(topic(spark, root, "halves").select("half"))) == [
        number / 2 for number in range(RECORDS)
    ]
    came = [file.stat().st_mtime for file in (root / "numbers").iterdir()]
    for name in ("squares", "odds", "totals"):
        entered = [row[0] for row in topic(spark, root, name).select(sf.unix_millis(ENTERED)).collect()]
        assert min(came) - 1 <= min(entered) / 1000 <= max(entered) / 1000 <= max(came) + 1, name
    sizes = {len(list(one.glob("*.parquet"))) for one in (root / "squares").iterdir()}
    assert len(sizes) > 1 and sizes <= set(range(1, 6)), sizes
    assert [one.query.runId for one in again.queries.values()] == runs
    assert read_before <= odds
    again.stop()
    halves.stop()
    assert not spark.streams.active


def check_metrics(handle):
    """What is scraped from the one function of a pipeline that has read all."""
    scraped = read_samples(httpx.get(handle.metrics_url).content)
    backlogs = [value for (name, _), value in scraped.items() if name == "penstock_source_backlog_records"]
    instances = [value for (name, _), value in scraped.items() if name == "penstock_function_instances"]
    assert backlogs == [0.0] and len(instances) == 1 and 1 <= instances[0] <= 4, scraped


def odds_written(root):
    return sum(pq.read_metadata(file).num_rows for file in (root / "odds").glob("*/*.parquet"))


def final_totals(root):
    found = [pd.read_parquet(file) for file in (root / "totals").glob("*/*.parquet")]
    greatest = pd.concat(found).groupby("key")["total"].max() if found else {}
    return sorted((key, total) for key, total in greatest.items())


def test_a_batch_that_is_run_again_is_published_once(spark, tmp_path):
    frame = spark.createDataFrame(
        [(1, "served", None, None, 5.0), (None, "dead.f", "{}", "ValueError: no", None)],
        "number bigint, penstock_outcome string, penstock_record string, penstock_error string, "
        "penstock_entered double",
    )
    place = files(str(tmp_path))
    for _ in range(2):
        publish(spark, frame, Written(("f",), "out", place, "f-1-0"))
    publish(spark, frame, Written(("f",), "out", place, "f-1-1"))
    assert topic(spark, tmp_path, "out").count() == 2
    assert rows(dead_letters(spark, place, "f")) == [("{}", "ValueError: no")] * 2
    assert not list((tmp_path / "_penstock").iterdir())


def test_records_of_any_source_have_moments_those_of_files_when_these_were_changed(spark, tmp_path):
    place = tmp_path / "lines"
    place.mkdir()
    (place / "one.txt").write_text("first\nsecond\n")
    changed = 1_700_000_000.25
    os.utime(place / "one.txt", (changed, changed))
    lines = read_topic(spark, Topic("lines"), stream("text", path=place))
    writer = lines.writeStream.format("memory").queryName("lines").trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(120)
    assert rows(spark.table("lines")) == [("first", changed, changed), ("second", changed, changed)]
    for other in (stream("rate"), stream("socket", host="localhost", port=9)):
        read_from = read_topic(spark, Topic("other"), other)
        assert read_from.columns[-2:] == [ENTERED, ARRIVED] and "_metadata" not in read_from.columns


def test_a_wrong_schema_stops_its_function_alone_and_names_function_and_column(spark, root):
    pipeline = Pipeline("wrong", topics=files(str(root)))
    pipeline.topic("numbers", schema="number bigint")

    @pipeline.function(reads="numbers", writes="texts", schema="text string, length int", parallelism=1)
    def spell(batch):
        return pd.DataFrame({"text": batch["number"].astype(str), "length": "long"})

    @pipeline.function(reads="numbers", writes="same", schema="number bigint", parallelism=1)
    def copy(batch):
        return batch

    stream = spark.readStream.schema("number bigint").parquet(str(root / "numbers"))
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(root / "own"))
    query = writer.trigger(processingTime="100 milliseconds").start()
    pipeline.existing("own", query, reads="numbers")
    handle = pipeline.run(spark, settings=settings(root, control_socket=False), trigger="100ms")
    try:
        with pytest.raises(ActionFailed, match=r"function 'spell' returned .* in column 'length', not int32"):
            handle.wait(180)
        until(lambda: read(handle, "copy") == RECORDS, [])
        until(lambda: read(handle, "own") == RECORDS, [])
        seen = handle.status()["functions"]
        assert "'length'" in seen["spell"]["error"] and seen["copy"]["error"] is None
    finally:
        handle.stop()
    assert query.isActive
    query.stop()


def on_kafka(address):
    """Two functions over topics of a broker, the first with records that fail."""
    pipeline = Pipeline("broker", topics=kafka(address, records_per_batch=200))
    pipeline.topic("events", schema="number bigint")

    @pipeline.function(
        reads="events", writes="doubled", schema="number bigint, twice bigint", key="number", timeout="500ms"
    )
    def double(batch):
        if (batch["number"] == 77).any():
            raise ValueError("seventy-seven")
        if (batch["number"] == 300).any():
            time.sleep(100)
        return batch.assign(twice=batch["number"] * 2)

    @pipeline.function(
        reads="doubled", writes="texts", schema="text string", parallelism=(1, 3), key="number", order="twice"
    )
    def spell(batch):
        if not batch["twice"].is_monotonic_increasing:
            raise ValueError("out of order")
        return pd.DataFrame({"text": batch["twice"].astype(str)})

    return pipeline


def produce(address, count):
    topics = ["events", "doubled", "texts", "double.dead", "spell.dead"]
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(name, 2) for name in topics]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    for number in range(count):
        producer.produce("events", value=json.dumps({"number": number}).encode(), partition=number % 2)
    producer.flush()


def values(spark, address, name):
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
    return [json.loads(row[0]) for row in reader.option("subscribe", name).load().select("value").collect()]


def entered_by_header(spark, address, name):
    """The moments that records of a topic carry, and those at which Kafka got them."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
    rows = reader.option("subscribe", name).option("includeHeaders", "true").load().collect()
    carried = [int(header["value"]) for row in rows for header in row["headers"] or ()]
    return carried, [row["timestamp"].timestamp() * 1000 for row in rows]


def test_the_same_on_kafka_topics_with_dead_letters_and_changing_parallelism(spark, broker, tmp_path):
    for jar in connector_jars():
        spark.sql(f"ADD JAR '{jar}'")
    produce(broker, 600)
    options = {"settings": settings(tmp_path, control_socket=False), "trigger": "100ms"}
    handle = on_kafka(broker).run(spark, checkpoints=str(tmp_path / "checkpoints"), **options)
    sizes = iter([1, 2, 3] * 1000)
    until(lambda: handle.scale("spell", next(sizes)) and read(handle, "spell") == 598, [handle])
    handle.stop()
    texts = sorted(int(record["text"]) for record in values(spark, broker, "texts"))
    assert texts == [2 * number for number in range(600) if number not in (77, 300)]
    dead = {json.loads(one["record"])["number"]: one for one in values(spark, broker, "double.dead")}
    assert set(dead) == {77, 300} and dead[77]["function"] == "double"
    assert dead[77]["error"] == "ValueError: seventy-seven"
    assert dead[300]["error"] == "TimeoutError: the call took longer than 0.5 s"
    _, sent = entered_by_header(spark, broker, "events")
    carried, written = entered_by_header(spark, broker, "texts")
    assert len(carried) == len(written) == 598
    assert min(sent) - 1 <= min(carried) <= max(carried) <= max(sent) + 1 < min(written)
