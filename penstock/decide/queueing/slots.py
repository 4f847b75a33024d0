"""The queueing policy for queries on slots: a queue of batches that the driver serves.

A query runs one batch at a time, so it is a GI/G/1 queue whose customers are batches: one arrives every
period T, and its service takes the b(S) seconds that the fitted costs predict on S slots. A record waits
T/2 on average for its batch to begin, then with its batch, and then is in it
(Elastic Pulsar Functions, equations 1 to 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from penstock.dataflow.costs.memory import CostMemory
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, SlotQuery, SlotWindow
from penstock.decide.ds2.slot_sizing import Held, QuerySizing, find_period, read_demand, size_query
from penstock.decide.faults import find_lag, find_left_out, find_sleep, find_unknown_source
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.policy import HELD_UTILISATION, ExpectedEffect, Hold, Proposal, Scale
from penstock.decide.queueing.queues import UNKNOWN, estimate_variation, response_seconds, square_steps
from penstock.decide.queueing.settings import QueueingSettings
from penstock.decide.readings import count_held

QUERIES_KEPT = 64
"""Applications may start and stop queries without end, so the oldest are forgotten."""


THROUGHPUT_SLOTS = "throughput_slots"
"""Figure of a proposal: the slots that the offered rate needs, whatever the latency."""

NEARLY_BEST = 1.02
"""Where no size is in time, slots that shorten the batch by less than 2 % are not worth having."""


@dataclass(slots=True)
class _LearnedBatches:
    memory: CostMemory = field(default_factory=CostMemory)
    seconds: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _LatencyNeed:
    """The slots that one query needs, and predictions for other sizes."""

    slots: int
    seconds: float
    told: str
    sizing: QuerySizing
    variation: float

    def load_on(self, slots: int) -> float:
        """Return the share of its period that a batch takes."""
        return self.sizing.seconds_on(slots) / self.sizing.period_seconds

    def seconds_on(self, slots: int) -> float:
        """Return the response time of a record."""
        return batch_response_seconds(
            self.sizing.period_seconds, self.sizing.seconds_on(slots), self.variation
        )


class QueueingSlots:
    """Finds the executors with which the records of every query meet the latency target."""

    def __init__(self, settings: QueueingSettings, bounds: SizeBounds, goals: Goals) -> None:
        self._settings, self._bounds, self._goals = settings, bounds, goals
        self._learned: dict[str, _LearnedBatches] = {}

    def propose(self, window: SlotWindow) -> Proposal | NotReady:
        """Propose the executors for all queries, whose slots add up; never fewer than throughput needs."""
        target = self._goals.latency_target
        if target is None:
            return NotReady("no latency target is set", "the setting latency_target")
        if not window.queries:
            return NotReady("no streaming query is active", "a streaming query")
        held = count_held(window)
        if isinstance(held, NotReady):
            return held
        needs: list[_LatencyNeed] = []
        for query in window.queries:
            need = self._find_need(query, window, target)
            if isinstance(need, NotReady):
                return NotReady(f"{query.name}: {need.reason}", need.awaiting, need.until)
            needs.append(need)
        return self._make_proposal(window, needs, held)

    def _find_need(self, query: SlotQuery, window: SlotWindow, target: float) -> _LatencyNeed | NotReady:
        learned = self._recall(query.query_id)
        fault = (
            find_unknown_source(query)
            or find_sleep(query, find_period(query, self._goals))
            or find_lag(query, window)
            or find_left_out(query)
        )
        if fault is not None:
            return fault
        if not query.batches or learned.memory.remember(query.batches) == 0:
            return NotReady("no batch of the window has usable metrics", "a batch with finite metrics")
        learned.seconds |= {batch.batch_id: batch.seconds for batch in query.batches if batch.settled}
        while len(learned.seconds) > self._settings.windows_kept:
            del learned.seconds[next(iter(learned.seconds))]
        demand = read_demand(query, find_period(query, self._goals))
        if isinstance(demand, NotReady):
            return demand
        alone = len(window.queries) == 1
        costs = learned.memory.costs(alone)
        if isinstance(costs, NotReady):
            return costs
        most = self._bounds.most * max(1, window.slots_per_executor)
        held = Held(window.slots, max(1, window.slots_per_executor))
        sizing = size_query(query, demand, costs, held, alone, self._goals, most)
        if isinstance(sizing, NotReady):
            return sizing
        seconds = list(learned.seconds.values())
        mean = fmean(seconds) if seconds else 0.0
        variation = estimate_variation(square_steps(seconds), mean**-2) if mean > 0 else UNKNOWN
        return _find_least(query.name, sizing, variation, target, most)

    def _recall(self, query_id: str) -> _LearnedBatches:
        learned = self._learned.pop(query_id, None) or _LearnedBatches()
        self._learned[query_id] = learned
        while len(self._learned) > QUERIES_KEPT:
            del self._learned[next(iter(self._learned))]
        return learned

    def _make_proposal(self, window: SlotWindow, needs: Sequence[_LatencyNeed], held: int) -> Proposal:
        per_executor = max(1, window.slots_per_executor)
        total = sum(need.slots for need in needs)
        wanted = max(self._bounds.least, math.ceil(total / per_executor))
        limit = ""
        if wanted > self._bounds.most:
            limit = f"; {wanted} executors would be needed, {self._bounds.most} are allowed"
            wanted = self._bounds.most
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
            figures[HELD_UTILISATION] = max(
                need.load_on(_share_slots(need, needs, window.slots)) for need in needs
            )
        through = f"records are through in {slowest:.3g} s"
        effect = ExpectedEffect(through if math.isfinite(slowest) else "a smaller shortfall", figures)
        return Scale({EXECUTORS: wanted}, f"{held} → {wanted} executors: {reason}", effect)

    def _is_in_time(self, needs: Sequence[_LatencyNeed], slots: int) -> bool:
        """Return whether the slots held meet the target too: then the manager's band may damp the change."""
        target = self._goals.latency_target or math.inf
        return all(need.seconds_on(_share_slots(need, needs, slots)) <= target for need in needs)


