"""Applications with a known need, started over- and under-sized: how far above the least that does they end.

The sizing is done by `penstock run --policy sage --allow-restart` itself, the least is found by search.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.bench import sizing_job
from penstock.bench.report import BenchReport, Row, Target
from penstock.bench.sizing_search import Optimum, Trial, search, trial
from penstock.bench.sizing_supervised import (
    CORES_KEY,
    INTERVAL,
    MEMORY_KEYS,
    Sized,
    course,
    downs_by,
    final_sizes,
    lost_after_decrease,
    stalls,
    supervised,
    undone,
)

OVER, UNDER = "over", "under"
LONGEST_SECONDS = 360.0
SEARCH_STEPS = 3
AT_A_TIME = 2
"""Applications that share the two cores; one that is to use more than a core runs alone."""
WORKER = (8, 6144)
"""Cores and MiB that the only host of the cluster says it has."""
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:-UsePerfData -Djdk.lang.Process.launchMechanism=VFORK"
EXECUTOR_JVM = f"-XX:+UseG1GC -Xms128m {QUICK_JVM}"
"""Java's usual collector, and a heap that grows from little instead of from a share of the machine."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Case:
    """One job, and the sizes from which it is started: MiB of heap and of overhead, and cores a task."""

    name: str
    over: tuple[int, int, int]
    under: tuple[int, int, int]
    most_heap: int
    alone: bool = False
    settled_batches: int = 7
    """After so many the state is whole."""


CASES = (
    Case("python", over=(1024, 1536, 1), under=(450, 384, 1), most_heap=900),
    Case("heap", over=(2048, 1024, 1), under=(512, 384, 1), most_heap=1250),
    Case("rocksdb", over=(1024, 1280, 1), under=(450, 384, 1), most_heap=900),
    Case("gc", over=(2048, 1024, 1), under=(450, 384, 1), most_heap=1250),
    Case("cpu", over=(450, 640, 4), under=(450, 640, 1), most_heap=900, alone=True, settled_batches=2),
)


def run(quick: bool, progress: Progress) -> BenchReport:
    """Each case from both sides; with `quick` the first one, over-sized."""
    cases, starts = (CASES[:1], (OVER,)) if quick else (CASES, (OVER, UNDER))
    return report(measured(cases, starts, progress))


def measured(cases: Sequence[Case], starts: Sequence[str], progress: Progress) -> list[Row]:
    """A row for each case and start; searches and sized runs share a queue."""
    rows: list[Row] = []
    for together in ([case for case in cases if not case.alone], [case for case in cases if case.alone]):
        with ThreadPoolExecutor(1 if together and together[0].alone else AT_A_TIME) as pool:
            begun = [(case, *_begun(pool, case, starts, progress)) for case in together]
            for case, optimum, runs in begun:
                rows += [row_of(case, start, run.result(), optimum.result()) for start, run in runs.items()]
    return rows


def _begun(
    pool: ThreadPoolExecutor, case: Case, starts: Sequence[str], progress: Progress
) -> tuple[Future[Optimum], dict[str, Future[Sized]]]:
    runs = {start: pool.submit(_sized, case, start, progress) for start in starts}
    return pool.submit(_optimum, case, progress), runs


def _optimum(case: Case, progress: Progress) -> Optimum:
    found = search(lambda heap: _tried(case, heap, progress), case.most_heap, SEARCH_STEPS)
    progress(
        f"{case.name}: the least that does is {found.memory_mb:.0f} MiB and {found.cores:g} cores a task"
    )
    return found


def _tried(case: Case, heap_mb: int, progress: Progress) -> Trial:
    with _directory() as place:
        conf = {**base_conf(), **sizes_of((heap_mb, case.over[1], 1))}
        words = [sys.executable, *job_words(case.name, place)]
        found = trial(words, place, heap_mb, conf, case.settled_batches)
    progress(f"{case.name}: {heap_mb} MiB of heap: {found.trouble or 'does'}")
    return found


def _sized(case: Case, start: str, progress: Progress) -> Sized:
    conf = {
        **base_conf(),
        **sizes_of(_started(case, start)),
        "spark.penstock.executor_metrics": "listen",
        "spark.penstock.executor_metrics_every": "1s",
    }
    progress(f"{case.name}, started {start}-sized")
    with _directory() as place:
        found = supervised(job_words(case.name, place), conf, place, LONGEST_SECONDS)
    progress(f"{case.name}, started {start}-sized: {course(found.actions)}")
    return found


def _started(case: Case, start: str) -> tuple[int, int, int]:
    return case.over if start == OVER else case.under


