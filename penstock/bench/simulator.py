"""How many hours the simulator simulates in a second: one day in steps of 1 s, with 10 operators."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from penstock.bench.reality import compare_with_cluster
from penstock.bench.report import BenchReport, Row, Target
from penstock.bench.spark_cluster import ClusterShape, cluster
from penstock.simulate.experiment import Experiment
from penstock.simulate.loading import load, parse
from penstock.simulate.measures import measure
from penstock.simulate.oracle import least_instances
from penstock.simulate.run import simulate
from penstock.simulate.seeds import here, run_seeds
from penstock.simulate.spark_seeds import on_spark
from penstock.simulate.virtual import VirtualDataflow

OPERATORS = 10
DAY_SECONDS = 86_400
POLICY = "ds2"
INTERVALS = (10, 60)
REPEATS, QUICK_REPEATS = 5, 2
SEEDED = "dhalion-wordcount"
SERIAL_SEEDS, SPARK_SEEDS = 50, 1000
NOTES = [
    "a day has a sine load, noise of 5%, a chain of 10 operators besides its source, live scaling",
    "seconds is the best of the repeats; a scenario is read once for all policies and seeds",
    "first_model_day_seconds includes loading or compiling the kernel",
    f"seeds are of {SEEDED} with {POLICY}; on Spark they have as many slots as the machine has cores",
]
QUICK_NOTES = ["seeds on Spark and the comparison with a real cluster are left out of a quick run"]
FULL_NOTES = [
    "reality_*_off_ratio: by what share of the cluster's figure the simulator's is off, in one run of the "
    "word count of `bench wordcount` from one executor",
    "the fixed cost of a batch and the time of a change are taken from the run on the cluster",
]


def run(quick: bool, progress: Callable[[str], None]) -> BenchReport:
    """Time the model alone, and with loop, manager and policy; the best of a few runs counts."""
    repeats = QUICK_REPEATS if quick else REPEATS
    progress("compiling")
    first = _seconds(partial(_model, day(INTERVALS[0])), 1)
    rows = _days(repeats, progress)
    progress("many seeds")
    seeds, per_minute = _many_seeds(quick)
    compared, off = ([], {}) if quick else compare_with_cluster(progress)
    whole = rows[1]["seconds"]
    return BenchReport(
        bench="simulator",
        summary={
            "simulated_hours_per_second": 24 / whole,
            "day_seconds": whole,
            "model_day_seconds": rows[0]["seconds"],
            "first_model_day_seconds": first,
            **per_minute,
            **off,
        },
        results=rows + seeds + compared,
        targets=[
            Target("one day of the model alone, seconds", "< 1", rows[0]["seconds"]),
            Target(f"one day with {POLICY} every {INTERVALS[0]} s, seconds", "< 1", whole),
        ],
        notes=NOTES + (QUICK_NOTES if quick else FULL_NOTES),
    )


def _days(repeats: int, progress: Callable[[str], None]) -> list[Row]:
    progress("the model alone")
    rows = [_row("model alone", _seconds(partial(_model, day(INTERVALS[0])), repeats))]
    for interval in INTERVALS:
        progress(f"with {POLICY} every {interval} s")
        rows.append(_row(f"{POLICY} every {interval} s", _seconds(partial(_whole, day(interval)), repeats)))
    rows.append(_row("reading the scenario", _seconds(partial(day, INTERVALS[0]), repeats)))
    return rows


def _many_seeds(quick: bool) -> tuple[list[Row], dict[str, float]]:
    """Seeds one after the other, and in a full run a thousand of them on a cluster of this machine."""
    experiment = load(SEEDED)
    serial = _seconds(lambda: run_seeds(experiment, [POLICY], range(SERIAL_SEEDS), here), 1)
    rows: list[Row] = [{"case": f"{SERIAL_SEEDS} seeds here", "seconds": serial}]
    found = {"seeds_per_minute_here": 60 * SERIAL_SEEDS / serial}
    if quick:
        return rows, found
    shape = ClusterShape(executors=1, cores=os.cpu_count() or 1, executor_memory_mb=1024, log_level="OFF")
    with cluster(shape) as session:
        taken = _seconds(lambda: run_seeds(experiment, [POLICY], range(SPARK_SEEDS), on_spark(session)), 1)
    rows.append({"case": f"{SPARK_SEEDS} seeds on Spark", "seconds": taken})
    return rows, {**found, "seeds_per_minute_on_spark": 60 * SPARK_SEEDS / taken}


def day(interval: int, operators: int = OPERATORS) -> Experiment:
    """A day of a chain of operators under a sine load."""
    names = [f"operator-{number}" for number in range(operators)]
    chain = "\n".join(
        f"  {name}: {{inputs: [{origin}], service_time: 2ms, instances: 2, queue: 10000}}"
        for origin, name in zip(["events", *names], names, strict=False)
    )
    text = f"""
duration: {DAY_SECONDS}
sources: {{events: {{rate: "sine:mean=1500,amplitude=1000,period={DAY_SECONDS}"}}}}
operators:
{chain}
scaling: {{kind: live, pause: 10s}}
noise: 0.05
settings: {{policy_interval: {interval}}}
"""
    return parse(text, Path("bench.yaml"))


def _model(experiment: Experiment) -> None:
    """The dataflow at the oracle's largest size, with nobody looking."""
    dataflow = VirtualDataflow(experiment)
    dataflow.instances[:] = least_instances(experiment).max(axis=0)
    dataflow.advance(experiment.seconds)


def _whole(experiment: Experiment) -> None:
    """All that `penstock simulate` does for one policy, but for printing."""
    measure(simulate(experiment, POLICY))


def _seconds(work: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def _row(case: str, seconds: float) -> Row:
    return {
        "case": case,
        "operators": OPERATORS,
        "seconds": seconds,
        "simulated_hours_per_second": 24 / seconds,
    }
