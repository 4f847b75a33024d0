"""How agents and controller meet in Kafka: windows in one topic, decisions in another, with its security.

Spark's client is Java's, the agents' is librdkafka, and either client's names of options will do. User and
password of SASL and a PEM file of authorities are translated; what else belongs to one client alone is given
to that one.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.errors import ActionFailed, BadInput, BadSettings, Unsupported
from penstock.fleet.decision import LOOK_BACK_SECONDS, FleetDecision
from penstock.fleet.keys import ApplicationKey, write_line
from penstock.fleet.places import FleetTopic, parse_decision

SETTING = "fleet_kafka_options"
HIDDEN = "***"
_SECRET = re.compile(r"password|secret|jaas|token|\.pem$|\.key$|keystore\.key|config$", re.IGNORECASE)
_JAAS = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')
_JAVA_ONLY = (
    "sasl.jaas.config",
    "sasl.login.",
    "ssl.truststore.",
    "ssl.protocol",
    "ssl.enabled.protocols",
    "ssl.keystore.type",
)
_LIBRDKAFKA_ONLY = (
    "sasl.username",
    "sasl.password",
    "sasl.mechanisms",
    "ssl.ca.",
    "ssl.certificate.",
    "ssl.key.location",
    "ssl.key.pem",
)
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def translate_for_spark(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for Spark's connector."""
    found = {name: text for name, text in options.items() if not name.startswith(_LIBRDKAFKA_ONLY)}
    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms")
    if mechanism:
        found["sasl.mechanism"] = mechanism
    if "sasl.username" in options and "sasl.jaas.config" not in options:
        found["sasl.jaas.config"] = _write_jaas(options, mechanism or "")
    if "ssl.ca.location" in options and "ssl.truststore.location" not in options:
        found |= {"ssl.truststore.location": options["ssl.ca.location"], "ssl.truststore.type": "PEM"}
    return {f"kafka.{name}": text for name, text in found.items()}


