"""Advice on tasks that hold an application up: words, settings, and the change to replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.diagnose.findings.stragglers import Straggler, group_rows
from penstock.diagnose.log.application import ApplicationLog, StageKey
from penstock.diagnose.whatif.capacity import count_task_cores
from penstock.diagnose.whatif.scenarios import Change, change_stages, without_time
from penstock.diagnose.whatif.task_graph import StagePlan
from penstock.units.figures import count, count_of, read_spark_size, scale_spark_size, size, spark_size

Keys = frozenset[StageKey]
SPLIT_SIZE = "spark.sql.files.maxPartitionBytes"
_SKEW_JOIN = "spark.sql.adaptive.skewJoin.enabled"
_SKEW_SIZE = "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes"
_SPECULATION = "spark.speculation"
_HEAP, _DRIVER_HEAP = "spark.executor.memory", "spark.driver.memory"
# From here on Spark's own page calls garbage collection too much.
CALM_SHARE = 0.1
# Beyond these the model says nothing: all time is collection, or nothing is ever free.
MOST_COLLECTION, MOST_HELD = 0.9, 0.9
# Where the log does not tell what tasks hold: the part of the heap that Spark fills by default.
USUALLY_HELD = 0.6
# One step of an expert: beyond it, the objects are the problem and not the heap.
MOST_GROWTH = 4.0


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of advice: its kind, the words, the evidence, what to set, and the change to replay.

    `saves` are the seconds that it saves, where these are counted and not replayed.
    """

    kind: str
    text: str
    evidence: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    change: Change | None = None
    saves: float | None = None


def change_some(keys: Keys, change: Callable[[StagePlan], StagePlan]) -> Change:
    """Return the change of a graph that changes these stages alone."""
    return change_stages(lambda stage: change(stage) if stage.key in keys else stage)


def advise_on_executor(log: ApplicationLog, executor: str, ratio: float) -> Advice:
    """Advise on an executor whose tasks are slow: in the replay they take as long as those of the others."""
    host = log.executors[executor].host if executor in log.executors else ""
    return Advice(
        kind="slow executor",
        text=f"Look at {f'its host {host}' if host else 'its host'}, or take it out of the cluster.",
        evidence=f"The tasks of executor {executor} {_describe_slowness(ratio)}",
        change=_speed_up(log, {executor}),
    )


def advise_on_host(log: ApplicationLog, host: str, ratio: float) -> Advice:
    """Advise on a host whose executors are all slow."""
    there = {name for name, executor in log.executors.items() if executor.host == host}
    return Advice(
        kind="slow host",
        text="Look at what else runs there, at its disks and its network, or take it out of the cluster.",
        evidence=f"The tasks on host {host} {_describe_slowness(ratio)}",
        change=_speed_up(log, there),
    )


def _describe_slowness(ratio: float) -> str:
    return f"take {ratio:.1f} times as long as those of the others and read no more."


def _speed_up(log: ApplicationLog, executors: set[str]) -> Change:
    """Return the change that makes these executors as quick as the others, in every stage that both ran."""
    tasks = log.tasks
    places = [place for place, name in enumerate(tasks.executors) if name in executors]
    mine, spent = np.isin(tasks["executor"], places), np.zeros(len(tasks))
    seconds = (tasks["finish"] - tasks["launch"]) / 1000
    for rows in group_rows(log, frozenset(log.stages)).values():
        slow, others = rows[mine[rows]], rows[~mine[rows]]
        if len(slow) and len(others):
            ratio = float(np.median(seconds[slow]) / max(np.median(seconds[others]), 1e-3))
            spent[slow] = seconds[slow] * max(0.0, 1 - 1 / max(ratio, 1e-3))
    return without_time(spent)


def advise_on_straggler(
    log: ApplicationLog, operator: str, stragglers: list[Straggler], everywhere: list[Straggler]
) -> Advice:
    """Advise on tasks that hold the stages of an operator up, by what makes the longest of them long.

    The advice is for all stages that suffer from the same.
    """
    found = max(stragglers, key=lambda one: one.seconds)
    keys = frozenset(one.stage for one in everywhere if one.kind == found.kind)
    evidence = (
        f"Its last task, partition {found.partition} on executor {found.executor}, takes "
        f"{found.seconds:.1f} s, {found.ratio:.1f} times the median."
    )
    others = len(keys - {one.stage for one in stragglers})
    evidence += (
        f" {count_of(others, 'other stage')} {'has' if others == 1 else 'have'} one too." if others else ""
    )
    if found.kind == "uneven splits":
        return _advise_on_splits(log, found, keys, evidence)
    if found.kind == "skew":
        return _advise_on_skew(log, operator, found, keys, evidence)
    change = change_some(keys, lambda one: one.with_tasks(np.minimum(one.tasks, np.median(one.tasks))))
    if found.copy_was_slow:
        text = (
            "A speculative copy of it ran and was no faster: look at what this partition computes, "
            "not at its executor."
        )
        return Advice("straggler", text, evidence, change=change)
    said = "It does not read more records than the others: look at its executor"
    if log.properties.get(_SPECULATION) == "true":
        return Advice("straggler", f"{said}, and at what it computes.", evidence, change=change)
    text = f"{said}, or let a speculative copy overtake it."
    return Advice("straggler", text, evidence, {_SPECULATION: "true"}, change)


