"""The threshold policy: backlog against two thresholds, one instance at a time.

Elastic Pulsar Functions (Auto-DaSP 2021), section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import ExpectedEffect, Hold, Proposal
from penstock.decide.ranges import require, require_limits
from penstock.decide.units import Unit, UnitReader, resized


@dataclass(frozen=True, slots=True)
class ThresholdSettings:
    """Thresholds in records, with the values of section 5.1; limits in instances (or executors)."""

    scale_in_records: float = 50.0
    """T_in: a backlog in [0, T_in] is low load."""
    scale_out_records: float = 150.0
    """T_out: a backlog in (T_out, ∞) is overload."""
    min_instances: int = 1
    max_instances: int = 64
    unscalable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        require("scale_in_records", self.scale_in_records, above=False)
        require("scale_out_records", self.scale_out_records, self.scale_in_records)
        require_limits(self.min_instances, self.max_instances)


class ThresholdPolicy:
    """Adds an instance where the backlog is over T_out, ends one where it is at most T_in."""

    name = "threshold"

    def __init__(self, settings: ThresholdSettings) -> None:
        self._settings = settings
        self._reader = UnitReader(settings.unscalable)

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Move every unit whose backlog is out of range by one instance."""
        units = self._reader.read(window)
        if isinstance(units, NotReady):
            return units
        steps = {unit.name: self._step(unit) for unit in units if unit.scalable}
        changes = {unit.name: unit.held + steps[unit.name] for unit in units if steps.get(unit.name)}
        figures = {"backlog_records": sum(unit.backlog for unit in units)}
        if not changes:
            return Hold(self._hold_reason(units), figures)
        reason = "; ".join(self._told(unit, changes[unit.name]) for unit in units if unit.name in changes)
        limits = self._limits(units)
        effect = ExpectedEffect(f"backlogs in the range {self._range()}")
        return resized(window, changes, f"{reason}; {limits}" if limits else reason, effect)

    def _step(self, unit: Unit) -> int:
        settings = self._settings
        if unit.backlog > settings.scale_out_records:
            return 1 if unit.held < settings.max_instances else 0
        if unit.backlog <= settings.scale_in_records:
            return -1 if unit.held > settings.min_instances else 0
        return 0

    def _told(self, unit: Unit, wanted: int) -> str:
        settings, change = self._settings, f"{unit.name} {unit.held} → {wanted}"
        if wanted > unit.held:
            return f"{change}: its backlog of {unit.backlog:,.0f} is over {settings.scale_out_records:,.0f}"
        return f"{change}: its backlog of {unit.backlog:,.0f} is at most {settings.scale_in_records:,.0f}"

    def _hold_reason(self, units: Sequence[Unit]) -> str:
        limits = self._limits(units)
        worst = max((unit.backlog for unit in units), default=0.0)
        told = f"no backlog asks for a change: the largest is {worst:,.0f}, the range {self._range()}"
        return f"{told}; {limits}" if limits else told

    def _limits(self, units: Sequence[Unit]) -> str:
        """Name what is overloaded and may not grow; low load at the lower limit is not worth a word."""
        over = [unit for unit in units if unit.backlog > self._settings.scale_out_records]
        told = []
        for unit in over:
            if not unit.scalable:
                told.append(f"{unit.name} is overloaded and cannot be scaled")
            elif unit.held >= self._settings.max_instances:
                told.append(f"{unit.name} is overloaded and holds the most allowed, {unit.held}")
        return "; ".join(told)

    def _range(self) -> str:
        return f"{self._settings.scale_in_records:,.0f} to {self._settings.scale_out_records:,.0f} records"
