"""The offered rate and the backlog of a Kafka source, seen by Penstock, against what was produced."""

import threading
import time
from statistics import median
from typing import Any

import orjson
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.decide.policy import Hold, Scale
from penstock.decide.sage.settings import SageSettings
from penstock.errors import ActionFailed
from penstock.fleet.admission import Admission
from penstock.fleet.agent import FleetPolicy
from penstock.fleet.kafka import KafkaTransport
from penstock.fleet.keys import FleetKey, write_key
from penstock.fleet.places import FleetDirectory, FleetTopic
from penstock.fleet.reporting import connect_to_fleet
from penstock.fleet.spark_job import publish, start
from penstock.journal.store import open_journal
from penstock.observe.spark_source import SparkSource
from penstock_lab.ground.kafka_broker import connector_jars
from penstock_lab.workloads.nexmark.events import Nexmark
from penstock_lab.workloads.nexmark.streams import KafkaStreams, produce
from tests.fakes import FixedPolicy, a_scale, a_window
from tests.fleet.agents import GIB, a_record
from tests.spark.watching import query_of, watch
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 2

RATE = 400
READ_PER_TRIGGER = 150
PERIOD_SECONDS = 1.0


class SteadyProducer(threading.Thread):
    """Produces RATE records a second by the clock, until stopped."""

    def __init__(self, address, topic):
        super().__init__(daemon=True)
        self.produced = 0
        self.since = time.time()
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "log_level": 0})
        self._stopped = threading.Event()

    def run(self):
        while not self._stopped.wait(0.05):
            while self.produced < RATE * (time.time() - self.since):
                self._producer.produce(self._topic, value=b"record", partition=self.produced % 3)
                self.produced += 1
            self._producer.flush()

    def stop(self):
        self._stopped.set()
        self.join()


@pytest.fixture
def topic(broker):
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic("offered", num_partitions=3)])["offered"].result(30)
    return "offered"


@pytest.fixture
def producer(broker, topic):
    producing = SteadyProducer(broker, topic)
    yield producing
    if producing.is_alive():
        producing.stop()


@pytest.fixture(scope="module")
def spark(local_cluster):
    session = local_cluster(held=HELD)
    for jar in connector_jars():
        session.sql(f"ADD JAR '{jar}'")
    return session


@pytest.fixture
def query(spark, broker, topic, tmp_path):
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", READ_PER_TRIGGER)
        .load()
    )
    query = (
        stream.writeStream.format("noop")
        .queryName("from_kafka")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime=f"{PERIOD_SECONDS} seconds")
        .start()
    )
    yield query
    query.stop()


def only_source(window):
    (rate,) = query_of(window, "from_kafka").sources.values()
    return rate


def records_read(query, newest):
    """Records read up to this batch, by Spark's own reports."""
    return sum(report.numInputRows for report in query.recentProgress if report.batchId <= newest)


def has_batches(seen):
    return bool(seen.batches)


def test_offered_rate_and_backlog_are_those_of_the_producer(spark, producer, query):
    source = SparkSource(spark)
    producer.start()
    watch(source, "from_kafka", has_batches)
    before, begun = producer.produced, time.monotonic()
    # on a busy machine a batch is late now and then, and the producer, too
    windows = [watch(source, "from_kafka", has_batches, every=3.0)[0] for _ in range(3)]
    window, produced = windows[-1], producer.produced
    really = (produced - before) / (time.monotonic() - begun)
    read = records_read(query, query_of(window, "from_kafka").batches[-1].batch_id)
    rate = only_source(window)

    offered = median(only_source(window).offered_per_second for window in windows)
    assert offered == pytest.approx(really, rel=0.2)
    assert rate.observed_per_second < 1.2 * READ_PER_TRIGGER / PERIOD_SECONDS
    waits_anyway = 2 * RATE * PERIOD_SECONDS
    assert rate.backlog_records == pytest.approx(produced - read - waits_anyway, abs=1.5 * RATE)

    producer.stop()
    quiet, newest = wait_for("a window without new records", lambda: when_quiet(source, query), every=1.7)
    assert only_source(quiet).backlog_records == producer.produced - records_read(query, newest) > 0
    assert query.isActive


