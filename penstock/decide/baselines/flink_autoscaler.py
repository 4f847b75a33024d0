"""Baseline: the autoscaler of Flink's Kubernetes operator, by its published rules and with its defaults.

Rates are averages over a window of many minutes. Of every operator the capacity that it should have is
lag / catch-up time + input rate · restart time / catch-up time + input rate / utilisation. Nothing is changed
while what it has lies between the capacities for the utilisation plus and minus its boundary, and nothing
within the stabilisation time after a change. Growth is done at once; a reduction waits for an hour, and the
largest size asked for in it counts. What is left out: sizes that divide the number of key groups, which only
makes it larger, and metrics of an engine that this one does not have.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, OperatorWindow, SlotWindow
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.policy import ExpectedEffect, Hold, Proposal
from penstock.decide.readings import Unit, UnitReader, scale_units
from penstock.units.fields import Duration, Ratio
from penstock.units.section import Section


class FlinkSettings(Section):
    """Settings of Flink's autoscaler under its own names, with its own defaults; times in seconds."""

    prefix: ClassVar[str] = "flink_"

    metrics_window: Duration = Field(
        900.0, gt=0, le=86400, description="Over how long flink-autoscaler takes the mean of its metrics."
    )
    stabilization_interval: Duration = Field(
        300.0, ge=0, le=86400, description="How long flink-autoscaler changes nothing after a change."
    )
    utilization_target: Ratio = Field(
        0.7, gt=0, le=1, description="The share of its capacity that flink-autoscaler sizes an operator for."
    )
    utilization_boundary: Ratio = Field(
        0.3, ge=0, le=1, description="By how much flink-autoscaler lets that share be missed."
    )
    restart_time: Duration = Field(
        300.0, ge=0, le=86400, description="How long flink-autoscaler takes a restart to last."
    )
    catch_up_duration: Duration = Field(
        1800.0,
        ge=0,
        le=86400,
        description="In which time flink-autoscaler works off a backlog; 0 ignores it.",
    )
    scale_down_interval: Duration = Field(
        3600.0, ge=0, le=604800, description="How long flink-autoscaler delays a reduction, to merge several."
    )
    scale_down_max_factor: Ratio = Field(
        0.6, gt=0, le=1, description="The share of its size that flink-autoscaler takes away at the most."
    )


DOCUMENTED_EXAMPLE: Mapping[str, float] = {
    "flink_stabilization_interval": 60.0,
    "flink_metrics_window": 300.0,
    "flink_utilization_target": 0.6,
    "flink_utilization_boundary": 0.2,
    "flink_restart_time": 120.0,
    "flink_catch_up_duration": 300.0,
}
"""The settings of the example in its documentation."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One operator in one window: records in a second offered to it, and that it could take; its backlog."""

    end: float
    offered: float
    capacity: float
    backlog: float


def target_capacity(
    offered: float, backlog: float, utilization: float, settings: FlinkSettings, with_restart: bool
) -> float:
    """Return the records a second that an operator should be able to take (getTargetProcessingCapacity)."""
    catch_up, share = settings.catch_up_duration, min(1.0, max(0.0, utilization))
    if share == 0:
        return math.inf
    lag = backlog / catch_up if catch_up else 0.0
    restart = offered * settings.restart_time / catch_up if catch_up and with_restart else 0.0
    return lag + restart + offered / share


