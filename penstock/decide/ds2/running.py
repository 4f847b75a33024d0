"""The tasks of one long batch tell by themselves of too few slots for its stages, or when it ends.

The batch is still running, or has just ended. It counts where costs cannot be fitted yet, and where records
have become dearer than the costs of before say. Nothing is known of stages that have not begun, so this can
only ask for more, never for less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from penstock.dataflow.metrics import RunningBatch, RunningStage
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import SlotQuery
from penstock.decide.ds2.slot_sizing import Demand, Held, QuerySizing, find_period
from penstock.decide.faults import LONG
from penstock.decide.goals import Goals

FEWEST_TASKS, FEWEST_RECORDS = 3, 500
"""Finished tasks, or records in one or two of them, from which the cost of a record is taken."""

LEAST_IN_TASKS = 0.5
"""The share of a long batch in which its tasks must have run: no executor shortens the rest."""

CHEAP_QUANTILE = 0.25
"""The cost of a record in a first batch is taken from its cheaper tasks: the others still start Python and
compile code."""


def size_by_running(
    query: SlotQuery, demand: Demand, held: Held, goals: Goals, max_slots: int
) -> QuerySizing | None:
    """Size a query by its running batch, or by the newest that ended: growth it needs in any case."""
    for batch in (query.running, _find_ended(query)):
        if batch is None:
            continue
        costs = _measure_costs(query, batch)
        if growth := _find_growth(query, batch, costs, demand, held, goals, max_slots):
            return growth
    return None


def describe_overdue(query: SlotQuery, period: float) -> str | None:
    """Say that a batch on slots that have worked before has outlasted its period; None where none has.

    While it runs no batch ends that could show the costs again, and these say how many slots are missing.
    """
    running = query.running
    if query.batches or running is None or running.new_slots or running.seconds <= period:
        return None
    return _describe_progress(running)


def _find_ended(query: SlotQuery) -> RunningBatch | None:
    """Return the newest settled batch of the window as one whose tasks are all done."""
    ended = next((batch for batch in reversed(query.batches) if batch.settled), None)
    if ended is None:
        return None
    stages = tuple(
        RunningStage(one.operator, one.tasks, one.tasks, 0, float(one.records_in.sum()), one, is_over=True)
        for one in ended.stages
    )
    return RunningBatch(ended.batch_id, ended.start, ended.seconds, ended.slots, stages)


def _find_growth(
    query: SlotQuery,
    batch: RunningBatch,
    costs: Mapping[str, float],
    demand: Demand,
    held: Held,
    goals: Goals,
    max_slots: int,
) -> QuerySizing | None:
    """Return the slots that the stages of a long batch need so far, if these are more than are held."""
    period = find_period(query, goals)
    rates = _find_rates(query, batch, demand, goals, period)
    work = sum(cost * rates[name] for name, cost in costs.items() if name in rates)
    least = math.ceil(min(max_slots, work / goals.utilisation) - 1e-9)
    if batch.seconds < LONG * period or least <= held.slots or _measure_tasks(batch) < LEAST_IN_TASKS:
        return None
    at_least = f"the stages seen so far keep {work:.1f} slots busy; {_describe_progress(batch)}"
    return QuerySizing(
        slots=least,
        batch_seconds=work * period / least,
        period_seconds=period,
        demand=demand,
        for_backlog=False,
        feasible=True,
        advice=at_least,
        # on what is held, the batch has already taken longer than the work of these stages alone
        seconds_on=lambda slots: batch.seconds if slots <= held.slots else work * period / slots,
        load_on=lambda slots: max(1.0, batch.seconds / period) if slots <= held.slots else work / slots,
        seen_slots=held.slots,
        may_shrink=False,
    )


def _measure_tasks(batch: RunningBatch) -> float:
    """Return the share of a batch's seconds in which its stages had tasks, as far as these tell."""
    seconds = sum(
        max(stage.done.wall_seconds if stage.done else 0.0, float(stage.running_seconds.max(initial=0.0)))
        for stage in batch.stages
    )
    return seconds / batch.seconds if batch.seconds > 0 else 0.0


def _find_rates(
    query: SlotQuery, batch: RunningBatch, demand: Demand, goals: Goals, period: float
) -> dict[str, float]:
    """Return the records per second that each operator gets, as far as the stages before it are done.

    A task after a shuffle has costs that do not depend on its records. Only a batch with a period's input at
    these rates spreads them fairly, so a smaller one tells of its sources alone.
    """
    rates = dict(demand.catching_up(goals.catch_up))
    over = {stage.operator: stage.done for stage in batch.stages if stage.is_over and stage.done is not None}
    read = sum(float(over[name].records_in.sum()) for name in query.graph.sources if name in over)
    if read < period * sum(rate for name, rate in rates.items() if name not in demand.tables):
        return rates
    names = query.graph.names
    for name, feeds in zip(names, query.graph.upstream, strict=True):
        before = [names[number] for number in feeds]
        if before and all(one in rates and one in over and over[one].records_in.any() for one in before):
            rates[name] = sum(
                rates[one] * float(over[one].records_out.sum() / over[one].records_in.sum()) for one in before
            )
    return rates


def _measure_costs(query: SlotQuery, batch: RunningBatch) -> dict[str, float]:
    """Return slot-seconds per record of the stages that have finished enough tasks.

    The first task of each new slot starts Python and compiles code, so more must have ended. Where keys are
    uneven most tasks have few records and costs that are the same for any: no more counts than the mean.
    """
    found = {}
    fewest = batch.new_slots + 1 if batch.new_slots else 0
    for stage in batch.stages:
        if stage.done is not None and stage.done.tasks >= fewest:
            read = stage.done.records_in > 0
            if read.sum() >= FEWEST_TASKS or stage.done.records_in.sum() >= FEWEST_RECORDS:
                useful, records = stage.done.useful_seconds[read], stage.done.records_in[read]
                cheap = float(np.quantile(useful / records, CHEAP_QUANTILE))
                found[stage.operator] = min(cheap, float(useful.sum() / records.sum()))
    return found


def await_end(batch: RunningBatch, now: float) -> NotReady:
    """Say how far a batch has come, and when its present stage may end."""
    left = _estimate_left(batch)
    until = now + left if left is not None else None
    told = f", about {left:.0f} s of its present stage are left" if left else ""
    if _is_over(batch):
        told = f"batch {batch.batch_id} has run for {batch.seconds:.0f} s, and all its tasks so far are done"
        return NotReady(told, "its end")
    return NotReady(f"{_describe_progress(batch)}{told}", "its end", until)


def _is_over(batch: RunningBatch) -> bool:
    return bool(batch.stages) and all(stage.is_over for stage in batch.stages)


def _describe_progress(batch: RunningBatch) -> str:
    if _is_over(batch):
        return f"batch {batch.batch_id} took {batch.seconds:.0f} s"
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
