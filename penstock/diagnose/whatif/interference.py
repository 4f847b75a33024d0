"""The cores that slots share: what each task needs of them, calibrated on the log.

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

from dataclasses import dataclass, replace

import numpy as np

from penstock.diagnose.log.application import ApplicationLog
from penstock.diagnose.trace.events import Floats
from penstock.diagnose.whatif.replay import replay
from penstock.diagnose.whatif.task_graph import StagePlan, TaskGraph, TaskNeeds

_HALVINGS = 12


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
    hosts = {executor.host for executor in log.executors.values()} or {""}
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
