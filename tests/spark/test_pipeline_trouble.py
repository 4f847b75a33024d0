"""A pipeline whose broker dies and comes back: nothing is lost, nothing stops."""

import json

import pandas as pd
import pytest
from confluent_kafka import Producer

from penstock.pipeline import Pipeline, kafka
from penstock_lab.ground.kafka_broker import KafkaBroker, connector_jars
from tests.spark.test_pipeline import read, settings, until, values

pytestmark = [pytest.mark.spark, pytest.mark.soak]
HELD = 2


def doubling(address):
    pipeline = Pipeline("doubling", topics=kafka(address, records_per_batch=100))
    pipeline.topic("events", schema="number bigint")

    @pipeline.function(reads="events", writes="doubled", schema="twice bigint", parallelism=(1, 2))
    def double(batch):
        return pd.DataFrame({"twice": batch["number"] * 2})

    @pipeline.function(reads="doubled", writes="texts", schema="text string", parallelism=1)
    def spell(batch):
        return pd.DataFrame({"text": batch["twice"].astype(str)})

    return pipeline


def produce(address, numbers):
    producer = Producer({"bootstrap.servers": address, "log_level": 0})
    for number in numbers:
        producer.produce("events", value=json.dumps({"number": number}).encode(), partition=number % 2)
    assert producer.flush(60) == 0


def test_a_broker_that_dies_and_comes_back_costs_no_record(spark, tmp_path):
    for jar in connector_jars():
        spark.sql(f"ADD JAR '{jar}'")
    broker = KafkaBroker(tmp_path / "kafka")
    broker.start()
    try:
        broker.create("events", "doubled", "texts", "double.dead", "spell.dead")
        produce(broker.address, range(500))
        options = {"settings": settings(tmp_path, control_socket=False, fuse="never"), "trigger": "100ms"}
        handle = doubling(broker.address).run(spark, checkpoints=str(tmp_path / "checkpoints"), **options)
        until(lambda: read(handle, "spell") > 0, [handle])
        broker.kill()
        until(lambda: misses_its_broker(handle), [])
        broker.start()
        produce(broker.address, range(500, 600))
        wanted = {str(2 * number) for number in range(600)}
        until(lambda: read(handle, "spell") >= len(wanted), [handle], 120)
        until(lambda: texts(spark, broker) >= wanted, [handle], 60)
        handle.stop()
        assert texts(spark, broker) == wanted
        assert values(spark, broker.address, "double.dead") == []
    finally:
        broker.kill()


def misses_its_broker(handle):
    """Whether a batch hangs on the dead broker, or has broken off."""
    functions = handle.status()["functions"].values()
    return any(one["trouble"] or (one["at_batch_seconds"] or 0) > 2 for one in functions)


def texts(spark, broker):
    """At least once: a batch that was broken off is written again."""
    return {record["text"] for record in values(spark, broker.address, "texts")}
