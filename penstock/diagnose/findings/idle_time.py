"""Time in which no job ran, and slots that nobody used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.diagnose.log.application import ApplicationLog
from penstock.diagnose.whatif.capacity import measure_capacity

# Of an application that says it is interactive, a person's shortest pause; of any other, one that no program
# makes between its jobs.
SHORTEST_PAUSE_MS, LONG_PAUSE_MS = 1_000, 300_000
# Pauses that make up less of the time are not worth a sentence.
LEAST_SHARE = 0.05
_INTERACTIVE = re.compile(
    r"\bshell\b|(?:Spark|R)Shell\b|notebook|zeppelin|jupyter|\blivy|thrift|\binteractive\b", re.IGNORECASE
)
_REPL = re.compile(r"spark\.repl\.Main|HiveThriftServer2|SparkSQLCLIDriver")


@dataclass(frozen=True, slots=True)
class IdleTime:
    """The seconds in which no job ran, of all the seconds of the span."""

    seconds: float
    of_seconds: float

    @property
    def share(self) -> float:
        """The share of the span in which no job ran."""
        return self.seconds / self.of_seconds


@dataclass(frozen=True, slots=True)
class SlotUse:
    """Slot-seconds that were there, and those in which a task ran."""

    slot_seconds: float
    busy_seconds: float

    @property
    def idle_seconds(self) -> float:
        """The slot-seconds that nobody used."""
        return max(0.0, self.slot_seconds - self.busy_seconds)


def find_idle_time(log: ApplicationLog) -> IdleTime | None:
    """Return the pauses of a session; None for streaming, and where a program may have been at work."""
    if log.batches or any(job.query for job in log.jobs.values()) or log.end <= log.start:
        return None
    least = SHORTEST_PAUSE_MS if is_interactive(log) else LONG_PAUSE_MS
    pauses = [end - start for start, end in _list_pauses(log) if end - start >= least]
    found = IdleTime(sum(pauses) / 1000, (log.end - log.start) / 1000)
    return found if found.share >= LEAST_SHARE else None


def is_interactive(log: ApplicationLog) -> bool:
    """Return whether the application says that a person, or a server of queries, gives it jobs."""
    command = log.properties.get("sun.java.command", "")
    return bool(_INTERACTIVE.search(log.name) or _REPL.search(command))


def _list_pauses(log: ApplicationLog) -> Iterator[tuple[int, int]]:
    """Yield the spans without a job and without a SQL execution."""
    busy = [(job.started, job.ended) for job in log.jobs.values()]
    busy += [(one.started, one.ended) for one in log.executions]
    until = log.start
    for started, ended in sorted((start, end if end >= 0 else log.end) for start, end in busy):
        if min(started, log.end) > until:
            yield until, min(started, log.end)
        until = max(until, ended)
    if log.end > until:
        yield until, log.end


def measure_slot_use(log: ApplicationLog) -> SlotUse:
    """Return how many slot-seconds were there from the start to the end, and how many were used."""
    tasks = log.tasks
    finish = np.where(tasks["finish"] >= 0, tasks["finish"], log.end)
    length = np.minimum(finish, log.end) - np.maximum(tasks["launch"], log.start)
    busy = float(np.maximum(length, 0).sum()) / 1000
    return SlotUse(measure_capacity(log).integrate(log.start, log.end), busy)
