"""The partitions and the limit per trigger that a query would need, with what they would bring.

A stage runs on as many slots as it has tasks, so where those are fewer than the slots that a load needs, no
executor helps. What decides their number is the user's to change. Nothing here changes a size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

import numpy as np

from penstock.dataflow.costs.foresight import CostsFor, Outlook, costs_with_fixed
from penstock.dataflow.costs.model import QueryCosts, StageCost, batch_seconds
from penstock.dataflow.costs.slots import is_shorter, predict_batch
from penstock.dataflow.costs.tasks import MOST_TASKS, spread_shares
from penstock.dataflow.metrics import Floats
from penstock.decide.ds2.slot_sizing import SKEWED, WORTH_A_CHANGE

NEARLY = 0.05
"""What shortens batches by less is left out."""
SLACK = 1e-9
"""Relative: a limit that was found by bisection is not to fall below the digit that it means."""
GIANT = 3.0
"""Periods that one batch over a backlog takes before a limit is worth it."""
FILE_FORMATS = frozenset({"avro", "binaryFile", "csv", "json", "orc", "parquet", "text", "xml"})


STATEFUL = ("State", "Streaming")
"""Words in the names of plan nodes that keep state, such as FlatMapGroupsWithState, StreamingDeduplicate."""


class Lever(Enum):
    """The thing that decides how many tasks a stage has."""

    SOURCE = "source"
    FILES = "files"
    SHUFFLE = "shuffle"
    STATE = "state"


_HOW = {
    Lever.SOURCE: "minPartitions={n} for a Kafka source, which cuts its partitions into pieces",
    Lever.FILES: "{n} files a batch, or a smaller spark.sql.files.maxPartitionBytes",
    Lever.SHUFFLE: "spark.sql.shuffle.partitions={n}, which takes effect at the next start",
    Lever.STATE: "{n} state partitions, by autopilot.state.repartition",
}


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """One lever to be moved: the stages that it would help, the fewest tasks of them, and those wanted."""

    lever: Lever
    operators: tuple[str, ...]
    tasks: int
    wanted: int

    def describe(self) -> str:
        """Say how it is done."""
        return _HOW[self.lever].format(n=self.wanted)


@dataclass(frozen=True, slots=True)
class PartitionAdvice:
    """The partitions with which a query could use the slots that its load needs.

    `seconds` is a batch on these slots as the job is, `expected_seconds` with all changes. Where batches grow
    for ever these are the next one.
    """

    query: str
    slots: int
    period_seconds: float
    seconds: float
    expected_seconds: float
    grows: bool
    still_grows: bool
    changes: tuple[MorePartitions, ...]

    def describe(self) -> str:
        """Say what is short, what it costs, what would help and how much."""
        short = " and ".join(
            f"{_list(change.operators)} {'has' if len(change.operators) == 1 else 'have'} {change.tasks} "
            f"task{'' if change.tasks == 1 else 's'}"
            for change in self.changes
        )
        how = " and ".join(change.describe() for change in self.changes)
        now = "batches grow for ever, the next" if self.grows else "a batch"
        then = "as the next " if self.still_grows else ""
        return (
            f"{self.query}: {short}: on the {self.slots} slots that its load needs {now} takes "
            f"{self.seconds:.1f} s of {self.period_seconds:.1f} s; "
            f"{self.expected_seconds:.1f} s are expected {then}with {how}"
        )


@dataclass(frozen=True, slots=True)
class TriggerLimit:
    """The limit per trigger that cuts a backlog into batches of one period.

    `seconds` is one batch over the whole of it. `files` is the limit in files, where files are read.
    """

    query: str
    backlog_records: float
    seconds: float
    period_seconds: float
    records: int
    files: int | None
    batches: int

    def describe(self) -> str:
        """Say how long the backlog would hold everything up, and what the limit brings."""
        option = (
            f"maxOffsetsPerTrigger={self.records} for a Kafka source"
            if self.files is None
            else f"maxFilesPerTrigger={self.files}"
        )
        return (
            f"{self.query}: one batch over the backlog of {self.backlog_records:,.0f} records takes "
            f"{self.seconds:.0f} s, and nothing comes out before its end; {option}, from a start until it "
            f"has caught up, makes {self.batches} batches of {self.period_seconds:.1f} s of it"
        )


def advise_on_partitions(
    outlook: Outlook, utilisation: float, most_slots: int, slots_per_executor: int = 1
) -> PartitionAdvice | None:
    """Find the slots that the load would need with enough tasks, and what has too few for them.

    None where tasks are enough, or more of them would bring little.
    """
    costs_for = costs_with_fixed(outlook.costs, outlook.held, outlook.alone, outlook.fixed)
    slots = _find_slots(outlook, costs_for, utilisation, most_slots, slots_per_executor)
    costs, period = costs_for(slots), outlook.period_seconds
    settle = partial(_settle, outlook.rates, period, slots)
    short = _group_short(costs, outlook, slots)
    levers = set(short)
    now, expected = settle(costs), settle(_enlarge(costs, outlook, slots, levers))
    if not is_shorter(expected, now, 1 - WORTH_A_CHANGE):
        return None
    for lever in sorted(levers, key=lambda one: one.value):
        without = settle(_enlarge(costs, outlook, slots, levers - {lever}))
        if not is_shorter(expected, without, 1 - NEARLY):
            levers, expected = levers - {lever}, without
    changes = tuple(
        _describe_change(lever, short[lever], outlook, slots) for lever in Lever if lever in levers
    )
    (grows, seconds), (still_grows, then) = now, expected
    return PartitionAdvice(outlook.query, slots, period, seconds, then, grows, still_grows, changes)


def limit_first_batch(outlook: Outlook, slots: int) -> TriggerLimit | None:
    """Find the limit with which batches over a backlog fill one period each.

    None where the backlog is small, or where the slots carry no more than the offered rate: then executors
    are needed first.
    """
    costs = costs_with_fixed(outlook.costs, outlook.held, outlook.alone, outlook.fixed)(slots)
    period, backlog = outlook.period_seconds, outlook.backlog_records
    usual = outlook.offered_per_second * period
    if not (usual > 0 and backlog > 0):
        return None
    times = partial(_times, costs, outlook.rates, period, slots)
    seconds = times(1 + backlog / usual)
    if not seconds > GIANT * period:
        return None
    records = _round_down(usual * _largest(times, period, 1 + backlog / usual))
    if records <= usual:
        return None
    batches = math.ceil(backlog / (records - usual))
    files = _count_files(costs, records)
    return TriggerLimit(outlook.query, backlog, seconds, period, records, files, batches)


def find_lever(operator: str) -> Lever:
    """Tell by a stage's plan nodes, in the order in which records pass them, what its tasks follow."""
    first, _, detail = operator.partition(" + ")[0].partition(" ")
    if first in {"Scan", "FileScan"}:
        return Lever.FILES if detail in FILE_FORMATS else Lever.SOURCE
    if first.endswith("Scan"):
        return Lever.SOURCE
    return Lever.STATE if any(word in operator for word in STATEFUL) else Lever.SHUFFLE


