"""What a micro-batch costs: seconds per batch, slot-seconds per task and slot-seconds per record.

The stages of a batch share the slots one after the other, so a batch of records on S slots lasts
h + k · Σᵢ makespan(tasks of aᵢ + bᵢ · records on S slots). The inverse of bᵢ is the true rate of DS2; k is
close to one and corrects for what usual task times leave out, such as stragglers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.dataflow.batches import BatchExecution, StageExecution
from penstock.dataflow.line_fit import Line, fit_line
from penstock.dataflow.makespan import makespan
from penstock.dataflow.metrics import Floats
from penstock.dataflow.readiness import NotReady

HALF_LIFE_BATCHES = 5
"""A batch counts half as much as one that is five batches younger, so that costs which drift are followed."""

CALIBRATION_BATCHES = 10
"""Older batches weigh less than a quarter in a median, and scheduling their tasks again takes time."""

MOST_STRETCH = 1.5
"""A model that is off by more than this is wrong in another way, which no factor mends."""

FEWEST_TASKS = 3
"""Below three samples of a stage one straggler would be the majority."""


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one operator's stage costs; `shares` is each task's part of the records, in task order.

    `most_slots` bounds the slots from which a stage gains, for an operator that cannot be scaled.
    """

    operator: str
    per_task_seconds: float
    per_record_seconds: float
    tasks: int
    shares: Floats
    selectivity: float
    identified: bool = True
    most_slots: int | None = None

    def task_seconds(self, records: float) -> Floats:
        """Seconds of each task when the stage gets so many records in one batch."""
        return self.per_task_seconds + self.per_record_seconds * records * self.shares

    def slot_seconds_at(self, records: float) -> float:
        """Slot-seconds of the whole stage when it gets so many records in one batch."""
        return self.tasks * self.per_task_seconds + self.per_record_seconds * records

    def usable_slots(self, slots: int) -> int:
        """How many of the slots the stage gains from."""
        return slots if self.most_slots is None else min(slots, self.most_slots)


@dataclass(frozen=True, slots=True)
class QueryCosts:
    """Costs of one query as measured on so many slots; `error_ratio` is the usual miss of its batches.

    `stretch` is what stages take beyond the makespan of their usual task times: stragglers and noise make
    it more than one, stages that run side by side less.
    """

    per_batch_seconds: float
    stages: tuple[StageCost, ...]
    slots: int
    error_ratio: float = 0.0
    stretch: float = 1.0

    def stage(self, operator: str) -> StageCost | None:
        """The costs of one operator, if it has run."""
        return next((stage for stage in self.stages if stage.operator == operator), None)


def fit_costs(
    batches: Sequence[BatchExecution],
    slots: int,
    known_slopes: Mapping[str, float] | None = None,
    alone: bool = True,
) -> QueryCosts | NotReady:
    """Fit the three costs over batches that ran on so many slots, oldest first.

    `known_slopes` are seconds per record that other slot counts have shown; they decide where these
    batches cannot tell the cost of a task from that of its records. `alone` says that no other query
    used the slots.
    """
    if not batches:
        return NotReady("no batch has finished", "a finished batch")
    stages: list[StageCost] = []
    for operator, runs in _runs_by_operator(batches).items():
        stage = _fit_stage(operator, runs, len(batches), (known_slopes or {}).get(operator))
        if isinstance(stage, NotReady):
            return stage
        stages.append(stage)
    return _with_serial_part(batches, tuple(stages), slots, alone)


def recency(age_batches: Floats) -> Floats:
    """The weight of evidence that is so many batches old."""
    weight: Floats = np.exp2(-age_batches / HALF_LIFE_BATCHES)
    return weight


def weighted_median(values: Floats, weight: Floats) -> float:
    """The value that parts the weight in two halves."""
    order = np.argsort(values)
    reached = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


_Runs = list[tuple[int, StageExecution]]


def _runs_by_operator(batches: Sequence[BatchExecution]) -> dict[str, _Runs]:
    runs: dict[str, _Runs] = {}
    for number, batch in enumerate(batches):
        for stage in batch.stages:
            if stage.tasks:
                runs.setdefault(stage.operator, []).append((number, stage))
    return runs


