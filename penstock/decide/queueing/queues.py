"""Waiting and response times of queues: Allen-Cunneen for GI/G/k, and the exact M/M/k.

Equations are those of Elastic Pulsar Functions (Auto-DaSP 2021), section 4.2, which asks for the variation of
arrivals and services. Rates are per second; `service` is the rate of one server, so k servers carry
k·service. A queue that is fed as fast as it can serve has no steady state: its times are infinite.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median

import numpy as np

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import MetricWindow
from penstock.dataflow.propagation import propagate_targets, round_up
from penstock.dataflow.rates import OperatorRates, measure_rates
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import OperatorBatches, OperatorQuery, OperatorWindow
from penstock.decide.ds2.policy import Inflow, find_inflow
from penstock.decide.readings import (
    find_shared_operator,
    find_unheld_operator,
    find_unread_source,
    mark_unscalable,
)
from penstock.errors import BadMetrics

BUSY = 0.7
"""The load at which equation 2 changes its branch."""
UNKNOWN = 1.0
"""Squared coefficient until there is evidence: that of Poisson arrivals and of exponential service."""

MEDIAN_OF_SQUARE = 0.4549
"""Median of the square of a standard normal variable: turns a median of squares into a variance."""

FEWEST_SAMPLES = 4
"""The median of fewer squares is mostly luck."""

MOST_VARIATION = 100.0
"""A larger squared coefficient comes from a change of load or speed, not from irregularity."""


def utilisation(servers: int, arrival: float, service: float) -> float:
    """Return the share ρ of their time that the servers work."""
    return arrival / (servers * service) if service > 0 else math.inf


def waiting_probability(servers: int, load: float) -> float:
    """Return the probability P_k that a record finds all servers busy (Elastic Pulsar Functions, equation 2).

    Below 0.7 the exponent is (k + 1) / 2, as in the approximation that the paper cites: it gives M/M/1 its
    exact ρ and meets the other branch at 0.7. Read as √(k + 1), it would give 0.375 for M/M/1 at half load.
    """
    if load >= 1:
        return 1.0
    if load >= BUSY:
        return (math.pow(load, servers) + load) / 2
    return math.pow(load, (servers + 1) / 2)


def waiting_seconds(
    servers: int,
    arrival: float,
    service: float,
    arrival_variation: float = 1.0,
    service_variation: float = 1.0,
) -> float:
    """Return the wait by Allen-Cunneen (equation 1): T_q ≈ (c_a² + c_s²) / 2k · P_k / (μ (1 − ρ)).

    The variations are squared coefficients: 1 for Poisson arrivals or exponential service, 0 for constant.
    """
    load = utilisation(servers, arrival, service)
    if load >= 1:
        return math.inf
    spread = (arrival_variation + service_variation) / (2 * servers)
    return spread * waiting_probability(servers, load) / (service * (1 - load))


def response_seconds(
    servers: int,
    arrival: float,
    service: float,
    arrival_variation: float = 1.0,
    service_variation: float = 1.0,
) -> float:
    """Return the response time, one service and the wait before it (equation 3)."""
    waiting = waiting_seconds(servers, arrival, service, arrival_variation, service_variation)
    return 1 / service + waiting if service > 0 else math.inf


def batched_response_seconds(load: float, trigger: float, fixed: float) -> float:
    """Return the response time of an operator that reads its records in batches, one after the other.

    A batch reads what came since the one before. Of a period T it takes b = fixed + ρT, and the next begins
    when it has ended, at the earliest a trigger after it: T = max(trigger, fixed / (1 − ρ)). A record waits
    T/2 on average for its batch, and then is in it.
    """
    if load >= 1:
        return math.inf
    period = max(trigger, fixed / (1 - load))
    return period / 2 + fixed + load * period


def erlang_c(servers: int, arrival: float, service: float) -> float:
    """Return the exact probability to wait in M/M/k, by Erlang B's recursion, which cannot overflow."""
    load = utilisation(servers, arrival, service)
    if load >= 1:
        return 1.0
    offered, blocked = arrival / service, 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1 - load * (1 - blocked))


def markov_response_seconds(servers: int, arrival: float, service: float) -> float:
    """Return the exact mean response time of M/M/k: 1/μ + C(k, λ/μ) / (kμ − λ)."""
    if utilisation(servers, arrival, service) >= 1:
        return math.inf
    return 1 / service + erlang_c(servers, arrival, service) / (servers * service - arrival)


def least_stable_servers(arrival: float, service: float, most_load: float = 1.0) -> int:
    """Return the fewest servers with ρ below 1 and at most `most_load`; at least one."""
    if arrival <= 0:
        return 1
    exact = arrival / (service * most_load)
    # dust of the division must not cost an instance, but a load of exactly one is no steady state
    servers = round_up(exact)
    return servers if utilisation(servers, arrival, service) < 1 - 1e-9 else servers + 1


