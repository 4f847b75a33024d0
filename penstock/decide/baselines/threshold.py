"""The threshold policy: backlog against two thresholds, one instance at a time.

Elastic Pulsar Functions (Auto-DaSP 2021), section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.policy import ExpectedEffect, Hold, Proposal
from penstock.decide.readings import Unit, UnitReader, scale_units
from penstock.units.fields import Ratio
from penstock.units.section import Section


class ThresholdSettings(Section):
    """Thresholds in records, with the values of section 5.1."""

    prefix: ClassVar[str] = "threshold_"
    below: ClassVar = ("scale_in_records", "scale_out_records")

    scale_in_records: Ratio = Field(
        50.0,
        ge=0,
        le=1_000_000_000,
        description="T_in of the threshold policy: a backlog up to this is low load.",
    )
    scale_out_records: Ratio = Field(
        150.0,
        gt=0,
        le=1_000_000_000,
        description="T_out of the threshold policy: a backlog above this is overload.",
    )


class ThresholdPolicy:
    """Adds an instance where the backlog is over T_out, ends one where it is at most T_in."""

    name = "threshold"

    def __init__(self, settings: ThresholdSettings, bounds: SizeBounds, goals: Goals) -> None:
        self._settings, self._bounds = settings, bounds
        self._reader = UnitReader(goals.unscalable)

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Move every unit whose backlog is out of range by one instance."""
        units = self._reader.read(window)
        if isinstance(units, NotReady):
            return units
        steps = {unit.name: self._step(unit) for unit in units if unit.scalable}
        changes = {unit.name: unit.held + steps[unit.name] for unit in units if steps.get(unit.name)}
        figures = {"backlog_records": sum(unit.backlog for unit in units)}
        if not changes:
            return Hold(self._explain_hold(units), figures)
        reason = "; ".join(self._explain(unit, changes[unit.name]) for unit in units if unit.name in changes)
        limits = self._explain_limits(units)
        effect = ExpectedEffect(f"backlogs in the range {self._write_range()}")
        return scale_units(window, changes, f"{reason}; {limits}" if limits else reason, effect)

    def _step(self, unit: Unit) -> int:
        settings = self._settings
        if unit.backlog > settings.scale_out_records:
            return 1 if unit.held < self._bounds.most else 0
        if unit.backlog <= settings.scale_in_records:
            return -1 if unit.held > self._bounds.least else 0
        return 0

    def _explain(self, unit: Unit, wanted: int) -> str:
        settings, change = self._settings, f"{unit.name} {unit.held} → {wanted}"
        if wanted > unit.held:
            return f"{change}: its backlog of {unit.backlog:,.0f} is over {settings.scale_out_records:,.0f}"
        return f"{change}: its backlog of {unit.backlog:,.0f} is at most {settings.scale_in_records:,.0f}"

    def _explain_hold(self, units: Sequence[Unit]) -> str:
        limits = self._explain_limits(units)
        worst = max((unit.backlog for unit in units), default=0.0)
        told = f"no backlog asks for a change: the largest is {worst:,.0f}, the range {self._write_range()}"
        return f"{told}; {limits}" if limits else told

    def _explain_limits(self, units: Sequence[Unit]) -> str:
        """Name what is overloaded and may not grow; low load at the lower limit is not worth a word."""
        over = [unit for unit in units if unit.backlog > self._settings.scale_out_records]
        told = []
        for unit in over:
            if not unit.scalable:
                told.append(f"{unit.name} is overloaded and cannot be scaled")
            elif unit.held >= self._bounds.most:
                told.append(f"{unit.name} is overloaded and holds the most allowed, {unit.held}")
        return "; ".join(told)

    def _write_range(self) -> str:
        return f"{self._settings.scale_in_records:,.0f} to {self._settings.scale_out_records:,.0f} records"
