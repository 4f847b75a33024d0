"""Forecasts for other conditions: other slot counts, no stragglers, no garbage collection, shared cores.

Slots that share the cores of a host slow each other down. A task needs a core while it computes, and none
while it waits for something else. Spark reports:

- CPU time of the task's thread: needs a core, and is free of waiting for one.
- Time inside Python code (Spark 4.3 and later): kept as measured. Spark does not report whether the code
  computes; where it does and cores are short, the forecast is too fast.
- Without Python, the rest of the run: waits for data, for disks or for a core.
- Everything else (scheduler delay, deserialisation, Python workers, result): needs a core or waits for one.

The share of the last two that was not waiting for a core is one number for the whole log. It is chosen so
that the replay on the measured slots takes as long as the median job; nothing is fitted to other slot counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from penstock.diagnose.log.application import ApplicationLog
from penstock.diagnose.trace.events import Floats
from penstock.diagnose.whatif.replay import StagePlan, TaskGraph, TaskNeeds, build_task_graph, replay

# A task is a straggler beyond this many times the median of its stage.
STRAGGLER = 1.5
PHASES = ("gc", "deserialise", "fetch_wait", "shuffle_write", "state_load", "state_commit")
_HALVINGS = 12


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Forecasts for other slot counts, and the seconds gained without stragglers or a phase of the tasks."""

    measured_seconds: float
    replayed_seconds: float
    slots: int
    forecasts: tuple[SlotForecast, ...]
    gains: dict[str, float]
    jobs: int = 1
    measured_job_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SlotForecast:
    """The forecast length of the application, and of its median job, on this many slots."""

    slots: int
    seconds: float
    median_job_seconds: float


def ask_what_if(
    log: ApplicationLog, slot_counts: tuple[int, ...] = (), host_cores: int | None = None
) -> WhatIf | None:
    """Replay the log's tasks under other conditions; return None if the log has no finished job.

    With `host_cores`, slots beyond the cores of the hosts slow each other down, and new slots are on the same
    hosts. Without, every slot has a core of its own.
    """
    graph = build_task_graph(log)
    if not graph.jobs:
        return None
    if host_cores:
        graph = add_interference(log, graph, host_cores)
    base = replay(graph).seconds
    counts = slot_counts or sorted({max(1, graph.slots // 2), graph.slots, graph.slots * 2, graph.slots * 4})
    gains = {
        "stragglers": base - replay(_change_tasks(graph, _cap_stragglers)).seconds,
        "stage barriers": base - replay(graph.map_stages(_remove_barrier)).seconds,
    }
    for phase in PHASES:
        spent = log.tasks[phase] / 1000
        gain = base - replay(_change_tasks(graph, _subtract(spent))).seconds if spent.any() else 0.0
        gains[phase.replace("_", " ")] = gain
    return WhatIf(
        measured_seconds=graph.measured_seconds,
        replayed_seconds=base,
        slots=graph.slots,
        forecasts=tuple(forecast_slots(graph, slots) for slots in counts),
        gains=gains,
        jobs=len(graph.jobs),
        measured_job_seconds=float(np.median([job.measured_seconds for job in graph.jobs])),
    )


def forecast_slots(graph: TaskGraph, slots: int) -> SlotForecast:
    """Forecast the application on this many slots."""
    found = replay(graph, slots)
    return SlotForecast(slots, found.seconds, float(np.median(list(found.job_seconds.values()))))


def _cap_stragglers(stage: StagePlan) -> Floats:
    return np.minimum(stage.tasks, STRAGGLER * float(np.median(stage.tasks)))


def _subtract(spent: Floats) -> Callable[[StagePlan], Floats]:
    return lambda stage: np.maximum(stage.tasks - spent[stage.rows], 0.0)


def _remove_barrier(stage: StagePlan) -> StagePlan:
    """Let the stage start with its job, as if data flowed on without waiting for the slowest task."""
    return replace(stage, parents=frozenset[int](), delay=0.0)


def _change_tasks(graph: TaskGraph, change: Callable[[StagePlan], Floats]) -> TaskGraph:
    def shorten(stage: StagePlan) -> StagePlan:
        tasks = change(stage)
        needs = stage.needs.scale(tasks / np.maximum(stage.tasks, 1e-9)) if stage.needs else None
        return replace(stage, tasks=tasks, needs=needs)

    return graph.map_stages(shorten)


@dataclass(frozen=True, slots=True)
class _TaskParts:
    """Seconds of each task by what Spark reports; they add up to the task's length."""

    cpu: Floats
    code: Floats
    rest_of_run: Floats
    before: Floats
    after: Floats


def add_interference(log: ApplicationLog, graph: TaskGraph, host_cores: int) -> TaskGraph:
    """Return the graph with its tasks' need of the hosts' cores, calibrated on the slots it ran on."""
    hosts = {executor.host for executor in log.executors.values() if executor.removed < 0} or {""}
    cores, parts = float(host_cores * len(hosts)), _split_tasks(log)
    if cores >= graph.slots:
        # nobody waited for a core, so all of it is need
        return _set_needs(graph, parts, 1.0, cores)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        too_slow = _measure_slowness(graph, _set_needs(graph, parts, share, cores)) > 1
        low, high = (low, share) if too_slow else (share, high)
    return _set_needs(graph, parts, (low + high) / 2, cores)


def _measure_slowness(graph: TaskGraph, shared: TaskGraph) -> float:
    """Return replayed over measured time of the median job: the first jobs warm up and should not count."""
    replayed = replay(shared).job_seconds
    known = [job for job in graph.jobs if job.measured_seconds > 0 and job.job in replayed]
    return float(np.median([replayed[job.job] / job.measured_seconds for job in known])) if known else 1.0


def _set_needs(graph: TaskGraph, parts: _TaskParts, share: float, cores: float) -> TaskGraph:
    """Return the graph in which this share of the unexplained times needs a core."""

    def with_needs(stage: StagePlan) -> StagePlan:
        rows = stage.rows
        needs = TaskNeeds(
            before=share * parts.before[rows] + parts.cpu[rows],
            wait=parts.code[rows] + share * parts.rest_of_run[rows],
            after=share * parts.after[rows],
        )
        return replace(stage, needs=needs)

    return replace(graph.map_stages(with_needs), cores=cores)


def _split_tasks(log: ApplicationLog) -> _TaskParts:
    tasks = log.tasks
    length = np.maximum(tasks["finish"] - tasks["launch"], 0) / 1000
    run = np.minimum(tasks["run"] / 1000, length)
    code = np.minimum(tasks["python"] / 1000, run)
    in_python = code > 0
    cpu = np.where(in_python, 0.0, np.minimum(tasks["cpu"] / 1000, run))
    # without Python the rest of the run waits; around Python code it starts workers and moves data
    rest = np.where(in_python, 0.0, run - cpu)
    overhead = length - code - cpu - rest
    behind = length - run - tasks["deserialise"] / 1000
    after = np.clip(behind / 2, 0.0, overhead)
    return _TaskParts(cpu, code, rest, overhead - after, after)
