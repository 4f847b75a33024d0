"""Every metric named once, with its type, unit, labels and meaning, and how a status tells it.

A status is what `Autopilot.status` returns and the control socket answers, maybe of another version: what it
does not hold is left out. Every metric has the labels `application` and `name` before its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Status = Mapping[str, Any]
IDENTITY = ("application", "name")
MOST_SERIES = 50
"""Of one metric of one application: a job may start queries with new names without end."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by upper bound, each with all below it, the last bound infinite; and the sum of the values."""

    counts: tuple[tuple[float, float], ...]
    total: float


Reading = tuple[tuple[str, ...], float | Histogram]
"""The values of a metric's own labels, and its value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; `panel` is the title of the chart that shows it."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    unit: str
    help: str
    read: Callable[[Status], Iterable[Reading]]
    labels: tuple[str, ...] = ()
    panel: str = ""

    @property
    def all_labels(self) -> tuple[str, ...]:
        """Its labels after those that every metric has."""
        return (*IDENTITY, *self.labels)


def number(value: object) -> float | None:
    """Return a finite number; None for anything else that a status may hold."""
    if isinstance(value, int | float) and math.isfinite(value):
        return float(value)
    return None


def _map(holder: object, key: str) -> Mapping[str, Any]:
    found = holder.get(key) if isinstance(holder, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _list(holder: object, key: str) -> list[Mapping[str, Any]]:
    found = holder.get(key) if isinstance(holder, Mapping) else None
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list | tuple) else []


def _told(labels: tuple[object, ...], value: object) -> Iterator[Reading]:
    known = number(value)
    if known is not None:
        yield tuple(map(str, labels)), known


def _plain(key: str) -> Callable[[Status], Iterable[Reading]]:
    return lambda status: _told((), status.get(key))


def _total(key: str) -> Callable[[Status], Iterable[Reading]]:
    return lambda status: _told((), _map(status, "totals").get(key))


def _of_queries(key: str) -> Callable[[Status], Iterable[Reading]]:
    def read(status: Status) -> Iterator[Reading]:
        for query in _list(status, "queries"):
            yield from _told((query.get("name"),), query.get(key))

    return read


def _of_functions(key: str) -> Callable[[Status], Iterable[Reading]]:
    def read(status: Status) -> Iterator[Reading]:
        for name, function in _map(status, "functions").items():
            if isinstance(function, Mapping):
                yield from _told((name,), function.get(key))

    return read


def _counted(key: str, label: str) -> Callable[[Status], Iterable[Reading]]:
    def read(status: Status) -> Iterator[Reading]:
        for one in _list(_map(status, "totals"), key):
            yield from _told((one.get("kind"), one.get(label)), one.get("count"))

    return read


def _named(key: str) -> Callable[[Status], Iterable[Reading]]:
    def read(status: Status) -> Iterator[Reading]:
        for name, value in _map(_map(status, "totals"), key).items():
            yield from _told((name,), value)

    return read


def _read_heartbeat(status: Status) -> Iterator[Reading]:
    now, silent = number(status.get("now")), number(_map(status, "heartbeat").get("silent_seconds"))
    if now is not None and silent is not None:
        yield (), now - silent


def _read_executors(status: Status) -> Iterator[Reading]:
    held, slots = number(status.get("executors")), number(status.get("slots"))
    needed = number(status.get("slots_needed"))
    yield from _told(("held",), held)
    if held and slots and needed is not None:
        yield ("needed",), float(math.ceil(needed / (slots / held)))
    yield from _told(("allowed",), _map(status, "bounds").get("most"))


def _read_slots(status: Status) -> Iterator[Reading]:
    yield from _told(("held",), status.get("slots"))
    yield from _told(("needed",), status.get("slots_needed"))


def _read_waiting_seconds(status: Status) -> Iterator[Reading]:
    for query in _list(status, "queries"):
        backlog, offered = number(query.get("backlog_records")), number(query.get("offered_per_second"))
        if backlog is not None and offered:
            yield (str(query.get("name")),), backlog / offered


def _read_action_seconds(status: Status) -> Iterator[Reading]:
    for one in _list(_map(status, "totals"), "action_seconds"):
        bounds, counts = one.get("up_to"), one.get("counts")
        if not isinstance(bounds, list) or not isinstance(counts, list) or len(counts) != len(bounds) + 1:
            continue
        known = [number(count) or 0.0 for count in counts]
        below = [sum(known[: at + 1]) for at in range(len(known))]
        limits = [*(number(bound) or 0.0 for bound in bounds), math.inf]
        counted = tuple(zip(limits, below, strict=True))
        yield (str(one.get("kind")),), Histogram(counted, number(one.get("sum")) or 0.0)


def _read_info(status: Status) -> Iterator[Reading]:
    yield (str(status.get("policy", "")), str(status.get("mode", ""))), 1.0


RATES, BACKLOG, BATCHES, LATENCY = "Rates", "Backlog", "Batch time against trigger", "Latency"
SIZE, DECISIONS, ACTIONS = "Executors", "Decisions", "Actions"
TRUST, HEALTH, COST, AGES = "Prediction error", "Health", "Slots", "Time since"
SINCE_1970, FLAG = "seconds since 1970", "0 or 1"

METRICS = (
    Metric("penstock_application_info", "gauge", "", "Always 1; policy and mode are its labels.",
           _read_info, ("policy", "mode")),
    Metric("penstock_source_offered_records_per_second", "gauge", "records per second",
           "What the sources of a query offer.", _of_queries("offered_per_second"), ("query",), RATES),
    Metric("penstock_source_observed_records_per_second", "gauge", "records per second",
           "What a query reads from its sources.", _of_queries("observed_per_second"), ("query",), RATES),
    Metric("penstock_source_backlog_records", "gauge", "records",
           "Records that are offered and not read, beyond those that wait for the next two triggers.",
           _of_queries("backlog_records"), ("query",), BACKLOG),
    Metric("penstock_source_backlog_seconds", "gauge", "seconds",
           "The time in which as many records are offered as the backlog has.",
           _read_waiting_seconds, ("query",), BACKLOG),
    Metric("penstock_query_behind", "gauge", FLAG,
           "1 while batches take over 5 % longer than their period, or the backlog exceeds one period's "
           "records.",
           _of_queries("behind"), ("query",), HEALTH),
    Metric("penstock_batch_seconds", "gauge", "seconds", "The median time of the last window's batches.",
           _of_queries("batch_seconds"), ("query",), BATCHES),
    Metric("penstock_trigger_seconds", "gauge", "seconds", "The trigger interval.",
           _of_queries("period_seconds"), ("query",), BATCHES),
    Metric("penstock_latency_seconds", "gauge", "seconds", "From the arrival of a record to its result.",
           _of_queries("latency_seconds"), ("query",), LATENCY),
    Metric("penstock_function_instances", "gauge", "instances",
           "Instances at which a function of a pipeline works.",
           _of_functions("parallelism"), ("function",), SIZE),
    Metric("penstock_function_dead_letters_total", "counter", "records",
           "Records that a function could not serve.", _of_functions("dead_letters"), ("function",), HEALTH),
    Metric("penstock_executors", "gauge", "executors",
           "Executors: `held`, `needed` as the policy said last, `allowed` at most.",
           _read_executors, ("kind",), SIZE),
    Metric("penstock_slots", "gauge", "slots", "Task slots: `held`, and `needed` as the policy said last.",
           _read_slots, ("kind",), COST),
    Metric("penstock_slot_seconds_total", "counter", "slot-seconds",
           "Slots times the seconds for which they were held.", _total("slot_seconds"), (), COST),
    Metric("penstock_decisions_total", "counter", "decisions",
           "Decisions. `reason` names the guardrail of a rejection; of a change it is `policy`, `rollback` "
           "or `by-hand`; of the others it is empty.",
           _counted("decisions", "reason"), ("kind", "reason"), DECISIONS),
    Metric("penstock_actions_total", "counter", "actions", "Actions that ended, by how they ended.",
           _counted("actions", "status"), ("kind", "status"), ACTIONS),
    Metric("penstock_action_seconds", "histogram", "seconds", "How long actions took.",
           _read_action_seconds, ("kind",), ACTIONS),
    Metric("penstock_rollbacks_total", "counter", "rollbacks",
           "Changes that were undone because the application did worse.", _total("rollbacks"), (), ACTIONS),
    Metric("penstock_prediction_error_ratio", "gauge", "share",
           "By how much the effect of the last action missed what was expected of it: 0.1 is ten percent.",
           _named("prediction_errors"), ("figure",), TRUST),
    Metric("penstock_restart_timestamp_seconds", "gauge", SINCE_1970,
           "When a restart by Penstock ended last, by how it ended; also in an earlier run of the driver.",
           _named("restarts"), ("status",), AGES),
    Metric("penstock_loop_heartbeat_timestamp_seconds", "gauge", SINCE_1970,
           "When the autopilot's loop came round last.", _read_heartbeat, (), AGES),
    Metric("penstock_loop_hang_limit_seconds", "gauge", "seconds",
           "A loop that has not come round for longer hangs.",
           lambda status: _told((), _map(status, "heartbeat").get("hangs_after_seconds"))),
    Metric("penstock_failed_cycles_total", "counter", "cycles",
           "Cycles of the loop that ended with an error.", _total("failed_cycles"), (), HEALTH),
    Metric("penstock_paused", "gauge", FLAG, "1 while the autopilot is paused.", _plain("paused"), (),
           HEALTH),
    Metric("penstock_notifications_total", "counter", "notifications",
           "Notifications by what became of them: `sent`, `failed` after all tries, `dropped` unsent.",
           lambda status: (reading for name, count in _map(status, "notifications").items()
                           for reading in _told((name,), count)),
           ("result",), HEALTH),
)  # fmt: skip
BY_NAME = {metric.name: metric for metric in METRICS}