@pytest.mark.soak
def test_a_topic_made_anew_is_one_window_without_a_rate(spark, broker, tmp_path):
    admin = AdminClient({"bootstrap.servers": broker})
    make_topic(admin, "anew")
    # so many that the new topic is not as long for minutes, however late it is read
    fill_topic(broker, "anew", 300 * RATE)
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker)
        .option("subscribe", "anew")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "false")
        .load()
    )
    writer = stream.writeStream.format("noop").queryName("from_kafka").trigger(processingTime="1 second")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    source = SparkSource(spark)
    producer = SteadyProducer(broker, "anew")
    producer.start()
    watch(source, "from_kafka", lambda seen: only_rate(seen).offered_per_second > 0)
    producer.stop()
    admin.delete_topics(["anew"])["anew"].result(30)
    wait_for("the end of the topic", lambda: "anew" not in admin.list_topics(timeout=10).topics)
    make_topic(admin, "anew")
    again = SteadyProducer(broker, "anew")
    again.start()
    seen = []

    def is_normal(window):
        rate = only_rate(window)
        seen.append(rate)
        told = any("made anew" in one.unknown_because for one in seen)
        return told and rate.offered_per_second > 0

    watch(source, "from_kafka", is_normal)
    again.stop()
    assert query.isActive
    assert all(not one.offered_per_second < 0 and one.backlog_records >= 0 for one in seen)
    assert all(one.offered_per_second < 5 * RATE for one in seen if one.offered_per_second > 0)


def fill_topic(broker, name, records):
    producer = Producer({"bootstrap.servers": broker, "linger.ms": 50, "log_level": 0})
    for number in range(records):
        producer.produce(name, value=b"record", partition=number % 3)
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


def make_topic(admin, name):
    """Create a topic; one that was just deleted may still be in the way."""

    def attempt():
        try:
            admin.create_topics([NewTopic(name, num_partitions=3)])[name].result(30)
        except KafkaException:
            return False
        return True

    wait_for(f"the topic {name}", attempt, every=1.0)


def only_rate(seen):
    (rate,) = seen.sources.values()
    return rate


def when_quiet(source, query):
    """A window without new records and the newest batch by then; None if one ended while it was observed."""
    newest = query.lastProgress.batchId
    window = source.observe(time.time())
    quiet = only_source(window).offered_per_second == 0
    return (window, newest) if quiet and query.lastProgress.batchId == newest else None


def test_nexmark_events_of_a_topic_are_those_of_the_generator(spark, broker, tmp_path):
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic("nexmark", num_partitions=2)])["nexmark"].result(30)
    stream = Nexmark(seed=5, out_of_order_share=0.2)
    produce(stream, broker, "nexmark", events=2000)
    streams = KafkaStreams(spark, broker, "nexmark", {"startingOffsets": "earliest"})
    writer = streams.read("auctions").writeStream.format("memory").queryName("auctions")
    query = writer.option("checkpointLocation", str(tmp_path / "nexmark")).trigger(availableNow=True).start()
    assert query.awaitTermination(180)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = spark.table("auctions").orderBy("id").toArrow()
    expected = pa.Table.from_batches([stream.batch("auctions", 0, 2000)])
    assert found.to_pylist() == expected.to_pylist()


KEY = FleetKey(bytes(range(32)))


def signed(row: dict[str, Any]) -> dict[str, Any]:
    return KEY.sign(pa.Table.from_pylist([row])).to_pylist()[0]


@pytest.fixture(scope="module")
def fleet_topics(broker):
    admin = AdminClient({"bootstrap.servers": broker})
    names = ("windows", "decisions", "agents-windows", "agents-decisions")
    for created in admin.create_topics([NewTopic(name, 2) for name in names]).values():
        created.result(30)
    agents = KafkaTransport(FleetTopic(broker, "agents"), KEY.for_application("nobody"))

    def have_a_leader():  # a new topic has none for a moment
        try:
            agents.decisions("nobody")
        except ActionFailed:
            return False
        return True

    wait_for("the topics' leader", have_a_leader)
    return broker


