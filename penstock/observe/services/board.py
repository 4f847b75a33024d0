"""The board of remote services: the newest reading of each, published by a call or by the scraper.

    penstock.publish_service("profiles", latency_seconds=0.35, error_ratio=0.02, throughput_per_second=900)

Any thread of the driver may publish. What a Python worker publishes stays in that process.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from penstock.errors import BadMetrics

if TYPE_CHECKING:
    from penstock.decide.sage.services import ServiceReading

LATE_SECONDS = 60.0
"""A reading up to this much older than the newest came late; an older one means that the clock went back."""


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
        """Return the readings that are at most so old; services that fell silent are left out."""
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
    """Publish how a remote service does; call it as often as you measure it."""
    from penstock.decide.sage.services import ServiceReading  # penstock itself is to be light

    given = (latency_seconds, error_ratio, throughput_per_second)
    if any(value < 0 or math.isinf(value) for value in given):
        raise BadMetrics(f"service {name!r}: latency, error ratio and throughput cannot be {given}")
    BOARD.publish(ServiceReading(name, time.time() if at is None else at, *given))
