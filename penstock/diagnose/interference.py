"""Slots that share the cores of a host slow each other down: which part of a task, and by how much.

A task wants a core for what it computes, and none while its own work waits. What Spark tells:

- CPU time of the task's thread: wants a core, and is free of waiting for one.
- Time inside Python code, where Spark 4.3 and later report it: taken as it is. Whether it computes is not
  reported, so that Python code which does is predicted too fast on cores that are short.
- Without Python, the rest of the run: waits for data or disks, or for a core.
- All else (scheduler delay, deserialisation, Python workers, result): wants a core, or waits for one.

How much of the last two was waiting for a core is one unknown share for the whole log. It is chosen so that
the replay on the measured slots takes as long as the median job did; nothing is fitted to other slot counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from penstock.diagnose.application_log import ApplicationLog
from penstock.diagnose.replay import JobPlan, StagePlan, TaskGraph, TaskNeeds, replay
from penstock.diagnose.trace import Floats

_HALVINGS = 12


@dataclass(frozen=True, slots=True)
class _Parts:
    """Seconds of each task of a log by what Spark tells of them; they add up to its length."""

    cpu: Floats
    code: Floats
    rest_of_run: Floats
    before: Floats
    after: Floats


def with_interference(log: ApplicationLog, graph: TaskGraph, host_cores: int) -> TaskGraph:
    """The graph with what its tasks need of the cores of their hosts, calibrated on its own slots."""
    hosts = {executor.host for executor in log.executors.values() if executor.removed < 0} or {""}
    cores = float(host_cores * len(hosts))
    if cores >= graph.slots:
        # Nobody waited for a core, so all of it is demand.
        return _sharing(graph, _parts(log), 1.0, cores)
    return _calibrated(graph, _parts(log), cores)


def _calibrated(graph: TaskGraph, parts: _Parts, cores: float) -> TaskGraph:
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        too_slow = _slowness(graph, _sharing(graph, parts, share, cores)) > 1
        low, high = (low, share) if too_slow else (share, high)
    return _sharing(graph, parts, (low + high) / 2, cores)


def _slowness(graph: TaskGraph, shared: TaskGraph) -> float:
    """Replayed over measured time of the median job: the first ones warm up, and must not count for much."""
    replayed = replay(shared).job_seconds
    known = [job for job in graph.jobs if job.measured_seconds > 0 and job.job in replayed]
    return float(np.median([replayed[job.job] / job.measured_seconds for job in known])) if known else 1.0


def _sharing(graph: TaskGraph, parts: _Parts, share: float, cores: float) -> TaskGraph:
    """The graph whose unexplained times count by this share."""

    def needs(stage: StagePlan) -> TaskNeeds:
        rows = stage.rows
        return TaskNeeds(
            before=share * parts.before[rows] + parts.cpu[rows],
            wait=parts.code[rows] + share * parts.rest_of_run[rows],
            after=share * parts.after[rows],
        )

    jobs = tuple(_with_needs(job, ((stage, needs(stage)) for stage in job.stages)) for job in graph.jobs)
    return replace(graph, jobs=jobs, cores=cores)


def _with_needs(job: JobPlan, needs: Iterable[tuple[StagePlan, TaskNeeds]]) -> JobPlan:
    return replace(job, stages=tuple(replace(stage, needs=each) for stage, each in needs))


def _parts(log: ApplicationLog) -> _Parts:
    tasks = log.tasks
    length = np.maximum(tasks["finish"] - tasks["launch"], 0) / 1000
    run = np.minimum(tasks["run"] / 1000, length)
    code = np.minimum(tasks["python"] / 1000, run)
    in_python = code > 0
    cpu = np.where(in_python, 0.0, np.minimum(tasks["cpu"] / 1000, run))
    # Without Python the rest of the run waits; around Python code it starts workers and moves data.
    rest = np.where(in_python, 0.0, run - cpu)
    overhead = length - code - cpu - rest
    behind = length - run - tasks["deserialise"] / 1000
    after = np.clip(behind / 2, 0.0, overhead)
    return _Parts(cpu, code, rest, overhead - after, after)
