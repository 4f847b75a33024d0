"""Feeds: send a job's records by the clock, whether or not the job reads them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from penstock.simulate.profiles import parse_profile, records_offered
from penstock_lab.jobs.contents import Fed, JobContent
from penstock_lab.workloads.outlets import QUEUE, TopicWriter, dump_json, write_batch


@dataclass(frozen=True, slots=True)
class Slice:
    """Records first … first+count-1, which are sent together at the end of their span of time."""

    number: int
    first: int
    count: int
    due: float
    """Seconds after the feed's start."""


def cut_feed(fed: Fed, every_seconds: float) -> Iterator[Slice]:
    """Cut a feed into the records of each span of so many seconds; spans without records are left out."""
    profile, first = parse_profile(fed.profile), 0
    for number in range(math.ceil(fed.seconds / every_seconds)):
        due = min((number + 1) * every_seconds, fed.seconds)
        end = records_offered(profile, due)
        if end > first:
            yield Slice(number, first, end - first, due)
        first = end


class Outlet(Protocol):
    """Where the slices of one stream go."""

    def send(self, part: Slice, batch: pa.RecordBatch) -> None:
        """Send one slice's records."""


@dataclass(frozen=True, slots=True)
class DirectoryOutlet:
    """A directory that gets one file a slice, which appears whole and is named by the slice's number."""

    path: Path
    form: str = "json"

    def send(self, part: Slice, batch: pa.RecordBatch) -> None:
        """Write one file."""
        write_batch(batch, self.path / f"part-{part.number:06d}.{self.form}")


class TopicOutlet:
    """A Kafka topic; records go to its partitions in turn, by their numbers."""

    def __init__(self, brokers: str, topic: str, partitions: int) -> None:
        self._writer, self._partitions = TopicWriter(brokers, topic), partitions

    def send(self, part: Slice, batch: pa.RecordBatch) -> None:
        """Write the records as JSON objects, and wait until all are acknowledged."""
        for start in range(0, batch.num_rows, QUEUE):
            rows = batch.slice(start, QUEUE).to_pylist()
            self._writer.write(map(dump_json, rows), [row["number"] % self._partitions for row in rows])


@dataclass(frozen=True, slots=True)
class Sent:
    """How far a feed has got."""

    records: int
    seconds: float
    """Of the profile."""
    most_late_seconds: float
    """By how much a slice was sent later than it was due, at worst."""


Pace = Callable[[float], float]
"""Waits until so many seconds after the start; returns by how many seconds it is late."""


def pace_by_clock(start: float) -> Pace:
    """Return a pace that begins at a moment, in seconds since the epoch."""

    def wait(due: float) -> float:
        left = start + due - time.time()
        if left > 0:
            time.sleep(left)
        return max(0.0, time.time() - start - due)

    return wait


def send_at_once(_due: float) -> float:
    """Never wait: the whole feed is a backlog."""
    return 0.0


def run_feed(
    content: JobContent, fed: Fed, every_seconds: float, outlets: dict[str, Outlet], pace: Pace
) -> Iterator[Sent]:
    """Send everything, slice after slice; says after each how far it is."""
    late = 0.0
    for part in cut_feed(fed, every_seconds):
        # made before it is due, so that a large slice is not late by the time that making it takes
        batches = {name: content.batch(fed, name, part.first, part.count) for name in outlets}
        late = max(late, pace(part.due))
        for name, batch in batches.items():
            if batch.num_rows:
                outlets[name].send(part, batch)
        yield Sent(part.first + part.count, part.due, late)
