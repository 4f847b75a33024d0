"""Target rates by one traversal of the graph, and the parallelism they need (DS2 equations 7 and 8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import Floats, Integers
from penstock.dataflow.rates import OperatorRates
from penstock.errors import BadMetrics

ROUNDING_TOLERANCE = 1e-9
"""Relative: sums and quotients of rates are off by some 1e-15 each, and 10.000000000000002 needs 10
instances, not 11; a whole percent of load is seven orders above it."""

MOST_INSTANCES = 2.0**53
"""Above this a float no longer counts whole instances; nothing real comes near."""


def target_rates(
    graph: LogicalGraph,
    rates: OperatorRates,
    source_rates: Mapping[str, float],
    beside: Mapping[str, float] | None = None,
) -> Floats:
    """Equation 8: the rate at which each operator is fed once all operators keep up; un-rounded.

    An operator tagged unscalable passes on no more than its capacity, so that what follows it is not
    scaled for records that cannot arrive.
    """
    capacity = np.where(graph.is_fixed, rates.true_processing, np.inf) if graph.has_fixed else None
    return target_rates_from_selectivity(graph, rates.selectivity, source_rates, capacity, beside)


def target_rates_from_selectivity(
    graph: LogicalGraph,
    selectivity: Floats,
    source_rates: Mapping[str, float],
    capacity: Floats | None = None,
    beside: Mapping[str, float] | None = None,
) -> Floats:
    """The traversal of equation 8 with selectivities given; for a source, its own output rate.

    `source_rates` are what sources put out, so the selectivity of a source is not applied again.
    `capacity` bounds what an operator takes in, and with it what it passes on. `beside` is what operators
    take in from queues of their own beside what they are fed; what follows them gets its share of that.
    """
    limits = [np.inf] * len(graph.names) if capacity is None else capacity.tolist()
    queued = beside or {}
    targets: list[float] = []
    flows: list[float] = []
    # Python floats: faster than indexing an array, and they grow to infinity without a warning
    for name, feeds, ratio, limit in zip(
        graph.names, graph.upstream, selectivity.tolist(), limits, strict=True
    ):
        if len(feeds) == 1:
            target = flows[feeds[0]]
        else:
            target = sum([flows[n] for n in feeds]) if feeds else _source_rate(source_rates, name)
        if feeds and queued:
            target += queued.get(name, 0.0)
        targets.append(target)
        flows.append((limit if limit < target else target) * ratio if feeds else target)
    return np.array(targets, dtype=np.float64)


def _source_rate(source_rates: Mapping[str, float], name: str) -> float:
    rate = source_rates.get(name)
    if rate is None:
        raise BadMetrics(f"no rate is given for the source {name!r}")
    if not 0 <= rate < np.inf:
        raise BadMetrics(f"the rate of source {name!r} is {rate}")
    return float(rate)


def exact_parallelism(graph: LogicalGraph, rates: OperatorRates, targets: Floats) -> Floats:
    """Equation 7 before its ceiling; a source keeps its instances, and so does an idle operator."""
    held = rates.instances.astype(np.float64)
    measured = ~graph.is_source & (rates.true_processing > 0)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.divide(targets * held, rates.true_processing, out=held, where=measured)


def instances_for(target: float, held: int, rate: float) -> float:
    """The same for one operator that is fed: how many of the instances held, which do `rate`, it needs."""
    return target * held / rate if rate > 0 else float(held)


def shortfall_ratio(sources: Iterable[tuple[float, float]]) -> float:
    """The largest ratio of wanted to observed source rate (section 4.2.1, target rate ratio).

    A source that put out nothing says nothing about how far the others fall short.
    """
    return max((wanted / observed for wanted, observed in sources if observed > 0), default=0.0)


def whole_instances(exact: NDArray[np.floating[Any]]) -> Integers:
    """The ceiling of equation 7, at least one instance, blind to floating-point dust."""
    rounded: Floats = np.ceil(np.minimum(exact, MOST_INSTANCES) * (1 - ROUNDING_TOLERANCE))
    return np.maximum(rounded, 1).astype(np.int64)


def whole_number(exact: float) -> int:
    """The same for one operator."""
    return max(1, math.ceil(min(exact, MOST_INSTANCES) * (1 - ROUNDING_TOLERANCE)))


def overloaded_shares(graph: LogicalGraph, rates: OperatorRates, targets: Floats) -> dict[str, float]:
    """Unscalable operators that cannot keep up: name → the share of their target that they can take."""
    if not graph.has_fixed:
        return {}
    short = graph.is_fixed & (rates.true_processing < targets * (1 - ROUNDING_TOLERANCE))
    return {
        graph.operators[number].name: float(rates.true_processing[number] / targets[number])
        for number in np.flatnonzero(short).tolist()
    }


def admitted_targets(graph: LogicalGraph, targets: Floats, shares: Mapping[str, float]) -> Floats:
    """Lower the targets of operators that feed nothing but overloaded ones to what those can take.

    An operator with one consumer that takes everything keeps its full target. Overloaded operators keep
    theirs too, so that the shortfall stays visible.
    """
    taken = [0.0] * len(graph.operators)
    admitted = targets.tolist()
    for number in reversed(range(len(taken))):
        operator, share = graph.operators[number], taken[number] or 1.0
        if operator.name not in shares:
            admitted[number] *= share
        own = share * shares.get(operator.name, 1.0)
        for feed in graph.upstream[number]:
            taken[feed] = max(taken[feed], own)
    return np.array(admitted, dtype=np.float64)
