"""True and observed rates of operators, from the metrics of their instances (DS2 equations 1 to 6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import Floats, Integers, MetricWindow
from penstock.dataflow.readiness import NotReady
from penstock.errors import BadMetrics

SATURATED = 0.85
"""Share of a window: useful times are wrong by the rest, so whoever works longer may have no time left."""

UNEVEN = 1.5
"""The busiest instance works so many times as long as the typical one, or longer, where the load is uneven.

With less, headroom and further instances still help; a key with a twentieth of all records makes it two with
20 instances, and then no number of instances does the work of 20.
"""


@dataclass(frozen=True, slots=True)
class UnevenLoad:
    """An operator of which few instances work far longer than the others, so that more would not help.

    `busy_instances` of its `instances` do. `busiest` and `typical` are shares of the window in which such an
    instance works; `gets_more` tells whether the busiest got more records, as with a hot key, or was slow.
    """

    operator: str
    instances: int
    busy_instances: int
    busiest: float
    typical: float
    gets_more: bool

    @property
    def is_hot(self) -> bool:
        """Whether the busiest instance has no time left."""
        return self.busiest >= SATURATED

    def __str__(self) -> str:
        """Say how many instances are busy, how much, why, and that more of them would not help."""
        are = "is" if self.busy_instances == 1 else "are"
        other = "the other" if self.instances == 2 else "the median"
        busy = f"{are} busy {min(1.0, self.busiest):.0%} of the time, {other} {self.typical:.0%}"
        why = "with more records: a key is hot, or partitions are uneven" if self.gets_more else "being slow"
        counted = f"{self.busy_instances} of {self.instances} instances"
        return f"{self.operator}: {counted} {busy} ({why}); more instances would not help"


@dataclass(frozen=True, slots=True)
class OperatorRates:
    """Rates in records per second, summed over an operator's instances; one value per operator.

    The values stand in the graph's topological order; `instances` counts those that reported.
    """

    instances: Integers
    true_processing: Floats
    true_output: Floats
    observed_processing: Floats
    observed_output: Floats

    @property
    def selectivity(self) -> Floats:
        """Records out per record in, as equation 8 takes it; zero where nothing was processed."""
        processing, output = self.true_processing, self.true_output
        with np.errstate(over="ignore"):
            return np.divide(output, processing, out=np.zeros(len(output)), where=processing > 0)


def measure_rates(
    graph: LogicalGraph, window: MetricWindow, expected_instances: Mapping[str, int] | None = None
) -> OperatorRates | NotReady:
    """Aggregate a window per operator; NotReady names what is missing, idle or timed at zero.

    A source has no input and may be idle: its rate is given from outside.
    """
    size, number = len(graph.operators), window.operator
    if not _knows_operators(graph, window):
        raise BadMetrics(f"the window has an operator number outside 0 to {size - 1}")
    instances = np.bincount(number, minlength=size)
    all_worked = bool(window.useful_seconds.all())
    return (
        _missing_instances(graph, instances, expected_instances or {})
        or (None if all_worked else _untimed_records(graph, window))
        or _aggregate(graph, window, instances, all_worked)
    )


def _knows_operators(graph: LogicalGraph, window: MetricWindow) -> bool:
    number, size = window.operator, len(graph.operators)
    return not len(number) or bool(np.minimum.reduce(number) >= 0 and np.maximum.reduce(number) < size)


def _missing_instances(
    graph: LogicalGraph, instances: Integers, expected: Mapping[str, int]
) -> NotReady | None:
    for name, reported in zip(graph.names, instances.tolist(), strict=True):
        wanted = expected.get(name)
        if wanted is None and reported == 0:
            return NotReady(f"no instance of {name!r} reported", "a report of each instance")
        if wanted is not None and reported != wanted:
            reason = f"{reported} instances of {name!r} reported, {wanted} are expected"
            return NotReady(reason, "one report of each instance")
    return None


def _untimed_records(graph: LogicalGraph, window: MetricWindow) -> NotReady | None:
    """Reject records without useful time: their infinite rate would shrink the operator to nothing."""
    untimed = (window.useful_seconds == 0) & ((window.records_in > 0) | (window.records_out > 0))
    if not untimed.any():
        return None
    name = graph.operators[window.operator[untimed][0]].name
    return NotReady(f"{name!r} processed records in zero useful time", "a window with useful time")


def _aggregate(
    graph: LogicalGraph, window: MetricWindow, instances: Integers, all_worked: bool
) -> OperatorRates | NotReady:
    size, useful = len(graph.operators), window.useful_seconds
    weight = None if all_worked else _weight_of_active(window, instances)

    def sum_true(records: Floats) -> Floats:
        if weight is None:
            total = np.bincount(window.operator, weights=records / useful, minlength=size)
            return total.astype(np.float64, copy=False)
        rate = np.divide(records, useful, out=np.zeros(len(useful)), where=useful > 0)
        return np.bincount(window.operator, weights=rate, minlength=size) * weight

    def sum_observed(records: Floats) -> Floats:
        return np.bincount(window.operator, weights=records, minlength=size) / window.seconds

    with np.errstate(over="ignore"):
        rates = OperatorRates(
            instances=instances,
            true_processing=sum_true(window.records_in),
            true_output=sum_true(window.records_out),
            observed_processing=sum_observed(window.records_in),
            observed_output=sum_observed(window.records_out),
        )
    return find_unusable_rate(graph, rates) or rates


def _weight_of_active(window: MetricWindow, instances: Integers) -> Floats:
    """Count, for each operator, the instances that one active instance stands for.

    An instance without useful time has no true rate (equation 1). Counting it as zero would halve the
    capacity of its operator, so it is taken to be as fast as the average of the others.
    """
    useful, size = window.useful_seconds, len(instances)
    active = np.bincount(window.operator[useful > 0], minlength=size)
    return np.divide(instances, active, out=np.zeros(size), where=active > 0)


def find_unusable_rate(graph: LogicalGraph, rates: OperatorRates) -> NotReady | None:
    """Name the first operator that has no processing rate to divide by, or rates that are not finite."""
    processing, output = rates.true_processing.tolist(), rates.true_output.tolist()
    for name, feeds, taken, sent in zip(graph.names, graph.upstream, processing, output, strict=True):
        if math.isfinite(taken) and math.isfinite(sent) and (taken > 0 or not feeds):
            continue
        if taken == 0:
            return NotReady(f"{name!r} was idle: it processed no records", "records to measure it by")
        return NotReady(f"the rates of {name!r} are too large to compute with", "plausible metrics")
    return None


def find_busiest_shares(graph: LogicalGraph, window: MetricWindow) -> dict[str, float]:
    """Find operators whose instances share their work unevenly (DS2 section 4.2.3): name → busiest's share.

    The share is that of the window in which the busiest instance works. Fewer than half of the instances are
    busy then: if half of them or more are, it is partitions that do not divide evenly, and more instances
    help. Sources do not count.
    """
    size, number, work = len(graph.operators), window.operator, window.useful_seconds
    if not _knows_operators(graph, window):
        return {}
    counts = np.bincount(number, minlength=size)
    if counts.max(initial=0) < 2:
        return {}
    busiest = np.zeros(size)
    np.maximum.at(busiest, number, work)
    # one is busy where 1.5 times its work is more than the busiest's; the upper median must not be
    busy = np.bincount(number, weights=work * UNEVEN > busiest[number], minlength=size)
    uneven = (counts > 1) & (busiest > 0) & (busy <= np.maximum(1, (counts - 1) // 2)) & ~graph.is_source
    found = np.flatnonzero(uneven)
    shares = (busiest[found] / window.seconds).tolist()
    return {graph.names[one]: share for one, share in zip(found.tolist(), shares, strict=True)}


def find_uneven_loads(graph: LogicalGraph, window: MetricWindow) -> dict[str, UnevenLoad]:
    """Describe the operators with an uneven load, by name."""
    return describe_uneven_loads(graph, window, find_busiest_shares(graph, window))


def describe_uneven_loads(
    graph: LogicalGraph, window: MetricWindow, uneven: Mapping[str, float]
) -> dict[str, UnevenLoad]:
    """Describe some of the operators that `find_busiest_shares` found; their instances are sorted for it."""
    if not uneven:
        return {}
    place = np.full(len(graph.operators), -1)
    place[[graph.index[name] for name in uneven]] = np.arange(len(uneven))
    described = np.flatnonzero(place[window.operator] >= 0)
    own, work = place[window.operator[described]], window.useful_seconds[described]
    order = np.lexsort((work, own))
    work, records = work[order], window.records_in[described][order]
    counts = np.bincount(own, minlength=len(uneven))
    # of each operator the busiest instance and the upper median, of two instances the other one
    last = np.cumsum(counts) - 1
    typical = last - np.maximum(1, (counts - 1) // 2)
    busy = np.bincount(own[order], weights=work * UNEVEN > np.repeat(work[last], counts))
    columns = (
        counts,
        busy.astype(np.int64),
        np.fromiter(uneven.values(), np.float64, len(uneven)),
        work[typical] / window.seconds,
        records[last] >= UNEVEN * records[typical],
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return {name: UnevenLoad(name, *row) for name, row in zip(uneven, rows, strict=True)}


def find_growing_queues(graph: LogicalGraph, window: MetricWindow, least_share: float) -> list[str]:
    """Find operators before which records pile up: they take less than this share of what they are fed.

    Only one with an instance that has no time left counts: others are fed just a part of what is sent.
    """
    size = len(graph.operators)
    if not _knows_operators(graph, window):
        return []
    longest = np.zeros(size)
    np.maximum.at(longest, window.operator, window.useful_seconds)
    full = longest >= SATURATED * window.seconds
    if not full.any():
        return []
    taken = np.bincount(window.operator, weights=window.records_in, minlength=size)
    sent = np.bincount(window.operator, weights=window.records_out, minlength=size)
    return [
        name
        for number, (name, feeds) in enumerate(zip(graph.names, graph.upstream, strict=True))
        if feeds and full[number] and taken[number] < least_share * sum(sent[feed] for feed in feeds)
    ]
