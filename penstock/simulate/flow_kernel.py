"""Compiled steps of one second of the fluid model: records flow through operators, wait, and are held back.

In a step every operator takes what waits before it, up to its capacity and to the room behind it. Records may
pass several operators in one step, so a pipeline that keeps up has empty queues. The parts of a step are made
one function: to hand them their two dozen columns would take a third of the time.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from penstock.dataflow.metrics import Floats, Integers

FULLEST = 0.98
"""Utilisation at which the waiting of the queueing formula is cut off; beyond it the fluid queue tells."""


class Wiring(NamedTuple):
    """What does not change: edges as lists of neighbours, with `first[i]` up to `first[i + 1]` those of i."""

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
    """What a change of parallelism, a restart or a slow phase changes."""

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
    """The state, changed in place; all but the first three are sums since the start."""

    queue: Floats
    wait: Floats
    """Seconds that a record waits before an operator, as long as records leave it."""
    stall: Floats
    """Seconds for which records have waited and none has left."""
    arrived: Floats
    processed: Floats
    useful: Floats
    """Seconds in which an average instance worked."""
    lost: Floats
    """What a generator that was held back did not produce."""


@numba.njit(cache=True)
def advance(wiring: Wiring, power: Power, flow: Flow, arrivals: Floats, seen: Floats) -> None:
    """Make one step for each row of `arrivals` (records by operator, zero but for sources).

    A row of `seen` takes what was read from all sources, what waits before them, what waits inside, and the
    end-to-end latency.
    """
    size = len(flow.queue)
    want, limit, inflow, done = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    until, stalled = np.empty(size), np.empty(size)
    for step in range(len(arrivals)):
        _ask(wiring, power, flow, arrivals[step], want)
        _limit(wiring, power, flow, want, limit)
        _move(wiring, flow, arrivals[step], limit, inflow, done)
        _account(wiring, power, flow, inflow, done)
        _look(wiring, power, flow, done, until, stalled, seen[step])


@numba.njit(cache=True, inline="always")
def _ask(wiring: Wiring, power: Power, flow: Flow, offered: Floats, want: Floats) -> None:
    """What each operator would process if nothing behind it were full."""
    for i in range(len(want)):
        reaching = offered[i]
        for edge in range(wiring.upstream_first[i], wiring.upstream_first[i + 1]):
            origin = wiring.upstream[edge]
            reaching += want[origin] * wiring.selectivity[origin]
        want[i] = min(flow.queue[i] + reaching, power.capacity[i])


@numba.njit(cache=True, inline="always")
def _limit(wiring: Wiring, power: Power, flow: Flow, want: Floats, limit: Floats) -> None:
    """What each operator may process: its capacity, and its share of the room behind it, sinks first.

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
        # Little's law; where records wait and none leaves, it says nothing, and they only grow older
        stalled = done[i] == 0.0 and flow.queue[i] > 0.0
        flow.stall[i] = flow.stall[i] + 1.0 if stalled else 0.0
        if not stalled:
            flow.wait[i] = flow.queue[i] / done[i] if done[i] > 0.0 else 0.0


@numba.njit(cache=True, inline="always")
def _look(
    wiring: Wiring, power: Power, flow: Flow, done: Floats, until: Floats, stalled: Floats, seen: Floats
) -> None:
    """Sum up the step; the latency is that of the slowest path from a source to a sink.

    Along a path waiting adds up, but a standstill of all operators ages each record only once.
    """
    seen[:] = 0.0
    for i in range(len(done)):
        is_source = wiring.upstream_first[i] == wiring.upstream_first[i + 1]
        seen[0] += done[i] if is_source else 0.0
        seen[1 if is_source else 2] += flow.queue[i]
        until[i] = stalled[i] = 0.0
        for edge in range(wiring.upstream_first[i], wiring.upstream_first[i + 1]):
            until[i] = max(until[i], until[wiring.upstream[edge]])
            stalled[i] = max(stalled[i], stalled[wiring.upstream[edge]])
        until[i] += flow.wait[i] + power.service[i] + power.coordination[i]
        until[i] += _random_wait(wiring, power, done, i)
        stalled[i] = max(stalled[i], flow.stall[i])
        seen[3] = max(seen[3], until[i] + stalled[i])


@numba.njit(cache=True, inline="always")
def _random_wait(wiring: Wiring, power: Power, done: Floats, i: int) -> float:
    """Mean waiting of a G/G/k queue (Sakasegawa's approximation), which the fluid model cannot see."""
    if wiring.variability[i] == 0.0 or power.capacity[i] == 0.0 or power.capacity[i] == np.inf:
        return 0.0
    load = min(FULLEST, done[i] / power.own[i])
    count = power.instances[i]
    power_of_load = load ** (np.sqrt(2.0 * (count + 1.0)) - 1.0)
    waiting: float = wiring.variability[i] * power_of_load / (count * (1.0 - load)) * power.service[i]
    return waiting
