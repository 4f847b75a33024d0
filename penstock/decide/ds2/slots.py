"""DS2 for queries on slots, whose stages run one after the other in each micro-batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from penstock.dataflow.costs.foresight import Outlook
from penstock.dataflow.costs.memory import CostMemory
from penstock.dataflow.costs.model import QueryCosts, read_costs, write_costs
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, SlotQuery, SlotWindow
from penstock.decide.ds2.query_memory import QueryMemory
from penstock.decide.ds2.running import await_end, describe_overdue, size_by_running
from penstock.decide.ds2.slot_sizing import (
    MOST_SLOTS,
    Held,
    QuerySizing,
    find_period,
    read_demand,
    size_query,
)
from penstock.decide.ds2.slots_needed import SlotsNeeded, describe_needs
from penstock.decide.faults import find_lag, find_left_out, find_sleep, find_unknown_source
from penstock.decide.goals import Goals
from penstock.decide.policy import (
    HELD_LOAD,
    HELD_UTILISATION,
    IDLE_SECONDS,
    SEEN_EXECUTORS,
    UTILISATION,
    ExpectedEffect,
    Hold,
    Proposal,
    Scale,
)
from penstock.decide.readings import count_held
from penstock.errors import BadMetrics

RISEN = 1.2
"""Times the rate at which a query was last sized from which it is sized anew without a batch that ended."""

MOST_LOAD = 1000.0
"""Fixed costs that fill the period are an infinite load, which no journal takes."""

QUERIES_KEPT = 64
"""Applications may start and stop queries without end, so the oldest are forgotten."""


class SharedSlots:
    """Sizes the executors of an application on slots; learns the costs of its queries from their batches."""

    def __init__(self, goals: Goals, max_slots: int = MOST_SLOTS) -> None:
        self._goals, self._max_slots = goals, max_slots
        self._learned: dict[str, QueryMemory] = {}
        self._earlier: dict[str, tuple[QueryCosts, ...]] = {}

    def learned(self) -> dict[str, dict[str, Any]]:
        """Return the fitted costs of each query, by its name."""
        fitted = {known.name: known.memory.list_fits() for known in self._learned.values()}
        plain = {name: [one for fit in fits if (one := write_costs(fit))] for name, fits in fitted.items()}
        return {name: {"fits": fits} for name, fits in plain.items() if fits}

    def recall(self, known: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
        """Take up the costs of an earlier run, query by query; unreadable ones are named."""
        notes: list[str] = []
        for name, body in list(known.items())[-QUERIES_KEPT:]:
            try:
                self._earlier[name] = tuple(read_costs(one) for one in body["fits"])
            except (BadMetrics, KeyError, TypeError) as error:
                notes.append(f"what was learned of query {name} is not used: {error}")
        return tuple(notes)

    def propose(self, window: SlotWindow) -> Proposal | NotReady:
        """Propose the executors whose slots carry the offered rates of all queries together."""
        missing = _find_missing(window)
        if missing is not None:
            return missing
        needs = [self._need(query, window) for query in window.queries]
        if all(need.is_idle for need in needs):
            return _give_back(window)
        unready = [need.sizing for need in needs if isinstance(need.sizing, NotReady) and not need.is_idle]
        if all(isinstance(need.sizing, NotReady) for need in needs):
            return unready[0]
        answer = _decide(window, needs)
        if not all(need.may_shrink for need in needs) and _is_shrinking(answer, window):
            return unready[0] if unready else _hold_without_evidence(answer, needs)
        return answer

    def _need(self, query: SlotQuery, window: SlotWindow) -> SlotsNeeded:
        learned = self._recall(query)
        sizing = self._size(query, learned, window)
        if isinstance(sizing, QuerySizing):
            learned.last_offered = sizing.demand.offered_per_second
            # what is held for a batch more was not found to be right
            learned.last_slots = learned.last_slots if sizing.waits else sizing.slots
        elif query.idle_seconds > 0:
            learned.last_offered = 0.0
        elif len(window.queries) > 1:
            sizing = NotReady(f"{query.name}: {sizing.reason}", sizing.awaiting, sizing.until)
        return SlotsNeeded(query, sizing, learned.last_slots)

    def _recall(self, query: SlotQuery) -> QueryMemory:
        """Return what is known of the query; a query with a new plan starts afresh."""
        learned = self._learned.pop(query.query_id, None)
        if learned is None or learned.graph != query.graph:
            learned = QueryMemory(query.name, query.graph, CostMemory(query.graph.sources))
            learned.memory.recall(self._earlier.get(query.name, ()))
        self._learned[query.query_id] = learned
        while len(self._learned) > QUERIES_KEPT:
            del self._learned[next(iter(self._learned))]
        return learned

    def _size(self, query: SlotQuery, learned: QueryMemory, window: SlotWindow) -> QuerySizing | NotReady:
        learned.note_slots(window)
        lag = find_lag(query, window)
        unfit = find_unknown_source(query) or lag or find_left_out(query)
        silence = unfit or _find_silence(query, window.end)
        if silence is None and learned.memory.remember(query.batches) == 0:
            silence = NotReady("no batch of the window has usable metrics", "a batch with finite metrics")
        period = find_period(query, self._goals)
        demand = read_demand(query, period)
        asleep = find_sleep(query, period)
        if asleep is not None:
            return asleep
        if isinstance(demand, NotReady):
            return silence or demand
        held = Held(window.slots, max(1, window.slots_per_executor), learned.last_slots)
        tells = query.running is None or learned.tells_growth(query.running, window.end)
        shown = query if tells else replace(query, running=None)
        alone = len(window.queries) == 1
        costs = learned.memory.costs(alone)
        most = self._max_slots if isinstance(costs, NotReady) else _bound_slots(costs.newest, self._max_slots)
        by_tasks = None if lag else size_by_running(shown, demand, held, self._goals, most)
        overdue = None if unfit else describe_overdue(query, period)
        if isinstance(costs, NotReady):
            return learned.repeat_told(by_tasks, query, held, overdue) or silence or costs
        # a load that rises need not wait for a batch, whose costs are known; a lower one is shown by batches
        rises = demand.offered_per_second > RISEN * learned.last_offered
        if silence is not None and not rises and overdue is None:
            return by_tasks or silence
        sizing = size_query(query, demand, costs, held, alone, self._goals, self._max_slots)
        if silence is not None:
            grows = isinstance(sizing, QuerySizing) and sizing.slots > held.slots
            beside = lag.reason if lag else overdue
            sizing = _speak_for_silence(sizing, beside) if rises or grows else silence
        # costs of before say nothing against a batch whose own tasks show that it needs more
        if by_tasks is not None and (isinstance(sizing, NotReady) or sizing.slots < by_tasks.slots):
            return by_tasks
        return learned.await_relief(sizing, held, window.end) if alone and silence is None else sizing


def _speak_for_silence(sizing: QuerySizing | NotReady, beside: str | None) -> QuerySizing | NotReady:
    """Mark a sizing by costs of before, which no batch has shown again: nothing shrinks by it."""
    if isinstance(sizing, NotReady):
        return sizing
    return replace(sizing, may_shrink=False, advice="; ".join(filter(None, (sizing.advice, beside))))


def _bound_slots(costs: QueryCosts, most: int) -> int:
    """Return the slots beyond which no stage has a task; tasks that follow the input set no such bound."""
    return min(most, max(most if stage.growth else stage.tasks for stage in costs.stages))


def _find_missing(window: SlotWindow) -> NotReady | None:
    if not window.queries:
        return NotReady("no streaming query is active", "a streaming query")
    held = count_held(window, least=0)
    return held if isinstance(held, NotReady) else None


def _find_silence(query: SlotQuery, now: float) -> NotReady | None:
    """Reject windows whose batches tell neither costs nor rates; say how far the running one has come."""
    is_settled = any(batch.settled for batch in query.batches)
    if not is_settled and query.running is not None:
        return await_end(query.running, now)
    if not query.batches:
        return NotReady("no batch finished in the window", "a finished batch")
    if not is_settled:
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


def _decide(window: SlotWindow, needs: Sequence[SlotsNeeded]) -> Hold | Scale:
    total = sum(need.slots for need in needs) + window.reserved_slots
    per_executor = max(1, window.slots_per_executor)
    wanted = max(1, math.ceil(total / per_executor))
    held = window.parallelism[EXECUTORS]
    size = window.slots if wanted == held else wanted * per_executor
    figures = _predict(needs, total, size, window.slots)
    figures[SEEN_EXECUTORS] = _find_seen(needs) / per_executor
    reason = describe_needs(needs, total) + f": holds {window.slots}{_describe_reserved(window)}"
    notes = [
        need.sizing.advice for need in needs if isinstance(need.sizing, QuerySizing) and need.sizing.advice
    ]
    outlooks = _list_outlooks(needs)
    if wanted == held:
        return Hold("; ".join([reason, *notes]), figures, outlooks)
    reason += f", {wanted} executors have {size}"
    summary = f"batches of {figures['batch_seconds']:.1f} s on {size} slots"
    return Scale(
        parallelism={EXECUTORS: wanted},
        reason="; ".join([reason, *notes]),
        expected=ExpectedEffect(summary, figures),
        exact={EXECUTORS: total / per_executor},
        outlooks=outlooks,
    )


def _list_outlooks(needs: Sequence[SlotsNeeded]) -> tuple[Outlook, ...]:
    """List what other sizes are foreseen from; nothing where the costs of a busy query are not known."""
    found = [need.sizing.outlook if isinstance(need.sizing, QuerySizing) else None for need in needs]
    busy = [outlook for need, outlook in zip(needs, found, strict=True) if not need.is_idle]
    return () if any(one is None for one in busy) else tuple(one for one in busy if one is not None)


def _predict(needs: Sequence[SlotsNeeded], total: int, size: int, held: int) -> dict[str, float]:
    """Predict the busiest query, with the slots shared out by need."""
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
        HELD_LOAD: min(MOST_LOAD, max(sizing.load_on(_share(sizing, held, total)) for sizing in sized)),
        "offered_per_second": sum(sizing.demand.offered_per_second for sizing in sized),
        "backlog_records": sum(sizing.demand.backlog_records for sizing in sized),
        "period_seconds": sized[busiest].period_seconds,
    }


def _find_seen(needs: Sequence[SlotsNeeded]) -> int:
    return max(need.sizing.seen_slots for need in needs if isinstance(need.sizing, QuerySizing))


def _seconds_on(sized: Sequence[QuerySizing], slots: int, total: int) -> list[float]:
    return [sizing.seconds_on(_share(sizing, slots, total)) for sizing in sized]


def _share(sizing: QuerySizing, slots: int, total: int) -> int:
    return max(1, slots * sizing.slots // max(1, total))


def _is_shrinking(answer: Hold | Scale, window: SlotWindow) -> bool:
    held = window.parallelism[EXECUTORS]
    return isinstance(answer, Scale) and answer.parallelism[EXECUTORS] < held


def _hold_without_evidence(answer: Hold | Scale, needs: Sequence[SlotsNeeded]) -> Hold:
    figures = answer.figures if isinstance(answer, Hold) else answer.expected.figures
    quiet = any(
        isinstance(need.sizing, QuerySizing) and need.sizing.demand.offered_per_second <= 0 for need in needs
    )
    why = (
        "nothing is offered now, so nothing is released while a backlog is read"
        if quiet
        else "nothing is released before a batch shows it"
    )
    return Hold(f"{answer.reason}; {why}", figures, answer.outlooks)


def _give_back(window: SlotWindow) -> Hold | Scale:
    """Ask for no more than real-time queries need while no source offers anything."""
    idle = min(query.idle_seconds for query in window.queries)
    wanted = max(1, math.ceil(window.reserved_slots / max(1, window.slots_per_executor)))
    reason = f"no input for {idle:.0f} s, and nothing waits{_describe_reserved(window)}"
    figures = {IDLE_SECONDS: idle, HELD_UTILISATION: 0.0, "offered_per_second": 0.0}
    if wanted >= window.parallelism[EXECUTORS]:
        return Hold(reason, figures)
    expected = ExpectedEffect("nothing is held for nothing; the size follows when input returns", figures)
    return Scale({EXECUTORS: wanted}, reason, expected)


def _describe_reserved(window: SlotWindow) -> str:
    if not window.reserved_slots:
        return ""
    names = ", ".join(window.reserved_for)
    return f"; {window.reserved_slots} slots stay for what runs in real time ({names})"
