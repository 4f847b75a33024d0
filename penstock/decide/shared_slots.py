"""DS2 where the operators of a query share slots, as the stages of a micro-batch do on Spark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.dataflow.cost_memory import CostMemory
from penstock.dataflow.cost_record import costs_from, plain_costs
from penstock.dataflow.costs import QueryCosts
from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, QueryWindow
from penstock.decide.ds2_settings import Ds2Settings
from penstock.decide.policy import HELD_UTILISATION, UTILISATION, ExpectedEffect, Hold, Proposal, Scale
from penstock.decide.slot_sizing import QuerySizing, demand_of, size_query
from penstock.errors import BadMetrics

QUERIES_KEPT = 64
"""Applications may start and stop queries without end; what was learned of the oldest is dropped."""


@dataclass(slots=True)
class _Learned:
    name: str
    graph: LogicalGraph
    memory: CostMemory = field(default_factory=CostMemory)
    last_slots: int | None = None


@dataclass(frozen=True, slots=True)
class _Need:
    """One query's part: sized now, or not, and then perhaps with the slots that it last needed."""

    query: QueryWindow
    sizing: QuerySizing | NotReady
    last_slots: int | None

    @property
    def slots(self) -> int:
        return self.last_slots or 0 if isinstance(self.sizing, NotReady) else self.sizing.slots

    @property
    def may_shrink(self) -> bool:
        """An unknown need, or a source that just went quiet, must not shrink anything."""
        if isinstance(self.sizing, NotReady):
            return self.last_slots is not None
        return self.sizing.demand.offered_per_second > 0


class SharedSlots:
    """Sizes an application whose queries share the slots of its executors; learns costs from batches."""

    def __init__(self, settings: Ds2Settings) -> None:
        self._settings = settings
        self._learned: dict[str, _Learned] = {}
        self._earlier: dict[str, tuple[QueryCosts, ...]] = {}

    def learned(self) -> dict[str, dict[str, Any]]:
        """The fitted costs of each query, by its name."""
        fitted = {known.name: known.memory.fitted() for known in self._learned.values()}
        plain = {name: [one for fit in fits if (one := plain_costs(fit))] for name, fits in fitted.items()}
        return {name: {"fits": fits} for name, fits in plain.items() if fits}

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take up the costs of an earlier run, query by query; those that cannot be read are named."""
        notes: list[str] = []
        for name, body in list(known.items())[-QUERIES_KEPT:]:
            try:
                self._earlier[name] = tuple(costs_from(one) for one in body["fits"])
            except (BadMetrics, KeyError, TypeError) as error:
                notes.append(f"what was learned of query {name} is not used: {error}")
        return tuple(notes)

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Propose the executors that carry the offered rates of all queries, whose slots add up."""
        if not window.queries:
            return NotReady("no streaming query is active", "a streaming query")
        if not window.executors or window.slots < 1:
            return NotReady("the application has no executors", "an executor")
        if EXECUTORS not in window.parallelism:
            return NotReady("how many executors are held is unknown", "their number")
        needs = [self._need(query, window) for query in window.queries]
        unready = [need.sizing for need in needs if isinstance(need.sizing, NotReady)]
        if len(unready) == len(needs):
            return unready[0]
        answer = _decide(window, needs)
        if not all(need.may_shrink for need in needs) and _is_shrinking(answer, window):
            return unready[0] if unready else _held_for_backlog(answer)
        return answer

    def _need(self, query: QueryWindow, window: ApplicationWindow) -> _Need:
        learned = self._recall(query)
        sizing = self._size(query, learned.memory, window)
        if isinstance(sizing, QuerySizing):
            learned.last_slots = sizing.slots
        elif len(window.queries) > 1:
            sizing = NotReady(f"{query.name}: {sizing.reason}", sizing.awaiting, sizing.until)
        return _Need(query, sizing, learned.last_slots)

    def _recall(self, query: QueryWindow) -> _Learned:
        """What is known of the query; a new plan starts afresh."""
        learned = self._learned.pop(query.query_id, None)
        if learned is None or learned.graph != query.graph:
            learned = _Learned(query.name, query.graph)
            learned.memory.recall(self._earlier.get(query.name, ()))
        self._learned[query.query_id] = learned
        while len(self._learned) > QUERIES_KEPT:
            del self._learned[next(iter(self._learned))]
        return learned

    def _size(
        self, query: QueryWindow, memory: CostMemory, window: ApplicationWindow
    ) -> QuerySizing | NotReady:
        silent = _silent(query)
        if silent is not None:
            return silent
        if memory.remember(query.batches) == 0:
            return NotReady("no batch of the window has usable metrics", "a batch with finite metrics")
        demand = demand_of(query)
        if isinstance(demand, NotReady):
            return demand
        alone = len(window.queries) == 1
        costs = memory.costs(alone)
        if isinstance(costs, NotReady):
            return costs
        return size_query(query, demand, costs, window.slots, alone, self._settings)