def row_of(case: Case, start: str, sized: Sized, optimum: Optimum) -> Row:
    """What the rules came to, beside what would have been enough."""
    final = final_sizes(sizes_of(_started(case, start)), sized.actions)
    memory, cores = sum(final[key] for key in MEMORY_KEYS), final[CORES_KEY]
    last = max((one.ended_at or one.intended_at for one in sized.actions), default=sized.begun)
    over = (memory / optimum.memory_mb, cores / optimum.cores)
    return {
        "case": case.name,
        "start": start,
        "actions": len(sized.actions),
        "final_over_optimal": math.nan if any(map(math.isnan, over)) else max(over),
        "stalls": stalls(sized),
        "memory_over_optimal": over[0],
        "cores_over_optimal": over[1],
        "final_heap_mb": final[MEMORY_KEYS[0]],
        "final_overhead_mb": final[MEMORY_KEYS[1]],
        "final_cores": cores,
        "optimal_heap_mb": optimum.heap_mb,
        "optimal_heap_within_mb": optimum.within_mb,
        "optimal_overhead_mb": optimum.overhead_mb,
        "optimal_cores": optimum.cores,
        "heap_downs": downs_by(sized.actions, "P6"),
        "memory_downs": downs_by(sized.actions, "P7"),
        "undone": undone(sized.actions),
        "lost_after_decrease": lost_after_decrease(sized),
        "settled": int(sized.settled),
        "sizing_seconds": last - sized.begun,
        "pause_seconds": sum((one.measured or {}).get("pause_seconds", 0.0) for one in sized.actions),
        "course": course(sized.actions),
    }


def job_words(case: str, place: Path) -> list[str]:
    """The job's script with its arguments."""
    return [str(Path(sizing_job.__file__)), case, str(place)]


def base_conf() -> dict[str, str]:
    """A cluster of one host; an executor that is lost again and again does not end the job."""
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


def sizes_of(size: tuple[int, int, int]) -> dict[str, str]:
    """Heap, overhead and cores a task as Spark's settings; an executor has one slot."""
    heap, overhead, cores = size
    memory = dict(zip(MEMORY_KEYS, (f"{heap}m", f"{overhead}m"), strict=True))
    return {**memory, "spark.executor.cores": str(cores), CORES_KEY: str(cores)}


@contextmanager
def _directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-sizing-", ignore_cleanup_errors=True) as place:
        yield Path(place)


def report(rows: list[Row]) -> BenchReport:
    """The targets of the claim, judged over all rows; an optimum that was not found fails the first one."""
    over = [row["final_over_optimal"] for row in rows]
    worst = math.nan if any(map(math.isnan, over)) else max(over)
    summary = {
        "worst_final_over_optimal": worst,
        "most_heap_downs": max(row["heap_downs"] for row in rows),
        "most_memory_downs": max(row["memory_downs"] for row in rows),
        "decreases_undone": sum(row["undone"] for row in rows),
        "lost_after_decrease": sum(row["lost_after_decrease"] for row in rows),
        "not_settled": sum(1 - row["settled"] for row in rows),
        "mean_sizing_seconds": sum(row["sizing_seconds"] for row in rows) / len(rows),
        "stalls": sum(row["stalls"] for row in rows),
    }
    targets = [
        Target("final over hand-tuned optimum, worst case", "<= 1.10", worst),
        Target("heap scale-downs, most in a case", "<= 1", summary["most_heap_downs"]),
        Target("memory scale-downs, most in a case", "<= 1", summary["most_memory_downs"]),
        Target("decreases that were undone", "<= 0", summary["decreases_undone"]),
        Target("executors lost after a decrease", "<= 0", summary["lost_after_decrease"]),
        Target("applications still being sized in the end", "<= 0", summary["not_settled"]),
    ]
    published = {"sage_final_over_optimal": 1.14, "sage_sizing_minutes": 40}
    return BenchReport("sizing", summary, rows, targets, published, _notes(rows))


def _notes(rows: Sequence[Row]) -> list[str]:
    known = [row["optimal_heap_within_mb"] for row in rows if math.isfinite(row["optimal_heap_within_mb"])]
    within = max(known, default=math.nan)
    late = [f"{row['case']} ({row['start']})" for row in rows if not row["settled"]]
    return [
        "the optimum is the least that P1, P2 and P3 leave alone; "
        f"its heap is found by halving, to {within:.0f} MiB in the worst case",
        "a local cluster does not enforce overhead nor cores, so nothing is killed for want of them",
        f"a policy interval of {INTERVAL} s, and windows in the same proportion to it as by default; no "
        "first size; parallelism and the driver's heap are pinned",
        f"{AT_A_TIME} applications at a time share the machine, except in the case cpu",
        *([f"ended, or still being sized: {', '.join(late)}"] if late else []),
    ]
