"""What the tasks of a batch that has not ended tell: too few slots for its source, or how long it will take.

Nothing is known of stages that have not begun, so this can only ask for more, never for less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from penstock.dataflow.metrics import RunningBatch, RunningStage
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import SlotQuery
from penstock.decide.ds2.slot_sizing import Demand, Held, QuerySizing, find_period
from penstock.decide.goals import Goals

FEWEST_TASKS, FEWEST_RECORDS = 3, 500
"""Finished tasks, or records in one or two of them, from which the cost of a record is taken."""

LONG = 3.0
"""Periods after which a batch that has not ended is behind, whatever else it does."""

CHEAP_QUANTILE = 0.25
"""The cost of a record in a first batch is taken from its cheaper tasks: the others still start Python and
compile code."""


def size_by_running(
    query: SlotQuery, demand: Demand, held: Held, goals: Goals, now: float
) -> QuerySizing | NotReady | None:
    """Size a query by its running batch: growth its source needs in any case, or when the batch may end.

    None where no batch is known to run.
    """
    batch = query.running
    if batch is None:
        return None
    period = find_period(query, goals)
    costs = _measure_source_costs(query, batch)
    rates = {name: rate + demand.backlog[name] / goals.catch_up for name, rate in demand.offered.items()}
    work = sum(cost * rates[name] for name, cost in costs.items() if name in rates)
    least = math.ceil(work / goals.utilisation - 1e-9)
    if batch.seconds < LONG * period or least <= held.slots:
        return _await_end(batch, now)
    at_least = f"the tasks of its source alone keep {work:.1f} slots busy; {_describe_progress(batch)}"
    return QuerySizing(
        slots=least,
        batch_seconds=work * period / least,
        period_seconds=period,
        demand=demand,
        for_backlog=False,
        feasible=True,
        advice=at_least,
        # on what is held, the batch has already taken longer than its source's work alone
        seconds_on=lambda slots: batch.seconds if slots <= held.slots else work * period / slots,
        load_on=lambda slots: max(1.0, batch.seconds / period) if slots <= held.slots else work / slots,
        seen_slots=held.slots,
        may_shrink=False,
    )


def _measure_source_costs(query: SlotQuery, batch: RunningBatch) -> dict[str, float]:
    """Return slot-seconds per record of the source stages that have finished enough tasks."""
    found = {}
    for stage in batch.stages:
        if stage.operator in query.graph.sources and stage.done is not None:
            read = stage.done.records_in > 0
            if read.sum() >= FEWEST_TASKS or stage.done.records_in.sum() >= FEWEST_RECORDS:
                seconds = stage.done.useful_seconds[read] / stage.done.records_in[read]
                found[stage.operator] = float(np.quantile(seconds, CHEAP_QUANTILE))
    return found


def _await_end(batch: RunningBatch, now: float) -> NotReady:
    """Say how far a batch has come, and when its present stage may end."""
    left = _estimate_left(batch)
    until = now + left if left is not None else None
    told = f", about {left:.0f} s of its present stage are left" if left else ""
    return NotReady(f"{_describe_progress(batch)}{told}", "its end", until)


def _describe_progress(batch: RunningBatch) -> str:
    stage = _present_stage(batch.stages)
    if stage is None:
        return f"batch {batch.batch_id} has run for {batch.seconds:.0f} s, none of it in tasks yet"
    return (
        f"batch {batch.batch_id} has run for {batch.seconds:.0f} s: {stage.tasks_done} of "
        f"{stage.tasks_total} tasks of {stage.operator} are done"
    )


def _present_stage(stages: Sequence[RunningStage]) -> RunningStage | None:
    begun = [stage for stage in stages if not stage.is_over]
    return begun[0] if begun else (stages[-1] if stages else None)


def _estimate_left(batch: RunningBatch) -> float | None:
    """Estimate the seconds that the present stage still takes, from its finished tasks; None if unknown."""
    stage = _present_stage(batch.stages)
    if stage is None or stage.done is None or not stage.done.tasks or stage.is_over:
        return None
    usual = float(np.median(stage.done.useful_seconds))
    begun = float(np.minimum(stage.running_seconds, usual).sum())
    left = (stage.tasks_total - stage.tasks_done) * usual - begun
    return max(0.0, left) / max(1, batch.slots)
