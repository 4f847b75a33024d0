"""Baselines: one figure against its target, as KEDA scales by lag or rate and Kubernetes' HPA by CPU.

All end in the HPA: wanted = ceil(held · figure / target), nothing within a tolerance, growth bounded in each
step, and for a reduction the largest size that was wanted within the stabilisation time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.policy import ExpectedEffect, Hold, Proposal
from penstock.decide.readings import Unit, UnitReader, scale_units
from penstock.units.fields import Duration, Ratio
from penstock.units.section import Section

SMALLEST_GROWTH = 4
"""Instances that a step may always add, so that one instance need not double its way up (HPA)."""
LARGEST_GROWTH = 2.0
"""A step at most doubles the size, or adds four where that is more (HPA)."""
BUSIEST = 0.8
"""No instance can be busier than all the time, so a share of one would never ask for more (HPA)."""


class ReactiveSettings(Section):
    """Settings of these rules, with the HPA's own defaults where it has one."""

    prefix: ClassVar[str] = "reactive_"

    records_per_instance: Ratio = Field(
        1000.0, gt=0, le=1_000_000_000, description="The lag that reactive-lag allows for each instance."
    )
    rate_per_instance: Ratio = Field(
        1000.0,
        gt=0,
        le=1_000_000_000,
        description="The records offered in a second for which reactive-rate wants one instance.",
    )
    tolerance: Ratio = Field(
        0.1, ge=0, le=1, description="The reactive policies change nothing within this share of their target."
    )
    stabilisation_seconds: Duration = Field(
        300.0, ge=0, le=86400, description="The reactive policies shrink to the largest need of this time."
    )


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with a target: how many times its target a unit has, and how that is told."""

    ratio: Callable[[Unit], float]
    told: Callable[[Unit], str]
    aim: str


def lag_figure(each: float) -> Figure:
    """Follow lag as KEDA does: the records that wait, over those that the instances held may have."""
    return Figure(
        ratio=lambda unit: unit.backlog / (unit.held * each),
        told=lambda unit: f"{unit.backlog:,.0f} records wait, {each:,.0f} are right for an instance",
        aim=f"at most {each:,.0f} records wait for each instance",
    )


def rate_figure(each: float, offered: Callable[[], float]) -> Figure:
    """Follow the offered rate as KEDA does: records in a second, over those of the instances held."""
    return Figure(
        ratio=lambda unit: offered() / (unit.held * each),
        told=lambda unit: f"{offered():,.0f} records/s are offered, {each:,.0f}/s are right for an instance",
        aim=f"at most {each:,.0f} records/s are offered for each instance",
    )


def busy_figure(right: float) -> Figure:
    """Follow CPU as the HPA does: the share of their time that instances work, over the right share."""
    return Figure(
        ratio=lambda unit: unit.busy / right,
        told=lambda unit: f"busy for {unit.busy:.0%} of the time, {right:.0%} is right",
        aim=f"instances are busy for {right:.0%} of the time",
    )


class ReactiveCpuPolicy:
    """Follows how busy instances are, and asks neither for the cause nor for what the dataflow passes on."""

    name = "reactive-cpu"

    def __init__(self, settings: ReactiveSettings, bounds: SizeBounds, goals: Goals) -> None:
        self._settings, self._bounds = settings, bounds
        self._figure = self._follow(settings, goals)
        self._reader = UnitReader(goals.unscalable)
        self._recent: dict[str, deque[tuple[float, int]]] = {}

    def _follow(self, settings: ReactiveSettings, goals: Goals) -> Figure:
        return busy_figure(min(goals.utilisation, BUSIEST))

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Bring the figure of every unit to its target."""
        units = self._reader.read(window)
        if isinstance(units, NotReady):
            return units
        unmeasured = [unit.name for unit in units if not 0 <= self._figure.ratio(unit) < math.inf]
        if unmeasured:
            return NotReady(f"the load of {unmeasured[0]} was not measured", "useful time of its work")
        sizes = {unit.name: self._size(unit, window.end) if unit.scalable else unit.held for unit in units}
        changes = {unit.name: sizes[unit.name] for unit in units if sizes[unit.name] != unit.held}
        told = self._explain(units, changes)
        return scale_units(window, changes, told, ExpectedEffect(self._figure.aim)) if changes else Hold(told)

    def _size(self, unit: Unit, now: float) -> int:
        settings, ratio = self._settings, self._figure.ratio(unit)
        wanted = unit.held if abs(ratio - 1) <= settings.tolerance else math.ceil(unit.held * ratio)
        bounded = self._bounds.clamp(wanted)
        largest = self._largest_recent(unit, now, bounded)
        if bounded < unit.held:
            return min(unit.held, largest)
        growth = max(int(unit.held * LARGEST_GROWTH), unit.held + SMALLEST_GROWTH)
        return min(bounded, growth)

    def _largest_recent(self, unit: Unit, now: float, wanted: int) -> int:
        """Return the largest size wanted within the stabilisation time, the first held size included."""
        recent = self._recent.setdefault(unit.name, deque([(now, unit.held)]))
        recent.append((now, wanted))
        while len(recent) > 1 and recent[0][0] <= now - self._settings.stabilisation_seconds:
            recent.popleft()
        return max(size for _, size in recent)

    def _explain(self, units: Sequence[Unit], changes: Mapping[str, int]) -> str:
        if changes:
            moved = (unit for unit in units if unit.name in changes)
            return "; ".join(f"{u.name} {u.held} → {changes[u.name]}: {self._figure.told(u)}" for u in moved)
        highest = max(units, key=self._figure.ratio, default=None)
        if highest is None:
            return "there is nothing to scale"
        return f"nothing is changed now; the highest load: {highest.name}, {self._figure.told(highest)}"


class ReactiveLagPolicy(ReactiveCpuPolicy):
    """Follows the records that wait for each instance instead."""

    name = "reactive-lag"

    def _follow(self, settings: ReactiveSettings, goals: Goals) -> Figure:
        return lag_figure(settings.records_per_instance)


class ReactiveRatePolicy(ReactiveCpuPolicy):
    """Follows the records that sources are offered in a second instead, whatever an instance can do."""

    name = "reactive-rate"

    def _follow(self, settings: ReactiveSettings, goals: Goals) -> Figure:
        self._offered = 0.0
        return rate_figure(settings.rate_per_instance, lambda: self._offered)

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Bring the rate for each instance to its target."""
        sources = [source for query in window.queries for source in query.sources.values()]
        self._offered = sum(source.offered_per_second for source in sources)
        return super().propose(window)
