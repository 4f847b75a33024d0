"""The cost model of a micro-batch: seconds per batch, slot-seconds per task and slot-seconds per record.

The stages of a batch share the slots one after the other, so a batch of records on S slots lasts
h + Σᵢ (makespan(tasks of aᵢ + bᵢ · records on S slots) + (k - 1) · longest task). The inverse of bᵢ is the
true rate of DS2. k corrects for stragglers and other delays that usual task times leave out: whatever the
waves of tasks before it, a stage waits for the last task alone.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.dataflow.costs.tasks import MOST_TASKS, TaskGrowth, spread_shares
from penstock.dataflow.metrics import Floats
from penstock.errors import BadMetrics

MOST_STAGES = 200


@dataclass(frozen=True, slots=True)
class StageCost:
    """The costs of one operator's stage; `shares` is each task's part of the records, in task order.

    `most_slots` bounds the slots from which a stage gains, for an operator that cannot be scaled. `growth`
    says how its tasks follow the input, None where every batch has the same number.
    """

    operator: str
    per_task_seconds: float
    per_record_seconds: float
    tasks: int
    shares: Floats
    selectivity: float
    identified: bool = True
    most_slots: int | None = None
    growth: TaskGrowth | None = None

    def tasks_for(self, records: float, slots: int) -> int:
        """Return how many tasks a batch with so many records has on so many slots."""
        return self.tasks if self.growth is None else self.growth.tasks_for(records, slots)

    def shares_for(self, records: float, slots: int) -> Floats:
        """Return each task's part of so many records on so many slots."""
        return spread_shares(self.shares, self.tasks_for(records, slots))

    def task_seconds(self, records: float, slots: int) -> Floats:
        """Return the seconds of each task for so many records in one batch."""
        return self.per_task_seconds + self.per_record_seconds * records * self.shares_for(records, slots)

    def slot_seconds_at(self, records: float, slots: int) -> float:
        """Return the slot-seconds of the whole stage for so many records in one batch."""
        return self.tasks_for(records, slots) * self.per_task_seconds + self.per_record_seconds * records

    def usable_slots(self, slots: int) -> int:
        """Return how many of the slots the stage gains from."""
        return slots if self.most_slots is None else min(slots, self.most_slots)


LISTED_AT_ONCE = 32
"""Spark lists up to so many files in the driver, and more in a job with a task for each
(`spark.sql.sources.parallelPartitionDiscovery.threshold`)."""


@dataclass(frozen=True, slots=True)
class ListingCost:
    """The cost of listing the files of a batch in tasks, by the records that `sources` read."""

    sources: tuple[str, ...]
    files_per_record: float
    slot_seconds_per_file: float

    def seconds_for(self, input_rates: Mapping[str, float], period_seconds: float, slots: int) -> float:
        """Return the seconds for one period's files; few of them are listed without tasks."""
        read = sum(input_rates.get(source, 0.0) for source in self.sources) * period_seconds
        files = self.files_per_record * read
        return files * self.slot_seconds_per_file / slots if files > LISTED_AT_ONCE else 0.0


@dataclass(frozen=True, slots=True)
class QueryCosts:
    """The costs of one query as measured on so many slots.

    `error_ratio` is the usual relative error of a predicted batch. `stretch` is by how much the last task of
    a stage lasts longer than usual ones, by stragglers and noise. Parallel stages make it less than one: then
    it is their time over the makespan of their usual tasks.
    """

    per_batch_seconds: float
    stages: tuple[StageCost, ...]
    slots: int
    error_ratio: float = 0.0
    stretch: float = 1.0
    listing: ListingCost | None = None

    def stage(self, operator: str) -> StageCost | None:
        """Return the costs of one operator, None if it has not run."""
        return next((stage for stage in self.stages if stage.operator == operator), None)


def makespan(task_seconds: Floats | Sequence[float], slots: int) -> float:
    """Return the seconds until the last task ends if each, in task order, takes the slot that is free first.

    Spark hands out the tasks of a stage in this way, so whole waves, a short last wave and a long last
    task all show.
    """
    if slots < 1:
        raise ValueError(f"a stage needs at least one slot, not {slots}")
    # plain floats: a heap of them is several times faster than one of array elements
    seconds = task_seconds.tolist() if isinstance(task_seconds, np.ndarray) else list(task_seconds)
    if not seconds:
        return 0.0
    if slots == 1:
        return sum(seconds)
    busy_until = seconds[:slots]
    if len(seconds) <= slots:
        return max(busy_until)
    heapq.heapify(busy_until)
    for task in seconds[slots:]:
        heapq.heapreplace(busy_until, busy_until[0] + task)
    return max(busy_until)


def stage_seconds(stage: StageCost, records: float, slots: int) -> float:
    """Predict the seconds of one stage for so many records."""
    return makespan(stage.task_seconds(records, slots), stage.usable_slots(slots))


def stretch_stage(seconds: float, longest: float, stretch: float) -> float:
    """Stretch the last task of a stage, or all of a stage that runs beside others.

    Where tasks differ by chance, a wave waits for the slowest of all slots, and only the last wave of several
    does: the slots that are free sooner take the next tasks.
    """
    return stretch * seconds if stretch < 1 else seconds + (stretch - 1) * longest


