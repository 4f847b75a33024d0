"""Baseline: Dhalion's rules as DS2's paper describes them (DS2 sections 2 and 5.2; Dhalion, PVLDB 2017).

Backpressure names one bottleneck at a time; an action that did not help is not tried again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import ClassVar

from pydantic import Field

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, QueryWindow, SlotWindow
from penstock.decide.goals import Goals, SizeBounds
from penstock.decide.policy import ExpectedEffect, Hold, Proposal
from penstock.decide.readings import Unit, UnitReader, scale_units
from penstock.units.fields import Count, Ratio
from penstock.units.section import Section

UP, DOWN = "up", "down"
_SHARE = attrgetter("share")


class DhalionSettings(Section):
    """Settings of the rules; shares as fractions of one."""

    prefix: ClassVar[str] = "dhalion_"
    below: ClassVar = ("backpressure_share", "most_backpressure")

    backpressure_share: Ratio = Field(
        0.1, gt=0, lt=0.99, description="Sources held back by more than this share mean backpressure."
    )
    least_gain: Ratio = Field(
        0.05, gt=0, le=1, description="Dhalion blacklists what lowers backpressure by a smaller share of it."
    )
    patience_windows: Count = Field(
        3, ge=1, le=1000, description="Windows in which an action of Dhalion has to show its effect."
    )
    scale_down_share: Ratio = Field(
        0.2, gt=0, le=1, description="The share of its instances that Dhalion takes from an idle operator."
    )
    most_backpressure: Ratio = Field(0.9, gt=0, le=0.99)
    """The share that a step reckons with at most, so that a source at a standstill asks for tenfold."""
    empty_queue_seconds: Ratio = Field(1.0, ge=0)
    """A backlog of less than what arrives in this time counts as no queue."""
    forget_change: Ratio = Field(0.2, gt=0)
    """The blacklist is for one situation: it is cleared when the offered rate moves by this share."""


@dataclass(frozen=True, slots=True)
class _Pressure:
    """The share of its records that a query loses to waiting, where that is largest, and how it shows."""

    query: QueryWindow
    share: float
    offered: float
    bottleneck: str | None = None
    """The operator whose queue grows, where that is the symptom."""


@dataclass(frozen=True, slots=True)
class _Tried:
    unit: str
    direction: str
    wanted: int
    before: float
    windows: int = 0


class DhalionPolicy:
    """Scales the bottleneck behind backpressure, then trims what has no queue; one operator at a time."""

    name = "dhalion"

    def __init__(self, settings: DhalionSettings, bounds: SizeBounds, goals: Goals) -> None:
        self._settings, self._bounds = settings, bounds
        self._reader = UnitReader(goals.unscalable)
        self._blacklist: set[tuple[str, str]] = set()
        self._tried: _Tried | None = None
        self._offered = 0.0
        self._queued: dict[str, float] = {}

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Look for the symptom, take the one action that its diagnosis asks for."""
        units = self._reader.read(window)
        if isinstance(units, NotReady):
            return units
        pressure = _find_worst_pressure(window)
        if isinstance(pressure, NotReady):
            return pressure
        if not self._is_symptom(pressure):
            pressure = max(
                [pressure, *self._find_growing_queues(window, units, pressure.offered)], key=_SHARE
            )
        self._queued = {unit.name: unit.queued for unit in units}
        waiting_for_effect = self._review(units, pressure)
        if waiting_for_effect is not None:
            return waiting_for_effect
        if self._is_symptom(pressure):
            return self._grow(window, _list_of_query(units, pressure.query, window), pressure)
        waiting = sum(unit.backlog for unit in units)
        if waiting > self._settings.empty_queue_seconds * self._offered:
            return Hold(f"no backpressure; a backlog of {waiting:,.0f} still waits", _figures(pressure))
        return self._shrink(window, units, pressure)

    def _find_growing_queues(
        self, window: ApplicationWindow, units: Sequence[Unit], offered: float
    ) -> Iterator[_Pressure]:
        """Find queues that grow: one that holds everything exerts no backpressure."""
        seconds = window.end - window.start
        for query in window.queries:
            for unit in units:
                grown = unit.queued - self._queued.get(unit.name, math.inf)
                if unit.name in query.graph.index and seconds > 0 and grown > 0:
                    share = grown / (grown + unit.taken * seconds)
                    yield _Pressure(query, share, offered, unit.name)

    def _is_symptom(self, pressure: _Pressure) -> bool:
        return pressure.share > self._settings.backpressure_share

    def _review(self, units: Sequence[Unit], pressure: _Pressure) -> Hold | None:
        """Wait for the effect of the last action; blacklist it if it did not do what it was taken for."""
        if abs(pressure.offered - self._offered) > self._settings.forget_change * self._offered:
            self._blacklist.clear()
            self._offered, self._tried = pressure.offered, None
        tried, self._tried = self._tried, None
        if tried is None or (tried.unit, tried.wanted) not in {(unit.name, unit.held) for unit in units}:
            return None
        suffers = self._is_symptom(pressure)
        lessened = pressure.share <= tried.before * (1 - self._settings.least_gain)
        # another bottleneck that comes to light is another diagnosis, which says nothing against this action
        solved = lessened or not suffers or _find_bottleneck(units, pressure).name != tried.unit
        if tried.direction == UP and solved:
            return None
        seen = tried.windows + 1
        if seen < self._settings.patience_windows and (tried.direction == UP or not suffers):
            self._tried = replace(tried, windows=seen)
            return Hold(f"waits to see what {tried.wanted} of {tried.unit} bring", _figures(pressure))
        if suffers:
            self._blacklist.add((tried.unit, tried.direction))
        return None

    def _grow(self, window: ApplicationWindow, units: Sequence[Unit], pressure: _Pressure) -> Proposal:
        held_back = pressure.bottleneck is None
        symptom = "sources are held back" if held_back else f"the queue of {pressure.bottleneck} grows"
        told = f"{symptom} by {pressure.share:.0%}"
        free = [
            unit for unit in units if unit.scalable and unit.held < self._bounds.most and self._may(unit, UP)
        ]
        if not free:
            return Hold(f"{told}, and nothing is left to try{self._list_blacklist()}", _figures(pressure))
        bottleneck = _find_bottleneck(free, pressure)
        share = min(pressure.share, self._settings.most_backpressure)
        # a share b of the time is lost, so the operator does in 1 − b what it should do in 1
        wanted = min(self._bounds.most, math.ceil(bottleneck.held / (1 - share) * (1 - 1e-9)))
        reason = f"{bottleneck.name} {bottleneck.held} → {wanted}: {told}, and it is the bottleneck"
        return self._act(window, bottleneck, UP, max(wanted, bottleneck.held + 1), reason, pressure)

    def _shrink(self, window: ApplicationWindow, units: Sequence[Unit], pressure: _Pressure) -> Proposal:
        free = [
            unit
            for unit in units
            if unit.scalable and unit.held > self._bounds.least and self._may(unit, DOWN)
        ]
        if not free:
            return Hold(f"no backpressure and no queue{self._list_blacklist()}", _figures(pressure))
        idlest = min(free, key=lambda unit: 0.0 if math.isnan(unit.busy) else unit.busy)
        fewer = max(1, int(idlest.held * self._settings.scale_down_share))
        wanted = max(self._bounds.least, idlest.held - fewer)
        reason = f"{idlest.name} {idlest.held} → {wanted}: no backpressure and no queue, it may be too large"
        return self._act(window, idlest, DOWN, wanted, reason, pressure)

    def _act(
        self,
        window: ApplicationWindow,
        unit: Unit,
        direction: str,
        wanted: int,
        reason: str,
        pressure: _Pressure,
    ) -> Proposal:
        self._tried = _Tried(unit.name, direction, wanted, pressure.share)
        summary = "less backpressure" if direction == UP else "the same rate with fewer instances"
        return scale_units(window, {unit.name: wanted}, reason, ExpectedEffect(summary, _figures(pressure)))

    def _may(self, unit: Unit, direction: str) -> bool:
        return (unit.name, direction) not in self._blacklist

    def _list_blacklist(self) -> str:
        listed = ", ".join(f"{name} {direction}" for name, direction in sorted(self._blacklist))
        return f"; blacklisted: {listed}" if listed else ""