def _silent(query: QueryWindow) -> NotReady | None:
    """Batches without records tell no cost per record, and records that no source counted tell no rate."""
    if not query.batches:
        return NotReady("no batch finished in the window", "a finished batch")
    if not any(batch.settled for batch in query.batches):
        return NotReady("executors came or went during the batch, or are new to it", "the next batch")
    read = dict.fromkeys(query.graph.sources, 0.0)
    for batch in query.batches:
        for stage in batch.stages:
            if stage.operator in read:
                read[stage.operator] += float(stage.records_in.sum())
    if any(read.values()):
        return None
    if any(batch.input_records > 0 for batch in query.batches):
        return NotReady(
            "the source's tasks report no records in, though batches had some", "their record counts"
        )
    return NotReady("idle: no records in the window", "records")


def _decide(window: ApplicationWindow, needs: Sequence[_Need]) -> Hold | Scale:
    total = sum(need.slots for need in needs)
    per_executor = max(1, window.slots_per_executor)
    wanted = max(1, math.ceil(total / per_executor))
    held = window.parallelism[EXECUTORS]
    size = window.slots if wanted == held else wanted * per_executor
    figures = _figures(needs, total, size, window.slots)
    reason = _reason(needs, total) + f": holds {window.slots}"
    notes = [
        need.sizing.advice for need in needs if isinstance(need.sizing, QuerySizing) and need.sizing.advice
    ]
    if wanted == held:
        return Hold("; ".join([reason, *notes]), figures)
    reason += f", {wanted} executors have {size}"
    summary = f"batches of {figures['batch_seconds']:.1f} s on {size} slots"
    return Scale(
        parallelism={EXECUTORS: wanted},
        reason="; ".join([reason, *notes]),
        expected=ExpectedEffect(summary, figures),
        exact={EXECUTORS: total / per_executor},
    )


def _figures(needs: Sequence[_Need], total: int, size: int, held: int) -> dict[str, float]:
    """Predictions for the busiest query, each query having its part of the slots."""
    sized = [need.sizing for need in needs if isinstance(need.sizing, QuerySizing)]
    seconds = _seconds_on(sized, size, total)
    shares = [batch / sizing.period_seconds for batch, sizing in zip(seconds, sized, strict=True)]
    busiest = shares.index(max(shares))
    now = zip(_seconds_on(sized, held, total), sized, strict=True)
    return {
        "slots_needed": float(total),
        "batch_seconds": seconds[busiest],
        UTILISATION: shares[busiest],
        HELD_UTILISATION: max(batch / sizing.period_seconds for batch, sizing in now),
        "offered_per_second": sum(sizing.demand.offered_per_second for sizing in sized),
        "backlog_records": sum(sizing.demand.backlog_records for sizing in sized),
        "period_seconds": sized[busiest].period_seconds,
    }


def _seconds_on(sized: Sequence[QuerySizing], slots: int, total: int) -> list[float]:
    return [sizing.seconds_on(max(1, slots * sizing.slots // max(1, total))) for sizing in sized]


def _reason(needs: Sequence[_Need], total: int) -> str:
    if len(needs) == 1:
        return _sentence(needs[0])
    return "; ".join(f"{need.query.name} {_sentence(need)}" for need in needs) + f"; together {total} slots"


def _sentence(need: _Need) -> str:
    sizing = need.sizing
    if isinstance(sizing, NotReady):
        known = f"keeps the {need.slots} slots it last needed" if need.slots else "is not known yet"
        return f"{known} ({sizing.reason})"
    size = f"{sizing.slots} slot" if sizing.slots == 1 else f"{sizing.slots} slots"
    need_text = f"needs {size}" if sizing.feasible else f"falls short even with {size}"
    load = f"{_rate(sizing.demand.offered_per_second)} records/s"
    if sizing.for_backlog:
        load += f" and a backlog of {sizing.demand.backlog_records:,.0f} records"
    batch = f"batch {sizing.batch_seconds:.1f} s of {sizing.period_seconds:.1f} s at {size}"
    return f"{need_text} for {load} ({batch})"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _is_shrinking(answer: Hold | Scale, window: ApplicationWindow) -> bool:
    held = window.parallelism[EXECUTORS]
    return isinstance(answer, Scale) and answer.parallelism[EXECUTORS] < held


def _held_for_backlog(answer: Hold | Scale) -> Hold:
    figures = answer.figures if isinstance(answer, Hold) else answer.expected.figures
    return Hold(
        f"{answer.reason}; nothing is offered now, so nothing is released while a backlog is read", figures
    )
