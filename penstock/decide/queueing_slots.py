"""The queueing policy where a query's operators share slots: a queue of batches that the driver serves.

A query runs one batch at a time, so it is a GI/G/1 queue whose customers are batches: one arrives every
period T, and its service takes the b(S) seconds that the fitted costs predict on S slots. A record waits
T/2 on average for its batch to begin, then with its batch, and then is in it
(Elastic Pulsar Functions, equations 1 to 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median

from penstock.dataflow.cost_memory import CostMemory
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.slots import NEARLY_BEST
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, QueryWindow
from penstock.decide.policy import HELD_UTILISATION, ExpectedEffect, Hold, Proposal, Scale
from penstock.decide.queueing_settings import QueueingSettings
from penstock.decide.queues import response_seconds
from penstock.decide.slot_sizing import QuerySizing, demand_of, size_query
from penstock.decide.variation import FEWEST_SAMPLES, MEDIAN_OF_SQUARE, MOST_VARIATION

QUERIES_KEPT = 64
"""Applications may start and stop queries without end; what was learned of the oldest is dropped."""


THROUGHPUT_SLOTS = "throughput_slots"
"""Figure of a proposal: the slots that the offered rate needs, whatever the latency."""


@dataclass(slots=True)
class _Learned:
    memory: CostMemory = field(default_factory=CostMemory)
    seconds: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Need:
    """What one query needs, and how it would fare on another size."""

    slots: int
    seconds: float
    told: str
    sizing: QuerySizing
    variation: float

    def load_on(self, slots: int) -> float:
        """The share of its period that a batch takes."""
        return self.sizing.seconds_on(slots) / self.sizing.period_seconds

    def seconds_on(self, slots: int) -> float:
        """The response time of a record."""
        return batch_response_seconds(
            self.sizing.period_seconds, self.sizing.seconds_on(slots), self.variation
        )


class QueueingSlots:
    """Finds the executors with which every query's records are through within the latency target."""

    def __init__(self, settings: QueueingSettings) -> None:
        self._settings = settings
        self._learned: dict[str, _Learned] = {}

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Propose the executors for all queries, whose slots add up; never fewer than throughput needs."""
        target = self._settings.latency_target_seconds
        if target is None:
            return NotReady("no latency target is set", "the setting latency_target")
        if not window.queries:
            return NotReady("no streaming query is active", "a streaming query")
        held = window.parallelism.get(EXECUTORS, 0)
        if held < 1 or not window.executors or window.slots < 1:
            return NotReady("the application has no executors", "an executor")
        needs: list[_Need] = []
        for query in window.queries:
            need = self._need(query, window, target)
            if isinstance(need, NotReady):
                return NotReady(f"{query.name}: {need.reason}", need.awaiting, need.until)
            needs.append(need)
        return self._proposal(window, needs, held)

    def _need(self, query: QueryWindow, window: ApplicationWindow, target: float) -> _Need | NotReady:
        learned = self._recall(query.query_id)
        if not query.batches or learned.memory.remember(query.batches) == 0:
            return NotReady("no batch of the window has usable metrics", "a batch with finite metrics")
        learned.seconds |= {batch.batch_id: batch.seconds for batch in query.batches if batch.settled}
        while len(learned.seconds) > self._settings.windows_kept:
            del learned.seconds[next(iter(learned.seconds))]
        demand = demand_of(query)
        if isinstance(demand, NotReady):
            return demand
        alone = len(window.queries) == 1
        costs = learned.memory.costs(alone)
        if isinstance(costs, NotReady):
            return costs
        settings = self._settings.ds2(window.slots_per_executor)
        sizing = size_query(query, demand, costs, window.slots, alone, settings)
        if isinstance(sizing, NotReady):
            return sizing
        variation = _batch_variation(list(learned.seconds.values()))
        return _least(query.name, sizing, variation, target, settings.max_slots)

    def _recall(self, query_id: str) -> _Learned:
        learned = self._learned.pop(query_id, None) or _Learned()
        self._learned[query_id] = learned
        while len(self._learned) > QUERIES_KEPT:
            del self._learned[next(iter(self._learned))]
        return learned

    def _proposal(self, window: ApplicationWindow, needs: Sequence[_Need], held: int) -> Proposal:
        per_executor = max(1, window.slots_per_executor)
        total = sum(need.slots for need in needs)
        wanted = max(self._settings.min_instances, math.ceil(total / per_executor))
        limit = ""
        if wanted > self._settings.max_instances:
            limit = f"; {wanted} executors would be needed, {self._settings.max_instances} are allowed"
            wanted = self._settings.max_instances
        reason = "; ".join(need.told for need in needs) + limit
        slowest = max(need.seconds for need in needs)
        figures = {
            "slots_needed": float(total),
            THROUGHPUT_SLOTS: float(sum(need.sizing.slots for need in needs)),
        }
        figures |= {"latency_seconds": slowest} if math.isfinite(slowest) else {}
        if wanted == held:
            return Hold(reason, figures)
        if wanted < held or self._is_in_time(needs, window.slots):
            figures[HELD_UTILISATION] = max(need.load_on(_part(need, needs, window.slots)) for need in needs)
        summary = (
            f"records are through in {slowest:.3g} s" if math.isfinite(slowest) else "a smaller shortfall"
        )
        effect = ExpectedEffect(summary, figures)
        return Scale({EXECUTORS: wanted}, f"{held} → {wanted} executors: {reason}", effect)

    def _is_in_time(self, needs: Sequence[_Need], slots: int) -> bool:
        """Whether the slots held meet the target too: then the manager's band may damp the change."""
        target = self._settings.latency_target_seconds or math.inf
        return all(need.seconds_on(_part(need, needs, slots)) <= target for need in needs)