@dataclass(slots=True)
class Variation:
    """The irregularity of one operator's arrivals and services over recent windows.

    A window only counts arrivals, so the variation of the times between them is taken from the dispersion
    of the counts, to which it tends as windows get longer: c_a² = Var(N) / E(N). The variance comes from
    differences of neighbours, which a slow trend does not inflate, and a median ignores a single step of the
    load. The mean service time of an instance over n records has the variance σ² / n, so n (mᵢ − m)² / m²
    estimates c_s².
    """

    windows_kept: int = 20
    _arrivals: deque[tuple[float, float]] = field(default_factory=deque)
    _services: deque[tuple[tuple[float, float], ...]] = field(default_factory=deque)

    def remember(
        self, arrival_per_second: float, seconds: float, instances: Iterable[tuple[float, float]]
    ) -> None:
        """Take in the arrivals of one window, and (records, useful seconds) of each instance."""
        self._arrivals.append((arrival_per_second, seconds))
        self._services.append(tuple((n, useful) for n, useful in instances if n > 0 and useful > 0))
        while len(self._arrivals) > self.windows_kept:
            self._arrivals.popleft()
            self._services.popleft()

    @property
    def of_arrivals(self) -> float:
        """c_a², the squared coefficient of variation of the times between arrivals."""
        rates, seconds = zip(*self._arrivals, strict=True) if self._arrivals else ((0.0,), (0.0,))
        rate = fmean(rates)
        return estimate_variation(square_steps(rates), fmean(seconds) / rate) if rate > 0 else UNKNOWN

    @property
    def of_services(self) -> float:
        """c_s², the squared coefficient of variation of service times."""
        samples = [sample for window in self._services for sample in window]
        if not samples:
            return UNKNOWN
        mean = sum(useful for _, useful in samples) / sum(records for records, _ in samples)
        return estimate_variation([n * (useful / n / mean - 1) ** 2 for n, useful in samples], 1.0)


def estimate_variation(squares: Sequence[float], scale: float) -> float:
    """Return the squared coefficient that squared deviations tell, each times the scale; 1 until known."""
    if len(squares) < FEWEST_SAMPLES:
        return UNKNOWN
    return min(MOST_VARIATION, median(squares) * scale / MEDIAN_OF_SQUARE)


def square_steps(values: Iterable[float]) -> list[float]:
    """Square the differences of neighbours, which a slow trend does not inflate."""
    return [(later - earlier) ** 2 / 2 for earlier, later in pairwise(values)]


@dataclass(frozen=True, slots=True)
class Station:
    """One operator as a queue; rates per second, `service` and `observed_service` of one instance.

    `arrival` is the rate that it is to serve. `fed` leaves out what it catches up with in a topic of its own,
    which says nothing about the variation of its arrivals. `batches` are those in which it reads, if it does,
    and `overdue` are the records to catch up with.
    """

    name: str
    instances: int
    arrival: float
    fed: float
    service: float
    observed_service: float
    scalable: bool
    batches: OperatorBatches | None = None
    overdue: float = 0.0


@dataclass(frozen=True, slots=True)
class QueryLoad:
    """The stations of a query, by name in topological order; sources only feed them."""

    query: OperatorQuery
    graph: LogicalGraph
    stations: Mapping[str, Station]
    offered_per_second: float


def read_loads(
    window: OperatorWindow, unscalable: frozenset[str], catch_up_seconds: float
) -> tuple[QueryLoad, ...] | NotReady:
    """Read the stations of all queries of a window."""
    if not window.queries:
        return NotReady("no query is active", "a query that reports metrics")
    mistakable = find_shared_operator(window)
    if mistakable is not None:
        return mistakable
    loads: list[QueryLoad] = []
    for query in window.queries:
        load = _read_load(query, window.parallelism, unscalable, catch_up_seconds)
        if isinstance(load, NotReady):
            return load
        loads.append(load)
    return tuple(loads)


def list_services(graph: LogicalGraph, metrics: MetricWindow, name: str) -> list[tuple[float, float]]:
    """List (records, useful seconds) of each instance of an operator."""
    own = metrics.operator == graph.index[name]
    return list(zip(metrics.records_in[own].tolist(), metrics.useful_seconds[own].tolist(), strict=True))


def _read_load(
    query: OperatorQuery, held: Mapping[str, int], unscalable: frozenset[str], catch_up_seconds: float
) -> QueryLoad | NotReady:
    graph = mark_unscalable(query.graph, unscalable)
    try:
        rates = (
            find_unheld_operator(graph, held)
            or find_unread_source(query)
            or measure_rates(graph, query.metrics, held)
        )
    except BadMetrics as error:
        return NotReady(str(error), "metrics of the graph's own operators")
    if isinstance(rates, NotReady):
        return rates
    stations = _make_stations(query, graph, rates, find_inflow(query, catch_up_seconds))
    if not all(np.isfinite((s.arrival, s.service)).all() for s in stations):
        return NotReady("the target rates are too large to compute with", "plausible metrics")
    offered = sum(query.sources[name].offered_per_second for name in graph.sources)
    return QueryLoad(query, graph, {station.name: station for station in stations}, offered)


def _make_stations(
    query: OperatorQuery, graph: LogicalGraph, rates: OperatorRates, wanted: Inflow
) -> list[Station]:
    """Find arrivals by equation 8 of DS2: the rates once all operators keep up, not those observed."""
    targets = propagate_targets(graph, rates, wanted.sources, wanted.beside)
    fed = propagate_targets(graph, rates, wanted.sources) if wanted.beside else targets
    topics = query.topics
    return [
        Station(
            name=operator.name,
            instances=int(rates.instances[number]),
            arrival=targets[number],
            fed=fed[number],
            service=float(rates.true_processing[number] / rates.instances[number]),
            observed_service=float(rates.observed_processing[number] / rates.instances[number]),
            scalable=operator.scalable,
            batches=query.batches.get(operator.name),
            overdue=topics[operator.name].overdue_records if operator.name in topics else 0.0,
        )
        for number, operator in enumerate(graph.operators)
        if graph.upstream[number]
    ]
