"""What would change if: other slot counts, no stragglers, no garbage collection, and so on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from penstock.diagnose.application_log import ApplicationLog
from penstock.diagnose.interference import with_interference
from penstock.diagnose.replay import JobPlan, StagePlan, TaskGraph, replay, task_graph
from penstock.diagnose.trace import Floats

# A task counts as a straggler beyond this many times the median of its stage.
STRAGGLER = 1.5
PHASES = ("gc", "deserialise", "fetch_wait", "shuffle_write", "state_load", "state_commit")


@dataclass(frozen=True, slots=True)
class Forecast:
    """How long the application would take on this many slots, and its median job."""

    slots: int
    seconds: float
    median_job_seconds: float


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Forecasts for other slot counts, and the seconds gained without stragglers or a phase of the tasks."""

    measured_seconds: float
    replayed_seconds: float
    slots: int
    forecasts: tuple[Forecast, ...]
    gains: dict[str, float]
    jobs: int = 1
    measured_job_seconds: float = 0.0


def what_if(
    log: ApplicationLog, slot_counts: tuple[int, ...] = (), host_cores: int | None = None
) -> WhatIf | None:
    """Replays the log's task graph under other conditions; nothing when it has no finished job.

    With the cores of a host, slots beyond them slow each other down; new slots are taken to be on the hosts
    that are there. Without, every slot has a core of its own.
    """
    graph = task_graph(log)
    if not graph.jobs:
        return None
    if host_cores:
        graph = with_interference(log, graph, host_cores)
    base = replay(graph).seconds
    counts = slot_counts or tuple(
        sorted({max(1, graph.slots // 2), graph.slots, graph.slots * 2, graph.slots * 4})
    )
    gains = {
        "stragglers": base - replay(_mapped(graph, _without_stragglers)).seconds,
        "stage barriers": base - replay(_without_barriers(graph)).seconds,
    }
    for phase in PHASES:
        spent = log.tasks[phase] / 1000
        gain = base - replay(_mapped(graph, _without(spent))).seconds if spent.any() else 0.0
        gains[phase.replace("_", " ")] = gain
    return WhatIf(
        measured_seconds=graph.measured_seconds,
        replayed_seconds=base,
        slots=graph.slots,
        forecasts=tuple(forecast(graph, slots) for slots in counts),
        gains=gains,
        jobs=len(graph.jobs),
        measured_job_seconds=float(np.median([job.measured_seconds for job in graph.jobs])),
    )


def forecast(graph: TaskGraph, slots: int) -> Forecast:
    """The application on this many slots."""
    found = replay(graph, slots)
    return Forecast(slots, found.seconds, float(np.median(list(found.job_seconds.values()))))


def _without_stragglers(stage: StagePlan) -> Floats:
    return np.minimum(stage.tasks, STRAGGLER * float(np.median(stage.tasks)))


def _without(spent: Floats) -> Callable[[StagePlan], Floats]:
    return lambda stage: np.maximum(stage.tasks - spent[stage.rows], 0.0)


def _without_barriers(graph: TaskGraph) -> TaskGraph:
    """Stages that start with their job: as if data flowed on at once, and nobody waited for the slowest."""

    def joined(job: JobPlan) -> JobPlan:
        stages = tuple(replace(stage, parents=frozenset[int](), delay=0.0) for stage in job.stages)
        return replace(job, stages=stages)

    return replace(graph, jobs=tuple(joined(job) for job in graph.jobs))


def _mapped(graph: TaskGraph, change: Callable[[StagePlan], Floats]) -> TaskGraph:
    def changed(job: JobPlan) -> JobPlan:
        return replace(job, stages=tuple(_shortened(stage, change(stage)) for stage in job.stages))

    return replace(graph, jobs=tuple(changed(job) for job in graph.jobs))


def _shortened(stage: StagePlan, tasks: Floats) -> StagePlan:
    needs = stage.needs.scaled(tasks / np.maximum(stage.tasks, 1e-9)) if stage.needs else None
    return replace(stage, tasks=tasks, needs=needs)