def batch_response_seconds(period: float, batch: float, variation: float) -> float:
    """T/2 until the batch begins, then equations 1 to 3 with one server; a trigger is regular: c_a = 0."""
    if batch <= 0:
        return period / 2
    return period / 2 + response_seconds(1, 1 / period, 1 / batch, 0.0, variation)


def _part(need: _Need, needs: Sequence[_Need], slots: int) -> int:
    """A query's part of the slots, in proportion to what it needs."""
    return max(1, slots * need.slots // max(1, sum(other.slots for other in needs)))


def _batch_variation(seconds: Sequence[float]) -> float:
    """c_s² of batch times, from neighbours, so that a step of the load counts once; 1 until known."""
    squares = [(later - earlier) ** 2 / 2 for earlier, later in pairwise(seconds)]
    if len(squares) < FEWEST_SAMPLES or not fmean(seconds) > 0:
        return 1.0
    return min(MOST_VARIATION, median(squares) / MEDIAN_OF_SQUARE / fmean(seconds) ** 2)


def _least(name: str, sizing: QuerySizing, variation: float, target: float, most: int) -> _Need:
    """The fewest slots, from what throughput needs upwards, that meet the target."""
    period = sizing.period_seconds
    waiting = f"waiting for a batch every {period:.3g} s takes {period / 2:.3g} s"
    if target <= period / 2:
        seconds = batch_response_seconds(period, sizing.seconds_on(sizing.slots), variation)
        told = f"{name} cannot meet {target:.3g} s with any size, since {waiting}; its rate needs"
        return _Need(sizing.slots, seconds, f"{told} {sizing.slots} slots", sizing, variation)
    sizes = range(sizing.slots, max(sizing.slots, most) + 1)
    times = [batch_response_seconds(period, sizing.seconds_on(slots), variation) for slots in sizes]
    # nearly the best where none is good enough: dropping to the least would swing with a target that is
    # just met now and then
    limit = target if min(times) <= target else min(times) * NEARLY_BEST
    slots, seconds = next(pair for pair in zip(sizes, times, strict=True) if pair[1] <= limit)
    through = f"through in {seconds:.3g} s of {target:.3g} s" if math.isfinite(seconds) else "late for ever"
    told = f"{name} needs {slots} slots: its records are {through}"
    if seconds > target:
        told += f"; no size up to {most} slots does better, and {waiting}"
    told += f"; {sizing.advice}" if sizing.advice else ""
    return _Need(slots, seconds, told, sizing, variation)
