"""Offered rates: what the outside world sends to a source, told by its offsets or its files (pure)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.observe.sources.current_rate import Rises, current_rate

CumulativeRecords = Callable[[Any, str], float | None]
"""A decoded offset and the source's description → records offered up to it, None if it does not say."""


@dataclass(frozen=True, slots=True)
class OffsetReader:
    """Reads the offsets of the sources whose description starts with `prefix`."""

    prefix: str
    cumulative: CumulativeRecords
    listed: bool = False
    """Offsets say nothing of records; what waits is found by listing the place that the source reads."""

    def records(self, offset: Any, description: str) -> float | None:
        """Return records offered up to the offset; None where it does not say, or says what cannot be."""
        try:
            value = self.cumulative(offset, description)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return None
        return value if value is not None and math.isfinite(value) and value >= 0 else None


def _sum_of_partitions(offset: Any, _description: str) -> float | None:
    """Kafka: {"topic": {"partition": offset}}."""
    if not isinstance(offset, Mapping):
        return None
    return float(sum(sum(partitions.values()) for partitions in offset.values()))


def _read_field(field: str) -> CumulativeRecords:
    def read(offset: Any, _description: str) -> float | None:
        value = offset.get(field) if isinstance(offset, Mapping) else None
        return float(value) if isinstance(value, int | float) else None

    return read


_STATED_RATE = re.compile(r"\browsPerSecond=(\d+), rampUpTimeSeconds=0\b")


def _seconds_times_rate(offset: Any, description: str) -> float | None:
    """Spark's rate source counts seconds; its description states the records per second."""
    stated = _STATED_RATE.search(description)
    return float(stated.group(1)) * offset if stated and isinstance(offset, int | float) else None


_READERS: list[OffsetReader] = [
    OffsetReader("KafkaV2[", _sum_of_partitions),
    OffsetReader("KafkaSource", _sum_of_partitions),
    OffsetReader("RateStreamV2[", _seconds_times_rate),
    OffsetReader("RatePerMicroBatchStream[", _read_field("offset")),
    OffsetReader("FileStreamSource[", lambda _offset, _description: None, listed=True),
]
_OTHER = OffsetReader("", _read_field("records"))


def register_source(reader: OffsetReader) -> None:
    """Teach Penstock the offsets of one more kind of source; a later reader wins over an earlier one."""
    _READERS.insert(0, reader)


def reader_for(description: str) -> OffsetReader:
    """Return the reader for a source; one that nothing knows may still count `records` in its offsets."""
    return next((reader for reader in _READERS if description.startswith(reader.prefix)), _OTHER)


def explain_break(before: Any, after: Any) -> str | None:
    """Say why two offsets of Kafka cannot be compared: a partition went back or is gone, or a topic is new.

    A new topic is read from its beginning, but its offsets also count what was removed long ago.
    """
    if not (isinstance(before, Mapping) and isinstance(after, Mapping)):
        return None
    for topic, partitions in before.items():
        for partition, offset in partitions.items():
            now = after.get(topic, {}).get(partition)
            if now is None:
                return f"{topic} partition {partition} is gone"
            if now < offset:
                return f"{topic} partition {partition} went back from {offset:,} to {now:,}"
    return next((f"topic {topic} is new" for topic in after if before and topic not in before), None)


CLOCKS_APART = 60.0
"""Seconds between a trigger and the sample of its source; where they are more apart, two clocks are."""


def sampled_at(latest_offset: Any, trigger_start: float) -> float:
    """Return when the latest offset was taken: as the source says (`at_ms`), else the trigger's start."""
    stated = latest_offset.get("at_ms") if isinstance(latest_offset, Mapping) else None
    at = stated / 1000 if isinstance(stated, int | float) else trigger_start
    return at if abs(at - trigger_start) <= CLOCKS_APART else trigger_start


@dataclass(frozen=True, slots=True)
class OfferedSample:
    """Records offered up to a moment, and records read up to the end of that moment's batch."""

    at: float
    offered: float
    read: float


def since_reset(samples: Sequence[OfferedSample]) -> Sequence[OfferedSample]:
    """Return the samples since offsets or the clock last went back, as when a topic is made anew."""
    resets = (
        number
        for number, (earlier, later) in enumerate(pairwise(samples), start=1)
        if later.offered < earlier.offered or later.at < earlier.at
    )
    return samples[max(resets, default=0) :]


def offered_rate(samples: Sequence[OfferedSample], start: float, now: float) -> float:
    """Return records per second about the window [start, now); NaN if the samples do not tell.

    Nothing is known of the time after the newest sample, so the window is taken to end there.
    """
    samples = since_reset(samples)
    rising = [0, *(n for n, (a, b) in enumerate(pairwise(samples), 1) if b.offered > a.offered)]
    if len(samples) < 2 or not samples[-1].at > samples[0].at:
        return math.nan
    if len(rising) == 1:
        return 0.0
    newest, before = samples[rising[-1]], samples[rising[-1] - 1]
    rises = Rises(
        np.array([samples[number].at for number in rising]),
        np.array([samples[number].offered for number in rising]),
        newest.offered - before.offered,
        newest.at - before.at,
        least_gaps=1,
        known_since=samples[0].at,
    )
    end = samples[-1].at
    return current_rate(rises, end - (now - start), end)


def unread_records(offered_per_second: float, period: float, newest: OfferedSample, now: float) -> float:
    """Return records offered and not yet read, beyond what the trigger interval itself keeps waiting.

    A query that keeps up has between one and two periods' worth not yet committed: one that waits for
    the next trigger, one that is being worked on. Only what exceeds that is backlog.
    """
    arrived_since = offered_per_second * max(0.0, now - newest.at)
    waiting = newest.offered - newest.read + arrived_since
    return max(0.0, waiting - 2 * offered_per_second * period)
