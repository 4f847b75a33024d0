"""The search for the least parallelism whose estimated response times meet their targets.

Elastic Pulsar Functions (Auto-DaSP 2021), section 4.2. The response time of a path is the sum over its
operators (equation 4). Paths are not listed, since a graph may have exponentially many: sums along the
longest and the shortest need one visit of each operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.window import OperatorBatches
from penstock.decide.queueing.queues import (
    batched_response_seconds,
    least_stable_servers,
    response_seconds,
    utilisation,
)

Pick = Callable[[Iterable[float]], float]

SLACK = 1 + 1e-9
"""Relative: a load or a time that meets its bound exactly must not fail on the last bit."""

WORTHWHILE = 0.01
"""An instance that shortens a path by less than this share of the target is not added."""
WORTHLESS = 0.002
"""One that shortens it by less is not kept; the scatter of estimates lies between the two."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One operator as a GI/G/k queue: rates per second, squared variations, and how far it may be scaled.

    Where it reads in `batches`, these say how long its records take. `correction` is by how much that was
    seen to differ, in seconds.
    """

    name: str
    instances: int
    arrival: float
    service: float
    arrival_variation: float
    service_variation: float
    least: int
    most: int
    most_load: float
    batches: OperatorBatches | None = None
    correction: float = 0.0

    def seconds(self, instances: int) -> float:
        """Return the response time (equation 3), infinite where the load exceeds `most_load`."""
        load = utilisation(instances, self.arrival, self.service)
        if load > self.most_load * SLACK:
            return math.inf
        if self.batches is not None:
            return self._correct(time_in_batches(load, self.batches))
        variations = self.arrival_variation, self.service_variation
        return response_seconds(instances, self.arrival, self.service, *variations)

    @property
    def held_seconds(self) -> float:
        """The response time with the instances held, whatever headroom they leave."""
        return replace(self, most_load=1.0).seconds(self.instances)

    @property
    def least_seconds(self) -> float:
        """The response time without any load on an instance, which no number of them shortens."""
        if self.batches is None:
            return 1 / self.service
        return self._correct(time_in_batches(0.0, self.batches))

    def _correct(self, seconds: float) -> float:
        return max(0.0, seconds + self.correction)

    def judge_by(self, target: float) -> float:
        """Return the time of which a gain has to be a share: with batches, none that no size can reach.

        What a batch has of work falls with 1/k only: at a share of a target far below what can be reached,
        instances would be added long after they cease to help.
        """
        return target if self.batches is None else max(target, self.least_seconds)

    def stable(self) -> int:
        """Return the fewest instances that carry the arrivals, within the limits."""
        needed = least_stable_servers(self.arrival, self.service, self.most_load)
        return min(max(needed, self.least), self.most)


@dataclass(frozen=True, slots=True)
class SizePlan:
    """The sizes found, the slowest path with them, and what limits them.

    `held_suffices` says that the sizes held meet the target too, though perhaps not the headroom.
    """

    sizes: Mapping[str, int]
    seconds: float
    path: tuple[str, ...]
    limits: tuple[str, ...]
    held_suffices: bool


def time_in_batches(load: float, batches: OperatorBatches) -> float:
    """Return the response time that batches of this kind have at a load."""
    return batched_response_seconds(load, batches.trigger_seconds, batches.fixed_seconds)


def plan_operator(queue: Queue, target: float) -> int:
    """Add instances from the fewest on until the response time meets the target (section 4.2.1)."""
    return next(
        (count for count in _try_counts(queue, target) if queue.seconds(count) <= target * SLACK),
        _find_nearly_best(queue, target),
    )


def plan_paths(
    graph: LogicalGraph, queues: Mapping[str, Queue], sizes: Mapping[str, int], target: float, share: float
) -> SizePlan:
    """Scale out on paths over the target, then in on those under the `share` α of it (section 4.2.2).

    This is repeated until no path asks for more: the paper needs several decisions for the same sizes.
    """
    search = _SizeSearch(graph, queues, sizes, target)
    search.scale_out()
    search.give_back()
    search.scale_in(share)
    total, path = find_slowest_path(graph, search.seconds())
    now, _ = find_slowest_path(graph, {name: queue.held_seconds for name, queue in queues.items()})
    limits = tuple(search.explain_limits(total, path))
    return SizePlan(search.sizes, total, path, limits, held_suffices=now <= target * SLACK)


def judge_sizes(
    graph: LogicalGraph, queues: Mapping[str, Queue], sizes: Mapping[str, int], targets: Mapping[str, float]
) -> SizePlan:
    """Judge sizes as they are, and name the operators that miss a target of their own."""
    seconds = {name: queue.seconds(sizes[name]) for name, queue in queues.items()}
    total, path = find_slowest_path(graph, seconds)
    limits = (
        f"{name} takes {seconds[name]:.3g} s of {target:.3g} s with the {sizes[name]} that it may have"
        for name, target in targets.items()
        if name in seconds and seconds[name] > target * SLACK
    )
    suffices = all(queues[name].held_seconds <= targets[name] * SLACK for name in queues if name in targets)
    return SizePlan(sizes, total, path, tuple(limits), suffices)


def _try_counts(queue: Queue, target: float) -> Iterator[int]:
    """Yield the counts worth trying: from the fewest that carry the load until service alone is left."""
    count = queue.stable()
    while count < queue.most and _gain(queue, count) > WORTHWHILE * queue.judge_by(target):
        yield count
        count += 1
    yield count


def _find_nearly_best(queue: Queue, target: float) -> int:
    *_, last = _try_counts(queue, target)
    return last


def _gain(queue: Queue, count: int) -> float:
    """Return the seconds that one more instance saves; between two unstable sizes none."""
    now, then = queue.seconds(count), queue.seconds(count + 1)
    return 0.0 if math.isinf(then) else now - then


def find_slowest_path(graph: LogicalGraph, seconds: Mapping[str, float]) -> tuple[float, tuple[str, ...]]:
    """Find the path that takes longest (equation 4), and the operators on it without sources.

    Operators that are not in `seconds`, the sources among them, take no time.
    """
    totals: list[float] = []
    paths: list[tuple[str, ...]] = []
    for operator, feeds in zip(graph.operators, graph.upstream, strict=True):
        before = max(feeds, key=lambda feed: totals[feed], default=None)
        own = (operator.name,) if feeds else ()
        totals.append((totals[before] if before is not None else 0.0) + seconds.get(operator.name, 0.0))
        paths.append((paths[before] if before is not None else ()) + own)
    last = max(range(len(totals)), key=totals.__getitem__)
    return totals[last], paths[last]


def time_paths_through(graph: LogicalGraph, seconds: Mapping[str, float], pick: Pick) -> dict[str, float]:
    """Time a path through each operator: the longest with `pick=max`, the shortest with `min`."""
    own = [seconds.get(operator.name, 0.0) for operator in graph.operators]
    until = list(own)
    for number, feeds in enumerate(graph.upstream):
        if feeds:
            until[number] += pick(until[feed] for feed in feeds)
    after: list[list[float]] = [[] for _ in own]
    rest = [0.0] * len(own)
    for number in reversed(range(len(own))):
        rest[number] = pick(after[number]) if after[number] else 0.0
        for feed in graph.upstream[number]:
            after[feed].append(own[number] + rest[number])
    return {o.name: until[n] + rest[n] for n, o in enumerate(graph.operators) if graph.upstream[n]}


class _SizeSearch:
    """One search for sizes."""

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
        total, path = find_slowest_path(self._graph, self.seconds())
        while total > self._target * SLACK:
            slowest = self._find_slowest(path)
            if math.isinf(total) or slowest is None:
                return
            self.sizes[slowest] += 1
            total, path = find_slowest_path(self._graph, self.seconds())

    def give_back(self) -> None:
        """Give back instances that hardly help, where no size meets the target.

        The model takes the speed of an instance as fixed. Where instances slow each other down, too many of
        them are the reason that the target is missed.
        """
        slowest = time_paths_through(self._graph, self.seconds(), max)
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
        gained = queue.seconds(fewer) - queue.seconds(fewer + 1)
        return gained < WORTHLESS * queue.judge_by(self._target)

    def scale_in(self, share: float) -> None:
        """Take instances from the fastest operators of paths under α·R_max; all paths stay within R_max."""
        kept: set[str] = set()
        while (fastest := self._find_fastest(share * self._target, kept)) is not None:
            self.sizes[fastest] -= 1
            if time_paths_through(self._graph, self.seconds(), max)[fastest] > self._target * SLACK:
                self.sizes[fastest] += 1
                kept.add(fastest)

    def explain_limits(self, total: float, path: tuple[str, ...]) -> Iterator[str]:
        """Say in words what keeps the slowest path over its target."""
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
            least = sum(self._queues[name].least_seconds for name in path)
            batched = any(self._queues[name].batches is not None for name in path)
            what = (
                "waiting for batches and their fixed costs alone take" if batched else "service alone takes"
            )
            yield f"more instances would hardly help: {what} {least:.3g} s"
        if self._given_back:
            yield f"instances that hardly help are given back: {', '.join(self._given_back)}"

    def _find_slowest(self, path: tuple[str, ...]) -> str | None:
        """Find the slowest operator that may grow and gains from it."""
        free = [name for name in path if self.sizes[name] < self._queues[name].most]
        gaining = [name for name in free if self._gains(self._queues[name])]
        seconds = self.seconds()
        return max(gaining, key=lambda name: seconds[name], default=None)

    def _gains(self, queue: Queue) -> bool:
        return _gain(queue, self.sizes[queue.name]) > WORTHWHILE * queue.judge_by(self._target)

    def _find_fastest(self, under: float, kept: set[str]) -> str | None:
        seconds = self.seconds()
        shortest = time_paths_through(self._graph, seconds, min)
        giving = [
            name
            for name, queue in self._queues.items()
            if name not in kept and shortest[name] < under and self.sizes[name] > queue.least
        ]
        return min(giving, key=lambda name: seconds[name], default=None)
