"""What remote services do for an application: a call that publishes it, and a reader of Prometheus texts.

    penstock.services.publish("profiles", latency_seconds=0.35, error_ratio=0.02, throughput_per_second=900)

The newest reading of each service is kept until it is taken; any thread of the driver may publish. What a
Python worker publishes stays in that process.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.errors import BadMetrics

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"^({_NAME})(?:\{{(.*)\}})?\s+(\S+)(?:\s+(-?\d+))?\s*$")
_LABEL = re.compile(rf'\s*({_NAME})\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


@dataclass(frozen=True, slots=True)
class ServiceReading:
    """One service at one time; what was not said is NaN."""

    name: str
    at: float
    latency_seconds: float = math.nan
    error_ratio: float = math.nan
    throughput_per_second: float = math.nan


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a Prometheus text."""

    name: str
    labels: Mapping[str, str]
    value: float


LATE_SECONDS = 60.0
"""By so much a reading may come after a newer one; what seems older yet is from a clock that went back."""


class ServiceBoard:
    """The newest reading of each service."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readings: dict[str, ServiceReading] = {}

    def publish(self, reading: ServiceReading) -> None:
        """Keep a reading, unless a newer one is there."""
        with self._lock:
            known = self._readings.get(reading.name)
            if known is None or not 0 < known.at - reading.at <= LATE_SECONDS:
                self._readings[reading.name] = reading

    def newest(self, now: float, not_older_than: float) -> dict[str, ServiceReading]:
        """Service → its reading; one that fell silent says nothing any more, nor one of a later clock."""
        with self._lock:
            return {n: r for n, r in self._readings.items() if abs(now - r.at) <= not_older_than}


BOARD = ServiceBoard()
"""Where `publish` puts readings in this process."""


def publish(
    name: str,
    *,
    latency_seconds: float = math.nan,
    error_ratio: float = math.nan,
    throughput_per_second: float = math.nan,
    at: float | None = None,
) -> None:
    """Say how a remote service does; call it as often as it is measured."""
    given = (latency_seconds, error_ratio, throughput_per_second)
    if any(value < 0 or math.isinf(value) for value in given):
        raise BadMetrics(f"service {name!r}: latency, error ratio and throughput cannot be {given}")
    BOARD.publish(ServiceReading(name, time.time() if at is None else at, *given))


def parse_prometheus(text: str) -> list[Sample]:
    """The samples of a Prometheus text (exposition format 0.0.4); a line that is none is an error."""
    samples = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _SAMPLE.match(line.strip())
        if match is None:
            raise BadMetrics(f"line {number} is no Prometheus sample: {line.strip()[:80]!r}")
        samples.append(Sample(match[1], read_labels(match[2] or "", number), _value(match[3], number)))
    return samples


def read_labels(text: str, number: int) -> dict[str, str]:
    """What stands between the braces of a sample; an error names the line."""
    return dict(_pairs(text, number))


def _pairs(text: str, number: int) -> Iterator[tuple[str, str]]:
    place = 0
    while place < len(text.rstrip()):
        match = _LABEL.match(text, place)
        if match is None:
            raise BadMetrics(f"line {number} has a label that cannot be read: {text[place:][:80]!r}")
        yield match[1], re.sub(r'\\[n"\\]', lambda found: _ESCAPED[found[0]], match[2])
        place = match.end()


def _value(text: str, number: int) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadMetrics(f"line {number} has the value {text!r}, which is no number") from None
