"""Fit the costs of a query to its batches: a line through the tasks of each stage, and what is beside it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from penstock.dataflow.costs.line import Line, fit_line
from penstock.dataflow.costs.model import ListingCost, QueryCosts, StageCost, makespan, stretch_stage
from penstock.dataflow.costs.tasks import SeenTasks, TaskGrowth, fit_growth
from penstock.dataflow.metrics import BatchExecution, Floats, StageExecution
from penstock.dataflow.readiness import NotReady

HALF_LIFE_BATCHES = 5
"""A batch counts half as much as one that is five batches younger, so that costs which drift are followed."""

CALIBRATION_BATCHES = 10
"""Older batches weigh less than a quarter in a median, and scheduling their tasks again takes time."""

MOST_STRETCH = 1.5
"""A model that is off by more is wrong in a way that no factor mends."""

FEWEST_TASKS = 3
"""With fewer samples of a stage one straggler would be the majority."""

MINOR_SHARE = 0.1
"""The share of all useful time up to which a stage's first task is believed: errors there change little."""


def fit_costs(
    batches: Sequence[BatchExecution],
    slots: int,
    known_slopes: Mapping[str, float] | None = None,
    alone: bool = True,
    sources: Collection[str] = (),
    larger: Sequence[BatchExecution] = (),
) -> QueryCosts | NotReady:
    """Fit the three costs over batches that ran on so many slots, oldest first.

    `known_slopes` are seconds per record that other slot counts have shown; they decide where these
    batches cannot tell the cost of a task from that of its records. `alone` says that no other query
    used the slots. `sources` are the operators that may read files. `larger` are batches of before with far
    more records: they bound what a record costs and by how much long stages are stretched, and show how many
    tasks large batches have.
    """
    if not batches:
        return NotReady("no batch has finished", "a finished batch")
    stages: list[StageCost] = []
    before, seen = _runs_by_operator(larger), _runs_by_operator(batches)
    minor = MINOR_SHARE * sum(map(_sum_useful, seen.values()))
    for operator, runs in seen.items():
        known = (known_slopes or {}).get(operator), _bound_slope(before.get(operator, []))
        fewest = 1 if _sum_useful(runs) <= minor else FEWEST_TASKS
        stage = _fit_stage(operator, runs, len(batches), known, fewest)
        if isinstance(stage, StageCost):
            stage = replace(
                stage, growth=_fit_growth([*before.get(operator, []), *runs], operator in sources)
            )
        if isinstance(stage, NotReady):
            return stage
        stages.append(stage)
    costs = _add_serial_part(batches, tuple(stages), slots, alone, larger)
    return replace(costs, listing=_fit_listing([*larger, *batches], tuple(sources)))


def fit_slopes(batches: Sequence[BatchExecution]) -> dict[str, float]:
    """Fit the seconds per record of the operators for which batches, on any slots, tell them apart."""
    lines = {operator: _fit_tasks(runs) for operator, runs in _runs_by_operator(batches).items()}
    return {operator: line.slope for operator, line in lines.items() if line.identified}


def weigh_by_age(age_batches: Floats) -> Floats:
    """Weigh evidence by its age: half as much for each half-life."""
    weight: Floats = np.exp2(-age_batches / HALF_LIFE_BATCHES)
    return weight


def weighted_median(values: Floats, weight: Floats) -> float:
    """Return the value that parts the weight in two halves."""
    order = np.argsort(values)
    reached = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])


def _middle_of_pairs(values: Floats, weight: Floats) -> float:
    """Return the median of the means of all pairs, each value with itself too (Hodges and Lehmann).

    A few batches have a straggler or none, and a plain median would jump from one to the other.
    """
    one, other = np.triu_indices(len(values))
    return weighted_median((values[one] + values[other]) / 2, weight[one] * weight[other])


@dataclass(frozen=True, slots=True)
class _Run:
    """One operator's stage in one of the batches, counted from the oldest."""

    number: int
    batch: BatchExecution
    stage: StageExecution


_Runs = list[_Run]
_KnownSlope = tuple[float | None, float]
"""Seconds per record that are known from elsewhere, and the most that they can be."""


def _runs_by_operator(batches: Sequence[BatchExecution]) -> dict[str, _Runs]:
    runs: dict[str, _Runs] = {}
    for number, batch in enumerate(batches):
        for stage in batch.stages:
            if stage.tasks:
                runs.setdefault(stage.operator, []).append(_Run(number, batch, stage))
    return runs