def batch_seconds(
    costs: QueryCosts, input_rates: Mapping[str, float], period_seconds: float, slots: int
) -> float:
    """Predict the seconds of a batch that holds the records of one period."""
    in_stages = 0.0
    for stage in costs.stages:
        tasks = stage.task_seconds(input_rates[stage.operator] * period_seconds, slots)
        alone = makespan(tasks, stage.usable_slots(slots))
        in_stages += stretch_stage(alone, float(tasks.max(initial=0.0)), costs.stretch)
    listing = costs.listing.seconds_for(input_rates, period_seconds, slots) if costs.listing else 0.0
    return costs.per_batch_seconds + in_stages + listing


def fixed_seconds(
    costs: QueryCosts, input_rates: Mapping[str, float], period_seconds: float, slots: int
) -> float:
    """Predict the part of a batch that its records do not lengthen: its own cost, and its waves of tasks."""
    in_stages = 0.0
    for stage in costs.stages:
        tasks = stage.tasks_for(input_rates[stage.operator] * period_seconds, slots)
        waves = math.ceil(tasks / stage.usable_slots(slots))
        in_stages += stretch_stage(waves * stage.per_task_seconds, stage.per_task_seconds, costs.stretch)
    return costs.per_batch_seconds + in_stages


def load_ratio(
    costs: QueryCosts, input_rates: Mapping[str, float], period_seconds: float, slots: int
) -> float:
    """Return the share of what the slots carry that the rates use.

    A batch of s seconds has f that are there at any rate, so 1/u times the rates take f + (s - f)/u, which is
    the period T at u = (s - f) / (T - f). Where fixed costs fill the period the load is infinite.
    """
    fixed = fixed_seconds(costs, input_rates, period_seconds, slots)
    by_records = batch_seconds(costs, input_rates, period_seconds, slots) - fixed
    if by_records <= 0:
        return 0.0 if fixed <= period_seconds else math.inf
    return by_records / (period_seconds - fixed) if fixed < period_seconds else math.inf


def write_costs(costs: QueryCosts) -> dict[str, Any] | None:
    """Write costs as plain data that can outlive the driver; None where that would be too long."""
    if len(costs.stages) > MOST_STAGES or any(stage.tasks > MOST_TASKS for stage in costs.stages):
        return None
    return {
        "slots": costs.slots,
        "per_batch_seconds": costs.per_batch_seconds,
        "error_ratio": costs.error_ratio,
        "stretch": costs.stretch,
        "stages": [_plain_stage(stage) for stage in costs.stages],
    }


def read_costs(plain: object) -> QueryCosts:
    """Read costs back; BadMetrics if `write_costs` does not write such data."""
    try:
        return _costs(plain)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadMetrics(f"remembered costs cannot be read: {error!r}") from error


def _plain_stage(stage: StageCost) -> dict[str, Any]:
    return {
        "operator": stage.operator,
        "per_task_seconds": stage.per_task_seconds,
        "per_record_seconds": stage.per_record_seconds,
        "shares": [round(share, 9) for share in stage.shares.tolist()],
        "selectivity": stage.selectivity,
        "identified": stage.identified,
        "records_per_task": stage.growth.records_per_task if stage.growth else None,
        "bounded_by_slots": stage.growth is not None and stage.growth.bounded_by_slots,
    }


def _costs(plain: Any) -> QueryCosts:
    stages = tuple(_stage(stage) for stage in _list(plain["stages"], MOST_STAGES))
    if not stages or len({stage.operator for stage in stages}) < len(stages):
        raise ValueError("stages are missing or named twice")
    slots = plain["slots"]
    if not isinstance(slots, int) or slots < 1:
        raise ValueError(f"{slots!r} slots")
    return QueryCosts(
        per_batch_seconds=_number(plain["per_batch_seconds"]),
        stages=stages,
        slots=slots,
        error_ratio=_number(plain["error_ratio"]),
        stretch=_number(plain["stretch"]),
    )


def _stage(plain: Any) -> StageCost:
    shares = np.array([_number(share) for share in _list(plain["shares"], MOST_TASKS)])
    if not len(shares) or not math.isclose(float(shares.sum()), 1.0, abs_tol=1e-3):
        raise ValueError("the tasks' shares do not make a whole")
    return StageCost(
        operator=str(plain["operator"]),
        per_task_seconds=_number(plain["per_task_seconds"]),
        per_record_seconds=_number(plain["per_record_seconds"]),
        tasks=len(shares),
        shares=shares / shares.sum(),
        selectivity=_number(plain["selectivity"]),
        identified=bool(plain["identified"]),
        growth=_growth(plain.get("records_per_task"), bool(plain.get("bounded_by_slots"))),
    )


def _growth(records_per_task: object, bounded_by_slots: bool) -> TaskGrowth | None:
    if records_per_task is None:
        return None
    if (unit := _number(records_per_task)) <= 0:
        raise ValueError(f"{unit} records a task")
    return TaskGrowth(unit, bounded_by_slots)


def _list(value: object, most: int) -> Sequence[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError("a list is missing or too long")
    return value


def _number(value: object) -> float:
    number = float(value) if isinstance(value, int | float) else math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{value!r} is no cost")
    return number
