"""Baseline: Dhalion's rules as DS2's paper describes them (DS2 sections 2 and 5.2; Dhalion, PVLDB 2017).

Backpressure names one bottleneck at a time; an action that did not help is not tried again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, Execution, QueryWindow
from penstock.decide.policy import ExpectedEffect, Hold, Proposal
from penstock.decide.ranges import require, require_limits
from penstock.decide.units import Unit, UnitReader, resized

UP, DOWN = "up", "down"


@dataclass(frozen=True, slots=True)
class DhalionSettings:
    """Settings of the rules; shares as fractions of one, limits in instances (or executors)."""

    backpressure_share: float = 0.1
    """Sources held back by more than this share of what they are offered mean backpressure."""
    most_backpressure: float = 0.9
    """The share that a step reckons with at most, so that a source at a standstill asks for tenfold."""
    least_gain: float = 0.05
    """An action that lowers backpressure by a smaller share of it is blacklisted."""
    patience_windows: int = 3
    """Windows in which an action has to show its effect; full queues take their time to empty."""
    scale_down_share: float = 0.2
    """The share of its instances that an operator without a queue gives up."""
    empty_queue_seconds: float = 1.0
    """A backlog of less than what arrives in this time counts as no queue."""
    forget_change: float = 0.2
    """The blacklist is for one situation: it is cleared when the offered rate moves by this share."""
    min_instances: int = 1
    max_instances: int = 64
    unscalable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        require("backpressure_share", self.backpressure_share, 0, 1)
        require("most_backpressure", self.most_backpressure, self.backpressure_share, 0.99)
        require("least_gain", self.least_gain, 0, 1)
        require("patience_windows", self.patience_windows, 1, above=False)
        require("scale_down_share", self.scale_down_share, 0, 1)
        require("empty_queue_seconds", self.empty_queue_seconds, above=False)
        require("forget_change", self.forget_change)
        require_limits(self.min_instances, self.max_instances)


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

    def __init__(self, settings: DhalionSettings) -> None:
        self._settings = settings
        self._reader = UnitReader(settings.unscalable)
        self._blacklist: set[tuple[str, str]] = set()
        self._tried: _Tried | None = None
        self._offered = 0.0
        self._queued: dict[str, float] = {}

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Look for the symptom, take the one action that its diagnosis asks for."""
        units = self._reader.read(window)
        if isinstance(units, NotReady):
            return units
        pressure = _worst_pressure(window)
        if isinstance(pressure, NotReady):
            return pressure
        if not self._is_symptom(pressure):
            pressure = max([pressure, *self._growing_queues(window, units, pressure.offered)], key=_share)
        self._queued = {unit.name: unit.queued for unit in units}
        waiting_for_effect = self._review(units, pressure)
        if waiting_for_effect is not None:
            return waiting_for_effect
        if self._is_symptom(pressure):
            return self._grow(window, _of_query(units, pressure.query, window), pressure)
        waiting = sum(unit.backlog for unit in units)
        if waiting > self._settings.empty_queue_seconds * self._offered:
            return Hold(f"no backpressure; a backlog of {waiting:,.0f} still waits", _figures(pressure))
        return self._shrink(window, units, pressure)

    def _growing_queues(
        self, window: ApplicationWindow, units: Sequence[Unit], offered: float
    ) -> Iterator[_Pressure]:
        """Queues that hold everything exert no backpressure: there the growth of a queue is the symptom."""
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
        solved = lessened or not suffers or _bottleneck(units, pressure).name != tried.unit
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
            unit
            for unit in units
            if unit.scalable and unit.held < self._settings.max_instances and self._may(unit, UP)
        ]
        if not free:
            return Hold(f"{told}, and nothing is left to try{self._tried_in_vain()}", _figures(pressure))
        bottleneck = _bottleneck(free, pressure)
        share = min(pressure.share, self._settings.most_backpressure)
        # a share b of the time is lost, so the operator does in 1 − b what it should do in 1
        wanted = min(self._settings.max_instances, math.ceil(bottleneck.held / (1 - share) * (1 - 1e-9)))
        reason = f"{bottleneck.name} {bottleneck.held} → {wanted}: {told}, and it is the bottleneck"
        return self._act(window, bottleneck, UP, max(wanted, bottleneck.held + 1), reason, pressure)

    def _shrink(self, window: ApplicationWindow, units: Sequence[Unit], pressure: _Pressure) -> Proposal:
        free = [
            unit
            for unit in units
            if unit.scalable and unit.held > self._settings.min_instances and self._may(unit, DOWN)
        ]
        if not free:
            return Hold(f"no backpressure and no queue{self._tried_in_vain()}", _figures(pressure))
        idlest = min(free, key=lambda unit: 0.0 if math.isnan(unit.busy) else unit.busy)
        fewer = max(1, int(idlest.held * self._settings.scale_down_share))
        wanted = max(self._settings.min_instances, idlest.held - fewer)
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
        return resized(window, {unit.name: wanted}, reason, ExpectedEffect(summary, _figures(pressure)))

    def _may(self, unit: Unit, direction: str) -> bool:
        return (unit.name, direction) not in self._blacklist

    def _tried_in_vain(self) -> str:
        listed = ", ".join(f"{name} {direction}" for name, direction in sorted(self._blacklist))
        return f"; blacklisted: {listed}" if listed else ""


def _worst_pressure(window: ApplicationWindow) -> _Pressure | NotReady:
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
    return max(found, key=_share)


def _bottleneck(units: Sequence[Unit], pressure: _Pressure) -> Unit:
    """The operator whose queue grows, else the one before which most waits, else the busiest."""
    return max(units, key=lambda unit: (unit.name == pressure.bottleneck, unit.backlog, unit.busy))


def _share(pressure: _Pressure) -> float:
    return pressure.share


def _of_query(units: Sequence[Unit], query: QueryWindow, window: ApplicationWindow) -> list[Unit]:
    names = {EXECUTORS} if window.execution is Execution.SHARED_SLOTS else set(query.graph.index)
    return [unit for unit in units if unit.name in names]


def _figures(pressure: _Pressure) -> dict[str, float]:
    return {"offered_per_second": pressure.offered, "backpressure_ratio": pressure.share}
