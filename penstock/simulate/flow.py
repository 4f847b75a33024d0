"""A dataflow as a fluid, in steps of one second: records flow through operators, wait, and are held back.

In a step every operator takes what waits before it, up to its capacity and to the room behind it. Records may
pass several operators in one step, so a pipeline that keeps up has empty queues. Each operator serves first
what came first, so that the age of what leaves follows from when as many records had arrived. The parts of a
step are made one function: to hand them their two dozen columns would take a third of the time.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.simulate.capacity import limit_skew
from penstock.simulate.experiment import Experiment
from penstock.simulate.scenario import OperatorSpec, SourceSpec
from penstock.simulate.virtual import LATENCY, UNLIMITED_SERVICE, Simulated

FULLEST = 0.98
"""Utilisation at which the waiting of the queueing formula is cut off; beyond it the fluid queue tells."""
EMPTY = 1e-12
"""Share of all that arrived up to which a queue is rounding."""


class Wiring(NamedTuple):
    """The edges, which do not change: neighbours of i stand from `first[i]` up to `first[i + 1]`."""

    upstream_first: Integers
    upstream: Integers
    downstream_first: Integers
    downstream: Integers
    selectivity: Floats
    room: Floats
    """Most records that may wait before an operator; infinite where nothing bounds them."""
    keeps_backlog: Integers
    variability: Floats


class Power(NamedTuple):
    """The rates that a change of parallelism, a restart or a slow phase changes."""

    capacity: Floats
    """Records a second of all instances together; infinite for a source that reads without limit."""
    own: Floats
    """The same whatever a remote service takes; more than the capacity where that is the limit."""
    service: Floats
    """Seconds that one instance spends on one record."""
    instances: Floats
    coordination: Floats
    """Seconds of latency that come from the number of instances."""


class Flow(NamedTuple):
    """The state, changed in place; all but the queue are sums since the start."""

    queue: Floats
    arrived: Floats
    processed: Floats
    useful: Floats
    """Seconds in which an average instance worked."""
    lost: Floats
    """Records that a generator that was held back did not produce."""


class Ages(NamedTuple):
    """The values that the age of records follows from; a row for each second."""

    arrived_by: Floats
    """Records that had arrived before an operator when a second began, and when the last one ended."""
    latency: Floats
    """Seconds from the source until a record leaves an operator."""
    head: Integers
    """The second in which the oldest record before an operator came."""


@numba.njit(cache=True)
def advance(
    wiring: Wiring, power: Power, flow: Flow, ages: Ages, first: int, arrivals: Floats, seen: Floats
) -> None:
    """Make one step for each row of `arrivals` (records by operator, zero but for sources), from `first` on.

    A row of `seen` takes what was read from all sources, what waits before them, what waits inside, and the
    end-to-end latency.
    """
    size = len(flow.queue)
    want, limit, inflow, done = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    for step in range(len(arrivals)):
        _ask(wiring, power, flow, arrivals[step], want)
        _limit(wiring, power, flow, want, limit)
        _move(wiring, flow, arrivals[step], limit, inflow, done)
        _account(wiring, power, flow, inflow, done)
        _look(wiring, power, flow, ages, first + step, done, seen[step])


@numba.njit(cache=True, inline="always")
def _ask(wiring: Wiring, power: Power, flow: Flow, offered: Floats, want: Floats) -> None:
    """Set what each operator would process if nothing behind it were full."""
    for i in range(len(want)):
        reaching = offered[i]
        for edge in range(wiring.upstream_first[i], wiring.upstream_first[i + 1]):
            origin = wiring.upstream[edge]
            reaching += want[origin] * wiring.selectivity[origin]
        want[i] = min(flow.queue[i] + reaching, power.capacity[i])


@numba.njit(cache=True, inline="always")
def _limit(wiring: Wiring, power: Power, flow: Flow, want: Floats, limit: Floats) -> None:
    """Set what each operator may process: its capacity, and its share of the room behind it, sinks first.

    Operators that feed the same one share its room in proportion to what they would send.
    """
    for i in range(len(limit) - 1, -1, -1):
        limit[i] = power.capacity[i]
        ratio = wiring.selectivity[i]
        for edge in range(wiring.downstream_first[i], wiring.downstream_first[i + 1]):
            target = wiring.downstream[edge]
            if ratio == 0.0 or wiring.room[target] == np.inf:
                continue
            asked = 0.0
            for feed in range(wiring.upstream_first[target], wiring.upstream_first[target + 1]):
                origin = wiring.upstream[feed]
                asked += want[origin] * wiring.selectivity[origin]
            share = want[i] * ratio / asked if asked > 0.0 else 0.0
            free = max(0.0, wiring.room[target] - flow.queue[target]) + limit[target]
            limit[i] = min(limit[i], free * share / ratio)


@numba.njit(cache=True, inline="always")
def _move(wiring: Wiring, flow: Flow, offered: Floats, limit: Floats, inflow: Floats, done: Floats) -> None:
    """Let the records flow, sources first; what is beyond the limit waits."""
    for i in range(len(done)):
        inflow[i] = offered[i]
        for edge in range(wiring.upstream_first[i], wiring.upstream_first[i + 1]):
            origin = wiring.upstream[edge]
            inflow[i] += done[origin] * wiring.selectivity[origin]
        there = flow.queue[i] + inflow[i]
        done[i] = min(there, limit[i])
        flow.queue[i] = there - done[i]


@numba.njit(cache=True, inline="always")
def _account(wiring: Wiring, power: Power, flow: Flow, inflow: Floats, done: Floats) -> None:
    for i in range(len(done)):
        flow.arrived[i] += inflow[i]
        flow.processed[i] += done[i]
        if not wiring.keeps_backlog[i]:
            flow.lost[i] += flow.queue[i]
            flow.queue[i] = 0.0
        # instances that a remote service holds back wait for its answers, and do nothing else
        held_back = power.own[i] > power.capacity[i] and done[i] >= power.capacity[i]
        flow.useful[i] += 1.0 if held_back else min(1.0, done[i] * power.service[i] / power.instances[i])


@numba.njit(cache=True, inline="always")
def _look(
    wiring: Wiring, power: Power, flow: Flow, ages: Ages, second: int, done: Floats, seen: Floats
) -> None:
    """Sum up the step; the latency is the largest age with which records leave an operator.

    Where none leaves, it is that of the oldest which waits.
    """
    seen[:] = 0.0
    for i in range(len(done)):
        is_source = wiring.upstream_first[i] == wiring.upstream_first[i + 1]
        seen[0] += done[i] if is_source else 0.0
        seen[1 if is_source else 2] += flow.queue[i]
        ages.arrived_by[second + 1, i] = flow.arrived[i]
        came = _find_arrival(flow, ages, second, i)
        before = 0.0
        for edge in range(wiring.upstream_first[i], wiring.upstream_first[i + 1]):
            before = max(before, ages.latency[min(int(came), second), wiring.upstream[edge]])
        waited = second + 1.0 - came + _random_wait(wiring, power, done, i)
        ages.latency[second, i] = before + waited + power.service[i] + power.coordination[i]
        seen[3] = max(seen[3], ages.latency[second, i])


@numba.njit(cache=True, inline="always")
def _find_arrival(flow: Flow, ages: Ages, second: int, i: int) -> float:
    """Return when the oldest record before an operator came: now, where none waits."""
    if flow.queue[i] <= EMPTY * flow.arrived[i]:
        ages.head[i] = second
        return second + 1.0
    gone = flow.arrived[i] - flow.queue[i]
    head = ages.head[i]
    while head < second and ages.arrived_by[head + 1, i] <= gone:
        head += 1
    ages.head[i] = head
    start, end = ages.arrived_by[head, i], ages.arrived_by[head + 1, i]
    share = (gone - start) / (end - start) if end > start else 0.0
    came: float = head + min(1.0, max(0.0, share))
    return came


@numba.njit(cache=True, inline="always")
def _random_wait(wiring: Wiring, power: Power, done: Floats, i: int) -> float:
    """Return the mean waiting of a G/G/k queue (Sakasegawa's approximation), which a fluid does not show."""
    if wiring.variability[i] == 0.0 or power.capacity[i] == 0.0 or power.capacity[i] == np.inf:
        return 0.0
    load = min(FULLEST, done[i] / power.own[i])
    count = power.instances[i]
    power_of_load = load ** (np.sqrt(2.0 * (count + 1.0)) - 1.0)
    waiting: float = wiring.variability[i] * power_of_load / (count * (1.0 - load)) * power.service[i]
    return waiting


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
        seconds = experiment.seconds
        self._ages = Ages(
            np.zeros((seconds + 1, size)), np.zeros((seconds, size)), np.zeros(size, dtype=np.int64)
        )

    def forget_power(self) -> None:
        """Look at capacities and instances anew."""
        super().forget_power()
        self._power = self._spread = None

    def flow_on(self, until: int, stopped: bool) -> None:
        """Make the steps up to then."""
        if self._power is None or self._disturbed is not None:
            self._power = self._present_power()
        nothing = np.zeros(len(self.instances))
        power = self._power._replace(capacity=nothing, own=nothing) if stopped else self._power
        span = slice(self.now, until)
        advance(self.wiring, power, self.flow, self._ages, self.now, self.offered[span], self.seen[span])

    def instance_work(self) -> tuple[Integers, Floats, Floats]:
        """Return since the last call the operator of each instance, its records and the seconds it worked."""
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
        """Return the operator of each instance, and its share of the operator's records."""
        counts, working = self.instances, self.working
        skew = limit_skew(working, self.experiment.skews)
        share = (
            share_records(counts, skew) if working is counts else share_among_working(counts, working, skew)
        )
        return np.repeat(np.arange(len(counts)), counts), share

    def waiting(self, number: int) -> float:
        """Return records that wait before an operator."""
        return float(self.flow.queue[number])

    def scatter(self) -> Floats | None:
        """Add the randomness that the scenario describes to what is measured: a fluid shows none.

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
        """Return the mean over these seconds."""
        return float(np.add.reduce(self.seen[start:end, LATENCY]) / (end - start))

    def _present_power(self) -> Power:
        experiment, working = self.experiment, self.working
        speed = experiment.slow_down(self.instances)
        capacity = experiment.capacity_of(working) * self.shares * speed
        own = experiment.capacity_of(working, own=True) * self.shares * speed
        instances = self.instances.astype(np.float64)
        even = own * (1 + limit_skew(working, experiment.skews))
        with np.errstate(divide="ignore", invalid="ignore"):
            service = np.where(np.isinf(capacity), UNLIMITED_SERVICE, working / even)
        service = np.where(working > 0, service, 0.0)
        return Power(capacity, own, service, instances, experiment.coordination * instances)


def share_records(counts: Integers, skew: Floats) -> Floats:
    """Return the share of its operator's records that each instance gets; the first one is the busiest."""
    others = (1 - skew / np.maximum(counts - 1, 1)) / counts
    shares = np.repeat(others, counts)
    shares[np.cumsum(counts) - counts] = (1 + skew) / counts
    return shares


def share_among_working(counts: Integers, working: Integers, skew: Floats) -> Floats:
    """Do the same where the last instances of an operator have failed and get nothing."""
    shares = np.zeros(int(counts.sum()))
    first = np.cumsum(counts) - counts
    for start, alive, uneven in zip(first.tolist(), working.tolist(), skew.tolist(), strict=True):
        if alive:
            shares[start : start + alive] = share_records(np.array([alive]), np.array([uneven]))
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