def _find_worst_pressure(window: ApplicationWindow) -> _Pressure | NotReady:
    found: list[_Pressure] = []
    offered = sum(
        query.sources[n].offered_per_second for query in window.queries for n in query.graph.sources
    )
    for query in window.queries:
        for name in query.graph.sources:
            source = query.sources[name]
            if not 0 <= source.observed_per_second < math.inf:
                return NotReady(f"the rate read from source {name!r} is unknown", "a reading of the source")
            offering = source.offered_per_second > 0
            share = 1 - source.observed_per_second / source.offered_per_second if offering else 0.0
            found.append(_Pressure(query, max(0.0, share), offered))
    return max(found, key=_SHARE)


def _find_bottleneck(units: Sequence[Unit], pressure: _Pressure) -> Unit:
    """Find the operator whose queue grows, else the one with the largest backlog, else the busiest."""
    return max(units, key=lambda unit: (unit.name == pressure.bottleneck, unit.backlog, unit.busy))


def _list_of_query(units: Sequence[Unit], query: QueryWindow, window: ApplicationWindow) -> list[Unit]:
    names = {EXECUTORS} if isinstance(window, SlotWindow) else set(query.graph.index)
    return [unit for unit in units if unit.name in names]


def _figures(pressure: _Pressure) -> dict[str, float]:
    return {"offered_per_second": pressure.offered, "backpressure_ratio": pressure.share}
