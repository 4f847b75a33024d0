"""Forecasts for other conditions: other slots, no stragglers, no garbage collection, one advice followed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from penstock.diagnose.log.application import ApplicationLog
from penstock.diagnose.trace.events import Floats
from penstock.diagnose.whatif.interference import add_interference
from penstock.diagnose.whatif.replay import replay
from penstock.diagnose.whatif.task_graph import Replayed, StagePlan, TaskGraph, build_task_graph

# A task is a straggler beyond this many times the median of its stage.
STRAGGLER = 1.5
PHASES = ("gc", "deserialise", "fetch_wait", "shuffle_write", "state_load", "state_commit")
# A replay that misses what happened by more of the time in which jobs ran predicts nothing.
MOST_ERROR = 0.1
# A phase with less of the tasks' time is not worth a replay.
LEAST_PHASE = 0.001

Change = Callable[[TaskGraph], TaskGraph]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Forecasts for other slots, and the seconds gained without stragglers or a phase of the tasks.

    `error` is how far the replay of what happened is off, as a share of the time in which jobs ran. Without
    trust in the replay there are no forecasts and no gains. `slots` are the most that were there at once.
    """

    measured_seconds: float
    replayed_seconds: float
    slots: int
    forecasts: tuple[SlotForecast, ...]
    gains: dict[str, float]
    jobs: int = 1
    measured_job_seconds: float = 0.0
    error: float = 0.0
    is_trusted: bool = True


@dataclass(frozen=True, slots=True)
class SlotForecast:
    """The forecast length of the application, and of its median job, on this many slots."""

    slots: int
    seconds: float
    median_job_seconds: float


@dataclass(frozen=True, slots=True)
class Gain:
    """The seconds that a change would save, and by how much the replay may be wrong about them."""

    seconds: float
    uncertainty: float


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The task graph of a log, and how long a replay of it takes beside what was measured."""

    graph: TaskGraph
    replayed: Replayed
    error: float

    @property
    def seconds(self) -> float:
        """How long the replay takes."""
        return self.replayed.seconds

    @property
    def is_trusted(self) -> bool:
        """Whether the replay of what happened is close enough to predict from it."""
        return self.error <= MOST_ERROR

    def measure_gain(self, change: Change) -> Gain | None:
        """Return what the change would save; None if the replay is not to be trusted."""
        if not self.is_trusted:
            return None
        seconds = self.seconds - replay(change(self.graph)).seconds
        return Gain(seconds, max(self.error, 0.01) * abs(seconds))


def rehearse(log: ApplicationLog, host_cores: int | None = None) -> Rehearsal | None:
    """Replay what happened; return None if the log has no finished job.

    With `host_cores`, slots beyond the cores of the hosts slow each other down, and new slots are on the same
    hosts. Without, every slot has a core of its own.
    """
    graph = build_task_graph(log)
    if not graph.jobs:
        return None
    if host_cores:
        graph = add_interference(log, graph, host_cores)
    replayed = replay(graph)
    error = abs(replayed.seconds - graph.measured_seconds) / max(measure_busy_time(log), 1e-3)
    return Rehearsal(graph, replayed, error)


def measure_busy_time(log: ApplicationLog) -> float:
    """Return the seconds in which at least one job ran."""
    busy, until = 0, -1
    for started, ended in sorted((job.started, job.ended) for job in log.jobs.values() if job.ended >= 0):
        busy += max(0, ended - max(started, until))
        until = max(until, ended)
    return busy / 1000


def forecast(log: ApplicationLog, found: Rehearsal, slot_counts: tuple[int, ...] = ()) -> WhatIf:
    """Forecast a rehearsed log on other slots, without stragglers and without phases of its tasks."""
    graph, trusted = found.graph, found.is_trusted
    known = {graph.slots: forecast_from(graph.slots, found.replayed)}
    counts = slot_counts or sorted({max(1, graph.slots // 2), graph.slots, graph.slots * 2, graph.slots * 4})
    return WhatIf(
        measured_seconds=graph.measured_seconds,
        replayed_seconds=found.seconds,
        slots=graph.slots,
        forecasts=tuple(known.get(n) or forecast_slots(graph, n) for n in counts) if trusted else (),
        gains=_measure_gains(log, found) if trusted else {},
        jobs=len(graph.jobs),
        measured_job_seconds=float(np.median([job.measured_seconds for job in graph.jobs])),
        error=found.error,
        is_trusted=trusted,
    )


def forecast_slots(graph: TaskGraph, slots: int) -> SlotForecast:
    """Forecast the application on this many slots at most, which come and go as they did."""
    return forecast_from(slots, replay(graph.scale_slots(slots)))


def forecast_from(slots: int, found: Replayed) -> SlotForecast:
    """Return the forecast that a replay on this many slots makes."""
    return SlotForecast(slots, found.seconds, float(np.median(list(found.job_seconds.values()))))


def _measure_gains(log: ApplicationLog, found: Rehearsal) -> dict[str, float]:
    changes: dict[str, Change | None] = {
        "stragglers": change_stages(cap_stragglers),
        "stage barriers": change_stages(_remove_barrier),
    }
    whole = float((log.tasks["finish"] - log.tasks["launch"])[log.tasks["finish"] >= 0].sum())
    for phase in PHASES:
        spends = log.tasks[phase].sum() > LEAST_PHASE * whole
        changes[phase.replace("_", " ")] = without_phase(log, phase) if spends else None
    gains = {name: found.measure_gain(change) if change else None for name, change in changes.items()}
    return {name: gain.seconds if gain else 0.0 for name, gain in gains.items()}


def change_stages(change: Callable[[StagePlan], StagePlan]) -> Change:
    """Return the change of a graph that changes each of its stages."""
    return lambda graph: graph.map_stages(change)


def without_phase(log: ApplicationLog, phase: str) -> Change:
    """Return the change that takes a phase out of every task."""
    return without_time(log.tasks[phase] / 1000)


def without_time(spent: Floats) -> Change:
    """Return the change that takes so many seconds out of each task of the log."""
    return change_stages(lambda stage: stage.with_tasks(np.maximum(stage.tasks - spent[stage.rows], 0.0)))


def cap_stragglers(stage: StagePlan) -> StagePlan:
    """Let no task take much longer than the median of its stage."""
    return stage.with_tasks(np.minimum(stage.tasks, STRAGGLER * float(np.median(stage.tasks))))


def _remove_barrier(stage: StagePlan) -> StagePlan:
    """Let the stage start with its job, as if data flowed on without waiting for the slowest task."""
    return replace(stage, parents=frozenset(), delay=0.0)
