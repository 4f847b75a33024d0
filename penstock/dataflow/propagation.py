"""DS2's scaling model: target rates in one traversal of the graph (equation 8), instances (equation 7)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import Floats
from penstock.dataflow.rates import OperatorRates
from penstock.errors import BadMetrics

ROUNDING_TOLERANCE = 1e-9
"""Relative: sums and quotients of rates are off by some 1e-15 each, and 10.000000000000002 needs 10
instances, not 11; a whole percent of load is seven orders above it."""

MOST_INSTANCES = 2.0**53
"""Above this a float no longer counts whole instances; nothing real comes near."""

Rate = TypeVar("Rate", float, Floats)
"""Records per second: one number, or a column with a number for each moment."""


def propagate_targets(
    graph: LogicalGraph,
    rates: OperatorRates,
    source_rates: Mapping[str, float],
    queued: Mapping[str, float] | None = None,
) -> list[float]:
    """Find the rate at which each operator is fed once all keep up (equation 8), in topological order.

    An operator tagged unscalable passes on no more than its capacity, so that what follows it is not
    scaled for records that cannot arrive.
    """
    for name in graph.sources:
        _check_source(source_rates, name)
    capacity = {
        graph.names[number]: float(rates.true_processing[number])
        for number in (np.flatnonzero(graph.is_fixed).tolist() if graph.has_fixed else ())
    }
    return propagate_rates(graph, rates.selectivity.tolist(), source_rates, capacity, queued)


def propagate_rates(
    graph: LogicalGraph,
    selectivity: Sequence[float],
    source_rates: Mapping[str, Rate],
    capacity: Mapping[str, float] | None = None,
    queued: Mapping[str, float] | None = None,
) -> list[Rate]:
    """Add up what feeds each operator, from the sources on (equation 8).

    `source_rates` are what sources put out, so the selectivity of a source is not applied. `capacity` bounds
    what an operator takes in and passes on. `queued` is what an operator takes in from a queue of its own
    beside what it is fed; what follows it gets its share of that.
    """
    capacity, queued = capacity or {}, queued or {}
    targets: list[Rate] = []
    flows: list[Rate] = []
    for name, feeds, ratio in zip(graph.names, graph.upstream, selectivity, strict=True):
        if not feeds:
            targets.append(source_rates[name])
            flows.append(source_rates[name])
            continue
        target = flows[feeds[0]]
        for feed in feeds[1:]:
            target = target + flows[feed]
        if queued:
            target = target + queued.get(name, 0.0)
        targets.append(target)
        flows.append((_limit(target, capacity[name]) if name in capacity else target) * ratio)
    return targets


def _limit(rate: Rate, most: float) -> Rate:
    # Python's own numbers grow to infinity without a warning
    return np.minimum(rate, most) if isinstance(rate, np.ndarray) else min(rate, most)


def _check_source(source_rates: Mapping[str, float], name: str) -> None:
    rate = source_rates.get(name)
    if rate is None:
        raise BadMetrics(f"no rate is given for the source {name!r}")
    if not 0 <= rate < math.inf:
        raise BadMetrics(f"the rate of source {name!r} is {rate}")


def size_operators(graph: LogicalGraph, rates: OperatorRates, targets: Sequence[float]) -> list[float]:
    """Find the instances that each operator needs (equation 7 before its ceiling).

    A source keeps its instances, and so does an operator without a true rate.
    """
    # one by one: for tens of operators, as graphs have, columns cost more than they save
    held, true_rates = rates.instances.tolist(), rates.true_processing.tolist()
    return [
        target * count / rate if feeds and rate > 0 else float(count)
        for feeds, target, count, rate in zip(graph.upstream, targets, held, true_rates, strict=True)
    ]


def round_up(exact: float) -> int:
    """Take the ceiling of equation 7, at least one instance, blind to floating-point dust."""
    return max(1, math.ceil(min(exact, MOST_INSTANCES) * (1 - ROUNDING_TOLERANCE)))


def correct_shortfall(
    graph: LogicalGraph,
    wanted: list[int],
    held: Sequence[int],
    inputs: Iterable[tuple[float, float]],
    allowed_ratio: float,
) -> list[int]:
    """Scale all operators by the shortfall where the model sees no need for more (section 4.2.1).

    The shortfall is the largest ratio of wanted to observed rate among `inputs`; an `allowed_ratio` of 1 is
    the strictest. An input of which nothing was read says nothing about how far the others fall short.
    """
    if any(want > have for want, have in zip(wanted, held, strict=True)):
        return wanted
    ratio = max((rate / observed for rate, observed in inputs if observed > 0), default=0.0)
    if ratio <= allowed_ratio:
        return wanted
    return [round_up(n * ratio) if scaled else n for n, scaled in zip(wanted, graph.scaled, strict=True)]


def find_bottlenecks(graph: LogicalGraph, rates: OperatorRates, targets: Sequence[float]) -> dict[str, float]:
    """Find unscalable operators that cannot keep up: name → the share of their target that they can take."""
    if not graph.has_fixed:
        return {}
    capacity = rates.true_processing.tolist()
    return {
        graph.names[number]: capacity[number] / targets[number]
        for number in np.flatnonzero(graph.is_fixed).tolist()
        if capacity[number] < targets[number] * (1 - ROUNDING_TOLERANCE)
    }


def limit_targets(
    graph: LogicalGraph, targets: Sequence[float], bottlenecks: Mapping[str, float]
) -> list[float]:
    """Lower the targets of operators that feed nothing but bottlenecks to what those can take.

    An operator with one consumer that takes everything keeps its full target. Bottlenecks keep theirs too,
    so that the shortfall stays visible.
    """
    taken = [0.0] * len(graph.operators)
    limited = list(targets)
    for number in reversed(range(len(taken))):
        name, share = graph.names[number], taken[number] or 1.0
        if name not in bottlenecks:
            limited[number] *= share
        own = share * bottlenecks.get(name, 1.0)
        for feed in graph.upstream[number]:
            taken[feed] = max(taken[feed], own)
    return limited
