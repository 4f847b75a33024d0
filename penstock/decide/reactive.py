"""Baselines: one figure against its target, as KEDA scales by lag and Kubernetes' HPA by CPU.

Both end in the HPA: wanted = ceil(held · figure / target), nothing within a tolerance, growth bounded in each
step, and for a reduction the largest size that was wanted within the stabilisation time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import ExpectedEffect, Hold, Proposal
from penstock.decide.ranges import require, require_limits
from penstock.decide.units import Unit, UnitReader, resized


@dataclass(frozen=True, slots=True)
class ReactiveSettings:
    """Settings of both rules, with the HPA's own defaults where it has one."""

    records_per_instance: float = 1000.0
    """The lag that one instance may have (KEDA's lagThreshold)."""
    busy_share: float = 0.8
    """The share of its time that an instance should work (HPA's average utilisation)."""
    tolerance: float = 0.1
    """No change while the figure is within this share of its target."""
    stabilisation_seconds: float = 300.0
    """A reduction goes no further than the largest size wanted within this time."""
    largest_growth: float = 2.0
    """A step at most doubles the size, or adds four where that is more."""
    min_instances: int = 1
    max_instances: int = 64
    unscalable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        require("records_per_instance", self.records_per_instance)
        require("busy_share", self.busy_share, 0, 1)
        require("tolerance", self.tolerance, 0, 1, above=False)
        require("stabilisation_seconds", self.stabilisation_seconds, above=False)
        require("largest_growth", self.largest_growth, 1)
        require_limits(self.min_instances, self.max_instances)


SMALLEST_GROWTH = 4
"""Instances that a step may always add, so that one instance need not double its way up (HPA)."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What is compared with a target: how many times its target a unit has, and how that is told."""

    policy: str
    ratio: Callable[[Unit], float]
    told: Callable[[Unit], str]
    aim: str


def lag(settings: ReactiveSettings) -> Figure:
    """KEDA's rule for a topic: the records that wait, over those that the instances held may have."""
    each = settings.records_per_instance
    return Figure(
        policy="reactive-lag",
        ratio=lambda unit: unit.backlog / (unit.held * each),
        told=lambda unit: f"{unit.backlog:,.0f} records wait, {each:,.0f} are right for an instance",
        aim=f"at most {each:,.0f} records wait for each instance",
    )


def cpu(settings: ReactiveSettings) -> Figure:
    """The HPA's rule for CPU: the share of their time that instances work, over the share that is right."""
    right = settings.busy_share
    return Figure(
        policy="reactive-cpu",
        ratio=lambda unit: unit.busy / right,
        told=lambda unit: f"busy for {unit.busy:.0%} of the time, {right:.0%} is right",
        aim=f"instances are busy for {right:.0%} of the time",
    )


class ReactivePolicy:
    """Follows one figure and asks neither for its cause nor for what the dataflow passes on."""

    def __init__(self, settings: ReactiveSettings, figure: Figure) -> None:
        self._settings = settings
        self._figure = figure
        self._reader = UnitReader(settings.unscalable)
        self._recent: dict[str, deque[tuple[float, int]]] = {}

    @property
    def name(self) -> str:
        """`reactive-lag` or `reactive-cpu`."""
        return self._figure.policy

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
        told = self._told(units, changes)
        return resized(window, changes, told, ExpectedEffect(self._figure.aim)) if changes else Hold(told)

    def _size(self, unit: Unit, now: float) -> int:
        settings, ratio = self._settings, self._figure.ratio(unit)
        wanted = unit.held if abs(ratio - 1) <= settings.tolerance else math.ceil(unit.held * ratio)
        bounded = min(max(wanted, settings.min_instances), settings.max_instances)
        largest = self._largest_recent(unit, now, bounded)
        if bounded < unit.held:
            return min(unit.held, largest)
        growth = max(int(unit.held * settings.largest_growth), unit.held + SMALLEST_GROWTH)
        return min(bounded, growth)

    def _largest_recent(self, unit: Unit, now: float, wanted: int) -> int:
        """The largest size wanted within the stabilisation time, which begins with the size first held."""
        recent = self._recent.setdefault(unit.name, deque([(now, unit.held)]))
        recent.append((now, wanted))
        while len(recent) > 1 and recent[0][0] <= now - self._settings.stabilisation_seconds:
            recent.popleft()
        return max(size for _, size in recent)

    def _told(self, units: Sequence[Unit], changes: Mapping[str, int]) -> str:
        if changes:
            moved = (unit for unit in units if unit.name in changes)
            return "; ".join(f"{u.name} {u.held} → {changes[u.name]}: {self._figure.told(u)}" for u in moved)
        highest = max(units, key=self._figure.ratio, default=None)
        if highest is None:
            return "there is nothing to scale"
        return f"nothing is changed now; the highest load: {highest.name}, {self._figure.told(highest)}"