def _bound_slope(larger: _Runs) -> float:
    """Return the most that a record can cost, by batches of before that had far more records.

    That is all that a task took, divided by its records. Batches that got smaller from one to the next give
    a closer bound, the slope of the line through them: code that warmed up meanwhile made the later, smaller
    ones cheaper beside their records, too, so the line is rather too steep.
    """
    totals = [(float(run.stage.records_in.sum()), float(run.stage.useful_seconds.sum())) for run in larger]
    bounds = [seconds / records for records, seconds in totals if records > 0]
    if len(totals) > 1 and all(now < before for (before, _), (now, _) in pairwise(totals)):
        line = _fit_tasks(larger)
        bounds += [line.slope] if line.identified and line.slope > 0 else []
    return min(bounds, default=math.inf)


def _fit_tasks(runs: _Runs, batches: int | None = None) -> Line:
    """Fit a line through the tasks of a stage in several batches, by their age where that of all is given."""
    records = np.concatenate([run.stage.records_in for run in runs])
    seconds = np.concatenate([run.stage.useful_seconds for run in runs])
    group = np.repeat([run.number for run in runs], [run.stage.tasks for run in runs])
    age = np.zeros(len(group)) if batches is None else np.asarray(batches - 1 - group, dtype=np.float64)
    return fit_line(records, seconds, weigh_by_age(age), group)


def _sum_useful(runs: _Runs) -> float:
    return sum(float(run.stage.useful_seconds.sum()) for run in runs)


def _fit_stage(
    operator: str, runs: _Runs, batches: int, known: _KnownSlope, fewest: int
) -> StageCost | NotReady:
    tasks = sum(run.stage.tasks for run in runs)
    if tasks < fewest:
        return NotReady(f"{operator} has shown {tasks} tasks", f"{fewest} tasks of {operator}")
    if any(run.stage.records_in.any() for run in runs) and not any(
        run.stage.useful_seconds.any() for run in runs
    ):
        return NotReady(f"{operator} reports records but no useful time", "a useful time above zero")
    return _stage_cost(operator, runs, batches, _fit_tasks(runs, batches), known)


def _stage_cost(operator: str, runs: _Runs, batches: int, line: Line, known: _KnownSlope) -> StageCost:
    weight = weigh_by_age(np.array([batches - 1 - run.number for run in runs], dtype=np.float64))
    stages = [run.stage for run in runs]
    per_task, per_record = line.split(*known)
    return StageCost(
        operator=operator,
        per_task_seconds=per_task,
        per_record_seconds=per_record,
        tasks=stages[-1].tasks,
        shares=_average_shares(stages, weight),
        selectivity=_measure_selectivity(stages, weight),
        identified=line.identified,
    )


def _fit_growth(runs: _Runs, may_read_files: bool) -> TaskGrowth | None:
    return fit_growth(
        [
            SeenTasks(
                run.stage.tasks,
                float(run.stage.records_in.sum()),
                run.batch.slots,
                run.batch.files if may_read_files else None,
            )
            for run in runs
        ]
    )


def _fit_listing(batches: Sequence[BatchExecution], sources: tuple[str, ...]) -> ListingCost | None:
    """Fit what listing files in tasks costs; None where no batch has done so."""
    read = [batch for batch in batches if batch.files and batch.input_records > 0]
    listed = [batch for batch in read if batch.listing_seconds > 0]
    if not listed:
        return None
    per_record = np.median([(batch.files or 0) / batch.input_records for batch in read])
    per_file = np.median([batch.listing_seconds * batch.slots / (batch.files or 1) for batch in listed])
    return ListingCost(sources, float(per_record), float(per_file))


def _average_shares(stages: Sequence[StageExecution], weight: Floats) -> Floats:
    """Average each task's part of the records, over the batches that had the newest task count."""
    tasks = stages[-1].tasks
    total: Floats = np.zeros(tasks)
    for stage, factor in zip(stages, weight.tolist(), strict=True):
        records = float(stage.records_in.sum())
        if stage.tasks == tasks and records > 0:
            total += factor / records * stage.records_in
    whole = float(total.sum())
    return total / whole if whole > 0 else np.full(tasks, 1.0 / tasks)


def _measure_selectivity(stages: Sequence[StageExecution], weight: Floats) -> float:
    """Divide records out by records in; an operator that got none counts as passing on what it gets."""
    taken = float(weight @ np.array([stage.records_in.sum() for stage in stages]))
    given = float(weight @ np.array([stage.records_out.sum() for stage in stages]))
    return given / taken if taken > 0 else 1.0