def test_an_agent_reports_to_a_topic_and_takes_its_decisions_from_another(fleet_topics, tmp_path):
    journal = open_journal(tmp_path / "journal.db")
    write_key(tmp_path / "key", KEY.for_application("words"))
    transport = connect_to_fleet(f"kafka://{fleet_topics}/agents", "words", str(tmp_path / "key"))
    agent = FleetPolicy("words", transport, journal, FixedPolicy(a_scale(4)), {})
    now = time.time()
    assert isinstance(agent.propose(a_window(now)), Hold)
    producer = Producer({"bootstrap.servers": fleet_topics, "log_level": 0})
    for name, size in (("other", 9), ("words", 5), ("words", 5)):
        row = {
            "application": name,
            "decision_id": 7000,
            "expires_at": now + 600,
            "reason": "P4",
            "parallelism": size,
            "settings": None,
        }
        producer.produce("agents-decisions", key=name, value=orjson.dumps(signed(row)))
        forged = {**row, "decision_id": 9000, "parallelism": 1}
        producer.produce("agents-decisions", key=name, value=orjson.dumps(forged))
    producer.flush()
    answer = agent.propose(a_window(now + 10))
    assert isinstance(answer, Scale) and answer.parallelism == {"executors": 5}
    assert isinstance(agent.propose(a_window(now + 20, executors=5)), Hold)
    consumer = Consumer(
        {
            "bootstrap.servers": fleet_topics,
            "group.id": "test",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["agents-windows"])
    sent = sorted(
        (orjson.loads(one.value()) for one in consumer.consume(3, timeout=30)), key=lambda r: r["end"]
    )
    consumer.close()
    assert [record["acknowledged"] for record in sent] == [0, 0, 7000]


def test_an_agent_that_was_there_before_the_topic_hears_of_its_first_decision(broker):
    transport = KafkaTransport(FleetTopic(broker, "early"), KEY.for_application("words"))
    assert transport.decisions("words") == [], "there is no topic"
    admin, name = AdminClient({"bootstrap.servers": broker}), "early-decisions"
    admin.create_topics([NewTopic(name, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": broker, "log_level": 0})
    row = {"decision_id": 5, "expires_at": 9.0, "reason": "P4", "parallelism": 3, "settings": None}
    producer.produce(name, key="words", value=orjson.dumps(signed({"application": "words", **row})))
    assert producer.flush(30) == 0, "its leader is there"
    assert [one.decision_id for one in transport.decisions("words")] == [5]


def test_a_fleet_is_judged_from_one_topic_into_another(fleet_topics, spark, tmp_path):
    producer = Producer({"bootstrap.servers": fleet_topics, "log_level": 0})
    for number in range(1, 5):
        for name in ("app-1", "app-2"):
            record = a_record(name, 10.0 * number, heap_used_bytes=5.8 * GIB)
            producer.produce("windows", key=name, value=KEY.for_application(name).sign_line(record))
    producer.produce("windows", value=b"nonsense")
    producer.flush()
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    directory, sent = FleetDirectory(tmp_path), FleetTopic(fleet_topics, "decisions")
    query = start(
        spark,
        FleetTopic(fleet_topics, "windows"),
        directory,
        SageSettings(),
        interval=None,
        admission=Admission(KEY),
        after_batch=lambda batch, decisions: publish(spark, sent, decisions),
    )
    assert query.awaitTermination(180)
    assert directory.dead_letters() == 1
    told = spark.read.format("kafka").option("kafka.bootstrap.servers", fleet_topics)
    rows = told.option("subscribe", "decisions").load().selectExpr("CAST(value AS STRING) AS value").collect()
    sent_rows = [orjson.loads(one.value) for one in rows]
    opened = [KEY.for_application(row["application"]).open_decision(row) for row in sent_rows]
    found = sorted((row["application"], row["rule"]) for row in opened)
    assert found == [("app-1", "P1"), ("app-2", "P1")]
