"""The table of stages: what their tasks read, spilled and held, how long they took, and their plan nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from penstock.diagnose.log.application import (
    FAILED,
    SUCCEEDED,
    ApplicationLog,
    Column,
    SparkJob,
    SqlExecution,
    StageKey,
)

MOST_STAGES = 400
"""Those that took longest are kept."""


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage attempt with the sums of its tasks; their lengths and figures are of those that succeeded.

    The share of the critical path is that of its operator; where several stages have one, it is None. Spill
    and peak memory are bytes, the peak is of one task; `records_ratio` is the largest to the median.
    """

    stage: int
    attempt: int
    operator: str
    job: int
    execution: int
    chain: str
    start_ms: int
    seconds: float
    share: float | None
    tasks: int
    core_seconds: float
    shortest: float
    median: float
    longest: float
    records_in: int
    records_ratio: float
    bytes_in: int
    written_bytes: int
    memory_spilled: int
    disk_spilled: int
    peak_memory: int
    gc_seconds: float
    failed_tasks: int
    lost_seconds: float
    failure: str


def list_stages(
    log: ApplicationLog, names: Mapping[StageKey, str], shares: Mapping[str, float]
) -> list[StageRow]:
    """Return the stage attempts that ran tasks, in the order in which they began."""
    owners: dict[int, SparkJob] = {}
    for job in log.jobs.values():
        for stage in job.stages:
            owners.setdefault(stage, job)
    used: dict[str, int] = {}
    groups = _group_tasks(log)
    for key in groups:
        name = names.get(key, "")
        used[name] = used.get(name, 0) + 1
    rows = []
    for key, mine in groups.items():
        name = names.get(key, f"stage {key[0]}")
        share = shares.get(name) if used.get(name) == 1 else None
        rows.append(_describe_stage(log, key, mine, name, owners.get(key[0]), share))
    longest = sorted(rows, key=lambda row: -row.seconds)[:MOST_STAGES]
    return sorted(longest, key=lambda row: (row.start_ms, row.stage, row.attempt))


def _group_tasks(log: ApplicationLog) -> dict[StageKey, Column]:
    stage, attempt = log.tasks["stage"], log.tasks["attempt"]
    order = np.lexsort((attempt, stage))
    if not len(order):
        return {}
    borders = np.nonzero((np.diff(stage[order]) != 0) | (np.diff(attempt[order]) != 0))[0] + 1
    return {(int(stage[rows[0]]), int(attempt[rows[0]])): rows for rows in np.split(order, borders)}


def _describe_stage(
    log: ApplicationLog, key: StageKey, rows: Column, name: str, job: SparkJob | None, share: float | None
) -> StageRow:
    tasks, known = log.tasks, log.stages.get(key)
    finish = np.where(tasks["finish"] >= 0, tasks["finish"], log.end)
    good = rows[tasks["outcome"][rows] == SUCCEEDED]
    bad = rows[tasks["outcome"][rows] == FAILED]
    lengths = (finish[good] - tasks["launch"][good]) / 1000 if len(good) else np.zeros(1)
    records = tasks["records_in"][good]
    read = records[records > 0]

    def total(column: str) -> int:
        return int(tasks[column][good].sum())

    return StageRow(
        stage=key[0],
        attempt=key[1],
        operator=name,
        job=job.job if job else -1,
        execution=job.execution if job else -1,
        chain=known.chain if known else "",
        start_ms=int(tasks["launch"][rows].min()),
        seconds=float(finish[rows].max() - tasks["launch"][rows].min()) / 1000,
        share=share,
        tasks=len(good),
        core_seconds=float(lengths.sum()),
        shortest=float(lengths.min()),
        median=float(np.median(lengths)),
        longest=float(lengths.max()),
        records_in=total("records_in"),
        records_ratio=float(read.max() / np.median(read)) if len(read) else 0.0,
        bytes_in=total("bytes_in"),
        written_bytes=total("shuffle_written_bytes"),
        memory_spilled=total("memory_spilled"),
        disk_spilled=total("disk_spilled"),
        peak_memory=int(tasks["peak_memory"][rows].max()),
        gc_seconds=total("gc") / 1000,
        failed_tasks=len(bad),
        lost_seconds=float((finish[bad] - tasks["launch"][bad]).sum()) / 1000,
        failure=known.failure if known else "",
    )


def list_executions(log: ApplicationLog, stages: Iterable[StageRow]) -> list[SqlExecution]:
    """Return the SQL executions that these stages ran for, in order."""
    wanted = {row.execution for row in stages}
    return [one for one in log.executions if one.execution in wanted]


def find_plan_nodes(chain: str, execution: SqlExecution) -> list[int]:
    """Return the places of the plan nodes that a stage's chain names and that the plan has once."""
    places: dict[str, list[int]] = {}
    for place, node in enumerate(execution.nodes):
        places.setdefault(node.name, []).append(place)
    named = dict.fromkeys(chain.split(" > "))
    return [places[name][0] for name in named if len(places.get(name, ())) == 1]
