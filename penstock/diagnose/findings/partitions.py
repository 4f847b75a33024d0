"""Too few or too many partitions, too few slots, and partitions that do not fit into memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.diagnose.findings.advice import (
    SPLIT_SIZE,
    Advice,
    Keys,
    advise_on_executor,
    advise_on_host,
    advise_on_straggler,
    change_some,
)
from penstock.diagnose.findings.stragglers import (
    Names,
    find_rows,
    find_slow_executor,
    find_slow_host,
    group_rows,
    list_stragglers,
)
from penstock.diagnose.log.application import ApplicationLog, Column
from penstock.diagnose.whatif.capacity import measure_capacity
from penstock.diagnose.whatif.scenarios import without_time
from penstock.units.figures import count_of, seconds, size, spark_size

# Tasks that spill less than this each are not slowed down by it.
LEAST_SPILL_BYTES = 64 << 20
# Tasks for each slot at which none waits for long and none costs much to launch.
TASKS_PER_SLOT = 2
# More tasks for each slot than this, shorter than this, cost more to launch than they bring.
MANY_PER_SLOT, SHORT_SECONDS = 4, 0.2
# Tasks that use less of the slots do not queue for them: the driver launches too slowly.
QUEUES_FROM = 0.5
# Small tasks are the trouble where their launch and start cost this share of the time.
LEAST_COST = 0.2
_PARTITIONS, _PARALLELISM = "spark.sql.shuffle.partitions", "spark.default.parallelism"
_PARTITION_SIZE = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_MOST_EXECUTORS, _EXECUTORS = "spark.dynamicAllocation.maxExecutors", "spark.executor.instances"


def advise_on_operator(log: ApplicationLog, operator: str, names: Names) -> Advice | None:
    """Return what would shorten an operator whose tasks have most of the critical path."""
    keys = frozenset(key for key, name in names.items() if name == operator)
    slow_host, slow = find_slow_host(log, operator, names), find_slow_executor(log, operator, names)
    if slow_host:
        return advise_on_host(log, *slow_host)
    if slow:
        return advise_on_executor(log, *slow)
    everywhere = frozenset(names)
    stragglers = list_stragglers(log, keys)
    if stragglers:
        return advise_on_straggler(log, operator, stragglers, list_stragglers(log, everywhere))
    rows = find_rows(log, keys)
    if _spills(log, rows):
        groups = group_rows(log, everywhere)
        return _advise_on_spill(log, keys, rows, [one for one in groups.values() if _spills(log, one)])
    return _advise_on_slots(log, keys, rows)


def _spills(log: ApplicationLog, rows: Column) -> bool:
    """Return whether these tasks spill so much that it slows them down."""
    return bool(len(rows)) and int(log.tasks["memory_spilled"][rows].sum()) >= LEAST_SPILL_BYTES * len(rows)


def count_slots(log: ApplicationLog) -> int:
    """Return the most slots that were there at once."""
    return measure_capacity(log).find_most(log.end)


def _advise_on_slots(log: ApplicationLog, keys: Keys, rows: Column) -> Advice | None:
    """Advise more executors where the operator's tasks queue, more partitions where slots are idle."""
    slots = count_slots(log)
    tasks = max((log.stages[key].tasks for key in keys if key in log.stages), default=0)
    on_slots = count_of(slots, "slot")
    small = advise_on_small_tasks(log) if slots and tasks > slots else None
    if small and small.is_mostly_cost:
        return small.advice
    if slots and tasks > slots and _measure_use(log, keys) < QUEUES_FROM:
        return None
    if slots and tasks > slots:
        text = f"Its {count_of(tasks, 'task')} share {on_slots}: more executors would shorten it."
        return Advice("few slots", text, "", _set_executors(log), lambda graph: graph.scale_slots(2 * slots))
    if slots and 0 < tasks < slots:
        pieces = math.ceil(slots / tasks)
        has = f"It has {count_of(tasks, 'task')} for {on_slots}"
        text = f"{has}: more partitions would help, more executors would not."
        if tasks == 1:
            text += " Where its plan gathers all rows in one partition, the query must change."
        settings = set_partitions(log, keys, rows, tasks * pieces)
        few = _list_with_few_tasks(log, keys, slots)
        change = change_some(few, lambda stage: stage.split_tasks(math.ceil(slots / len(stage.tasks))))
        return Advice("few partitions", text, "", settings, change)
    if not tasks or not slots:
        return None
    text = f"Its {count_of(tasks, 'task')} fill {on_slots}: more executors help with more partitions."
    settings = _set_executors(log) | set_partitions(log, keys, rows, 2 * tasks)
    halve = change_some(keys, lambda stage: stage.split_tasks(2))
    return Advice("few slots", text, "", settings, lambda graph: halve(graph.scale_slots(2 * slots)))


def _list_with_few_tasks(log: ApplicationLog, keys: Keys, slots: int) -> Keys:
    """Return these stages and the others with fewer tasks than slots, of which the same setting decides."""
    scans = {key: _is_scan(log, rows) for key, rows in group_rows(log, frozenset(log.stages)).items()}
    wanted = {scans[key] for key in keys if key in scans}
    others = (key for key in scans if 1 < log.stages[key].tasks < slots and scans[key] in wanted)
    return keys | frozenset(others)


def _is_scan(log: ApplicationLog, rows: Column) -> bool:
    tasks = log.tasks
    return 2 * int(tasks["scanned_records"][rows].sum()) > int(tasks["records_in"][rows].sum())


def _measure_use(log: ApplicationLog, keys: Keys) -> float:
    """Return the share of the slots that the tasks of these stages use while their stage runs."""
    launch, finish, capacity = log.tasks["launch"], log.tasks["finish"], measure_capacity(log)
    groups = list(group_rows(log, keys).values())
    there = sum(capacity.integrate(int(launch[rows].min()), int(finish[rows].max())) for rows in groups)
    return sum(float((finish[rows] - launch[rows]).sum()) for rows in groups) / 1000 / max(there, 1e-3)


