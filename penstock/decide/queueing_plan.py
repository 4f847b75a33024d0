"""The search for the least parallelism whose estimated response times meet their targets (section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.dataflow.graph import LogicalGraph
from penstock.decide.paths import slowest_path, through
from penstock.decide.queues import least_stable_servers, response_seconds, utilisation

SLACK = 1 + 1e-9
"""Relative: a load or a time that meets its bound exactly must not fail on the last bit."""

WORTHWHILE = 0.01
"""An instance that shortens a path by less than this share of the target is not worth having."""
WORTHLESS = 0.002
"""One that shortens it by less is not worth keeping; between the two lies what estimates scatter."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One operator as a GI/G/k queue: rates per second, squared variations, and how far it may be scaled."""

    name: str
    instances: int
    arrival: float
    service: float
    arrival_variation: float
    service_variation: float
    least: int
    most: int
    most_load: float

    def seconds(self, instances: int) -> float:
        """Equation 3; infinite where the load is more than is allowed."""
        if utilisation(instances, self.arrival, self.service) > self.most_load * SLACK:
            return math.inf
        variations = self.arrival_variation, self.service_variation
        return response_seconds(instances, self.arrival, self.service, *variations)

    @property
    def held_seconds(self) -> float:
        """Equation 3 with the instances held, whatever headroom they leave."""
        return replace(self, most_load=1.0).seconds(self.instances)

    def stable(self) -> int:
        """The fewest instances that carry the arrivals, as far as the limits allow."""
        needed = least_stable_servers(self.arrival, self.service, self.most_load)
        return min(max(needed, self.least), self.most)


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes found, the slowest path with them, and what stood in the way.

    `held_suffices` says that the sizes held meet the target too, though perhaps not the headroom.
    """

    sizes: Mapping[str, int]
    seconds: float
    path: tuple[str, ...]
    limits: tuple[str, ...]
    held_suffices: bool


def plan_operator(queue: Queue, target: float) -> int:
    """Section 4.2.1: from the fewest instances upwards until the response time is within the target."""
    return next(
        (count for count in _growing(queue, target) if queue.seconds(count) <= target * SLACK),
        _nearly_best(queue, target),
    )


def plan_paths(
    graph: LogicalGraph, queues: Mapping[str, Queue], sizes: Mapping[str, int], target: float, share: float
) -> Plan:
    """Section 4.2.2: from these sizes, scale out on paths over the target, then in on those under α of it.

    Repeated until no path asks for more, so that one decision brings what the paper's reaches in several.
    """
    search = _Search(graph, queues, sizes, target)
    search.scale_out()
    search.give_back()
    search.scale_in(share)
    total, path = slowest_path(graph, search.seconds())
    now, _ = slowest_path(graph, {name: queue.held_seconds for name, queue in queues.items()})
    return Plan(search.sizes, total, path, tuple(search.limits(total, path)), now <= target * SLACK)


def judged(
    graph: LogicalGraph, queues: Mapping[str, Queue], sizes: Mapping[str, int], targets: Mapping[str, float]
) -> Plan:
    """Sizes as they are, with the operators that miss a target of their own."""
    seconds = {name: queue.seconds(sizes[name]) for name, queue in queues.items()}
    total, path = slowest_path(graph, seconds)
    limits = (
        f"{name} takes {seconds[name]:.3g} s of {target:.3g} s with the {sizes[name]} that it may have"
        for name, target in targets.items()
        if name in seconds and seconds[name] > target * SLACK
    )
    suffices = all(queues[name].held_seconds <= targets[name] * SLACK for name in queues if name in targets)
    return Plan(sizes, total, path, tuple(limits), suffices)


def _growing(queue: Queue, target: float) -> Iterator[int]:
    """Counts worth trying: from the fewest that carry the load until service alone is left."""
    count = queue.stable()
    while count < queue.most and _gain(queue, count) > WORTHWHILE * target:
        yield count
        count += 1
    yield count


def _nearly_best(queue: Queue, target: float) -> int:
    *_, last = _growing(queue, target)
    return last


def _gain(queue: Queue, count: int) -> float:
    """Seconds that one more instance saves; two unstable sizes differ by nothing."""
    now, then = queue.seconds(count), queue.seconds(count + 1)
    return 0.0 if math.isinf(then) else now - then


class _Search:
    """Sizes on their way to a plan."""

    def __init__(
        self, graph: LogicalGraph, queues: Mapping[str, Queue], sizes: Mapping[str, int], target: float
    ) -> None:
        self._graph = graph
        self._queues = queues
        self._target = target
        self._given_back: list[str] = []
        self.sizes = dict(sizes)

    def seconds(self) -> dict[str, float]:
        return {name: queue.seconds(self.sizes[name]) for name, queue in self._queues.items()}

    def scale_out(self) -> None:
        """Give an instance to the slowest operator of the slowest path while that path takes too long."""
        for name, queue in self._queues.items():
            if math.isinf(queue.seconds(self.sizes[name])):
                self.sizes[name] = max(self.sizes[name], queue.stable())
        total, path = slowest_path(self._graph, self.seconds())
        while total > self._target * SLACK:
            slowest = self._slowest(path)
            if math.isinf(total) or slowest is None:
                return
            self.sizes[slowest] += 1
            total, path = slowest_path(self._graph, self.seconds())

    def give_back(self) -> None:
        """Where no size meets the target, keep no instance that hardly helps.

        The model takes the speed of an instance for given. Where instances slow each other down, that is what
        keeps the target from being met, and all that are too many make it worse.
        """
        slowest = through(self._graph, self.seconds(), max)
        for name, queue in self._queues.items():
            before = self.sizes[name]
            while self._target * SLACK < slowest[name] < math.inf and self._hardly_helps(queue):
                self.sizes[name] -= 1
            if self.sizes[name] < before:
                self._given_back.append(name)

    def _hardly_helps(self, queue: Queue) -> bool:
        fewer = self.sizes[queue.name] - 1
        if fewer < queue.least:
            return False
        return queue.seconds(fewer) - queue.seconds(fewer + 1) < WORTHLESS * self._target

    def scale_in(self, share: float) -> None:
        """Take instances from the fastest operators of paths under α·R_max; all paths stay within R_max."""
        kept: set[str] = set()
        while (fastest := self._fastest(share * self._target, kept)) is not None:
            self.sizes[fastest] -= 1
            if through(self._graph, self.seconds(), max)[fastest] > self._target * SLACK:
                self.sizes[fastest] += 1
                kept.add(fastest)

    def limits(self, total: float, path: tuple[str, ...]) -> Iterator[str]:
        """What keeps the slowest path over its target, in words."""
        if total <= self._target * SLACK:
            return
        stuck = [name for name in path if math.isinf(self._queues[name].seconds(self.sizes[name]))]
        for name in stuck:
            load = utilisation(self.sizes[name], self._queues[name].arrival, self._queues[name].service)
            yield f"{name} is overloaded with the {self.sizes[name]} that it may have (load {load:.2f})"
        full = [name for name in path if self._queues[name].most <= self.sizes[name] and name not in stuck]
        if full and not stuck:
            yield f"no more instances are allowed of {', '.join(full)}"
        if not stuck and not full:
            service = sum(1 / self._queues[name].service for name in path)
            yield f"more instances would hardly help: service alone takes {service:.3g} s"
        if self._given_back:
            yield f"instances that hardly help are given back: {', '.join(self._given_back)}"

    def _slowest(self, path: tuple[str, ...]) -> str | None:
        """The slowest operator that may grow and gains from it."""
        free = [name for name in path if self.sizes[name] < self._queues[name].most]
        gaining = [
            name for name in free if _gain(self._queues[name], self.sizes[name]) > WORTHWHILE * self._target
        ]
        seconds = self.seconds()
        return max(gaining, key=lambda name: seconds[name], default=None)

    def _fastest(self, under: float, kept: set[str]) -> str | None:
        seconds = self.seconds()
        shortest = through(self._graph, seconds, min)
        giving = [
            name
            for name, queue in self._queues.items()
            if name not in kept and shortest[name] < under and self.sizes[name] > queue.least
        ]
        return min(giving, key=lambda name: seconds[name], default=None)
