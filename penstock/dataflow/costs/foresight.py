"""Foresee batch time, utilisation and backlog on other numbers of slots, from the costs as fitted now."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

from penstock.dataflow.costs.model import (
    ListingCost,
    QueryCosts,
    StageCost,
    batch_seconds,
    load_ratio,
    read_costs,
    write_costs,
)
from penstock.dataflow.costs.slots import CostsBySlots, predict_batch
from penstock.errors import BadMetrics

HORIZON_SECONDS = 600.0
"""How far ahead a backlog is foreseen."""

CostsFor = Callable[[int], QueryCosts]


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """A query's costs as fitted now, and the load that they are to carry.

    `rates` are the records per second into each operator at the offered rate; `slots` are those it needs,
    `held` those at which it was sized. `fixed` operators gain nothing from more slots, and beside other
    queries (not `alone`) a query's own slots do not show interference.
    """

    query: str
    costs: CostsBySlots
    rates: Mapping[str, float]
    offered_per_second: float
    backlog_records: float
    period_seconds: float
    slots: int
    held: int
    alone: bool = True
    fixed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LikelyRange:
    """A figure, and the bounds between which it usually lies."""

    usual: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The effect of so many slots; batch and utilisation are those of the busiest query.

    `grows` says that batches would become ever longer, so that no length can be named.
    """

    slots: int
    batch_seconds: LikelyRange
    utilisation: LikelyRange
    backlog_records: LikelyRange
    grows: bool


def costs_with_fixed(costs: CostsBySlots, held: int, alone: bool, fixed: frozenset[str]) -> CostsFor:
    """Return costs by slot count; beside other queries a query's own slots do not show interference."""

    @cache
    def costs_for(slots: int) -> QueryCosts:
        expected = costs.costs_for(slots if alone else held)
        if not fixed:
            return expected
        now = {stage.operator: stage for stage in costs.costs_for(held).stages}
        stages = (_freeze(now[s.operator], held) if s.operator in fixed else s for s in expected.stages)
        return replace(expected, stages=tuple(stages))

    return costs_for


def _freeze(stage: StageCost, held: int) -> StageCost:
    """Freeze a stage at its present time, since its operator gains nothing from more slots."""
    return replace(stage, most_slots=held)


def foresee(outlooks: Sequence[Outlook], slots: int, seconds: float = HORIZON_SECONDS) -> Foreseen:
    """Predict the queries of an application on so many slots, shared out by need, so many seconds ahead."""
    total = max(1, sum(outlook.slots for outlook in outlooks))
    each = [_foresee_query(one, max(1, slots * one.slots // total), seconds) for one in outlooks]
    busiest = max(each, key=lambda one: (one.grows, one.utilisation.usual))
    backlogs = [one.backlog_records for one in each]
    backlog = LikelyRange(
        sum(one.usual for one in backlogs),
        sum(one.low for one in backlogs),
        sum(one.high for one in backlogs),
    )
    return replace(busiest, slots=slots, backlog_records=backlog, grows=any(one.grows for one in each))


def _foresee_query(outlook: Outlook, slots: int, seconds: float) -> Foreseen:
    costs = costs_with_fixed(outlook.costs, outlook.held, outlook.alone, outlook.fixed)(slots)
    period = outlook.period_seconds
    grows, usual = predict_batch(costs, outlook.rates, period, slots)
    factor = 1 + estimate_error(outlook.costs, slots)
    batch = LikelyRange(usual, usual / factor, usual * factor)
    left = [_backlog_after(outlook, costs, slots, seconds, times) for times in (1.0, 1 / factor, factor)]
    used = LikelyRange(batch.usual / period, batch.low / period, batch.high / period)
    return Foreseen(slots, batch, used, LikelyRange(*left), grows)


def estimate_error(costs: CostsBySlots, slots: int) -> float:
    """Estimate the relative error of a predicted batch: the usual one, once more for each doubling away.

    The usual error is that at sizes that were seen; beyond them the costs are guessed from a line.
    """
    nearest = min(costs.sizes, key=lambda seen: abs(math.log(slots / seen)))
    return costs.newest.error_ratio * (1 + abs(math.log2(slots / nearest)))


def _backlog_after(outlook: Outlook, costs: QueryCosts, slots: int, seconds: float, times: float) -> float:
    """Return the backlog after so long, if batches take `times` what is predicted.

    Where the slots carry more than is offered, the rest reads the backlog; where batches outlast the period
    and settle, it stays; where they grow for ever, it grows by what even the longest batches leave behind.
    """
    offered, backlog = outlook.offered_per_second, outlook.backlog_records
    load = times * load_ratio(costs, outlook.rates, outlook.period_seconds, slots)
    if load == 0:
        return 0.0
    if load <= 1:
        return max(0.0, backlog - (offered / load - offered) * seconds)
    share = times * batch_seconds(costs, outlook.rates, seconds, slots) / seconds
    return backlog + max(0.0, offered - offered / share) * seconds


def write_outlook(outlook: Outlook) -> dict[str, Any] | None:
    """Write an outlook as plain data; None where its costs would be too long."""
    fits = [write_costs(fit) for fit in outlook.costs.fits]
    if any(fit is None for fit in fits):
        return None
    listing = outlook.costs.newest.listing
    return {
        "query": outlook.query,
        "fits": fits,
        "listing": asdict(listing) if listing is not None else None,
        "rates": dict(outlook.rates),
        "offered_per_second": outlook.offered_per_second,
        "backlog_records": outlook.backlog_records,
        "period_seconds": outlook.period_seconds,
        "slots": outlook.slots,
        "held": outlook.held,
        "alone": outlook.alone,
        "fixed": sorted(outlook.fixed),
    }


def read_outlook(plain: Mapping[str, Any]) -> Outlook:
    """Read an outlook back; BadMetrics if `write_outlook` does not write such data."""
    try:
        fits = [read_costs(one) for one in plain["fits"]]
        if plain["listing"] is not None:
            sources = tuple(plain["listing"]["sources"])
            fits[-1] = replace(fits[-1], listing=ListingCost(**{**plain["listing"], "sources": sources}))
        names = ("query", "rates", "offered_per_second", "backlog_records", "period_seconds", "slots", "held")
        kept = {name: plain[name] for name in (*names, "alone")}
        costs = CostsBySlots({fit.slots: fit for fit in fits})
        return Outlook(costs=costs, fixed=frozenset(plain["fixed"]), **kept)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise BadMetrics(f"an outlook cannot be read: {error!r}") from error
