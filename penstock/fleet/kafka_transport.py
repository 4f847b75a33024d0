"""How agents and controller meet in Kafka: windows in one topic, decisions in another."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from penstock.errors import ActionFailed, Unsupported
from penstock.fleet.agent import LOOK_BACK_SECONDS, FleetDecision
from penstock.fleet.places import Topic

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 2.0
"""How long a loop waits for a broker; what could not be sent waits for the next window."""
_AT_ONCE = 1_000


class KafkaTransport:
    """Topic NAME stands for NAME-windows and NAME-decisions; connects at the first use."""

    def __init__(self, topic: Topic) -> None:
        try:
            import confluent_kafka
        except ImportError:
            raise Unsupported("reporting to Kafka needs the package confluent-kafka") from None
        self._kafka, self._topic = confluent_kafka, topic
        self._producer = confluent_kafka.Producer(self._conf({"linger.ms": 5}))
        self._consumer: Any = None
        self._next: dict[int, int] = {}

    def publish(self, record: Mapping[str, Any]) -> None:
        """Send one window, and see that the broker has it."""
        failures: list[str] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failures.append(str(error))

        key, name = str(record["application"]), f"{self._topic.name}-windows"
        try:
            self._producer.produce(name, key=key, value=orjson.dumps(dict(record)), on_delivery=delivered)
        except (self._kafka.KafkaException, BufferError) as error:
            raise ActionFailed(f"{name}: {error}") from error
        if self._producer.flush(PATIENCE_SECONDS):
            self._producer.purge()
            raise ActionFailed(f"{name}: {self._topic.servers} took no message")
        if failures:
            raise ActionFailed(f"{name}: {failures[0]}")

    def decisions(self, application: str) -> Sequence[FleetDecision]:
        """Decisions for this application that came since the last call, or in the last hour."""
        found: list[FleetDecision] = []
        try:
            consumer = self._assigned()
            while consumer is not None and (waiting := self._waiting(consumer)):
                messages = consumer.consume(min(waiting, _AT_ONCE), timeout=PATIENCE_SECONDS)
                if not messages:
                    break
                for one in messages:
                    if one.error() is not None:
                        raise self._kafka.KafkaException(one.error())
                    self._next[one.partition()] = one.offset() + 1
                    if one.key() == application.encode():
                        found += decisions_from(one.value(), self._topic.name)
        except self._kafka.KafkaException as error:
            self._consumer = None
            raise ActionFailed(f"{self._topic.name}-decisions: {error}") from error
        return found

    def _assigned(self) -> Any:
        """The consumer; None while there is no topic, which the controller may make when it first decides."""
        if self._consumer is None:
            settings = {"group.id": "penstock-agent", "enable.auto.commit": False}
            consumer = self._kafka.Consumer(self._conf({**settings, "auto.offset.reset": "earliest"}))
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
                one.offset = one.offset if one.offset >= 0 else self._end(consumer, one.partition)
            self._next = {one.partition: one.offset for one in found}
            consumer.assign(found)
            self._consumer = consumer
        return self._consumer

    def _waiting(self, consumer: Any) -> int:
        """Messages that are in the topic and were not read."""
        return sum(self._end(consumer, number) - begin for number, begin in self._next.items())

    def _end(self, consumer: Any, number: int) -> int:
        place = self._kafka.TopicPartition(f"{self._topic.name}-decisions", number)
        _, end = consumer.get_watermark_offsets(place, timeout=PATIENCE_SECONDS)
        return int(end)

    def _conf(self, further: Mapping[str, Any]) -> dict[str, Any]:
        return {"bootstrap.servers": self._topic.servers, "log_level": 0, **further}


def decisions_from(message: bytes | None, topic: str) -> list[FleetDecision]:
    """The decision in a message; one that is none is passed over, since the controller decides again."""
    try:
        return [FleetDecision.from_row(orjson.loads(message or b""))]
    except (LookupError, TypeError, ValueError) as error:
        log.warning("a message in %s-decisions is no decision: %r", topic, error)
        return []