def _level(keys: Keys) -> Change:
    """Return the change that spreads the work of each stage evenly over its tasks."""
    return change_some(keys, lambda one: one.with_tasks(np.full(len(one.tasks), float(one.tasks.mean()))))


def _advise_on_splits(log: ApplicationLog, found: Straggler, keys: Keys, evidence: str) -> Advice:
    """Advise on a scan whose splits are uneven: files, not keys, decide what a task reads."""
    tasks = log.tasks
    inside = (tasks["stage"] == found.stage[0]) & (tasks["attempt"] == found.stage[1])
    even = int(tasks["bytes_in"][inside].sum()) // max(1, int(inside.sum()))
    evidence += f" It scans {count(found.records)} records ({size(found.bytes_in)})."
    text = "The splits of the scan are uneven: make them smaller, and write files that can be split."
    settings = {SPLIT_SIZE: spark_size(even)} if even else {}
    return Advice("uneven splits", text, evidence, settings, _level(keys))


def _advise_on_skew(
    log: ApplicationLog, operator: str, found: Straggler, keys: Keys, evidence: str
) -> Advice:
    evidence += (
        f" It reads {count(found.records)} records, {found.records_ratio:.1f} times the median of "
        f"{count(found.median_records)}."
    )
    if "join" not in operator.lower():
        text = "The data is skewed: split the hot keys, salt them and aggregate in two steps, or repartition."
        return Advice("skew", text, evidence, change=_level(keys))
    settings = {_SKEW_JOIN: "true"}
    if log.properties.get(_SKEW_JOIN, "true") == "true" and found.bytes_in:
        # Spark left it alone, so it lies below the size from which Spark splits
        settings = {_SKEW_SIZE: spark_size(found.bytes_in / 2)}
    text = "The data is skewed: let Spark split the hot partitions of the join, or salt its keys."
    return Advice("skew", text, evidence, settings, _level(keys))


def advise_on_collection(log: ApplicationLog, change: Change) -> Advice:
    """Advise on garbage collection: the heap with which it takes little of the tasks' time."""
    tasks = log.tasks
    share = float(tasks["gc"].sum() / max(1, int(tasks["run"].sum())))
    calm = min(CALM_SHARE, share / 2)
    is_local = set(tasks.executors) == {"driver"}
    key = _DRIVER_HEAP if is_local else _HEAP
    given = log.properties.get(key, "1g")
    held = _measure_held(log) / max(read_spark_size(given), 1.0) or USUALLY_HELD
    growth = scale_heap(share, calm, held)
    heap = scale_spark_size(given, growth)
    brings = f"bring it to {calm:.0%}" if growth < MOST_GROWTH else "be a first step"
    return Advice(
        kind="gc",
        text="Give executors a larger heap, or fewer cores, or hold fewer objects in each task.",
        evidence=f"Tasks spend {share:.0%} of their time in it; a heap of {heap} would {brings}.",
        settings={key: heap},
        change=change,
    )


def scale_heap(share: float, wanted: float, held: float) -> float:
    """Return by how much the heap must grow until garbage collection takes the wanted share of the time.

    Collections are as rare as the free heap is large: their time for each second of work is in inverse
    proportion to it. `held` is the share of the heap that is never free.
    """
    share, held = min(share, MOST_COLLECTION), min(held, MOST_HELD)
    times = (share / (1 - share)) / (wanted / (1 - wanted)) if wanted > 0 else 1.0
    return min(MOST_GROWTH, held + (1 - held) * max(1.0, times))


def _measure_held(log: ApplicationLog) -> float:
    """Return the bytes that the tasks of one executor held at once: the median peak, in each of its slots."""
    peaks = log.tasks["peak_memory"][log.tasks["peak_memory"] > 0]
    slots = max((one.cores for one in log.executors.values()), default=0) // count_task_cores(log)
    return float(np.median(peaks)) * max(1, slots) if len(peaks) else 0.0


def advise_on_state(log: ApplicationLog, text: str, change: Change) -> Advice:
    """Advise on commits of state: RocksDB with changelogs, where it is not in use yet."""
    prefix = "spark.sql.streaming.stateStore."
    wanted = {
        f"{prefix}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        f"{prefix}rocksdb.changelogCheckpointing.enabled": "true",
    }
    missing = {key: value for key, value in wanted.items() if log.properties.get(key) != value}
    return Advice("state commit", text, settings=missing, change=change)


def advise_on_start(log: ApplicationLog, text: str) -> Advice:
    """Advise on waiting for executors: with dynamic allocation, keep as many as were there on average."""
    if log.properties.get("spark.dynamicAllocation.enabled") != "true":
        return Advice("executors", text)
    lived = [max(0, (one.removed if one.removed >= 0 else log.end) - max(one.added, log.start))
             for one in log.executors.values()]  # fmt: skip
    average = max(1, round(sum(lived) / max(1, log.end - log.start)))
    return Advice("executors", text, settings={"spark.dynamicAllocation.minExecutors": str(average)})
