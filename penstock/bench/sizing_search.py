"""The least size that does for a job of the sizing benchmark, found by trying sizes on the cluster.

A heap does if Sage's rule P1 would not enlarge it; what is beside the heap, and the cores, are the least that
P2 and P3 would leave alone. So the optimum is judged by the same bounds as the size that the rules come to.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.dataflow.window import ExecutorState, ExecutorUse
from penstock.decide.sage_metrics import HeldSize, SizingHistory, SizingInput
from penstock.decide.sage_rules import RoundView, heap_up, lasting, likely_beside_heap
from penstock.decide.sage_sample import TouchedHeap, history_of, surely_beside
from penstock.decide.sage_settings import SageSettings
from penstock.decide.sage_words import reason_of
from penstock.launch import submit_arguments
from penstock.observe.executor_metrics import metrics_conf
from penstock.observe.metrics_listener import MetricsListener
from penstock.observe.processes import TreeUse, executor_trees, running_processes

MIB = 1024.0**2
SAMPLE_SECONDS = 1.5
SAMPLES = 16
LOOKED_BACK = 6
"""Samples in which P1 looks for its signs, as in the runs that are sized."""
SETTLED_SECONDS = 15.0
"""Looked at so long after the first batch at the earliest."""
PATIENCE_SECONDS = 180.0
LEAST_HEAP_MB = 450
"""Spark starts no executor with less."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What was found at one heap size: memory in MiB, and cores a task; `trouble` is why it does not do."""

    heap_mb: int
    trouble: str = ""
    beside_mb: float = math.nan
    cores: int = 1


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least that does, in MiB and cores; the heap is known to `within_mb`, NaN where none does."""

    heap_mb: float
    overhead_mb: float
    cores: float
    within_mb: float = 0.0

    @property
    def memory_mb(self) -> float:
        """Heap and what is beside it."""
        return self.heap_mb + self.overhead_mb


NONE_DOES = Optimum(math.nan, math.nan, math.nan, math.nan)


def search(tried: Callable[[int], Trial], most_heap: int, steps: int) -> Optimum:
    """The smallest heap that does, by halving what lies between the least of Spark and the most."""
    first = tried(LEAST_HEAP_MB)
    if not first.trouble:
        return _optimum(first, 0)
    low, high, best = LEAST_HEAP_MB, most_heap, None
    for _ in range(steps):
        found = tried((low + high) // 2)
        low, high, best = (found.heap_mb, high, best) if found.trouble else (low, found.heap_mb, found)
    best = best or tried(most_heap)
    return NONE_DOES if best.trouble else _optimum(best, high - low)


def _optimum(found: Trial, within_mb: int) -> Optimum:
    overhead = found.beside_mb / SageSettings().overhead_high
    return Optimum(float(found.heap_mb), overhead, float(found.cores), float(within_mb))


def trial(
    command: Sequence[str], place: Path, heap_mb: int, conf: Mapping[str, str], settled_batches: int
) -> Trial:
    """Run the job at one heap size, and look at its only executor after so many batches."""
    listener = MetricsListener("127.0.0.1", 0)
    given = {**conf, **metrics_conf("127.0.0.1", listener.port, 1.0), "spark.executor.memory": f"{heap_mb}m"}
    try:
        with _running(command, place, given) as process:
            if not _settled(place, process, settled_batches):
                return Trial(heap_mb, "batches do not end")
            samples = list(_samples(listener, (place / "application").read_text()))
            return judged(heap_mb, samples)
    finally:
        listener.close()


@contextmanager
def _running(
    command: Sequence[str], place: Path, conf: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    environment = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": submit_arguments(conf, {}),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(list(command), env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            (place / "enough").touch()
            end(process, 20.0)


def _settled(place: Path, process: subprocess.Popen[bytes], least: int) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        ends = [at for at, _ in batches(place)]
        if len(ends) >= least and time.time() - ends[0] >= SETTLED_SECONDS:
            return True
        time.sleep(0.3)
    return False


def batches(place: Path) -> list[tuple[float, str]]:
    """When each batch ended, and the executors of that moment."""
    log = place / "batches"
    lines = [line.split(" ") for line in log.read_text().splitlines()] if log.exists() else []
    return [(float(line[0]), line[1]) for line in lines if len(line) == 2]


def _samples(listener: MetricsListener, application: str) -> Iterator[tuple[float, ExecutorUse]]:
    """What the first executor uses, sample by sample; one that went reports nothing."""
    before, since = _tree(application), time.time()
    listener.board.use("0", 0.0, since)
    for _ in range(SAMPLES):
        time.sleep(SAMPLE_SECONDS)
        now, tree = time.time(), _tree(application)
        found = listener.board.use("0", since, now)
        if found is not None and tree is not None and before is not None:
            cores = max(0.0, tree.cpu_seconds - before.cpu_seconds) / (now - since)
            yield now - since, replace(found, resident_bytes=tree.resident_bytes, cpu_cores=cores)
        before, since = tree, now


def _tree(application: str) -> TreeUse | None:
    return executor_trees(running_processes(), application).get("0")


def judged(heap_mb: int, samples: Sequence[tuple[float, ExecutorUse]]) -> Trial:
    """By the bounds of Sage's rules, looking back from each sample as they would."""
    if len(samples) < SAMPLES / 2:
        return Trial(heap_mb, "the executor does not report")
    settings = SageSettings()
    times = [SAMPLE_SECONDS * number for number in range(1, len(samples) + 1)]
    touched = TouchedHeap()
    history = history_of(times, [_sample(seconds, use, touched) for seconds, use in samples])
    held = HeldSize(1, heap_mb * MIB, 1.0)
    trouble = next(_troubles(held, history), "")
    beside = float(max(likely_beside_heap(history))) / MIB
    # a batch may end among the samples, and the next one take a moment to begin
    busy = lasting(history.cpu_used_cores, settings.least_up_samples)
    cores = max(1, math.ceil(busy / settings.cpu_high))
    return Trial(heap_mb, trouble, beside, cores)


def _troubles(held: HeldSize, history: SizingHistory) -> Iterator[str]:
    """Why P1 would enlarge this heap, looking back from one sample after the other."""
    for end in range(min(LOOKED_BACK, len(history.at)), len(history.at) + 1):
        now = float(history.at[end - 1])
        recent = history.within(now - LOOKED_BACK * SAMPLE_SECONDS, now)
        view = RoundView(SizingInput(now, recent, held), SageSettings(), recent, recent)
        yield from (reason_of(held, found) for found in heap_up(view))


def _sample(seconds: float, use: ExecutorUse, touched: TouchedHeap) -> dict[str, float]:
    (beside,) = touched.beside([ExecutorState("0", "", 1, use=use)])
    return {
        "seconds": seconds,
        "heap_used_bytes": use.heap_used_bytes,
        "heap_committed_bytes": use.heap_committed_bytes,
        "gc_seconds": use.gc_seconds,
        "gc_count": use.gc_count,
        "memory_used_bytes": use.heap_committed_bytes + beside,
        "cpu_used_cores": use.cpu_cores,
        "spilled_bytes": use.spilled_bytes,
        "out_of_memory_count": 0.0,
        "beside_heap_bytes": surely_beside(use),
    }


def end(process: subprocess.Popen[bytes], patience: float) -> None:
    """Wait for a process that was told to end, then end it."""
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