@dataclass(frozen=True, slots=True)
class _StageTimes:
    """The seconds of batches in their stages, as measured and as the fitted costs predict them."""

    batches: Sequence[BatchExecution]
    seconds: Floats
    """All of a batch but the listing of files."""
    serial: Floats
    """The part of it outside of stages."""
    modelled: Floats
    longest: Floats
    """The seconds of the longest tasks of the stages, as modelled."""
    weight: Floats

    @staticmethod
    def measure(batches: Sequence[BatchExecution], stages: Sequence[StageCost]) -> _StageTimes:
        costs = {stage.operator: stage for stage in stages}
        predicted = np.array([_predict_stages(costs, batch) for batch in batches])
        return _StageTimes(
            batches,
            np.array([batch.seconds - batch.listing_seconds for batch in batches]),
            np.array([batch.serial_seconds for batch in batches]),
            predicted[:, 0],
            predicted[:, 1],
            weigh_by_age(np.arange(len(batches) - 1, -1, -1, dtype=np.float64)),
        )

    @property
    def in_stages(self) -> Floats:
        return self.seconds - self.serial

    def measure_stretch(self, launch: float) -> float:
        """Measure by how much the last tasks of stages are usually stretched, as `stretch_stage` does."""
        beyond = self.in_stages - launch - self.modelled
        stretch = 1 + _middle_of_pairs(beyond / self.longest, self.weight * self.modelled)
        if stretch < 1:
            stretch = 1 + _middle_of_pairs(beyond / self.modelled, self.weight * self.modelled)
        return min(MOST_STRETCH, max(1 / MOST_STRETCH, stretch))

    def stretch_by(self, stretch: float) -> Floats:
        """Return the modelled seconds with stretched tasks."""
        return np.array(
            [stretch_stage(*one, stretch) for one in zip(self.modelled, self.longest, strict=True)]
        )


def _add_serial_part(
    batches: Sequence[BatchExecution],
    stages: tuple[StageCost, ...],
    slots: int,
    alone: bool,
    larger: Sequence[BatchExecution],
) -> QueryCosts:
    """Add the serial seconds of a batch, and how far stages differ from the makespan of their usual tasks.

    Beside other queries stages also wait for slots, which is no cost of this query, so the makespan is then
    taken as it is.
    """
    times = _StageTimes.measure(batches[-CALIBRATION_BATCHES:], stages)
    delay, stretch = _calibrate(times) if alone else (0.0, 1.0)
    if alone and larger and times.modelled.all():
        delay, stretch = _calibrate_longer(times, _StageTimes.measure(larger, stages), delay, stretch)
    serial = weighted_median(times.serial, times.weight) + delay
    miss = np.abs(serial + times.stretch_by(stretch) - times.seconds) / np.maximum(times.seconds, 1e-9)
    return QueryCosts(serial, stages, slots, weighted_median(miss, times.weight), stretch)


def _calibrate(times: _StageTimes) -> tuple[float, float]:
    """Measure what stages take beyond their tasks (launch, fetch wait), and the stretch by stragglers.

    Long batches say more about the stretch: in a short one a delay of a moment is half of its time.
    """
    packed = [sum(makespan(s.useful_seconds, batch.slots) for s in batch.stages) for batch in times.batches]
    launch = max(0.0, weighted_median(times.in_stages - np.array(packed), times.weight))
    if not times.modelled.all():
        return launch, 1.0
    return launch, times.measure_stretch(launch)


def _calibrate_longer(
    times: _StageTimes, larger: _StageTimes, launch: float, stretch: float
) -> tuple[float, float]:
    """Take the stretch of larger batches where it is less; what is beyond it now is a delay of each batch."""
    least = min(stretch, larger.measure_stretch(launch))
    least = max(1.0, least) if stretch > 1 else stretch
    return max(launch, weighted_median(times.in_stages - times.stretch_by(least), times.weight)), least


def _predict_stages(costs: Mapping[str, StageCost], batch: BatchExecution) -> tuple[float, float]:
    """Predict the seconds of the stages of a batch that has run, and of the longest task of each together."""
    total = longest = 0.0
    for stage in batch.stages:
        cost = costs.get(stage.operator)
        if cost is not None and stage.tasks:
            tasks = cost.per_task_seconds + cost.per_record_seconds * stage.records_in
            total += makespan(tasks, batch.slots)
            longest += float(tasks.max())
    return total, longest
