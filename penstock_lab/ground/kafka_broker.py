"""A real single-node Kafka broker on loopback, and Spark's connector to it, with nothing but Java installed.

Ivy comes with PySpark, so it is used to fetch the jars, once, into the user's cache directory.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock_lab.ground.java_servers import find_cache, find_free_ports, find_java, read_tail

KAFKA = "3.9.1"
"""The version of the client that Spark's connector is built with."""

PATIENCE_SECONDS = 60
_CLUSTER = base64.urlsafe_b64encode(b"penstock-cluster").decode().rstrip("=")
"""Each broker is alone; an id that is drawn may begin with a dash, and be taken for an option."""

# Ranges end at the Spark in use: a connector that is not published yet for the newest Spark falls back
# to the one before, whose interface to Spark is the same.
_IVY_MODULE = """<ivy-module version="2.0">
  <info organisation="penstock" module="kafka"/>
  <configurations><conf name="broker"/><conf name="connector"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{kafka}" conf="broker->default"/>
    <dependency org="org.slf4j" name="slf4j-reload4j" rev="1.7.36" conf="broker->default"/>
    <dependency org="org.apache.spark" name="spark-sql-kafka-0-10_2.13" rev="[4.0.0,{spark}]"
                conf="connector->master"/>
    <dependency org="org.apache.spark" name="spark-token-provider-kafka-0-10_2.13" rev="[4.0.0,{spark}]"
                conf="connector->master"/>
    <dependency org="org.apache.kafka" name="kafka-clients" rev="{kafka}" conf="connector->master"/>
    <dependency org="org.apache.commons" name="commons-pool2" rev="2.12.0" conf="connector->master"/>
  </dependencies>
</ivy-module>
"""

_SERVER = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=BROKER://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=BROKER://127.0.0.1:{broker}
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""

_LOGGING = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %m%n
"""


def connector_jars() -> list[Path]:
    """Spark's Kafka connector with what it needs beside Spark."""
    return sorted((_jars() / "connector").glob("*.jar"))


@contextmanager
def kafka_broker(directory: Path) -> Iterator[str]:
    """Run a broker for the length of a `with`; gives its bootstrap address."""
    broker = KafkaBroker(directory)
    try:
        broker.start()
        yield broker.address
    finally:
        broker.kill()


class KafkaBroker:
    """A broker that can be killed and started again; its port and its data stay."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        broker, controller = find_free_ports(2)
        self.address = f"127.0.0.1:{broker}"
        self._directory, self._properties = directory, directory / "server.properties"
        self._properties.write_text(
            _SERVER.format(broker=broker, controller=controller, data=directory / "data"), encoding="utf-8"
        )
        (directory / "log4j.properties").write_text(_LOGGING, encoding="utf-8")
        _run(self._command("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._properties)))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        log = self._directory / "broker.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._properties)), stdout=output, stderr=output
            )
        _wait_until_it_answers(self.address, self._process, log)

    def kill(self) -> None:
        """End it as a crash does; may be called twice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def create(self, *topics: str, partitions: int = 2) -> None:
        """Make these topics."""
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        for made in admin.create_topics([NewTopic(name, partitions) for name in topics]).values():
            made.result(30)

    def _command(self, main: str, *arguments: str) -> list[str]:
        small = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        logging = f"-Dlog4j.configuration=file:{self._directory / 'log4j.properties'}"
        return [find_java(), *small, logging, "-cp", str(_jars() / "broker" / "*"), main, *arguments]


def _wait_until_it_answers(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if admin.list_topics(timeout=2).brokers:
                return
        except KafkaException:
            time.sleep(0.2)
    raise RuntimeError(f"the Kafka broker did not start:\n{read_tail(log)}")


def _jars() -> Path:
    """The directory with the jars of the broker and of the connector, fetched where they are missing."""
    cache = find_cache()
    jars = cache / f"kafka-{KAFKA}-spark-{pyspark.__version__}"
    if not jars.is_dir():
        _fetch(cache / "ivy", jars)
    return jars


def _fetch(ivy_cache: Path, jars: Path) -> None:
    """Fetch into a directory of its own, then rename: a fetch that was broken off leaves nothing behind."""
    unfinished = jars.with_name(f"{jars.name}.{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        module = unfinished / "ivy.xml"
        module.write_text(_IVY_MODULE.format(kafka=KAFKA, spark=pyspark.__version__), encoding="utf-8")
        ivy = next((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar"))
        target = str(unfinished / "[conf]" / "[artifact]-[revision].[ext]")
        settings = ["-ivy", str(module), "-cache", str(ivy_cache), "-confs", "broker", "connector"]
        _run([find_java(), "-jar", str(ivy), *settings, "-types", "jar", "bundle", "-retrieve", target])
        unfinished.rename(jars)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")
