"""Pipelines said as shortly as can be, with ways that meet, and with keys on Kafka."""

import contextlib
import json

import pandas as pd
import pytest
from confluent_kafka import Producer

from penstock.pipeline import Pipeline, files, kafka
from penstock_lab.ground.kafka_broker import KafkaBroker, connector_jars
from tests.spark.test_pipeline import read, rows, settings, topic, until

pytestmark = [pytest.mark.spark, pytest.mark.soak]
HELD = 2


def write(directory, numbers):
    directory.mkdir(parents=True, exist_ok=True)
    pd.DataFrame({"number": numbers}).to_parquet(directory / f"{numbers[0]}.parquet", index=False)


def thumbnails(kept):
    pipeline = Pipeline("thumbnails")

    @pipeline.function(reads="images", writes="small", parallelism=(1, 15))
    def resize(batch):
        return batch.assign(size=batch["number"] * 10)

    @pipeline.function(reads="small", writes="large", takes="dataframe")
    def enlarge(frame):
        return frame.selectExpr("number", "size * 2 as size")

    @pipeline.function(reads="small", writes="objects", latency_target="1s")
    def recognise(batch):
        return pd.DataFrame({"what": "number " + batch["number"].astype(str), "sure": 0.5})

    @pipeline.function(reads="small", takes="dataframe")
    def keep(frame):
        frame.write.mode("append").parquet(str(kept))

    return pipeline


def test_place_and_schemas_are_found_where_nobody_has_written_them_down(spark, tmp_path):
    write(tmp_path / "topics" / "images", list(range(50)))
    with contextlib.chdir(tmp_path):
        options = {"settings": settings(tmp_path, control_socket=False), "trigger": "100ms"}
        handle = thumbnails(tmp_path / "kept").run(spark, policy="queueing", **options)
    try:
        for function in ("recognise", "enlarge", "keep"):
            until(lambda function=function: read(handle, function) == 50, [handle])
    finally:
        handle.stop()
    objects = topic(spark, tmp_path / "topics", "objects").select("what", "sure")
    assert objects.dtypes == [("what", "string"), ("sure", "double")]
    assert rows(objects) == sorted((f"number {number}", 0.5) for number in range(50))
    assert spark.read.parquet(str(tmp_path / "kept")).count() == 50
    large = topic(spark, tmp_path / "topics", "large").select("number", "size")
    assert rows(large) == [(number, number * 20) for number in range(50)]


def meeting(root):
    """a → copy → c ← negate ← b, and both c and a → together."""
    pipeline = Pipeline("meeting", topics=files(str(root)))
    for name in "ab":
        pipeline.topic(name, schema="number bigint")
    shared = {"schema": "number bigint", "parallelism": (1, 3)}
    pipeline.add(lambda batch: batch, name="copy", reads="a", writes="c", **shared)
    pipeline.add(lambda batch: -batch, name="negate", reads="b", writes="c", **shared)
    pipeline.add(lambda batch: batch, name="together", reads=["c", "a"], writes="all", **shared)
    return pipeline


def test_ways_that_part_and_meet_lose_and_repeat_nothing(spark, tmp_path):
    write(tmp_path / "a", list(range(40)))
    write(tmp_path / "b", list(range(100, 130)))
    options = {"settings": settings(tmp_path, control_socket=False), "trigger": "100ms"}
    handle = meeting(tmp_path).run(spark, policy="ds2", **options)
    try:
        until(lambda: read(handle, "together") == 110, [handle])
    finally:
        handle.stop()
    wanted = 2 * list(range(40)) + [-number for number in range(100, 130)]
    assert [value for (value,) in rows(topic(spark, tmp_path, "all").select("number"))] == sorted(wanted)


def parities(address):
    pipeline = Pipeline("parities", topics=kafka(address))
    pipeline.topic("events", schema="number bigint")

    @pipeline.function(reads="events", writes="parities", schema="number bigint, odd bigint", key="number")
    def split(batch):
        return batch.assign(odd=batch["number"] % 2)

    @pipeline.function(reads="events", writes="plain", schema="number bigint", parallelism=2)
    def copy(batch):
        return batch

    return pipeline


def records(spark, address, name):
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", name)
    found = reader.load().selectExpr("cast(key as string) as key", "cast(value as string) as value")
    return [(key, json.loads(value)) for key, value in (tuple(row) for row in found.collect())]


def test_records_on_kafka_have_the_key_that_was_asked_for_or_none(spark, tmp_path):
    for jar in connector_jars():
        spark.sql(f"ADD JAR '{jar}'")
    broker = KafkaBroker(tmp_path / "kafka")
    broker.start()
    try:
        broker.create("events", "parities", "plain", "split.dead", "copy.dead")
        producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
        for number in range(60):
            producer.produce("events", value=json.dumps({"number": number}).encode(), partition=number % 2)
        assert producer.flush(60) == 0
        options = {"settings": settings(tmp_path, control_socket=False), "trigger": "100ms"}
        handle = parities(broker.address).run(spark, checkpoints=str(tmp_path / "checkpoints"), **options)
        try:
            until(lambda: read(handle, "split") == read(handle, "copy") == 60, [handle])
        finally:
            handle.stop()
        assert all(key == str(one["number"]) for key, one in records(spark, broker.address, "parities"))
        plain = records(spark, broker.address, "plain")
        assert len(plain) == 60 and {key for key, _ in plain} == {None}
    finally:
        broker.kill()
