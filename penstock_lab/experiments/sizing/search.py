"""Jobs of the sizing experiment: the least size that is enough, found by trials, and the size rules reach.

A heap is enough if the job runs well in it: no executor is lost, little time goes into GC, and batches end
within the trigger interval. The memory beside it and the cores are what was seen in use then. None of Sage's
bounds is asked, so that its rules are not judged by themselves.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from penstock.dataflow.window import ExecutorState, ExecutorUse
from penstock.decide.outcome import Status
from penstock.decide.sage.metrics import TouchedHeap
from penstock.decide.sage.sizes import size_in_bytes
from penstock.journal.records import ActionRecord
from penstock.journal.store import open_journal
from penstock.observe.executors.metrics import MetricsListener, metrics_conf
from penstock.observe.executors.processes import TreeUse, list_processes, measure_executors
from penstock.runtime.launch import write_submit_arguments

MIB = 1024.0**2
SAMPLE_SECONDS = 1.5
SAMPLES = 16
MOST_GC_SHARE = 0.1
"""Of the time: with more, a heap is too small."""
LATE = 1.25
"""Trigger intervals between the ends of two batches, in the median, from which on batches are late."""
JVM_CORES = 0.1
"""Of a core, that a JVM takes beside its task."""
SETTLED_SECONDS = 15.0
"""The first sample is taken this long after the first batch at the earliest."""
PATIENCE_SECONDS = 180.0
LEAST_HEAP_MB = 450
"""Spark starts no executor with less."""
INTERVAL = 1.5
QUIET_WINDOWS = 50
"""Without an action in so many the size is final: rules that shrink look back 30, after a warm-up of 6."""
STALL_SECONDS = 15.0
MEMORY_KEYS = ("spark.executor.memory", "spark.executor.memoryOverhead")
CORES_KEY = "spark.task.cpus"
SIZES = (*MEMORY_KEYS, CORES_KEY)


@dataclass(frozen=True, slots=True)
class HeapTrial:
    """The finding at one heap size: memory in MiB, and cores a task; `trouble` is why it is not enough."""

    heap_mb: int
    trouble: str = ""
    beside_mb: float = math.nan
    cores: int = 1


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least that is enough, in MiB and cores; the heap is known to `within_mb`, NaN where none is."""

    heap_mb: float
    overhead_mb: float
    cores: float
    within_mb: float = 0.0

    @property
    def memory_mb(self) -> float:
        """Heap and what is beside it."""
        return self.heap_mb + self.overhead_mb


@dataclass(frozen=True, slots=True)
class Settling:
    """After how many batches the state is whole, and the trigger interval, 0 where batches follow at once."""

    batches: int
    trigger_seconds: float


NONE_FITS = Optimum(math.nan, math.nan, math.nan, math.nan)