def _find_slots(
    outlook: Outlook, costs_for: CostsFor, utilisation: float, most: int, per_executor: int
) -> int:
    """Find the least slots that fit the load with enough tasks, or those that more would hardly beat."""
    period = outlook.period_seconds
    ample = {operator: rate / utilisation for operator, rate in outlook.rates.items()}
    tried: dict[int, float] = {}
    for slots in _list_sizes(per_executor, min(most, MOST_TASKS)):
        costs = _enlarge(costs_for(slots), outlook, slots, set(Lever))
        tried[slots] = batch_seconds(costs, ample, period, slots)
        if tried[slots] <= period:
            return slots
    shortest = min(tried.values(), default=0.0)
    return next((slots for slots, took in tried.items() if took <= shortest * (1 + NEARLY)), per_executor)


def _list_sizes(per_executor: int, most: int) -> Iterator[int]:
    """Yield whole executors, each of the first and then ever fewer."""
    executors = 1
    while executors * per_executor <= most:
        yield executors * per_executor
        executors += max(1, executors // 16)


def _group_short(costs: QueryCosts, outlook: Outlook, slots: int) -> dict[Lever, list[StageCost]]:
    """Group the stages with fewer tasks than slots by what decides their number."""
    found: dict[Lever, list[StageCost]] = {}
    for stage in costs.stages:
        if _is_short(stage, costs, outlook, slots):
            found.setdefault(find_lever(stage.operator), []).append(stage)
    return found


def _is_short(stage: StageCost, costs: QueryCosts, outlook: Outlook, slots: int) -> bool:
    tasks = _count_tasks(stage, outlook, slots)
    return tasks < slots and stage.most_slots is None and not _gathers(stage, costs)


def _gathers(stage: StageCost, costs: QueryCosts) -> bool:
    """Tell whether the plan brings all rows into one partition: others behind a shuffle have more."""
    lever = find_lever(stage.operator)
    others = (one.tasks for one in costs.stages if find_lever(one.operator) is lever)
    return stage.tasks == 1 and lever in {Lever.SHUFFLE, Lever.STATE} and max(others) > 1


def _count_tasks(stage: StageCost, outlook: Outlook, slots: int) -> int:
    return stage.tasks_for(outlook.rates[stage.operator] * outlook.period_seconds, slots)


def _enlarge(costs: QueryCosts, outlook: Outlook, slots: int, levers: set[Lever]) -> QueryCosts:
    """Return the costs with a task for each slot in the stages that have fewer, by these levers."""
    stages = tuple(
        replace(stage, tasks=slots, shares=_spread(stage.shares, slots), growth=None)
        if find_lever(stage.operator) in levers and _is_short(stage, costs, outlook, slots)
        else stage
        for stage in costs.stages
    )
    return replace(costs, stages=stages)


def _spread(shares: Floats, tasks: int) -> Floats:
    """Spread records over more tasks; a task that may hold one key keeps all of it."""
    spread, largest = spread_shares(shares, tasks), float(shares.max())
    if largest * len(shares) <= SKEWED or largest >= 1:
        return spread
    rest = np.delete(spread, int(spread.argmax()))
    whole = float(rest.sum())
    others = rest * (1 - largest) / whole if whole > 0 else rest
    return np.concatenate([[largest], others])


def _describe_change(lever: Lever, stages: list[StageCost], outlook: Outlook, slots: int) -> MorePartitions:
    fewest = min(_count_tasks(stage, outlook, slots) for stage in stages)
    return MorePartitions(lever, tuple(stage.operator for stage in stages), fewest, slots)


def _settle(rates: Mapping[str, float], period: float, slots: int, costs: QueryCosts) -> tuple[bool, float]:
    return predict_batch(costs, rates, period, slots)


def _times(costs: QueryCosts, rates: Mapping[str, float], period: float, slots: int, factor: float) -> float:
    """Return the seconds of a batch with so many times the records of a period."""
    return batch_seconds(costs, {name: rate * factor for name, rate in rates.items()}, period, slots)


def _largest(times: Callable[[float], float], period: float, most: float) -> float:
    """Return the largest factor whose batch fits the period; 0 where not even one does."""
    low, high = 0.0, most
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if times(middle) <= period else (low, middle)
    return low


def _round_down(records: float) -> int:
    """Keep two digits, which is more than predictions have."""
    records *= 1 + SLACK
    if records < 1:
        return 0
    unit = 10 ** max(0, math.floor(math.log10(records)) - 1)
    return int(records // unit * unit)


def _count_files(costs: QueryCosts, records: int) -> int | None:
    """Count the files with so many records; None where none are read."""
    if costs.listing is not None:
        return max(1, int(records * costs.listing.files_per_record))
    scans = (one for one in costs.stages if find_lever(one.operator) is Lever.FILES and one.growth)
    growth = next((one.growth for one in scans), None)
    return max(1, int(records / growth.records_per_task)) if growth is not None else None


def _list(operators: tuple[str, ...]) -> str:
    return ", ".join(operators)