def batch_response_seconds(period: float, batch: float, variation: float) -> float:
    """Return the wait of T/2 for the batch plus equations 1 to 3, with one server and c_a = 0."""
    if batch <= 0:
        return period / 2
    return period / 2 + response_seconds(1, 1 / period, 1 / batch, 0.0, variation)


def _share_slots(need: _LatencyNeed, needs: Sequence[_LatencyNeed], slots: int) -> int:
    """Return a query's part of the slots, in proportion to its need."""
    return max(1, slots * need.slots // max(1, sum(other.slots for other in needs)))


def _find_least(name: str, sizing: QuerySizing, variation: float, target: float, most: int) -> _LatencyNeed:
    """Find the fewest slots that meet the target, from those that throughput needs upwards."""
    period = sizing.period_seconds
    waiting = f"waiting for a batch every {period:.3g} s takes {period / 2:.3g} s"
    if target <= period / 2:
        seconds = batch_response_seconds(period, sizing.seconds_on(sizing.slots), variation)
        told = f"{name} cannot meet {target:.3g} s with any size, since {waiting}; its rate needs"
        return _LatencyNeed(sizing.slots, seconds, f"{told} {sizing.slots} slots", sizing, variation)
    sizes = range(sizing.slots, max(sizing.slots, most) + 1)
    times = [batch_response_seconds(period, sizing.seconds_on(slots), variation) for slots in sizes]
    # where none meets the target, nearly the best: dropping to the least would swing with a target that is
    # sometimes just met
    limit = target if min(times) <= target else min(times) * NEARLY_BEST
    slots, seconds = next(pair for pair in zip(sizes, times, strict=True) if pair[1] <= limit)
    through = f"through in {seconds:.3g} s of {target:.3g} s" if math.isfinite(seconds) else "late for ever"
    told = f"{name} needs {slots} slots: its records are {through}"
    if seconds > target:
        told += f"; no size up to {most} slots does better, and {waiting}"
    told += f"; {sizing.advice}" if sizing.advice else ""
    return _LatencyNeed(slots, seconds, told, sizing, variation)
