"""Baseline: DRS, a Jackson network of M/M/k queues sized greedily (ToN 2017), as AuTraScale compares with.

AuTraScale, section V-C, runs it with observed and with true processing rates; so does this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, Execution
from penstock.decide.loads import QueryLoad, Station, query_loads
from penstock.decide.policy import ExpectedEffect, Hold, Proposal
from penstock.decide.queues import least_stable_servers, markov_response_seconds
from penstock.decide.ranges import require, require_limits
from penstock.decide.units import resized


class ServiceRate(Enum):
    """Which rate of an instance counts as its service rate."""

    TRUE = "true"
    """Records per useful second."""
    OBSERVED = "observed"
    """Records per second, waiting included; an instance that waits then looks slow."""


@dataclass(frozen=True, slots=True)
class DrsSettings:
    """Settings of DRS; limits in instances of one operator."""

    latency_target_seconds: float | None = None
    rate: ServiceRate = ServiceRate.TRUE
    catch_up_seconds: float = 600.0
    min_instances: int = 1
    max_instances: int = 64
    unscalable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.latency_target_seconds is not None:
            require("latency_target_seconds", self.latency_target_seconds)
        require("catch_up_seconds", self.catch_up_seconds)
        require_limits(self.min_instances, self.max_instances)


@dataclass(frozen=True, slots=True)
class Server:
    """One operator as M/M/k: rates per second, `service` of one instance, sizes within least and most."""

    arrival: float
    service: float
    least: int
    most: int

    def seconds(self, instances: int) -> float:
        """Mean response time, exact for Poisson arrivals and exponential service."""
        return markov_response_seconds(instances, self.arrival, self.service)


class DrsPolicy:
    """Adds instances where each saves most of the mean sojourn time, until that meets the target."""

    def __init__(self, settings: DrsSettings) -> None:
        self._settings = settings

    @property
    def name(self) -> str:
        """`drs`, or `drs-observed` with observed rates."""
        return "drs" if self._settings.rate is ServiceRate.TRUE else "drs-observed"

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Size all operators of each query for the latency target."""
        target = self._settings.latency_target_seconds
        if target is None:
            return NotReady("no latency target is set", "the setting latency_target")
        if window.execution is Execution.SHARED_SLOTS:
            return NotReady(f"{self.name} sizes operators, and here all of them share the slots")
        loads = query_loads(window, self._settings.unscalable, self._settings.catch_up_seconds)
        if isinstance(loads, NotReady):
            return loads
        if any(_entering(load) <= 0 for load in loads):
            return NotReady("idle: the sources offer nothing", "records")
        return self._proposal(window, loads, target)

    def _proposal(self, window: ApplicationWindow, loads: Sequence[QueryLoad], target: float) -> Proposal:
        held = {name: station.instances for load in loads for name, station in load.stations.items()}
        sizes: dict[str, int] = {}
        slowest = 0.0
        for load in loads:
            servers = {name: self._server(station) for name, station in load.stations.items()}
            own = least_sizes(servers, _entering(load), target)
            slowest = max(slowest, sojourn_seconds(servers, own, _entering(load)))
            sizes |= own
        told = _told(slowest, target)
        figures = {"instances": float(sum(sizes.values()))}
        figures |= {"latency_seconds": slowest} if math.isfinite(slowest) else {}
        changes = {name: size for name, size in sizes.items() if size != held[name]}
        if not changes:
            return Hold(told, figures)
        listed = ", ".join(f"{name} {held[name]} → {size}" for name, size in changes.items())
        return resized(window, changes, f"{listed}: {told}", ExpectedEffect(told, figures))

    def _server(self, station: Station) -> Server:
        observed = self._settings.rate is ServiceRate.OBSERVED
        service = station.observed_service if observed else station.service
        if not station.scalable:
            return Server(station.arrival, service, station.instances, station.instances)
        return Server(station.arrival, service, self._settings.min_instances, self._settings.max_instances)


def sojourn_seconds(servers: Mapping[str, Server], sizes: Mapping[str, int], entering: float) -> float:
    """Mean time in a Jackson network: E[T] = Σ λᵢ·E[Tᵢ] / λ₀, over the visits that a record causes."""
    times = (
        server.arrival * server.seconds(sizes[name]) for name, server in servers.items() if server.arrival
    )
    return sum(times) / entering


def least_sizes(servers: Mapping[str, Server], entering: float, target: float) -> dict[str, int]:
    """DRS's greedy search: start with what is stable, then give to whom it saves most.

    As in the original it goes on to the limits when the target cannot be met.
    """
    sizes = {
        name: min(server.most, max(server.least, least_stable_servers(server.arrival, server.service)))
        for name, server in servers.items()
    }
    while sojourn_seconds(servers, sizes, entering) > target:
        free = [name for name, server in servers.items() if sizes[name] < server.most]
        if not free:
            break
        sizes[_most_saving(servers, sizes, free)] += 1
    return sizes


def _most_saving(servers: Mapping[str, Server], sizes: Mapping[str, int], free: Iterable[str]) -> str:
    def saved(name: str) -> float:
        server = servers[name]
        now, then = server.seconds(sizes[name]), server.seconds(sizes[name] + 1)
        return 0.0 if math.isinf(then) else server.arrival * (now - then)

    return max(free, key=saved)


def _entering(load: QueryLoad) -> float:
    return load.offered_per_second


def _told(seconds: float, target: float) -> str:
    if math.isinf(seconds):
        return "even the most instances allowed do not keep up"
    short = "" if seconds <= target else ", more than it should with all that is allowed"
    return f"a record takes {seconds:.3g} s of {target:.3g} s{short}"
