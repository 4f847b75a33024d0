"""What each operator of a query is fed and can serve: the input of the policies that model queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import MetricWindow
from penstock.dataflow.propagation import target_rates
from penstock.dataflow.rates import OperatorRates, operator_rates
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, QueryWindow
from penstock.decide.inflow import Inflow, inflow
from penstock.decide.readings import shared_operator, tagged, unheld_operator, unread_source
from penstock.errors import BadMetrics


@dataclass(frozen=True, slots=True)
class Station:
    """One operator as a queue; rates per second, `service` and `observed_service` of one instance.

    `arrival` is what it is to serve; `fed` leaves out what it catches up with in a topic of its own, which
    says nothing about how irregular its arrivals are.
    """

    name: str
    instances: int
    arrival: float
    fed: float
    service: float
    observed_service: float
    scalable: bool


@dataclass(frozen=True, slots=True)
class QueryLoad:
    """The stations of a query, by name in topological order; sources are no stations, they only feed."""

    query: QueryWindow
    graph: LogicalGraph
    stations: Mapping[str, Station]
    offered_per_second: float


def query_loads(
    window: ApplicationWindow, unscalable: frozenset[str], catch_up_seconds: float
) -> tuple[QueryLoad, ...] | NotReady:
    """Read all queries of a window whose operators have instances of their own."""
    if not window.queries:
        return NotReady("no query is active", "a query that reports metrics")
    mistakable = shared_operator(window)
    if mistakable is not None:
        return mistakable
    loads: list[QueryLoad] = []
    for query in window.queries:
        load = _query_load(query, window.parallelism, unscalable, catch_up_seconds)
        if isinstance(load, NotReady):
            return load
        loads.append(load)
    return tuple(loads)


def instance_services(graph: LogicalGraph, metrics: MetricWindow, name: str) -> list[tuple[float, float]]:
    """(records, useful seconds) of each instance of an operator."""
    own = metrics.operator == graph.index[name]
    return list(zip(metrics.records_in[own].tolist(), metrics.useful_seconds[own].tolist(), strict=True))


def _query_load(
    query: QueryWindow, held: Mapping[str, int], unscalable: frozenset[str], catch_up_seconds: float
) -> QueryLoad | NotReady:
    graph = tagged(query.graph, unscalable)
    try:
        rates = (
            unheld_operator(graph, held) or unread_source(query) or operator_rates(graph, query.metrics, held)
        )
    except BadMetrics as error:
        return NotReady(str(error), "metrics of the graph's own operators")
    if isinstance(rates, NotReady):
        return rates
    stations = _stations(graph, rates, inflow(query.sources, query.overdue_records, catch_up_seconds))
    if not all(np.isfinite((s.arrival, s.service)).all() for s in stations):
        return NotReady("the target rates are too large to compute with", "plausible metrics")
    offered = sum(query.sources[name].offered_per_second for name in graph.sources)
    return QueryLoad(query, graph, {station.name: station for station in stations}, offered)


def _stations(graph: LogicalGraph, rates: OperatorRates, wanted: Inflow) -> list[Station]:
    """Arrivals by equation 8 of DS2: what is fed once all operators keep up, not what got through."""
    targets = target_rates(graph, rates, wanted.sources, wanted.beside)
    fed = target_rates(graph, rates, wanted.sources) if wanted.beside else targets
    return [
        Station(
            name=operator.name,
            instances=int(rates.instances[number]),
            arrival=float(targets[number]),
            fed=float(fed[number]),
            service=float(rates.true_processing[number] / rates.instances[number]),
            observed_service=float(rates.observed_processing[number] / rates.instances[number]),
            scalable=operator.scalable,
        )
        for number, operator in enumerate(graph.operators)
        if graph.upstream[number]
    ]
