"""The slots that one query needs: DS2's target rates, the cost of a batch, and the least size that fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from penstock.dataflow.costs.foresight import CostsFor, Outlook, costs_with_fixed
from penstock.dataflow.costs.model import QueryCosts, StageCost, load_ratio, stage_seconds
from penstock.dataflow.costs.slots import CostsBySlots, SlotNeed, is_shorter, least_slots, predict_batch
from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.propagation import propagate_rates
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import SlotQuery
from penstock.decide.goals import Goals

_SearchSlots = Callable[[Mapping[str, float], float, float], SlotNeed]
"""Find the least slots for rates, a period and a utilisation."""

MOST_SLOTS = 1024
MOST_RECORDS = 1e18
"""A larger reading is broken: its product with selectivity and period would be infinite."""

WORTH_A_CHANGE = 0.1
"""Where no size is enough, growth must shorten a batch by this share: predictions are hardly better."""

WAVE_JUMP = 1.5
"""Times the slots that the last of the headroom may cost. More is asked for only at the edge of a wave of
tasks, where all sizes between bring nothing; a quarter less headroom is the better bargain there."""

LONGEST_PERIOD = 2.0
"""Times the period aimed at that batches may take with all headroom used up, where nothing asks for a length:
a query without a trigger interval reads what came meanwhile, and longer batches spread their fixed costs."""

SKEWED = 3.0
"""A task with three times its even share is mentioned: more partitions may not part its key."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The load of a query, per source: records offered per second, and records still unread.

    Tables that are joined have the rate of their rows in batches of one period: nobody offers these.
    """

    offered: Mapping[str, float]
    backlog: Mapping[str, float]
    tables: frozenset[str] = frozenset()

    @property
    def offered_per_second(self) -> float:
        """Records per second that all sources together offer."""
        return sum(rate for name, rate in self.offered.items() if name not in self.tables)

    @property
    def backlog_records(self) -> float:
        """Records that are unread in all sources together."""
        return sum(self.backlog.values())

    def catching_up(self, seconds: float) -> Mapping[str, float]:
        """Return source rates that also work off the backlog within so many seconds."""
        return {name: rate + self.backlog[name] / seconds for name, rate in self.offered.items()}


@dataclass(frozen=True, slots=True)
class QuerySizing:
    """The slots that a query needs, and why.

    `seconds_on` predicts its batch at the offered rate, `load_on` the share of what so many slots carry that
    it uses. `seen_slots` is the largest size at which its costs were seen. A sizing that rests on part of a
    batch, or on batches of before, may ask for more and not for less.
    """

    slots: int
    batch_seconds: float
    period_seconds: float
    demand: Demand
    for_backlog: bool
    feasible: bool
    advice: str
    seconds_on: Callable[[int], float]
    load_on: Callable[[int], float]
    seen_slots: int
    may_shrink: bool = True
    waits: str = ""
    """Why what is held stays for one batch more, though more is asked for."""
    outlook: Outlook | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """The slots held, how many of them an executor has, and the size that was last called right."""

    slots: int
    per_executor: int = 1
    last_need: int | None = None


@dataclass(frozen=True, slots=True)
class _Target:
    need: SlotNeed
    rates: Mapping[str, float]
    for_backlog: bool


def read_demand(query: SlotQuery, period: float) -> Demand | NotReady:
    """Read the sources; NotReady where a rate is unknown or nothing is to be done."""
    offered: dict[str, float] = {}
    backlog: dict[str, float] = {}
    for name in query.graph.sources:
        source = query.sources.get(name)
        if source is None or not 0 <= source.offered_per_second < MOST_RECORDS:
            return NotReady(f"the offered rate of source {name!r} is unknown", "a reading of the source")
        offered[name] = source.rows_per_batch / period or source.offered_per_second
        backlog[name] = source.backlog_records if 0 <= source.backlog_records < MOST_RECORDS else 0.0
    tables = frozenset(name for name in offered if query.sources[name].rows_per_batch)
    demand = Demand(offered, backlog, tables)
    if demand.offered_per_second + demand.backlog_records <= 0:
        return NotReady("idle: the sources offer nothing", "records")
    return demand


def size_query(
    query: SlotQuery,
    demand: Demand,
    costs: CostsBySlots,
    held: Held,
    alone: bool,
    goals: Goals,
    max_slots: int = MOST_SLOTS,
) -> QuerySizing | NotReady:
    """Find the least slots that carry the offered rate, and that read the backlog in the catch-up time.

    Both imply at least Σ bᵢ·rᵢ slots, since no batch is shorter than its work spread evenly.
    """
    fixed = goals.unscalable | {operator.name for operator in query.graph.operators if not operator.scalable}
    costs_for = costs_with_fixed(costs, held.slots, alone, fixed)
    stranger = _find_stranger(query.graph, costs_for(held.slots))
    if stranger is not None:
        return stranger
    period, longest = find_period(query, goals), find_longest_period(query, goals)
    rates_for = partial(_find_input_rates, query.graph, costs_for(held.slots))
    search = partial(least_slots, costs_for, max_slots=max_slots, slots_per_executor=held.per_executor)
    target = _find_target(search, rates_for, demand, longest, goals)
    offered = rates_for(demand.offered)
    tolerated = search(offered, longest, (1 + goals.utilisation) / 2)
    if not target.for_backlog:
        target = replace(target, need=_avoid_wave(search, target, longest, goals, held))
    slots, need = _choose_slots(target, tolerated, held, costs_for, period, fixed), target.need
    return QuerySizing(
        slots=slots,
        batch_seconds=_settle(costs_for, target.rates, period, slots),
        period_seconds=period,
        demand=demand,
        for_backlog=target.for_backlog,
        feasible=need.feasible,
        advice="" if need.feasible else _advice(target, costs_for(need.slots), period, fixed, max_slots),
        seconds_on=partial(_settle, costs_for, offered, period),
        load_on=lambda slots: load_ratio(costs_for(slots), offered, longest, slots),
        seen_slots=max(costs.most_seen, held.slots),
        outlook=Outlook(
            query.name,
            costs,
            offered,
            demand.offered_per_second,
            demand.backlog_records,
            period,
            slots,
            held.slots,
            alone,
            fixed,
        ),
    )


def _choose_slots(
    target: _Target,
    tolerated: SlotNeed,
    held: Held,
    costs_for: CostsFor,
    period: float,
    fixed: frozenset[str],
) -> int:
    """Keep the size that was last right while it would do with half the headroom.

    A need that hangs on a whole wave of tasks jumps between two sizes at the slightest change of the load.
    Where no size is enough, what is held stays unless a batch gets shorter by more than predictions err.
    """
    need, last = target.need, held.last_need
    if need.feasible:
        sticks = last is not None and tolerated.feasible and tolerated.slots <= last <= need.slots
        return last if last is not None and sticks and not target.for_backlog else need.slots
    if need.slots < held.slots:
        return need.slots
    now = predict_batch(costs_for(held.slots), target.rates, period, held.slots)
    still_endless, _ = predict_batch(costs_for(need.slots), target.rates, period, need.slots)
    helps = is_shorter((still_endless, need.batch_seconds), now, 1 - WORTH_A_CHANGE)
    # whatever is added, an operator that cannot be scaled stays the bottleneck
    return need.slots if helps and need.limiting not in fixed else held.slots


def _avoid_wave(search: _SearchSlots, target: _Target, period: float, goals: Goals, held: Held) -> SlotNeed:
    """Return the need with a quarter less headroom, where the whole of it costs half as many slots again."""
    need = target.need
    thrifty = search(target.rates, period, (1 + 3 * goals.utilisation) / 4)
    jumps = need.slots > max(WAVE_JUMP * thrifty.slots, thrifty.slots + held.per_executor)
    return thrifty if need.feasible and thrifty.feasible and jumps else need


def _settle(costs_for: CostsFor, rates: Mapping[str, float], period: float, slots: int) -> float:
    return predict_batch(costs_for(slots), rates, period, slots)[1]


def _find_target(
    search: _SearchSlots,
    rates_for: Callable[[Mapping[str, float]], dict[str, float]],
    demand: Demand,
    period: float,
    goals: Goals,
) -> _Target:
    """Find the need at the offered rate, or the larger one that works off the backlog in time."""
    rates = rates_for(demand.offered)
    steady = search(rates, period, goals.utilisation)
    # where no size carries the rate itself, a backlog cannot ask for more
    if demand.backlog_records <= 0 or not steady.feasible:
        return _Target(steady, rates, for_backlog=False)
    haste = rates_for(demand.catching_up(goals.catch_up))
    hurried = search(haste, period, 1.0)
    if hurried.slots > steady.slots:
        return _Target(hurried, haste, for_backlog=True)
    return _Target(steady, rates, for_backlog=False)


def find_period(query: SlotQuery, goals: Goals) -> float:
    """Return the trigger interval or, without one, half the latency target.

    A record waits for one batch and is in the next, so two periods are its latency.
    """
    if query.period_seconds is not None and 0 < query.period_seconds < math.inf:
        return query.period_seconds
    if goals.latency_target is not None:
        return goals.latency_target / 2
    return goals.batch_period


def find_longest_period(query: SlotQuery, goals: Goals) -> float:
    """Return the seconds that a batch may take when all headroom is used up."""
    free = query.period_seconds is None and goals.latency_target is None
    return find_period(query, goals) * (LONGEST_PERIOD if free else 1.0)


def _find_stranger(graph: LogicalGraph, costs: QueryCosts) -> NotReady | None:
    """Name an operator that is only in the graph or only in batches: its costs or rates are unknown."""
    ran = {stage.operator for stage in costs.stages}
    for name in graph.index:
        if name not in ran:
            return NotReady(f"{name} has not run in any batch seen", f"a batch in which {name} runs")
    for name in ran:
        if name not in graph.index:
            return NotReady(f"{name} has run but is not in the graph", "a graph that knows it")
    return None


def _find_input_rates(
    graph: LogicalGraph, costs: QueryCosts, source_rates: Mapping[str, float]
) -> dict[str, float]:
    """Find input rates by equation 8; Spark fuses the scan into a source, so its input is what is offered."""
    ratio = {stage.operator: stage.selectivity for stage in costs.stages}
    selectivity = [ratio[name] for name in graph.names]
    put_out = {name: rate * ratio[name] for name, rate in source_rates.items()}
    targets = propagate_rates(graph, selectivity, put_out)
    return {**dict(zip(graph.names, targets, strict=True)), **source_rates}


def _advice(target: _Target, costs: QueryCosts, period: float, fixed: frozenset[str], max_slots: int) -> str:
    """Say what limits the query where no number of slots is enough, and what would help."""
    need = target.need
    stage = costs.stage(need.limiting) if need.limiting is not None else None
    if stage is None:
        return f"no more than {max_slots} slots are allowed"
    records = target.rates[stage.operator] * period
    seconds = stage_seconds(stage, records, need.slots)
    if costs.per_batch_seconds > seconds:
        return f"{costs.per_batch_seconds:.1f} s of each batch pass outside tasks, and no slot shortens them"
    if stage.operator in fixed:
        return f"{stage.operator} cannot be scaled and is the bottleneck: {seconds:.1f} s of {period:.1f} s"
    return f"more executors would not help {stage.operator}: " + _remedy(stage, records)


def _remedy(stage: StageCost, records: float) -> str:
    largest = float(stage.shares.max())
    if stage.per_task_seconds > stage.per_record_seconds * records * largest:
        return (
            f"each of its tasks takes {stage.per_task_seconds:.1f} s for any records; a longer period would"
        )
    skew = f", unless one key fills the task that has {largest:.0%} of the records"
    return f"it has {stage.tasks} tasks; more partitions would" + (
        skew if largest * stage.tasks > SKEWED else ""
    )
