"""Time in which no job ran, slots that nobody used, and executors that came after their jobs had begun."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from penstock.diagnose.findings.advice import Advice
from penstock.diagnose.log.application import ApplicationLog
from penstock.diagnose.log.failures import is_orderly_removal
from penstock.diagnose.whatif.capacity import count_task_cores, measure_capacity
from penstock.diagnose.whatif.scenarios import Rehearsal
from penstock.diagnose.whatif.task_graph import Anchor, SlotChange, TaskGraph
from penstock.units.figures import count_of

# Of an application that says it is interactive, a person's shortest pause; of any other, one that no program
# makes between its jobs.
SHORTEST_PAUSE_MS, LONG_PAUSE_MS = 1_000, 300_000
# Pauses that make up less of the time are not worth a sentence.
LEAST_SHARE = 0.05
_INTERACTIVE = re.compile(
    r"\bshell\b|(?:Spark|R)Shell\b|notebook|zeppelin|jupyter|\blivy|thrift|\binteractive\b", re.IGNORECASE
)
_REPL = re.compile(r"spark\.repl\.Main|HiveThriftServer2|SparkSQLCLIDriver")
_LEAST = "spark.dynamicAllocation.minExecutors"


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
    """Slot-seconds that were there, those in which a task ran, a slot's cores, and what a core costs."""

    slot_seconds: float
    busy_seconds: float
    cores_per_slot: int = 1
    price_per_core_hour: float | None = None

    @property
    def idle_seconds(self) -> float:
        """The slot-seconds that nobody used."""
        return max(0.0, self.slot_seconds - self.busy_seconds)

    @property
    def core_seconds(self) -> float:
        """The core-seconds that were there."""
        return self.slot_seconds * self.cores_per_slot

    @property
    def idle_core_seconds(self) -> float:
        """The core-seconds that nobody used."""
        return self.idle_seconds * self.cores_per_slot

    @property
    def cost(self) -> float | None:
        """The cost of all cores, if there is a price."""
        return self._price(self.core_seconds)

    @property
    def idle_cost(self) -> float | None:
        """The cost of the cores that nobody used, if there is a price."""
        return self._price(self.idle_core_seconds)

    def to_json(self) -> dict[str, float | None]:
        """Return what was there and what was idle, in seconds and in money."""
        names = ("slot_seconds", "busy_seconds", "idle_seconds", "core_seconds", "idle_core_seconds", "cost",
                 "idle_cost", "price_per_core_hour")  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def _price(self, core_seconds: float) -> float | None:
        price = self.price_per_core_hour
        return None if price is None else core_seconds / 3600 * price


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


def measure_slot_use(log: ApplicationLog, price_per_core_hour: float | None = None) -> SlotUse:
    """Return how many slot-seconds were there from the start to the end, and how many were used."""
    tasks = log.tasks
    finish = np.where(tasks["finish"] >= 0, tasks["finish"], log.end)
    length = np.minimum(finish, log.end) - np.maximum(tasks["launch"], log.start)
    busy = float(np.maximum(length, 0).sum()) / 1000
    there = measure_capacity(log).integrate(log.start, log.end)
    return SlotUse(there, busy, count_task_cores(log), price_per_core_hour)


def advise_on_late_executors(log: ApplicationLog, rehearsal: Rehearsal) -> Advice | None:
    """Advise to keep executors where some came while a job ran; in the replay all are there from the start.

    Executors that take the place of lost ones are no matter of their start.
    """
    lost = any(one.removed >= 0 and not is_orderly_removal(one.reason) for one in log.executors.values())
    jobs = [(job.started, job.ended) for job in log.jobs.values() if job.ended >= 0]
    added = [one.added for one in log.executors.values() if one.cores and one.added >= 0]
    late = [at for at in added if any(started < at < ended for started, ended in jobs)]
    if lost or not late:
        return None
    capacity, most = measure_capacity(log), rehearsal.graph.slots
    seconds = sum(ended - started for started, ended in jobs) / 1000
    mean = sum(capacity.integrate(*job) for job in jobs) / max(seconds, 1e-3)
    evidence = (
        f"{count_of(len(late), 'executor')} came while a job ran: {mean:.1f} of {count_of(most, 'slot')} "
        "were there on average."
    )
    elastic = log.properties.get("spark.dynamicAllocation.enabled") == "true"
    largest = max(one.cores for one in log.executors.values())
    settings = {_LEAST: str(max(1, most // largest))} if elastic else {}
    text = "Keep executors between jobs, or wait for them before the first one."
    return Advice("executors", text, evidence, settings, _bring_all_at_once)


def _bring_all_at_once(graph: TaskGraph) -> TaskGraph:
    return replace(graph, changes=(SlotChange(Anchor(None, False, 0.0), graph.slots),))
