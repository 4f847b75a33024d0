"""Baseline: DRS, a Jackson network of M/M/k queues sized greedily (ToN 2017), as AuTraScale compares with.

AuTraScale, section V-C, runs it with observed and with true processing rates; so does this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow, SlotWindow
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.policy import ExpectedEffect, Hold, Proposal
from penstock.decide.queueing.queues import (
    QueryLoad,
    Station,
    least_stable_servers,
    markov_response_seconds,
    read_loads,
)
from penstock.decide.readings import scale_units


@dataclass(frozen=True, slots=True)
class SizedStation:
    """One operator as M/M/k: rates per second, `service` of one instance, sizes within least and most."""

    arrival: float
    service: float
    least: int
    most: int

    def seconds(self, instances: int) -> float:
        """Compute the mean response time, exact for Poisson arrivals and exponential service."""
        return markov_response_seconds(instances, self.arrival, self.service)


class DrsPolicy:
    """Adds instances where each saves most of the mean sojourn time, until that meets the target."""

    name = "drs"

    def __init__(self, bounds: SizeBounds, goals: Goals) -> None:
        self._bounds, self._goals = bounds, goals

    def service_rate(self, station: Station) -> float:
        """Return the records that an instance takes per useful second."""
        return station.service

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Size all operators of each query for the latency target."""
        target = self._goals.latency_target
        if target is None:
            return NotReady("no latency target is set", "the setting latency_target")
        if isinstance(window, SlotWindow):
            return NotReady(f"{self.name} sizes operators, and here all of them share the slots")
        loads = read_loads(window, self._goals.unscalable, self._goals.catch_up)
        if isinstance(loads, NotReady):
            return loads
        if any(load.offered_per_second <= 0 for load in loads):
            return NotReady("idle: the sources offer nothing", "records")
        return self._make_proposal(window, loads, target)

    def _make_proposal(
        self, window: ApplicationWindow, loads: Sequence[QueryLoad], target: float
    ) -> Proposal:
        held = {name: station.instances for load in loads for name, station in load.stations.items()}
        sizes: dict[str, int] = {}
        slowest = 0.0
        for load in loads:
            servers = {name: self._make_server(station) for name, station in load.stations.items()}
            own = find_least_sizes(servers, load.offered_per_second, target)
            slowest = max(slowest, sojourn_seconds(servers, own, load.offered_per_second))
            sizes |= own
        told = _describe_sojourn(slowest, target)
        figures = {"instances": float(sum(sizes.values()))}
        figures |= {"latency_seconds": slowest} if math.isfinite(slowest) else {}
        changes = {name: size for name, size in sizes.items() if size != held[name]}
        if not changes:
            return Hold(told, figures)
        listed = ", ".join(f"{name} {held[name]} → {size}" for name, size in changes.items())
        return scale_units(window, changes, f"{listed}: {told}", ExpectedEffect(told, figures))

    def _make_server(self, station: Station) -> SizedStation:
        service = self.service_rate(station)
        if not station.scalable:
            return SizedStation(station.arrival, service, station.instances, station.instances)
        return SizedStation(station.arrival, service, self._bounds.least, self._bounds.most)


class ObservedDrsPolicy(DrsPolicy):
    """DRS with observed rates: an instance that waits looks slow."""

    name = "drs-observed"

    def service_rate(self, station: Station) -> float:
        """Return the records that an instance takes per second, waiting included."""
        return station.observed_service


def sojourn_seconds(servers: Mapping[str, SizedStation], sizes: Mapping[str, int], entering: float) -> float:
    """Compute the mean time of a record in a Jackson network: E[T] = Σ λᵢ·E[Tᵢ] / λ₀."""
    times = (
        server.arrival * server.seconds(sizes[name]) for name, server in servers.items() if server.arrival
    )
    return sum(times) / entering


def find_least_sizes(servers: Mapping[str, SizedStation], entering: float, target: float) -> dict[str, int]:
    """Search greedily as DRS does: start with what is stable, then give to whom it saves most.

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
        sizes[_find_most_saving(servers, sizes, free)] += 1
    return sizes


def _find_most_saving(
    servers: Mapping[str, SizedStation], sizes: Mapping[str, int], free: Iterable[str]
) -> str:
    def save(name: str) -> float:
        server = servers[name]
        now, then = server.seconds(sizes[name]), server.seconds(sizes[name] + 1)
        return 0.0 if math.isinf(then) else server.arrival * (now - then)

    return max(free, key=save)


def _describe_sojourn(seconds: float, target: float) -> str:
    if math.isinf(seconds):
        return "even the most instances allowed do not keep up"
    short = "" if seconds <= target else ", more than it should with all that is allowed"
    return f"a record takes {seconds:.3g} s of {target:.3g} s{short}"
