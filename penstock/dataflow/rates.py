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


def operator_rates(
    graph: LogicalGraph, window: MetricWindow, expected_instances: Mapping[str, int] | None = None
) -> OperatorRates | NotReady:
    """Aggregate a window per operator; NotReady names what is missing, idle or timed at zero.

    A source has no input and may be idle: its rate is given from outside.
    """
    size, number = len(graph.operators), window.operator
    if len(number) and not (np.minimum.reduce(number) >= 0 and np.maximum.reduce(number) < size):
        raise BadMetrics(f"the window has an operator number outside 0 to {size - 1}")
    instances = np.bincount(number, minlength=size)
    all_worked = bool(window.useful_seconds.all())
    return (
        _missing_instances(graph, instances, expected_instances or {})
        or (None if all_worked else _untimed_records(graph, window))
        or _aggregate(graph, window, instances, all_worked)
    )


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
    """Records without useful time would make an infinite rate, and so shrink the operator to nothing."""
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

    def true(records: Floats) -> Floats:
        if weight is None:
            total = np.bincount(window.operator, weights=records / useful, minlength=size)
            return total.astype(np.float64, copy=False)
        rate = np.divide(records, useful, out=np.zeros(len(useful)), where=useful > 0)
        return np.bincount(window.operator, weights=rate, minlength=size) * weight

    def observed(records: Floats) -> Floats:
        return np.bincount(window.operator, weights=records, minlength=size) / window.seconds

    with np.errstate(over="ignore"):
        rates = OperatorRates(
            instances=instances,
            true_processing=true(window.records_in),
            true_output=true(window.records_out),
            observed_processing=observed(window.records_in),
            observed_output=observed(window.records_out),
        )
    return unusable_rates(graph, rates) or rates


def _weight_of_active(window: MetricWindow, instances: Integers) -> Floats:
    """For each operator, how many instances one that was active stands for.

    An instance without useful time has no true rate (equation 1). Counting it as zero would halve the
    capacity of its operator, so it is taken to be as fast as the average of the others.
    """
    useful, size = window.useful_seconds, len(instances)
    active = np.bincount(window.operator[useful > 0], minlength=size)
    return np.divide(instances, active, out=np.zeros(size), where=active > 0)


def unusable_rates(graph: LogicalGraph, rates: OperatorRates) -> NotReady | None:
    """Say which operator has no processing rate to divide by, or one beyond all measure."""
    processing, output = rates.true_processing.tolist(), rates.true_output.tolist()
    for name, feeds, taken, sent in zip(graph.names, graph.upstream, processing, output, strict=True):
        if math.isfinite(taken) and math.isfinite(sent) and (taken > 0 or not feeds):
            continue
        if taken == 0:
            return NotReady(f"{name!r} was idle: it processed no records", "records to measure it by")
        return NotReady(f"the rates of {name!r} are too large to compute with", "plausible metrics")
    return None
