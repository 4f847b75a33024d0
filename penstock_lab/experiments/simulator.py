"""The simulator: how many hours it simulates in a second, and how far it is from a real cluster.

Speed is that of one day in steps of 1 s, with 10 operators. Then a word count runs on a cluster and in the
simulator. Two figures are taken from the cluster: the fixed cost of a batch, from small batches before the
load steps up, and the time that executors take to come. All else is the simulator's own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import yaml  # type: ignore[import-untyped]

from penstock.simulate.comparison import here, run_seeds
from penstock.simulate.experiment import Experiment
from penstock.simulate.flow import VirtualDataflow
from penstock.simulate.loading import load, parse
from penstock.simulate.measures import least_instances, measure
from penstock.simulate.profiles import parse_profile
from penstock.simulate.run import Run, simulate
from penstock.simulate.spark_seeds import on_spark
from penstock.simulate.virtual import BACKLOG
from penstock_lab.experiments.batches import find_slots, sum_backlog, time_settled_batch
from penstock_lab.experiments.measurement import (
    Extent,
    Measurement,
    Progress,
    Row,
    tell_settings,
)
from penstock_lab.experiments.word_count.query import (
    DS2,
    HIGH_RATE,
    LOAD,
    LOAD_AFTER_SECONDS,
    SETTINGS,
    SHAPE,
    TRIGGER_SECONDS,
    ClusterRun,
    WordCountCase,
    run_ds2,
)
from penstock_lab.ground.spark_cluster import ClusterShape, cluster
from penstock_lab.workloads.records import WORDS_PER_SENTENCE

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
CASE = WordCountCase("under", 1, ((0, HIGH_RATE),), 105)
SETTLED_SECONDS = 40.0
"""The end of the run, over which batches are compared."""
COMPARED = ("steps", "first_change_s", "final_slots", "batch_s", "backlog_record_s", "slot_s")


def run(extent: Extent, progress: Progress) -> Measurement:
    """Time the model alone, and with loop, manager and policy; the best of a few runs counts."""
    repeats = QUICK_REPEATS if extent.quick else REPEATS
    progress("compiling")
    first = _time_work(partial(_run_model, make_day(INTERVALS[0])), 1)
    rows = _time_days(repeats, progress)
    progress("many seeds")
    seeds, per_minute = _time_seeds(extent.quick)
    compared, off = ([], {}) if extent.quick else compare_with_cluster(progress)
    summary = {
        "simulated_hours_per_second": rows[1]["simulated_hours_per_second"],
        "day_seconds": rows[1]["seconds"],
        "model_day_seconds": rows[0]["seconds"],
        "first_model_day_seconds": first,
        **per_minute,
        **off,
    }
    notes = [*NOTES, *(QUICK_NOTES if extent.quick else FULL_NOTES)]
    return Measurement([*rows, *seeds, *compared], summary, notes)


def _time_days(repeats: int, progress: Progress) -> list[Row]:
    cases: dict[str, Callable[[], object]] = {"model alone": partial(_run_model, make_day(INTERVALS[0]))}
    for interval in INTERVALS:
        cases[f"{POLICY} every {interval} s"] = partial(_run_whole, make_day(interval))
    cases["reading the scenario"] = partial(make_day, INTERVALS[0])
    rows: list[Row] = []
    for case, work in cases.items():
        progress(case)
        seconds = _time_work(work, repeats)
        row: Row = {"case": case, "operators": OPERATORS, "seconds": seconds}
        rows.append({**row, "simulated_hours_per_second": 24 / seconds})
    return rows


def _time_seeds(quick: bool) -> tuple[list[Row], dict[str, float]]:
    """Time seeds one after the other, and in a full run a thousand of them on a cluster of this machine."""
    experiment = load(SEEDED)
    serial = _time_work(lambda: run_seeds(experiment, [POLICY], range(SERIAL_SEEDS), here), 1)
    rows: list[Row] = [{"case": f"{SERIAL_SEEDS} seeds here", "seconds": serial}]
    found = {"seeds_per_minute_here": 60 * SERIAL_SEEDS / serial}
    if quick:
        return rows, found
    shape = ClusterShape(executors=1, cores=os.cpu_count() or 1, executor_memory_mb=1024, log_level="OFF")
    with cluster(shape) as session:
        taken = _time_work(lambda: run_seeds(experiment, [POLICY], range(SPARK_SEEDS), on_spark(session)), 1)
    rows.append({"case": f"{SPARK_SEEDS} seeds on Spark", "seconds": taken})
    return rows, {**found, "seeds_per_minute_on_spark": 60 * SPARK_SEEDS / taken}


def make_day(interval: int, operators: int = OPERATORS) -> Experiment:
    """Make a day of a chain of operators under a sine load."""
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


def _run_model(experiment: Experiment) -> None:
    """Run the dataflow at the oracle's largest size, without loop or policy."""
    dataflow = VirtualDataflow(experiment)
    dataflow.instances[:] = least_instances(experiment).max(axis=0)
    dataflow.advance(experiment.seconds)


