"""Baseline: Spark's dynamic allocation, which counts pending tasks and knows no rates.

Tasks that wait for a slot longer than a timeout ask for executors, twice as many in each round (1, 2, 4, ...)
up to what runs all tasks at once; executors for which there are no tasks go after an idle time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.dataflow.batches import BatchExecution, StageExecution
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, Execution
from penstock.decide.policy import ExpectedEffect, Hold, Proposal, Scale
from penstock.decide.ranges import require, require_limits


@dataclass(frozen=True, slots=True)
class DynamicAllocationSettings:
    """Settings with Spark's own defaults; limits in executors."""

    backlog_seconds: float = 1.0
    """Tasks that wait longer than this ask for executors (schedulerBacklogTimeout)."""
    idle_seconds: float = 60.0
    """An executor without tasks goes after this time (executorIdleTimeout)."""
    min_instances: int = 1
    max_instances: int = 64

    def __post_init__(self) -> None:
        require("backlog_seconds", self.backlog_seconds, above=False)
        require("idle_seconds", self.idle_seconds, above=False)
        require_limits(self.min_instances, self.max_instances)


class DynamicAllocationPolicy:
    """Doubles what it adds while tasks are pending; remembers the round, and how long executors were idle."""

    name = "dynamic-allocation"

    def __init__(self, settings: DynamicAllocationSettings) -> None:
        self._settings = settings
        self._to_add = 1
        self._idle_since: float | None = None

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Compare the tasks of the largest stage with the slots."""
        if window.execution is not Execution.SHARED_SLOTS:
            return NotReady("dynamic-allocation counts Spark's tasks, and here operators have instances")
        held = window.parallelism.get(EXECUTORS, 0)
        if held < 1 or not window.executors or window.slots < 1:
            return NotReady("the application has no executors", "an executor")
        batches = [batch for query in window.queries for batch in query.batches]
        if not any(batch.stages for batch in batches):
            return NotReady("no batch with tasks finished in the window", "a finished batch")
        per_executor = max(1, window.slots_per_executor)
        most = max(stage.tasks for batch in batches for stage in batch.stages)
        needed = min(max(math.ceil(most / per_executor), self._settings.min_instances), self._most())
        if needed > held and _pending_seconds(batches, window.slots) > self._settings.backlog_seconds:
            return self._add(held, needed, most, window.slots)
        self._to_add = 1
        return self._release(window, held, needed, most)

    def _most(self) -> int:
        return self._settings.max_instances

    def _add(self, held: int, needed: int, most: int, slots: int) -> Proposal:
        self._idle_since = None
        wanted = min(needed, held + self._to_add)
        # a round that was cut short is the last one, and the next begins with one again
        self._to_add = self._to_add * 2 if wanted == held + self._to_add else 1
        reason = f"{held} → {wanted} executors: {most - slots} of {most} tasks wait for a slot"
        return Scale({EXECUTORS: wanted}, reason, ExpectedEffect("fewer tasks wait"))

    def _release(self, window: ApplicationWindow, held: int, needed: int, most: int) -> Proposal:
        if needed >= held:
            self._idle_since = None
            return Hold(f"{most} tasks at most on {window.slots} slots: none waits long, no executor is idle")
        since = self._idle_since = window.start if self._idle_since is None else self._idle_since
        idle = window.end - since
        if idle < self._settings.idle_seconds:
            return Hold(f"{held - needed} executors have no tasks, for {idle:.0f} s so far")
        self._idle_since = None
        reason = f"{held} → {needed} executors: {most} tasks at most, the others were idle for {idle:.0f} s"
        return Scale({EXECUTORS: needed}, reason, ExpectedEffect("no executor is idle"))


def _pending_seconds(batches: Iterable[BatchExecution], slots: int) -> float:
    """How long tasks waited at most: until the last wave of a stage began."""
    return max((_stage_pending(stage, slots) for batch in batches for stage in batch.stages), default=0.0)


def _stage_pending(stage: StageExecution, slots: int) -> float:
    waves = math.ceil(stage.tasks / slots)
    wall = stage.wall_seconds
    return wall * (waves - 1) / waves if waves > 1 and math.isfinite(wall) else 0.0