def translate_for_agents(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options for the agents' client."""
    found = {name: text for name, text in options.items() if not name.startswith(_JAVA_ONLY)}
    if "sasl.jaas.config" in options and "sasl.username" not in options:
        said = {
            one: re.sub(r"\\(.)", r"\1", text) for one, text in _JAAS.findall(options["sasl.jaas.config"])
        }
        found |= {f"sasl.{one}": text for one, text in said.items()}
    if "ssl.truststore.location" in options and "ssl.ca.location" not in options:
        if options.get("ssl.truststore.type", "JKS").upper() != "PEM":
            raise BadSettings(
                f"{SETTING}: agents cannot read a truststore of Java's: give ssl.ca.location, a PEM file"
            )
        found["ssl.ca.location"] = options["ssl.truststore.location"]
    return found


def hide_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options to be shown."""
    return {name: HIDDEN if _SECRET.search(name) else text for name, text in options.items()}


def hide_secrets(message: str, options: Mapping[str, str]) -> str:
    """Return a client's message without the secrets among its options."""
    for name, text in options.items():
        if _SECRET.search(name) and text:
            message = message.replace(text, HIDDEN)
    return message


def _write_jaas(options: Mapping[str, str], mechanism: str) -> str:
    if mechanism not in _MODULES:
        raise BadSettings(f"{SETTING}: sasl.username goes with a sasl.mechanism of {', '.join(_MODULES)}")
    user, password = (
        re.sub(r'(["\\])', r"\\\1", options.get(f"sasl.{one}", "")) for one in ("username", "password")
    )
    return f'{_MODULES[mechanism]} required username="{user}" password="{password}";'


log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
"""How long a loop waits for a broker; what could not be sent waits for the next window."""
_AT_ONCE = 1_000
NO_KEY = "decisions from Kafka are not carried out without a key: set fleet_key_file (`penstock fleet key`)"


class KafkaTransport:
    """Topic NAME stands for NAME-windows and NAME-decisions; connects at the first use.

    Whoever reaches the broker can write to a topic, so that without a key no decision is taken from it.
    """

    def __init__(self, topic: FleetTopic, key: ApplicationKey | None = None) -> None:
        try:
            import confluent_kafka
        except ImportError:
            raise Unsupported(
                "reporting to Kafka needs confluent-kafka: install penstock with its extra, penstock[kafka]"
            ) from None
        self._kafka, self._topic, self._key = confluent_kafka, topic, key
        self._security = translate_for_agents(topic.security)
        self._producer = self._make_client(confluent_kafka.Producer, {"linger.ms": 5})
        self._consumer: Any = None
        self._next: dict[int, int] = {}
        self._warned = False
        self.refusal = NO_KEY if key is None else ""

    def publish(self, record: Mapping[str, Any]) -> None:
        """Send one window, and see that the broker has it."""
        failures: list[str] = []

        def note_delivery(error: Any, message: Any) -> None:
            if error is not None:
                failures.append(str(error))

        key, name = str(record["application"]), f"{self._topic.name}-windows"
        line = write_line(record, self._key)
        try:
            self._producer.produce(name, key=key, value=line, on_delivery=note_delivery)
        except (self._kafka.KafkaException, BufferError) as error:
            raise ActionFailed(f"{name}: {error}") from error
        if self._producer.flush(PATIENCE_SECONDS):
            self._producer.purge()
            raise ActionFailed(f"{name}: {self._topic.servers} took no message")
        if failures:
            raise ActionFailed(f"{name}: {failures[0]}")

    def decisions(self, application: str) -> Sequence[FleetDecision]:
        """Return the decisions for this application that came since the last call, or in the last hour."""
        found: list[FleetDecision] = []
        if self._key is None:
            return found
        try:
            consumer = self._assign()
            while consumer is not None and (waiting := self._count_waiting(consumer)):
                messages = consumer.consume(min(waiting, _AT_ONCE), timeout=PATIENCE_SECONDS)
                if not messages:
                    break
                for one in messages:
                    if one.error() is not None:
                        raise self._kafka.KafkaException(one.error())
                    self._next[one.partition()] = one.offset() + 1
                    if one.key() == application.encode():
                        found += read_message(
                            one.value(), self._topic.name, self._key, time.time(), self._warn
                        )
        except self._kafka.KafkaException as error:
            self._consumer = None
            raise ActionFailed(f"{self._topic.name}-decisions: {error}") from error
        return found

    def _warn(self, message: str, *details: object) -> None:
        """Say once that messages are passed over: whoever sends them may send many."""
        if not self._warned:
            log.warning(message, *details)
        self._warned = True

    def _assign(self) -> Any:
        """Return the consumer; None while there is no topic: the first decision makes it."""
        if self._consumer is None:
            settings = {"group.id": "penstock-agent", "enable.auto.commit": False}
            consumer = self._make_client(self._kafka.Consumer, {**settings, "auto.offset.reset": "earliest"})
            name = f"{self._topic.name}-decisions"
            known = consumer.list_topics(name, timeout=PATIENCE_SECONDS).topics[name].partitions
            if not known:
                consumer.close()
                return None
            since = int((time.time() - LOOK_BACK_SECONDS) * 1000)
            wanted = [self._kafka.TopicPartition(name, number, since) for number in known]
            found = consumer.offsets_for_times(wanted, timeout=PATIENCE_SECONDS)
            for one in found:
                # nothing so new is there: from what comes next on, which must not be found out later
                one.offset = one.offset if one.offset >= 0 else self._find_end(consumer, one.partition)
            self._next = {one.partition: one.offset for one in found}
            consumer.assign(found)
            self._consumer = consumer
        return self._consumer

    def _count_waiting(self, consumer: Any) -> int:
        """Count the messages in the topic that were not read."""
        return sum(self._find_end(consumer, number) - begin for number, begin in self._next.items())

    def _find_end(self, consumer: Any, number: int) -> int:
        place = self._kafka.TopicPartition(f"{self._topic.name}-decisions", number)
        _, end = consumer.get_watermark_offsets(place, timeout=PATIENCE_SECONDS)
        return int(end)

    def _make_client(self, kind: Any, further: Mapping[str, Any]) -> Any:
        conf = {"bootstrap.servers": self._topic.servers, "log_level": 0, **self._security, **further}
        try:
            return kind(conf)
        except (self._kafka.KafkaException, ValueError) as error:
            raise BadSettings(f"{SETTING}: {hide_secrets(str(error), conf)}") from None


def read_message(
    message: bytes | None,
    topic: str,
    key: ApplicationKey,
    now: float,
    warn: Callable[..., None] = log.warning,
) -> list[FleetDecision]:
    """Return the decision in a message; a bad one is passed over, since the controller decides again."""
    try:
        return [FleetDecision.from_row(key.open_decision(parse_decision(message or b"")), now)]
    except (BadInput, TypeError, ValueError) as error:
        warn("a message in %s-decisions is no decision: %s", topic, error)
        return []