def _fit_stage(operator: str, runs: _Runs, batches: int, known_slope: float | None) -> StageCost | NotReady:
    records = np.concatenate([stage.records_in for _, stage in runs])
    seconds = np.concatenate([stage.useful_seconds for _, stage in runs])
    if len(records) < FEWEST_TASKS:
        return NotReady(f"{operator} has shown {len(records)} tasks", f"{FEWEST_TASKS} tasks of {operator}")
    if not seconds.any() and records.any():
        return NotReady(f"{operator} reports records but no useful time", "a useful time above zero")
    group = np.repeat([number for number, _ in runs], [stage.tasks for _, stage in runs])
    weight = recency(np.asarray(batches - 1 - group, dtype=np.float64))
    return _stage_cost(operator, runs, batches, fit_line(records, seconds, weight, group), known_slope)


def _stage_cost(operator: str, runs: _Runs, batches: int, line: Line, known_slope: float | None) -> StageCost:
    weight = recency(np.array([batches - 1 - number for number, _ in runs], dtype=np.float64))
    per_task, per_record = line.split(known_slope)
    return StageCost(
        operator=operator,
        per_task_seconds=per_task,
        per_record_seconds=per_record,
        tasks=runs[-1][1].tasks,
        shares=_shares([stage for _, stage in runs], weight),
        selectivity=_selectivity([stage for _, stage in runs], weight),
        identified=line.identified,
    )


def _shares(stages: Sequence[StageExecution], weight: Floats) -> Floats:
    """Each task's usual part of the records, over the batches that had the newest task count."""
    tasks = stages[-1].tasks
    total: Floats = np.zeros(tasks)
    for stage, factor in zip(stages, weight.tolist(), strict=True):
        records = float(stage.records_in.sum())
        if stage.tasks == tasks and records > 0:
            total += factor / records * stage.records_in
    whole = float(total.sum())
    return total / whole if whole > 0 else np.full(tasks, 1.0 / tasks)


def _selectivity(stages: Sequence[StageExecution], weight: Floats) -> float:
    """Records out per record in; an operator that got none passes on what it would get."""
    taken = float(weight @ np.array([stage.records_in.sum() for stage in stages]))
    given = float(weight @ np.array([stage.records_out.sum() for stage in stages]))
    return given / taken if taken > 0 else 1.0


def _with_serial_part(
    batches: Sequence[BatchExecution], stages: tuple[StageCost, ...], slots: int, alone: bool
) -> QueryCosts:
    """Add what no slot can shorten, and how stages differ from the makespan of their usual tasks.

    Beside other queries stages also wait for slots, which is no cost of this query: then the makespan is
    taken as it is.
    """
    batches = batches[-CALIBRATION_BATCHES:]
    weight = recency(np.arange(len(batches) - 1, -1, -1, dtype=np.float64))
    costs = {stage.operator: stage for stage in stages}
    outside = np.array([batch.serial_seconds for batch in batches])
    seconds = np.array([batch.seconds for batch in batches])
    modelled = np.array([_stage_seconds(costs, batch) for batch in batches])
    launch, stretch = _calibration(batches, seconds - outside, modelled, weight) if alone else (0.0, 1.0)
    serial = weighted_median(outside, weight) + launch
    miss = np.abs(serial + stretch * modelled - seconds) / np.maximum(seconds, 1e-9)
    return QueryCosts(serial, stages, slots, weighted_median(miss, weight), stretch)


def _calibration(
    batches: Sequence[BatchExecution], in_stages: Floats, modelled: Floats, weight: Floats
) -> tuple[float, float]:
    """What stages take beyond their tasks (launch, fetch wait), and beyond the usual tasks (stragglers)."""
    packed = [sum(makespan(s.useful_seconds, batch.slots) for s in batch.stages) for batch in batches]
    launch = max(0.0, weighted_median(in_stages - np.array(packed), weight))
    if not modelled.all():
        return launch, 1.0
    stretch = weighted_median((in_stages - launch) / modelled, weight)
    return launch, min(MOST_STRETCH, max(1 / MOST_STRETCH, stretch))


def _stage_seconds(costs: Mapping[str, StageCost], batch: BatchExecution) -> float:
    """What the fitted costs say about the stages of a batch that has run."""
    total = 0.0
    for stage in batch.stages:
        cost = costs.get(stage.operator)
        if cost is not None and stage.tasks:
            tasks = cost.per_task_seconds + cost.per_record_seconds * stage.records_in
            total += makespan(tasks, batch.slots)
    return total
