"""Applications with a known need, started over- and under-sized: how far their final size is above the least.

`penstock run --policy sage --allow-restart` sizes them; the least size that is enough is found by search.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.settings.model import load_settings
from penstock_lab.experiments.measurement import (
    Extent,
    Measurement,
    Progress,
    Row,
    tell_settings,
)
from penstock_lab.experiments.sizing import job
from penstock_lab.experiments.sizing.search import (
    CORES_KEY,
    INTERVAL,
    MEMORY_KEYS,
    MOST_GC_SHARE,
    HeapTrial,
    Optimum,
    Settling,
    SizedJob,
    search_heap,
    set_up_rules,
    size_job,
    try_heap,
)

OVER, UNDER = "over", "under"
LONGEST_SECONDS = 360.0
SEARCH_STEPS = 3
AT_A_TIME = 2
"""Applications that share the two cores; one that needs more than a core runs alone."""
WORKER = (8, 6144)
"""Cores and MiB that the only host of the cluster offers."""
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djdk.lang.Process.launchMechanism=VFORK"
EXECUTOR_JVM = f"-XX:+UseG1GC -Xms128m {QUICK_JVM}"
"""Java's usual collector, and a heap that starts small instead of with a share of the machine."""


WHOLE_STATE = Settling(batches=7, trigger_seconds=2.0)


@dataclass(frozen=True, slots=True)
class SizingCase:
    """One job, and the sizes from which it is started: MiB of heap and of overhead, and cores a task."""

    name: str
    over: tuple[int, int, int]
    under: tuple[int, int, int]
    most_heap: int
    alone: bool = False
    settle: Settling = WHOLE_STATE


CASES = (
    SizingCase("python", over=(1024, 1536, 1), under=(450, 384, 1), most_heap=900),
    SizingCase("heap", over=(2048, 1024, 1), under=(512, 384, 1), most_heap=1250),
    SizingCase("rocksdb", over=(1024, 1280, 1), under=(450, 384, 1), most_heap=900),
    SizingCase("gc", over=(2048, 1024, 1), under=(450, 384, 1), most_heap=1250),
    SizingCase(
        "cpu", over=(450, 640, 4), under=(450, 640, 1), most_heap=900, alone=True, settle=Settling(2, 0.0)
    ),
)


def run(extent: Extent, progress: Progress) -> Measurement:
    """Size each case from both sides; quick has the first one, over-sized.

    The report has one that needs memory beside the heap and one that needs heap, which is harder to size.
    """
    cases = CASES[:1] if extent.quick else CASES[:2] if extent.report else CASES
    return summarise(measure_cases(cases, (OVER,) if extent.quick else (OVER, UNDER), progress))


def measure_cases(cases: Sequence[SizingCase], starts: Sequence[str], progress: Progress) -> list[Row]:
    """Return a row for each case and start; searches and sized runs share a queue."""
    rows: list[Row] = []
    for alone in (False, True):
        with ThreadPoolExecutor(1 if alone else AT_A_TIME) as pool:
            begun = []
            for case in (case for case in cases if case.alone is alone):
                runs = {start: pool.submit(_size, case, start, progress) for start in starts}
                begun.append((case, runs, pool.submit(_find_optimum, case, progress)))
            for case, runs, optimum in begun:
                rows += [make_row(case, start, run.result(), optimum.result()) for start, run in runs.items()]
    return rows


def _find_optimum(case: SizingCase, progress: Progress) -> Optimum:
    found = search_heap(lambda heap: _try_heap(case, heap, progress), case.most_heap, SEARCH_STEPS)
    memory, cores = f"{found.memory_mb:.0f} MiB", f"{found.cores:g} cores a task"
    progress(f"{case.name}: the least that is enough is {memory} and {cores}")
    return found


def _try_heap(case: SizingCase, heap_mb: int, progress: Progress) -> HeapTrial:
    with _make_directory() as place:
        conf = {**make_conf(), **describe_sizes((heap_mb, case.over[1], 1))}
        words = [sys.executable, *name_job(case.name, place)]
        found = try_heap(words, place, heap_mb, conf, case.settle)
    progress(f"{case.name}: {heap_mb} MiB of heap: {found.trouble or 'enough'}")
    return found


def _size(case: SizingCase, start: str, progress: Progress) -> SizedJob:
    conf = {
        **make_conf(),
        **describe_sizes(case.over if start == OVER else case.under),
        "spark.penstock.executor_metrics": "listen",
        "spark.penstock.executor_metrics_every": "1s",
    }
    progress(f"{case.name}, started {start}-sized")
    with _make_directory() as place:
        found = size_job(name_job(case.name, place), conf, place, LONGEST_SECONDS)
    progress(f"{case.name}, started {start}-sized: {found.describe_course()}")
    return found


