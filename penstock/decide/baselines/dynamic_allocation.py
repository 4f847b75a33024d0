"""Baseline: Spark's dynamic allocation, which counts pending tasks and knows no rates.

Tasks that wait for a slot longer than a timeout ask for executors, twice as many in each round (1, 2, 4, ...)
up to what runs all tasks at once; executors for which there are no tasks go after an idle time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar

from pydantic import Field

from penstock.dataflow.metrics import BatchExecution, StageExecution
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, SlotWindow
from penstock.decide.goals import SizeBounds
from penstock.decide.policy import ExpectedEffect, Hold, Proposal, Scale
from penstock.decide.readings import count_held
from penstock.units.fields import Duration
from penstock.units.section import Section


class DynamicAllocationSettings(Section):
    """Spark's schedulerBacklogTimeout and executorIdleTimeout, with its own defaults."""

    prefix: ClassVar[str] = "dynamic_allocation_"

    backlog_seconds: Duration = Field(
        1.0, ge=0, le=86400, description="Tasks that wait longer make dynamic-allocation ask for executors."
    )
    idle_seconds: Duration = Field(
        60.0, ge=0, le=86400, description="After so long without tasks dynamic-allocation releases executors."
    )


class DynamicAllocationPolicy:
    """Doubles what it adds while tasks are pending; remembers the round, and how long executors were idle."""

    name = "dynamic-allocation"

    def __init__(self, settings: DynamicAllocationSettings, bounds: SizeBounds) -> None:
        self._settings, self._bounds = settings, bounds
        self._to_add = 1
        self._idle_since: float | None = None

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Compare the tasks of the largest stage with the slots."""
        if not isinstance(window, SlotWindow):
            return NotReady("dynamic-allocation counts Spark's tasks, and here operators have instances")
        held = count_held(window)
        if isinstance(held, NotReady):
            return held
        batches = [batch for query in window.queries for batch in query.batches]
        if not any(batch.stages for batch in batches):
            return NotReady("no batch with tasks finished in the window", "a finished batch")
        per_executor = max(1, window.slots_per_executor)
        most = max(stage.tasks for batch in batches for stage in batch.stages)
        needed = self._bounds.clamp(math.ceil(most / per_executor))
        if needed > held and _measure_pending(batches, window.slots) > self._settings.backlog_seconds:
            return self._add(held, needed, most, window.slots)
        self._to_add = 1
        return self._release(window, held, needed, most)

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


def _measure_pending(batches: Iterable[BatchExecution], slots: int) -> float:
    """Return how long tasks waited at most: until the last wave of a stage began."""
    return max((_measure_stage(stage, slots) for batch in batches for stage in batch.stages), default=0.0)


def _measure_stage(stage: StageExecution, slots: int) -> float:
    waves = math.ceil(stage.tasks / slots)
    wall = stage.wall_seconds
    return wall * (waves - 1) / waves if waves > 1 and math.isfinite(wall) else 0.0