class FlinkAutoscalerPolicy:
    """Follows means over many minutes, and sizes for restarts and backlogs besides."""

    name = "flink-autoscaler"

    def __init__(self, settings: FlinkSettings, bounds: SizeBounds, goals: Goals) -> None:
        self._settings, self._bounds = settings, bounds
        self._reader = UnitReader(goals.unscalable)
        self._readings: dict[str, deque[Reading]] = {}
        self._wanted: dict[str, deque[tuple[float, int]]] = {}
        self._held: dict[str, int] = {}
        self._changed_at = -math.inf
        self._began_at: float | None = None

    def watch(self, window: ApplicationWindow) -> None:
        """Keep metrics also while a size changes; what was seen with another size counts no more."""
        units = self._reader.read(window)
        held = dict(window.parallelism)
        if self._held and held != self._held:
            self._changed_at = window.end
            self._readings.clear()
            self._wanted.clear()
        self._held = held
        self._began_at = window.start if self._began_at is None else self._began_at
        if isinstance(units, NotReady):
            return
        for unit in units:
            reading = _read_unit(unit, window)
            if reading is not None:
                kept = self._readings.setdefault(unit.name, deque())
                kept.append(reading)
                while kept[0].end <= window.end - self._settings.metrics_window:
                    kept.popleft()

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Bring every operator to the capacity that it should have, if it is too far from it."""
        self.watch(window)
        units = self._reader.read(window)
        if isinstance(units, NotReady):
            return units
        steady_from = max(self._changed_at, self._began_at or 0.0) + self._settings.stabilization_interval
        if window.end < steady_from:
            return NotReady("the size is to stabilise first", "the end of that time", steady_from)
        full_from = max(self._changed_at, self._began_at or 0.0) + self._settings.metrics_window
        if window.end < full_from:
            return NotReady("the window of metrics is not full", "more metrics", full_from)
        changes = {unit.name: size for unit in units if (size := self._size(unit, window.end)) != unit.held}
        told = "; ".join(
            f"{unit.name} {unit.held} → {changes[unit.name]}" for unit in units if unit.name in changes
        )
        if not changes:
            return Hold("every operator is within its boundaries, or a reduction is delayed")
        return scale_units(window, changes, told, ExpectedEffect("operators as busy as is asked for"))

    def _size(self, unit: Unit, now: float) -> int:
        """Return the size of one unit: growth at once, a reduction after its delay."""
        kept = self._readings.get(unit.name)
        if not kept or not unit.scalable:
            return unit.held
        wanted = self._compute(unit.held, kept)
        if wanted > unit.held:
            return wanted
        asked = self._wanted.setdefault(unit.name, deque())
        if wanted == unit.held:
            asked.clear()
            return unit.held
        asked.append((now, wanted))
        if now - asked[0][0] < self._settings.scale_down_interval:
            return unit.held
        return max(size for _, size in asked)

    def _compute(self, held: int, kept: deque[Reading]) -> int:
        settings, newest = self._settings, kept[-1]
        offered = sum(one.offered for one in kept) / len(kept)
        capacity = sum(one.capacity for one in kept) / len(kept)
        target, boundary = settings.utilization_target, settings.utilization_boundary
        least = target_capacity(offered, newest.backlog, target + boundary, settings, with_restart=False)
        most = target_capacity(offered, newest.backlog, target - boundary, settings, with_restart=True)
        if capacity <= 0 or least <= capacity <= most:
            return held
        right = target_capacity(offered, newest.backlog, target, settings, with_restart=True)
        factor = max(right / capacity, 1 - settings.scale_down_max_factor)
        return self._bounds.clamp(math.ceil(held * factor - 1e-9))


def _read_unit(unit: Unit, window: ApplicationWindow) -> Reading | None:
    """Read what is offered to a unit and what it could take; None where it did nothing."""
    if not (0 < unit.busy < math.inf):
        return None
    if isinstance(window, SlotWindow):
        sources = [source for query in window.queries for source in query.sources.values()]
        offered = sum(source.offered_per_second for source in sources)
        read = sum(source.observed_per_second for source in sources)
        return (
            Reading(window.end, offered, read / unit.busy, unit.backlog) if unit.name == EXECUTORS else None
        )
    return Reading(window.end, _find_offered(unit, window), unit.taken / unit.busy, unit.backlog)


def _find_offered(unit: Unit, window: OperatorWindow) -> float:
    """Return what an operator would be fed if sources were read at their offered rates."""
    query = next(one for one in window.queries if unit.name in one.graph.index)
    offered = sum(source.offered_per_second for source in query.sources.values())
    read = sum(source.observed_per_second for source in query.sources.values())
    return unit.taken * offered / read if read > 0 else unit.taken