def search_heap(attempt: Callable[[int], HeapTrial], most_heap: int, steps: int) -> Optimum:
    """Find the smallest heap that is enough, by halving the span between Spark's least and the most."""
    first = attempt(LEAST_HEAP_MB)
    if not first.trouble:
        return _make_optimum(first, 0)
    low, high, best = LEAST_HEAP_MB, most_heap, None
    for _ in range(steps):
        found = attempt((low + high) // 2)
        low, high, best = (found.heap_mb, high, best) if found.trouble else (low, found.heap_mb, found)
    best = best or attempt(most_heap)
    return NONE_FITS if best.trouble else _make_optimum(best, high - low)


def _make_optimum(found: HeapTrial, within_mb: int) -> Optimum:
    return Optimum(float(found.heap_mb), found.beside_mb, float(found.cores), float(within_mb))


def try_heap(
    command: Sequence[str], place: Path, heap_mb: int, conf: Mapping[str, str], settle: Settling
) -> HeapTrial:
    """Run the job at one heap size, and look at its only executor once it has settled."""
    listener = MetricsListener("127.0.0.1", 0, secret="")
    given = {**conf, **metrics_conf("127.0.0.1", listener.port, 1.0), "spark.executor.memory": f"{heap_mb}m"}
    environment = {"PYSPARK_SUBMIT_ARGS": write_submit_arguments(given, {})}
    try:
        with _run_job(command, place, environment, patience=20.0) as process:
            if not _await_settled(place, process, settle.batches):
                return HeapTrial(heap_mb, "batches do not end")
            since = time.time()
            samples = list(_take_samples(listener, (place / "application").read_text()))
            seen = [one for one in read_batches(place) if one[0] >= since]
            return judge_trial(heap_mb, samples, seen, settle.trigger_seconds)
    finally:
        listener.close()


@contextmanager
def _run_job(
    command: Sequence[str], place: Path, environment: Mapping[str, str], patience: float
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command for the length of a `with`, then tell it to end, and end it."""
    python = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    given = {**os.environ, **environment, **python}
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(list(command), env=given, stdout=log, stderr=log)
        try:
            yield process
        finally:
            (place / "enough").touch()
            for end in (process.terminate, process.kill):
                try:
                    process.wait(timeout=patience)
                except subprocess.TimeoutExpired:
                    end()
            process.wait()


def _await_settled(place: Path, process: subprocess.Popen[bytes], least: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        ends = [at for at, _ in read_batches(place)]
        if len(ends) >= least and time.time() - ends[0] >= SETTLED_SECONDS:
            return True
        time.sleep(0.3)
    return False


def read_batches(place: Path) -> list[tuple[float, str]]:
    """Read when each batch ended, and the executors of that moment."""
    log = place / "batches"
    lines = [line.split(" ") for line in log.read_text().splitlines()] if log.exists() else []
    return [(float(line[0]), line[1]) for line in lines if len(line) == 2]


def _take_samples(listener: MetricsListener, application: str) -> Iterator[tuple[float, ExecutorUse]]:
    """Sample the use of the first executor; one that went reports nothing."""
    before, since = _measure_tree(application), time.time()
    listener.board.use("0", 0.0, since)
    for _ in range(SAMPLES):
        time.sleep(SAMPLE_SECONDS)
        now, tree = time.time(), _measure_tree(application)
        found = listener.board.use("0", since, now)
        if found is not None and tree is not None and before is not None:
            cores = max(0.0, tree.cpu_seconds - before.cpu_seconds) / (now - since)
            yield now - since, replace(found, resident_bytes=tree.resident_bytes, cpu_cores=cores)
        before, since = tree, now


def _measure_tree(application: str) -> TreeUse | None:
    return measure_executors(list_processes(), application).get("0")


def judge_trial(
    heap_mb: int,
    samples: Sequence[tuple[float, ExecutorUse]],
    batches: Sequence[tuple[float, str]],
    trigger_seconds: float,
) -> HeapTrial:
    """Judge whether the job ran well at this heap, by what every user can see."""
    if len(samples) < SAMPLES / 2:
        return HeapTrial(heap_mb, "the executor does not report")
    touched = TouchedHeap()
    beside = [touched.beside([ExecutorState("0", "", 1, use=use)])[0] / MIB for _, use in samples]
    busy = median(use.cpu_cores for _, use in samples)
    trouble = _find_trouble(samples, batches, trigger_seconds)
    return HeapTrial(heap_mb, trouble, max(beside), max(1, math.ceil(busy - JVM_CORES)))


def _find_trouble(
    samples: Sequence[tuple[float, ExecutorUse]], batches: Sequence[tuple[float, str]], trigger_seconds: float
) -> str:
    """Tell why the job does not run well; empty if it does."""
    collecting = sum(use.gc_seconds for _, use in samples) / sum(seconds for seconds, _ in samples)
    if collecting > MOST_GC_SHARE:
        return f"{collecting:.0%} of the time went into GC, {MOST_GC_SHARE:.0%} is the most"
    if len({executors for _, executors in batches}) > 1:
        return "an executor was lost"
    gaps = [after - before for (before, _), (after, _) in pairwise(batches)]
    if not gaps:
        return "batches do not end"
    if trigger_seconds and median(gaps) > LATE * trigger_seconds:
        return f"a batch ends every {median(gaps):.1f} s, where {trigger_seconds:g} s are asked for"
    return ""


@dataclass(frozen=True, slots=True)
class SizedJob:
    """The course of a sized job: actions, ends of batches, whether it ran on without another action."""

    actions: tuple[ActionRecord, ...]
    batches: tuple[tuple[float, str], ...]
    settled: bool
    begun: float

    def find_final_sizes(self, conf: Mapping[str, str]) -> dict[str, float]:
        """Return the size in the end, from these settings at first: MiB of memory, and cores a task."""
        done = [one.settings for one in self.actions if one.status is Status.DONE]
        changes = {key: after for settings in done for key, (_, after) in settings.items()}
        return {key: to_amount({**conf, **changes}[key]) for key in SIZES}

    def count_stalls(self) -> int:
        """Count the gaps between batches that no restart explains."""
        restarts = [(one.intended_at, one.ended_at or one.intended_at) for one in self.actions]
        ends = pairwise(at for at, _ in self.batches)
        return sum(
            ended - begun > STALL_SECONDS
            and not any(begun <= until and since <= ended for since, until in restarts)
            for begun, ended in ends
        )

    def count_undone(self) -> int:
        """Count how often a setting was raised again after it had been lowered."""
        count, lowered = 0, set[str]()
        for falls in map(_find_falls, self.actions):
            count += sum(key in lowered for key, fell in falls.items() if not fell)
            lowered |= {key for key, fell in falls.items() if fell}
        return count

    def count_lost(self) -> int:
        """Count the executors that went after a decrease while nothing was restarted."""
        lowering = [one for one in self.actions if any(_find_falls(one).values())]
        since = min((one.ended_at for one in lowering if one.ended_at is not None), default=math.inf)
        restarts = [one.intended_at for one in self.actions]
        return sum(
            begun > since and before != after and not any(begun <= at <= ended for at in restarts)
            for (begun, before), (ended, after) in pairwise(self.batches)
        )

    def count_downs(self, rule: str) -> int:
        """Count the actions of this rule."""
        return sum(one.reason.startswith(f"{rule} ") for one in self.actions)

    def describe_course(self) -> str:
        """Tell rule and change of each action, on one line."""
        return "; ".join(map(_describe_action, self.actions)) or "none"


def to_amount(written: str) -> float:
    """Return a setting as a number: MiB where it is a size."""
    return float(written) if written.isdecimal() else size_in_bytes(written, "a size") / MIB


def _find_falls(action: ActionRecord) -> dict[str, bool]:
    """Return whether each size that the action changes becomes smaller."""
    sizes = {key: pair for key, pair in action.settings.items() if key in SIZES}
    return {key: to_amount(after) < to_amount(before) for key, (before, after) in sizes.items()}


def _describe_action(action: ActionRecord) -> str:
    changes = ", ".join(
        f"{key.rpartition('.')[2]} {old} → {new}" for key, (old, new) in action.settings.items()
    )
    failed = "" if action.status is Status.DONE else f" ({action.status.value if action.status else 'open'})"
    return f"{action.reason.partition(' ')[0]} {changes}{failed}"


def size_job(job: Sequence[str], conf: Mapping[str, str], place: Path, seconds: float) -> SizedJob:
    """Let `penstock run --policy sage --allow-restart` size the job until nothing changes for a while."""
    options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    command = [sys.executable, "-m", "penstock.cli", "run", "--policy", "sage", "--allow-restart", *options]
    begun = time.time()
    with _run_job([*command, *job], place, set_up_rules(place), patience=45.0) as process:
        actions, settled = _await_quiet(place, process, seconds)
    return SizedJob(tuple(actions), tuple(read_batches(place)), settled, begun)


def set_up_rules(place: Path) -> dict[str, str]:
    """Set the rules in the default proportions, with a shorter interval, on memory and CPU alone."""
    return {
        "PENSTOCK_JOURNAL": str(place / "journal.db"),
        "PENSTOCK_RUNTIME_DIRECTORY": str(place / "run"),
        "PENSTOCK_POLICY_INTERVAL": f"{INTERVAL}s",
        "PENSTOCK_SAGE_UP_WINDOW": f"{6 * INTERVAL}s",
        "PENSTOCK_SAGE_DOWN_WINDOW": f"{30 * INTERVAL}s",
        "PENSTOCK_SAGE_FIRST_AFTER": "none",
        "PENSTOCK_SAGE_PIN": "parallelism,driver-heap",
        "PENSTOCK_RESTARTS_PER_DAY": "20",
    }


def _await_quiet(
    place: Path, process: subprocess.Popen[bytes], seconds: float
) -> tuple[Sequence[ActionRecord], bool]:
    begun = time.time()
    actions: tuple[ActionRecord, ...] = ()
    with closing(open_journal(place / "journal.db")) as journal:
        while process.poll() is None and time.time() - begun < seconds:
            time.sleep(1.0)
            actions = journal.actions()
            first = next((at for at, _ in read_batches(place)), time.time())
            latest = max([first, *(one.ended_at or time.time() for one in actions)])
            if sum(one.at > latest for one in journal.observations()) >= QUIET_WINDOWS:
                return actions, True
    return actions, False
