"""Ordinary applications on ordinary clusters, drawn from a seed: nothing in them is wrong."""

from __future__ import annotations

import numpy as np

from penstock_lab.experiments.answers.scene import (
    BatchCosts,
    JobWork,
    Machine,
    Piece,
    Scene,
    StageWork,
)

_MEGABYTE = 1 << 20
_SHUFFLED = ("HashAggregate", "SortMergeJoin", "Window", "Sort")


def draw_batch_application(seed: int) -> Scene:
    """Draw a batch application: a few jobs, each of some scans, then stages that shuffle."""
    random = np.random.default_rng([seed, 1])
    machines = _draw_machines(random)
    slots = sum(machine.cores for machine in machines)
    jobs = tuple(_draw_job(random, slots) for _ in range(int(random.integers(2, 6))))
    properties = {"spark.executor.memory": "4g", "spark.executor.instances": str(len(machines))}
    return Scene("nightly report", jobs, machines, float(random.uniform(0.001, 0.002)), properties=properties)


def draw_streaming_application(seed: int) -> Scene:
    """Draw a streaming query that keeps state: a scan and an aggregation in each micro-batch."""
    random = np.random.default_rng([seed, 2])
    machines = _draw_machines(random)
    slots = sum(machine.cores for machine in machines)
    batches, seconds = int(random.integers(8, 25)), float(random.uniform(0.3, 1.2))
    jobs = tuple(_draw_micro_batch(random, slots, seconds) for _ in range(batches))
    properties = {"spark.sql.shuffle.partitions": str(slots)}
    return Scene(
        "counts of clicks",
        jobs,
        machines,
        properties=properties,
        batch=BatchCosts(),
        trigger=float(random.choice([0.0, 0.0, 5.0])),
    )


def draw_shell(seed: int) -> Scene:
    """Draw a shell in which a person asks now and then."""
    scene = draw_batch_application(seed)
    return Scene("PySparkShell", scene.jobs, scene.machines, scene.launch_cost, properties=scene.properties)


def _draw_machines(random: np.random.Generator) -> tuple[Machine, ...]:
    hosts = int(random.integers(3, 7))
    each, cores = int(random.integers(1, 3)), int(random.choice([2, 4]))
    ready = float(random.uniform(2.0, 4.0))
    return tuple(
        Machine(str(place + 1), f"host-{place % hosts}", cores, ready + float(random.uniform(0.0, 1.0)))
        for place in range(hosts * each)
    )


def _draw_job(random: np.random.Generator, slots: int) -> JobWork:
    scans = int(random.integers(1, 3))
    stages = [
        draw_stage(random, f"Scan parquet {place}", _choose_tasks(random, slots), (), is_last=False)
        for place in range(scans)
    ]
    shuffles = int(random.integers(1, 3))
    for place in range(shuffles):
        scope = str(random.choice(_SHUFFLED))
        parents = tuple(range(scans)) if place == 0 else (len(stages) - 1,)
        is_last = place == shuffles - 1
        stages.append(draw_stage(random, scope, _choose_tasks(random, slots), parents, is_last=is_last))
    return JobWork(
        tuple(stages),
        program=float(random.uniform(0.2, 0.8)),
        planning=float(random.uniform(0.1, 0.4)),
        after=float(random.uniform(0.02, 0.2)),
    )


def _draw_micro_batch(random: np.random.Generator, slots: int, seconds: float) -> JobWork:
    load = float(random.uniform(0.8, 1.2))
    scan = draw_stage(random, "MicroBatchScan", slots, (), is_last=False, seconds=seconds * load)
    state = draw_stage(random, "StateStoreSave", slots, (0,), is_last=True, seconds=seconds * load)
    commits = random.uniform(0.01, 0.03, slots)
    pieces = (
        Piece(
            one.compute,
            one.records,
            one.bytes_in,
            one.bytes_out,
            fetch=one.fetch,
            collect=one.collect,
            commit=float(more),
        )
        for one, more in zip(state.pieces, commits, strict=True)
    )
    stages = (scan, StageWork(state.scope, tuple(pieces), state.parents))
    return JobWork(stages, planning=float(random.uniform(0.04, 0.1)))


def _choose_tasks(random: np.random.Generator, slots: int) -> int:
    return round(slots * float(random.uniform(1.0, 4.0)))


def draw_stage(
    random: np.random.Generator,
    scope: str,
    tasks: int,
    parents: tuple[int, ...],
    *,
    is_last: bool,
    seconds: float = 0.0,
) -> StageWork:
    """Draw the tasks of a stage; data is spread nearly evenly, and time goes with records."""
    seconds = seconds or float(random.uniform(0.8, 4.0))
    sizes = random.lognormal(0.0, 0.12, tasks)
    rate = float(random.uniform(50_000, 400_000))
    row = int(random.integers(40, 200))
    pieces = []
    for size in sizes.tolist():
        records = int(rate * seconds * size)
        compute = seconds * size * float(random.lognormal(0.0, 0.08))
        pieces.append(
            Piece(
                compute=compute,
                records=records,
                bytes_in=min(records * row, 180 * _MEGABYTE),
                bytes_out=0 if is_last else records * row // 3,
                deserialise=float(random.uniform(0.004, 0.02)),
                fetch=compute * float(random.uniform(0.005, 0.03)) if parents else 0.0,
                collect=compute * float(random.uniform(0.005, 0.03)),
                write=0.0 if is_last else compute * float(random.uniform(0.005, 0.03)),
            )
        )
    return StageWork(scope, tuple(pieces), parents)
