"""A simulated application: its time, the change of parallelism under way, what was seen, what disturbs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.simulate.experiment import Experiment

READ, BACKLOG, QUEUED, LATENCY = range(4)
"""Columns of `Simulated.seen`."""
UNLIMITED_SERVICE = 1e-6
"""Seconds a record that a source without a service time is said to have worked on it: rates need some."""
ARRIVALS, FAILURES, NEIGHBOURS, SERVICES, SCATTER, ORACLE, BOUND = 1, 2, 3, 4, 5, 6, 7
"""Streams of random numbers, so that more of one thing does not change another."""


class Simulated(ABC):
    """A simulated application: its time, what it holds, the change under way, what was seen."""

    def __init__(self, experiment: Experiment, seed: int) -> None:
        self.experiment = experiment
        self.now = 0
        self.instances: Integers = experiment.initial.copy()
        self.held: Integers = np.zeros((experiment.seconds, len(experiment.units)), dtype=np.int64)
        self.down = np.zeros(experiment.seconds, dtype=np.bool_)
        self.seen: Floats = np.zeros((experiment.seconds, 4))
        self.capable: Floats = np.zeros((experiment.seconds, len(experiment.units)))
        """Records a second that each unit could take, with what has failed, is slow or is still cold."""
        self.offered = draw_offered(experiment, seed)
        self.wanted: Integers | None = None
        self.wanted_at = 0
        self._disturbed = draw_disturbances(experiment, seed)
        self._cold: list[tuple[int, Integers]] = []
        """Instances that are new, and until when they are slow for it."""
        self._capacity: Floats | None = None

    def change(self, instances: Mapping[str, int]) -> int:
        """Begin a change of parallelism; returns when it is there."""
        wanted = self.instances.copy()
        for name, count in instances.items():
            wanted[self.experiment.units.index(name)] = count
        self.wanted, self.wanted_at = wanted, self.now + int(self.experiment.scenario.scaling.pause)
        if self.wanted_at == self.now:
            self.take_over()
        return self.wanted_at

    def advance(self, until: int) -> None:
        """Let time pass; a change that falls due meanwhile takes effect at its second."""
        until = min(until, self.experiment.seconds)
        while self.now < until:
            end = min(until, self.wanted_at) if self.wanted is not None else until
            if self._disturbed is not None:
                end = min(end, self._disturbed.steady_until(self.now))
            end = int(min(end, self._warm_some_up()))
            span = slice(self.now, end)
            self.held[span] = self.instances
            self.capable[span] = self._present_capacity()
            stopped = self.wanted is not None and self.experiment.scenario.scaling.kind == "restart"
            self.down[span] = stopped
            self.flow_on(end, stopped)
            self.now = end
            if self.wanted is not None and self.now >= self.wanted_at:
                self.take_over()

    @abstractmethod
    def flow_on(self, until: int, stopped: bool) -> None:
        """Let records flow from now on; nothing else changes until then."""

    def take_over(self) -> None:
        """Let the change under way take effect; what is new begins cold."""
        assert self.wanted is not None
        scaling = self.experiment.scenario.scaling
        grown: Integers = np.maximum(self.wanted - self.instances, 0)
        if scaling.warm_up and grown.any():
            self._cold.append((self.now + int(scaling.warm_up), grown))
        self.instances, self.wanted = self.wanted, None
        self.forget_power()

    def forget_power(self) -> None:
        """Look at capacities anew: instances came, went or became warm."""
        self._capacity = None

    def _warm_some_up(self) -> float:
        """Let instances that have run long enough be as fast as others; return when the next ones are."""
        if not self._cold:
            return np.inf
        if self._cold[0][0] <= self.now:
            self._cold = [(until, some) for until, some in self._cold if until > self.now]
            self.forget_power()
        return min((until for until, _ in self._cold), default=np.inf)

    def _present_capacity(self) -> Floats:
        if self._capacity is None or self._disturbed is not None:
            tables = self.experiment.capacity_of(self.working)
            speed = self.shares * self.experiment.slow_down(self.instances)
            self._capacity = tables * (np.min(speed) if self.experiment.shares_slots else speed)
        return self._capacity

    def parallelism(self) -> dict[str, int]:
        """Return unit → instances held now."""
        return dict(zip(self.experiment.units, self.instances.tolist(), strict=True))

    @property
    def shares(self) -> Floats | float:
        """The share of its capacity that each operator has now."""
        own = 1.0 if self._disturbed is None else self._disturbed.shares[self._second]
        return own * self._warmth() if self._cold else own

    def _warmth(self) -> Floats:
        """Return the share of its speed that the mean instance of each unit has, the new ones being slow."""
        new = np.minimum(sum(some for _, some in self._cold), self.instances)
        lost = 1 - self.experiment.scenario.scaling.cold
        warmth: Floats = 1 - lost * new / np.maximum(self.instances, 1)
        return warmth

    @property
    def working(self) -> Integers:
        """Instances that have not failed."""
        if self._disturbed is None:
            return self.instances
        left: Integers = np.maximum(self.instances - self._disturbed.failed[self._second], 0)
        return left

    @property
    def _second(self) -> int:
        """The second that begins now; in the end the last one."""
        return min(self.now, self.experiment.seconds - 1)


def make_generator(seed: int, stream: int, number: int = 0) -> np.random.Generator:
    """Make random numbers for one purpose; the same for every policy."""
    return np.random.default_rng([seed, stream, number])


def draw_offered(experiment: Experiment, seed: int) -> Floats:
    """Return records offered in each second: the profile itself, or drawn from it if arrivals are Poisson."""
    offered = experiment.offered
    for name, spec in experiment.scenario.sources.items():
        if spec.arrivals == "poisson":
            number = experiment.graph.index[name]
            if offered is experiment.offered:
                offered = offered.copy()
            drawn = make_generator(seed, ARRIVALS, number).poisson(experiment.offered[:, number])
            offered[:, number] = drawn
    return offered


@dataclass(frozen=True, eq=False)
class Disturbances:
    """For each second the share of its capacity of each operator, and the failed instances of each unit."""

    shares: Floats
    failed: Integers
    changes: Integers
    """The seconds at which something of it changes, in order, with the end of the run."""

    def steady_until(self, now: int) -> int:
        """Return the end of the span over which nothing changes."""
        return int(self.changes[np.searchsorted(self.changes, now, side="right")])


def draw_disturbances(experiment: Experiment, seed: int) -> Disturbances | None:
    """Draw all disturbances that the scenario names, or None if it names none."""
    scenario = experiment.scenario
    neighbours = scenario.interference.neighbours if scenario.interference else None
    if not (scenario.slowdowns or scenario.failures or neighbours):
        return None
    shares = experiment.capacity_shares()
    failed = np.zeros((experiment.seconds, len(experiment.units)), dtype=np.int64)
    if neighbours:
        random = make_generator(seed, NEIGHBOURS)
        for start, end in _spells(random, neighbours.every, neighbours.lasts, experiment.seconds):
            shares[start:end] *= neighbours.capacity
    for number, failure in enumerate(scenario.failures):
        column = failed[:, experiment.units.index(failure.operator)]
        if failure.start is not None:
            column[int(failure.start) : int(failure.start + failure.lasts)] += failure.instances
        if failure.every is not None:
            random = make_generator(seed, FAILURES, number)
            for start, end in _spells(random, failure.every, failure.lasts, experiment.seconds, fixed=True):
                column[start:end] += failure.instances
    return Disturbances(shares, failed, _changes(shares, failed))


def _changes(shares: Floats, failed: Integers) -> Integers:
    differs = (shares[1:] != shares[:-1]).any(axis=1) | (failed[1:] != failed[:-1]).any(axis=1)
    return np.append(np.flatnonzero(differs) + 1, len(shares))


def _spells(
    random: np.random.Generator, every: float, lasts: float, seconds: int, fixed: bool = False
) -> Iterator[tuple[int, int]]:
    """Yield spans [start, end) with exponential gaps, and exponential lengths unless they are fixed."""
    now = random.exponential(every)
    while now < seconds:
        end = now + (lasts if fixed else random.exponential(lasts))
        yield int(now), max(int(now) + 1, round(end))
        now = end + random.exponential(every)