def make_row(case: SizingCase, start: str, sized: SizedJob, optimum: Optimum) -> Row:
    """Compare the size that the rules came to with what would have been enough."""
    final = sized.find_final_sizes(describe_sizes(case.over if start == OVER else case.under))
    memory, cores = sum(final[key] for key in MEMORY_KEYS), final[CORES_KEY]
    last = max((one.ended_at or one.intended_at for one in sized.actions), default=sized.begun)
    over = (memory / optimum.memory_mb, cores / optimum.cores)
    return {
        "case": case.name,
        "start": start,
        "actions": len(sized.actions),
        "final_over_optimal": math.nan if any(map(math.isnan, over)) else max(over),
        "stalls": sized.count_stalls(),
        "memory_over_optimal": over[0],
        "cores_over_optimal": over[1],
        "final_heap_mb": final[MEMORY_KEYS[0]],
        "final_overhead_mb": final[MEMORY_KEYS[1]],
        "final_cores": cores,
        "optimal_heap_mb": optimum.heap_mb,
        "optimal_heap_within_mb": optimum.within_mb,
        "optimal_overhead_mb": optimum.overhead_mb,
        "optimal_cores": optimum.cores,
        "heap_downs": sized.count_downs("P6"),
        "memory_downs": sized.count_downs("P7"),
        "undone": sized.count_undone(),
        "lost_after_decrease": sized.count_lost(),
        "settled": int(sized.settled),
        "sizing_seconds": last - sized.begun,
        "pause_seconds": sum((one.measured or {}).get("pause_seconds", 0.0) for one in sized.actions),
        "course": sized.describe_course(),
        "settings": tell_settings(load_settings(environment=set_up_rules(Path()))),
    }


def name_job(case: str, place: Path) -> list[str]:
    """Return the job's script with its arguments."""
    return [str(Path(job.__file__)), case, str(place)]


def make_conf() -> dict[str, str]:
    """Configure a cluster of one host, where executors lost again and again do not end the job."""
    return {
        "spark.master": f"local-cluster[1,{WORKER[0]},{WORKER[1]}]",
        "spark.executor.heartbeatInterval": "1s",
        "spark.executor.extraJavaOptions": EXECUTOR_JVM,
        "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC {QUICK_JVM}",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "0",
        "spark.task.maxFailures": "100",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def describe_sizes(size: tuple[int, int, int]) -> dict[str, str]:
    """Return heap, overhead and cores a task as Spark's settings; an executor has one slot."""
    heap, overhead, cores = size
    memory = dict(zip(MEMORY_KEYS, (f"{heap}m", f"{overhead}m"), strict=True))
    return {**memory, "spark.executor.cores": str(cores), CORES_KEY: str(cores)}


@contextmanager
def _make_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-sizing-", ignore_cleanup_errors=True) as place:
        yield Path(place)


def summarise(rows: list[Row]) -> Measurement:
    """Take the worst of all rows; an optimum that was not found leaves the over-size unknown."""
    over = [row["final_over_optimal"] for row in rows]
    summary = {
        "worst_final_over_optimal": math.nan if any(map(math.isnan, over)) else max(over),
        "most_memory_downs": max(row["memory_downs"] for row in rows),
        "decreases_undone": sum(row["undone"] for row in rows),
        "lost_after_decrease": sum(row["lost_after_decrease"] for row in rows),
        "not_settled": sum(1 - row["settled"] for row in rows),
        "mean_sizing_seconds": sum(row["sizing_seconds"] for row in rows) / len(rows),
        "stalls": sum(row["stalls"] for row in rows),
    }
    return Measurement(rows, summary, _describe_method(rows))


def _describe_method(rows: Sequence[Row]) -> list[str]:
    known = [row["optimal_heap_within_mb"] for row in rows if math.isfinite(row["optimal_heap_within_mb"])]
    within = max(known, default=math.nan)
    late = [f"{row['case']} ({row['start']})" for row in rows if not row["settled"]]
    return [
        "the optimum is the least heap in which the job runs well: no executor lost, at most "
        f"{MOST_GC_SHARE:.0%} of the time in GC, batches within the trigger; found by halving, to "
        f"{within:.0f} MiB in the worst case; beside it the memory and the cores that were in use",
        "heap_downs is shown and not judged: a heap that was lowered is never lowered again",
        "a local cluster does not enforce overhead nor cores, so nothing is killed for want of them",
        f"a policy interval of {INTERVAL} s, and windows in the same proportion to it as by default; no "
        "first size; parallelism and the driver's heap are pinned",
        f"{AT_A_TIME} applications at a time share the machine, except in the case cpu",
        *([f"ended, or still being sized: {', '.join(late)}"] if late else []),
    ]
