"""Waste beside the critical path: work done twice, small files, evicted data, cold executors, full memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.diagnose.log.application import FAILED, KILLED, SUCCEEDED, ApplicationLog, FileScan, StageKey
from penstock.diagnose.whatif.capacity import count_task_cores
from penstock.units.fields import parse_spark_size
from penstock.units.figures import count, count_of, scale_spark_size, size

# As many files as this, of less than this on average, cost more to open than to read.
MANY_FILES, SMALL_FILE_BYTES = 100, 3e6
# Spark opens a file at the cost of reading this many bytes, and packs files into splits up to this size.
WANTED_FILE_BYTES = 128 << 20
# The first tasks of an executor are cold if they take this many times as long as later ones of their stage.
COLD_RATIO = 1.5
# Waste below this share of the tasks' time is not worth a line.
LEAST_SHARE = 0.02
# Spark's heap for execution and storage: what lies beyond the reserve, times a fraction.
RESERVED_BYTES, MEMORY_FRACTION = 300 << 20, 0.6
FULL = 0.8
_HEAP, _FRACTION = "spark.executor.memory", "spark.memory.fraction"


@dataclass(frozen=True, slots=True)
class Observation:
    """One kind of waste: a sentence with its numbers, what to do, and what to set."""

    kind: str
    sentence: str
    advice: str
    settings: Mapping[str, str] = field(default_factory=dict)
    core_seconds: float | None = None
    stage: StageKey | None = None


def list_waste(log: ApplicationLog) -> list[Observation]:
    """Return what was wasted, most core-seconds first; what is not told in core-seconds comes last."""
    found = [*_find_repeated_work(log), *_find_cold_executors(log), *_find_small_files(log),
             *_find_evictions(log), *_find_full_memory(log)]  # fmt: skip
    return sorted(found, key=lambda one: -(one.core_seconds or 0.0))


def _measure_lengths(log: ApplicationLog) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    finish = np.where(log.tasks["finish"] >= 0, log.tasks["finish"], log.end)
    return np.maximum(finish - log.tasks["launch"], 0) / 1000


def _find_repeated_work(log: ApplicationLog) -> Iterator[Observation]:
    """Find failed tasks, killed copies, and partitions that were computed again in a later attempt."""
    tasks, lengths = log.tasks, _measure_lengths(log)
    failed = float(lengths[tasks["outcome"] == FAILED].sum())
    killed = float(lengths[tasks["outcome"] == KILLED].sum())
    good = np.nonzero(tasks["outcome"] == SUCCEEDED)[0]
    order = good[np.lexsort((tasks["attempt"][good], tasks["partition"][good], tasks["stage"][good]))]
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (np.diff(tasks["stage"][order]) == 0) & (np.diff(tasks["partition"][order]) == 0)
    # an executor that cannot number its partitions tells -1 for all
    again = float(lengths[order[same & (tasks["partition"][order] >= 0)]].sum())
    parts = {"in tasks that failed": failed, "in copies that were killed": killed,
             "computing again what was lost": again}  # fmt: skip
    whole, total = sum(parts.values()), float(lengths.sum())
    if whole < LEAST_SHARE * total or whole <= 0:
        return
    said = ", ".join(f"{count(part)} {name}" for name, part in parts.items() if part >= 0.5)
    yield Observation(
        kind="repeated work",
        sentence=f"{count(whole)} of {count(total)} core-seconds were for nothing: {said}.",
        advice="Mend what fails first; let shuffle data outlive executors (a shuffle service).",
        core_seconds=whole,
    )


def _find_cold_executors(log: ApplicationLog) -> Iterator[Observation]:
    """Find executors whose first tasks took longer than later ones of the same stage."""
    tasks, lengths = log.tasks, _measure_lengths(log)
    first = np.zeros(len(tasks), dtype=bool)
    for place in range(len(tasks.executors)):
        mine = np.nonzero((tasks["executor"] == place) & (tasks["outcome"] == SUCCEEDED))[0]
        if len(mine):
            # launched before any of its tasks was done: nothing there was warm
            first[mine[tasks["launch"][mine] < tasks["finish"][mine].min()]] = True
    cold = warm = excess = 0.0
    executors: set[int] = set()
    for stage in np.unique(tasks["stage"][first]).tolist():
        inside = (tasks["stage"] == stage) & (tasks["outcome"] == SUCCEEDED)
        later, early = lengths[inside & ~first], inside & first
        if not len(later):
            continue
        usual = float(np.median(later))
        slow = early & (lengths > COLD_RATIO * usual)
        excess += float((lengths[slow] - usual).sum())
        cold, warm = cold + float(lengths[slow].sum()), warm + usual * int(slow.sum())
        executors |= set(tasks["executor"][slow].tolist())
    if not executors or excess < LEAST_SHARE * float(lengths.sum()):
        return
    elastic = log.properties.get("spark.dynamicAllocation.enabled") == "true"
    yield Observation(
        kind="cold executors",
        sentence=f"The first tasks of {count_of(len(executors), 'executor')} were cold: they took "
        f"{cold / max(warm, 1e-3):.1f} times as long as later tasks of their stages, {count(excess)} "
        "core-seconds more.",
        advice="Keep executors longer, or start fewer and larger ones.",
        settings={"spark.dynamicAllocation.executorIdleTimeout": "300s"} if elastic else {},
        core_seconds=excess,
    )


def _find_small_files(log: ApplicationLog) -> Iterator[Observation]:
    """Find tables that were read from many small files."""
    scans: dict[str, FileScan] = {}
    for execution in log.executions:
        for table, scan in execution.scans.items():
            held = scans.get(table, FileScan())
            if scan.files > held.files:
                scans[table] = scan
    for table, scan in sorted(scans.items(), key=lambda one: -one[1].files):
        if scan.files < MANY_FILES or scan.file_bytes >= SMALL_FILE_BYTES * scan.files:
            continue
        wanted = max(1, round(scan.file_bytes / WANTED_FILE_BYTES))
        each = size(scan.file_bytes / scan.files)
        yield Observation(
            kind="small files",
            sentence=f"{table} was read from {count(scan.files)} files of {each} on average.",
            advice=f"Compact it, or write it with fewer tasks: {count_of(wanted, 'file')} would hold it.",
        )


def _find_evictions(log: ApplicationLog) -> Iterator[Observation]:
    """Find cached data that was driven out of memory."""
    for rdd, found in sorted(log.evictions.items(), key=lambda one: -one[1].bytes):
        name = f"{found.name} (RDD {rdd})" if found.name else f"RDD {rdd}"
        gone = found.blocks - found.to_disk
        then = f"{gone} must be computed again" if gone else "all went to disk"
        heap = scale_spark_size(log.properties.get(_HEAP, "1g"), 2)
        yield Observation(
            kind="evicted cache",
            sentence=f"{count_of(found.blocks, 'block')} of cached data, {size(found.bytes)} of {name}, "
            f"left memory; {then}.",
            advice="Cache less, cache serialised and on disk too, or give executors more memory.",
            settings={_HEAP: heap},
        )


def _find_full_memory(log: ApplicationLog) -> Iterator[Observation]:
    """Find the task that held most memory, if it nearly filled what Spark has for a slot."""
    peaks = log.tasks["peak_memory"]
    available = measure_execution_memory(log)
    if not len(peaks) or not available or not peaks.any():
        return
    row = int(peaks.argmax())
    peak, stage = int(peaks[row]), (int(log.tasks["stage"][row]), int(log.tasks["attempt"][row]))
    if peak < FULL * available:
        return
    yield Observation(
        kind="peak memory",
        sentence=f"A task of stage {stage[0]} held {size(peak)} of execution memory; a slot's part of the "
        f"heap is {size(available)}.",
        advice="Use more partitions, fewer cores an executor, or a larger heap.",
        settings={_HEAP: scale_spark_size(log.properties.get(_HEAP, "1g"), peak / (FULL * available))},
        stage=stage,
    )


def measure_execution_memory(log: ApplicationLog) -> float:
    """Return the bytes of the heap that a slot has for execution and storage, 0 if unknown."""
    cores = [one.cores for name, one in log.executors.items() if one.cores and name != "driver"]
    try:
        heap = parse_spark_size(log.properties.get(_HEAP, "1g"))
        fraction = float(log.properties.get(_FRACTION, MEMORY_FRACTION))
    except ValueError:
        return 0.0
    if not cores or not 0 < fraction <= 1:
        return 0.0
    return max(0.0, heap - RESERVED_BYTES) * fraction / max(1, max(cores) // count_task_cores(log))
