"""The simulated dataflow: its state, the change of parallelism under way, and what was seen each second."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.simulate.capacity import skew_with
from penstock.simulate.disturbances import disturbances, offered_records
from penstock.simulate.experiment import Experiment
from penstock.simulate.flow_kernel import Flow, Power, Wiring, advance
from penstock.simulate.scenario import OperatorSpec, SourceSpec

READ, BACKLOG, QUEUED, LATENCY = range(4)
"""Columns of `VirtualDataflow.seen`."""
UNLIMITED_SERVICE = 1e-6
"""Seconds a record that a source without a service time is said to have worked on it: rates need one."""


class Simulated(ABC):
    """What every simulated application has: its time, what it holds, a change under way, what was seen."""

    def __init__(self, experiment: Experiment, seed: int) -> None:
        self.experiment = experiment
        self.now = 0
        self.instances: Integers = experiment.initial.copy()
        self.held: Integers = np.zeros((experiment.seconds, len(experiment.units)), dtype=np.int64)
        self.down = np.zeros(experiment.seconds, dtype=np.bool_)
        self.seen: Floats = np.zeros((experiment.seconds, 4))
        self.offered = offered_records(experiment, seed)
        self.wanted: Integers | None = None
        self.wanted_at = 0
        self._disturbed = disturbances(experiment, seed)

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
            span = slice(self.now, end)
            self.held[span] = self.instances
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
        """The change under way is there."""
        assert self.wanted is not None
        self.instances, self.wanted = self.wanted, None

    def parallelism(self) -> dict[str, int]:
        """Unit → instances held now."""
        return dict(zip(self.experiment.units, self.instances.tolist(), strict=True))

    @property
    def shares(self) -> Floats | float:
        """The share of its capacity that each operator has now."""
        return 1.0 if self._disturbed is None else self._disturbed.shares[self._second]

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


class VirtualDataflow(Simulated):
    """Advances a dataflow in steps of one second; nothing happens between calls."""

    def __init__(self, experiment: Experiment, seed: int = 0) -> None:
        super().__init__(experiment, seed)
        size = len(experiment.graph.operators)
        state = np.zeros((len(Flow._fields), size))
        self.flow = Flow(*state)
        first = Flow._fields.index("processed")
        self._work = state[first : first + 2]
        """Of the state: what was processed, and below it the useful time."""
        self._power: Power | None = None
        self._spread: tuple[Integers, Floats] | None = None
        self._work_before = self._work.copy()
        self.wiring = _wiring(experiment)

    def take_over(self) -> None:
        """The change under way is there."""
        super().take_over()
        self._power = self._spread = None

    def flow_on(self, until: int, stopped: bool) -> None:
        """Make the steps up to then."""
        if self._power is None or self._disturbed is not None:
            self._power = self._present_power()
        nothing = np.zeros(len(self.instances))
        power = self._power._replace(capacity=nothing, own=nothing) if stopped else self._power
        span = slice(self.now, until)
        advance(self.wiring, power, self.flow, self.offered[span], self.seen[span])

    def instance_work(self) -> tuple[Integers, Floats, Floats]:
        """Since the last call: the operator of each instance, its records, and the seconds it worked."""
        work = self._work - self._work_before
        self._work_before = self._work.copy()
        if self._spread is None or self._disturbed is not None:
            self._spread = self._present_spread()
        operator, share = self._spread
        # useful time is that of an average instance
        work[1] *= self.instances
        records, worked = work.take(operator, axis=1) * share
        return operator, records, worked

    def _present_spread(self) -> tuple[Integers, Floats]:
        """The operator of each instance, and its share of the operator's records."""
        counts, working = self.instances, self.working
        skew = skew_with(working, self.experiment.skews)
        share = instance_shares(counts, skew) if working is counts else failed_shares(counts, working, skew)
        return np.repeat(np.arange(len(counts)), counts), share

    def waiting(self, number: int) -> float:
        """Records that wait before an operator."""
        return float(self.flow.queue[number])

    def scatter(self) -> Floats | None:
        """A fluid shows no randomness: what the scenario says of it must be added to what is measured.

        A source whose arrivals are not drawn scatters as the operators that it feeds.
        """
        own = self.experiment.variability.copy()
        for number, feeds in enumerate(self.experiment.graph.upstream):
            for feed in feeds:
                source = self.experiment.specs[feed]
                if isinstance(source, SourceSpec) and source.arrivals == "even":
                    own[feed] = max(own[feed], self.experiment.variability[number])
        return own if own.any() else None

    def latency(self, start: int, end: int) -> float | None:
        """The mean over these seconds."""
        return float(np.add.reduce(self.seen[start:end, LATENCY]) / (end - start))

    def _present_power(self) -> Power:
        experiment, working = self.experiment, self.working
        undisturbed = experiment.undisturbed(self.instances)
        capacity = experiment.capacity_of(working) * self.shares * undisturbed
        own = experiment.own_capacity_of(working) * self.shares * undisturbed
        instances = self.instances.astype(np.float64)
        even = own * (1 + skew_with(working, experiment.skews))
        with np.errstate(divide="ignore", invalid="ignore"):
            service = np.where(np.isinf(capacity), UNLIMITED_SERVICE, working / even)
        service = np.where(working > 0, service, 0.0)
        return Power(capacity, own, service, instances, experiment.coordination * instances)


def instance_shares(counts: Integers, skew: Floats) -> Floats:
    """The share of its operator's records that each instance gets; the first one is the busiest."""
    others = (1 - skew / np.maximum(counts - 1, 1)) / counts
    shares = np.repeat(others, counts)
    shares[np.cumsum(counts) - counts] = (1 + skew) / counts
    return shares


def failed_shares(counts: Integers, working: Integers, skew: Floats) -> Floats:
    """The same where the last instances of an operator have failed and get nothing."""
    shares = np.zeros(int(counts.sum()))
    first = np.cumsum(counts) - counts
    for start, alive, uneven in zip(first.tolist(), working.tolist(), skew.tolist(), strict=True):
        if alive:
            shares[start : start + alive] = instance_shares(np.array([alive]), np.array([uneven]))
    return shares


def _wiring(experiment: Experiment) -> Wiring:
    graph, specs = experiment.graph, experiment.specs
    downstream: list[list[int]] = [[] for _ in graph.operators]
    for target, feeds in enumerate(graph.upstream):
        for origin in feeds:
            downstream[origin].append(target)
    operators = [spec if isinstance(spec, OperatorSpec) else None for spec in specs]
    return Wiring(
        *_lists([list(feeds) for feeds in graph.upstream]),
        *_lists(downstream),
        selectivity=experiment.selectivity,
        room=np.array([spec.queue if spec and spec.queue else np.inf for spec in operators]),
        keeps_backlog=np.array([getattr(spec, "keeps_backlog", True) for spec in specs], dtype=np.int64),
        variability=experiment.variability,
    )


def _lists(neighbours: list[list[int]]) -> tuple[Integers, Integers]:
    lengths = np.array([0, *(len(some) for some in neighbours)], dtype=np.int64)
    flat = np.array([one for some in neighbours for one in some], dtype=np.int64)
    return np.cumsum(lengths), flat