def _set_executors(log: ApplicationLog) -> dict[str, str]:
    """Return the setting that doubles the executors; a local application has none."""
    if log.properties.get("spark.master", "").startswith("local[") or "driver" in log.tasks.executors:
        return {}
    there = [(one.added, one.removed) for one in log.executors.values() if one.cores]
    most = max((sum(a <= at and (r < 0 or r > at) for a, r in there) for at, _ in there), default=0)
    if not most:
        return {}
    elastic = log.properties.get("spark.dynamicAllocation.enabled") == "true"
    return {_MOST_EXECUTORS if elastic else _EXECUTORS: str(2 * most)}


def set_partitions(log: ApplicationLog, keys: Keys, rows: Column, wanted: int) -> dict[str, str]:
    """Return the setting that gives these stages so many tasks: splits of files, of shuffles or of RDDs."""
    tasks = log.tasks
    total = int(tasks["bytes_in"][rows].sum()) // max(1, len(keys))
    if _is_scan(log, rows):
        return {SPLIT_SIZE: spark_size(total / wanted)} if total else {}
    stages = {stage for stage, _ in keys}
    executions = {job.execution for job in log.jobs.values() if stages & set(job.stages)}
    if max(executions, default=-1) < 0:
        return {_PARALLELISM: str(wanted)}
    given = log.properties.get(_PARTITIONS, "200")
    now = len(rows) / max(1, len(keys))
    adaptive = log.properties.get("spark.sql.adaptive.enabled", "true") == "true"
    if adaptive and total and given.isdecimal() and int(given) >= max(now, wanted):
        # Spark joined small partitions until they had this size
        return {_PARTITION_SIZE: spark_size(total / wanted)}
    return {_PARTITIONS: str(wanted)}


def _advise_on_spill(log: ApplicationLog, keys: Keys, rows: Column, everywhere: list[Column]) -> Advice:
    """Advise partitions that fit into memory, in all stages that spill.

    The replay leaves out all that their tasks did not compute.
    """
    tasks = log.tasks
    spilled, to_disk = (int(tasks[name][rows].sum()) for name in ("memory_spilled", "disk_spilled"))
    peak = max(1, int(np.median(tasks["peak_memory"][rows])))
    each = float(np.median(tasks["memory_spilled"][rows]))
    # Without the peak, a task held at least what it spilled at once: twice the partitions are a first step.
    factor = math.ceil((peak + each) / peak) if peak > 1 else 2
    now = max(1, len(rows) // max(1, len(keys)))
    waiting = tasks["run"] - tasks["cpu"] - tasks["fetch_wait"] - tasks["gc"]
    spills = (
        np.isin(np.arange(len(tasks)), np.concatenate(everywhere))
        & (tasks["memory_spilled"] > 0)
        & (tasks["cpu"] > 0)
    )
    held = f", {size(peak)} of memory held by a task" if peak > 1 else ""
    return Advice(
        kind="spill",
        text="Its partitions do not fit into memory: use more partitions, or give executors more memory.",
        evidence=f"Its tasks spill {size(spilled)} ({size(to_disk)} to disk{held}).",
        settings=set_partitions(log, keys, rows, now * factor),
        change=without_time(np.where(spills, np.maximum(waiting, 0) / 1000, 0.0)),
    )


@dataclass(frozen=True, slots=True)
class SmallTasks:
    """Tasks that cost more to launch than they bring: the advice, and the share of their time it saves."""

    advice: Advice
    share: float

    @property
    def is_mostly_cost(self) -> bool:
        """Whether the tasks themselves need far less than the time of their stages."""
        return self.share >= LEAST_COST


def advise_on_small_tasks(log: ApplicationLog) -> SmallTasks | None:
    """Advise fewer tasks where stages have many for each slot, and they are short."""
    slots = count_slots(log)
    many = [key for key, one in log.stages.items() if one.tasks > MANY_PER_SLOT * max(1, slots)]
    groups = list(group_rows(log, frozenset(many)).values())
    if not groups:
        return None
    rows = np.concatenate(groups)
    length = float(np.median(log.tasks["finish"][rows] - log.tasks["launch"][rows])) / 1000
    if length >= SHORT_SECONDS:
        return None
    wanted = TASKS_PER_SLOT * slots
    most = max(log.stages[key].tasks for key in many)
    text = (
        f"Stages have up to {count_of(most, 'task')} of {seconds(length)}: "
        f"{wanted} larger ones would keep {count_of(slots, 'slot')} busy."
    )
    spent, needed = _measure_small_tasks(log, groups)
    settings = set_partitions(log, frozenset(many), rows, wanted)
    advice = Advice("small tasks", text, "", settings, saves=max(0.0, spent - needed))
    return SmallTasks(advice, advice.saves / max(spent, 1e-3) if advice.saves else 0.0)


def _measure_small_tasks(log: ApplicationLog, groups: list[Column]) -> tuple[float, float]:
    """Return the seconds in which stages of small tasks ran, and those that their work alone would take."""
    launch, finish, capacity = log.tasks["launch"], log.tasks["finish"], measure_capacity(log)
    spent, offered, until = 0, 0.0, -1
    for begun, end in sorted((int(launch[rows].min()), int(finish[rows].max())) for rows in groups):
        start = max(begun, until)
        if end > start:
            spent, offered, until = spent + end - start, offered + capacity.integrate(start, end), end
    work = float(sum(int(log.tasks["run"][rows].sum()) for rows in groups)) / 1000
    return spent / 1000, work / max(offered, 1e-3) * spent / 1000
