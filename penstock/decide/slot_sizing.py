"""The slots that one query needs: DS2's target rates, the cost of a batch, and the least size that fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from penstock.dataflow.costs import QueryCosts, StageCost
from penstock.dataflow.costs_by_slots import CostsBySlots
from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.propagation import target_rates_from_selectivity
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.slots import SlotNeed, batch_seconds, least_slots, stage_seconds
from penstock.dataflow.window import QueryWindow
from penstock.decide.ds2_settings import Ds2Settings

CostsFor = Callable[[int], QueryCosts]

MOST_RECORDS = 1e18
"""A reading beyond this is broken, and products of it with selectivities and periods would be infinite."""

SKEWED = 3.0
"""A task with three times its even share of the records is worth a word: partitions may not part its key."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What the sources ask of a query: records per second offered, and records still unread, per source."""

    offered: Mapping[str, float]
    backlog: Mapping[str, float]

    @property
    def offered_per_second(self) -> float:
        """Offered by all sources together."""
        return sum(self.offered.values())

    @property
    def backlog_records(self) -> float:
        """Unread in all sources together."""
        return sum(self.backlog.values())

    def catching_up(self, seconds: float) -> Mapping[str, float]:
        """The source rates that also read the backlog within so many seconds."""
        return {name: rate + self.backlog[name] / seconds for name, rate in self.offered.items()}


@dataclass(frozen=True, slots=True)
class QuerySizing:
    """The slots that a query needs and why; `seconds_on` predicts its batch at the offered rate."""

    slots: int
    batch_seconds: float
    period_seconds: float
    demand: Demand
    for_backlog: bool
    feasible: bool
    advice: str
    seconds_on: Callable[[int], float]


@dataclass(frozen=True, slots=True)
class _Target:
    need: SlotNeed
    rates: Mapping[str, float]
    for_backlog: bool


def demand_of(query: QueryWindow) -> Demand | NotReady:
    """Read the sources; a rate that is not known, or nothing to do at all, is no ground for a change."""
    offered: dict[str, float] = {}
    backlog: dict[str, float] = {}
    for name in query.graph.sources:
        source = query.sources.get(name)
        if source is None or not 0 <= source.offered_per_second < MOST_RECORDS:
            return NotReady(f"the offered rate of source {name!r} is unknown", "a reading of the source")
        offered[name] = source.offered_per_second
        backlog[name] = source.backlog_records if 0 <= source.backlog_records < MOST_RECORDS else 0.0
    demand = Demand(offered, backlog)
    if demand.offered_per_second + demand.backlog_records <= 0:
        return NotReady("idle: the sources offer nothing", "records")
    return demand


def size_query(
    query: QueryWindow, demand: Demand, costs: CostsBySlots, held: int, alone: bool, settings: Ds2Settings
) -> QuerySizing | NotReady:
    """Find the least slots that carry the offered rate, and that read the backlog in the catch-up time.

    Both imply at least Σ bᵢ·rᵢ slots, since no batch is shorter than its work spread evenly.
    """
    fixed = settings.unscalable | {
        operator.name for operator in query.graph.operators if not operator.scalable
    }
    costs_for = _costs_for(costs, held, alone, fixed)
    stranger = _stranger(query.graph, costs_for(held))
    if stranger is not None:
        return stranger
    period = period_of(query, settings)
    rates_for = partial(_input_rates, query.graph, costs_for(held))
    target = _target(costs_for, rates_for, demand, period, settings)
    need, offered = target.need, rates_for(demand.offered)
    stuck = not need.feasible and need.limiting in fixed
    # whatever is added, an operator that cannot be scaled stays the bottleneck
    slots = min(need.slots, held) if stuck else need.slots
    return QuerySizing(
        slots=slots,
        batch_seconds=batch_seconds(costs_for(slots), target.rates, period, slots),
        period_seconds=period,
        demand=demand,
        for_backlog=target.for_backlog,
        feasible=need.feasible,
        advice="" if need.feasible else _advice(target, costs_for(need.slots), period, fixed, settings),
        seconds_on=lambda size: batch_seconds(costs_for(size), offered, period, size),
    )


def _target(
    costs_for: CostsFor,
    rates_for: Callable[[Mapping[str, float]], dict[str, float]],
    demand: Demand,
    period: float,
    settings: Ds2Settings,
) -> _Target:
    """The larger of what the offered rate needs with headroom and what the backlog needs without."""
    rates = rates_for(demand.offered)
    steady = least_slots(costs_for, rates, period, settings.utilisation, settings.max_slots)
    # where no size carries the rate itself, a backlog cannot ask for more
    if demand.backlog_records <= 0 or not steady.feasible:
        return _Target(steady, rates, for_backlog=False)
    haste = rates_for(demand.catching_up(settings.catch_up_seconds))
    hurried = least_slots(costs_for, haste, period, 1.0, settings.max_slots)
    if hurried.slots > steady.slots:
        return _Target(hurried, haste, for_backlog=True)
    return _Target(steady, rates, for_backlog=False)


def period_of(query: QueryWindow, settings: Ds2Settings) -> float:
    """The trigger interval; without one, half the latency target: a record waits a batch, then is in one."""
    if query.period_seconds is not None and 0 < query.period_seconds < math.inf:
        return query.period_seconds
    if settings.latency_target_seconds is not None:
        return settings.latency_target_seconds / 2
    return settings.default_period_seconds


def _costs_for(costs: CostsBySlots, held: int, alone: bool, fixed: frozenset[str]) -> CostsFor:
    """Costs by slot count; beside other queries a query's own slots say nothing about interference."""

    @cache
    def costs_for(slots: int) -> QueryCosts:
        expected = costs.costs_for(slots if alone else held)
        if not fixed:
            return expected
        now = {stage.operator: stage for stage in costs.costs_for(held).stages}
        stages = (_frozen(now[s.operator], held) if s.operator in fixed else s for s in expected.stages)
        return replace(expected, stages=tuple(stages))

    return costs_for


def _frozen(stage: StageCost, held: int) -> StageCost:
    """A stage that keeps the time it takes now, since its operator gains nothing from more slots."""
    return replace(stage, most_slots=held)


def _stranger(graph: LogicalGraph, costs: QueryCosts) -> NotReady | None:
    """An operator that the graph and the batches do not share leaves rates or costs unknown."""
    ran = {stage.operator for stage in costs.stages}
    for name in graph.index:
        if name not in ran:
            return NotReady(f"{name} has not run in any batch seen", f"a batch in which {name} runs")
    for name in ran:
        if name not in graph.index:
            return NotReady(f"{name} has run but is not in the graph", "a graph that knows it")
    return None


def _input_rates(
    graph: LogicalGraph, costs: QueryCosts, source_rates: Mapping[str, float]
) -> dict[str, float]:
    """Equation 8. On Spark the scan is fused into the first stage, so a source's input is what is offered."""
    ratio = {stage.operator: stage.selectivity for stage in costs.stages}
    selectivity = np.array([ratio[operator.name] for operator in graph.operators])
    put_out = {name: rate * ratio[name] for name, rate in source_rates.items()}
    targets = target_rates_from_selectivity(graph, selectivity, put_out)
    return {**dict(zip(graph.index, targets.tolist(), strict=True)), **source_rates}


def _advice(
    target: _Target, costs: QueryCosts, period: float, fixed: frozenset[str], settings: Ds2Settings
) -> str:
    """Say what stands in the way where no number of slots is enough."""
    need = target.need
    stage = costs.stage(need.limiting) if need.limiting is not None else None
    if stage is None:
        return f"no more than {settings.max_slots} slots are allowed"
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