def _run_whole(experiment: Experiment) -> None:
    """Do all that `penstock simulate` does for one policy, except printing."""
    measure(simulate(experiment, POLICY))


def _time_work(work: Callable[[], object], repeats: int) -> float:
    """Return the seconds of the quickest of several repeats."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def compare_with_cluster(progress: Progress) -> tuple[list[Row], dict[str, float]]:
    """Run the word count on a cluster, then simulate it, and say by how much each figure differs."""
    progress("the word count on a real cluster")
    real = run_ds2(CASE)
    progress("the same in the simulator")
    fixed, pause = measure_fixed_cost(real), measure_change(real)
    found = simulate(make_scenario(fixed, pause), DS2, 0)
    rows = [
        {"case": "word count", "system": system, **figures, "settings": tell_settings(SETTINGS)}
        for system, figures in (
            ("cluster", list_cluster_figures(real)),
            ("simulated", list_simulated_figures(found)),
        )
    ]
    return rows, {**compare_figures(*rows), "reality_fixed_batch_s": fixed, "reality_change_s": pause}


def make_scenario(fixed: float, pause: float) -> Experiment:
    """Describe the run as a scenario, from where the load steps up and the autopilot is attached.

    The whole fixed cost of a batch counts as one that no slot shortens.
    """
    values = {
        "duration": int(CASE.seconds),
        "batches": {
            "trigger": TRIGGER_SECONDS,
            "serial": fixed,
            "executors": CASE.executors_at_start,
            "cores": SHAPE.cores,
        },
        "sources": {
            "sentences": {
                "rate": f"constant:{HIGH_RATE:g}",
                "service_time": LOAD.seconds_per_sentence,
                "tasks": LOAD.source_partitions,
            }
        },
        "operators": {
            "count": {
                "inputs": ["sentences"],
                "service_time": LOAD.seconds_per_word * WORDS_PER_SENTENCE,
                "tasks": LOAD.count_partitions,
            }
        },
        "scaling": {"kind": "live", "pause": round(pause)},
        "settings": dict(SETTINGS),
    }
    return parse(yaml.safe_dump(values), Path("word-count.yaml"))


def measure_fixed_cost(real: ClusterRun) -> float:
    """Return the fixed cost of a batch, from the last batches before the load."""
    per_record = LOAD.count_slots(1.0) / (CASE.executors_at_start * SHAPE.cores)
    small = [batch for batch in real.batches if batch.end < real.origin + LOAD_AFTER_SECONDS]
    return max(0.0, median(batch.seconds - batch.records * per_record for batch in small[-3:]))


def measure_change(real: ClusterRun) -> float:
    """Return how long changes took on the cluster."""
    taken = [action.seconds for action in real.actions if action.seconds is not None]
    return median(taken) if taken else 0.0


def list_cluster_figures(real: ClusterRun) -> Row:
    """Return the cluster's figures; seconds count from the step of the load."""
    begun, ended = real.origin + LOAD_AFTER_SECONDS, real.ended
    profile = parse_profile(CASE.profile)
    backlog = sum_backlog(real.batches, lambda time: profile.cumulative(time - real.origin), begun, ended)
    ordinary = HIGH_RATE * TRIGGER_SECONDS
    first = min((action.intended_at for action in real.actions), default=None)
    held = [find_slots(real.slots, moment) for moment in np.arange(begun, ended, 1.0)]
    return {
        "steps": len(real.actions),
        "first_change_s": None if first is None else first - begun,
        "final_slots": held[-1],
        "batch_s": time_settled_batch(real.batches, ended - SETTLED_SECONDS, ended, ordinary),
        "backlog_record_s": backlog,
        "slot_s": float(sum(held)),
    }


def list_simulated_figures(run: Run) -> Row:
    """Return the same figures of the simulated run."""
    cores = int(run.experiment.slots[0])
    last = [batch for batch in run.batches if batch.start >= run.experiment.seconds - SETTLED_SECONDS]
    return {
        "steps": len(run.actions),
        "first_change_s": min((action.intended_at for action in run.actions), default=None),
        "final_slots": int(run.held[-1, 0]) * cores,
        "batch_s": median(batch.seconds for batch in last) if last else None,
        "backlog_record_s": float(run.seen[:, BACKLOG].sum()),
        "slot_s": float(run.held[:, 0].sum() * cores),
    }


def compare_figures(real: Row, found: Row) -> dict[str, float]:
    """Return by what share the simulator is off, for figures that both have."""
    return {
        f"reality_{name}_off_ratio": abs(found[name] - real[name]) / real[name]
        for name in COMPARED
        if real[name] and found[name] is not None
    }
