"""AuTraScale's first phase: the least size that gives all the throughput there is (section III-C)."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from penstock.decide.autrascale_score import Size

KEPT_READINGS = 5
"""Medians are taken over so many windows: enough against outliers, few enough to follow a change."""

SHORT = 0.05
"""Share of the offered rate by which the observed one may fall short before that is believed."""

SAME_THROUGHPUT = 0.03
"""In the review, throughputs that differ by less than this are alike, and the smaller size is chosen."""

NEAR = 1.5
"""Up to so many times the recommended size, a utilisation band may keep what is held; beyond it is waste."""


FALLING = 0.8
"""A latency that fell to this share of the one before was still on its way; no noise is as large."""

SHRINKING = 0.99
"""A backlog that is at most this share of the one a window ago is being read, and not just waiting."""


@dataclass(slots=True)
class Readings:
    """What was measured at one size since it is held; the windows right after a change do not count."""

    size: Size
    skipped: int = 0
    latencies: list[float] = field(default_factory=list)
    observed: list[float] = field(default_factory=list)
    offered: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    """The largest share of its instances that a unit needs, un-rounded."""
    totals: list[float] = field(default_factory=list)
    """Instances needed in all."""
    backlog_seconds: float | None = None

    @property
    def count(self) -> int:
        """Windows measured, up to those kept."""
        return len(self.observed)

    def add(self, observed: float, offered: float, load: float, total: float) -> None:
        """Take in one window; the oldest is dropped."""
        pairs = zip(
            (self.observed, self.offered, self.loads, self.totals),
            (observed, offered, load, total),
            strict=True,
        )
        for values, value in pairs:
            values.append(value)
            del values[:-KEPT_READINGS]

    def add_latency(self, seconds: float) -> None:
        """Take in the latency of a window that has one; what came before a steep fall tells nothing."""
        if self.latencies and seconds < FALLING * self.latencies[-1]:
            self.latencies.clear()
        self.latencies.append(seconds)
        del self.latencies[:-KEPT_READINGS]

    def is_draining(self, backlog_seconds: float, target_seconds: float) -> bool:
        """Whether the latency of this window is that of an older backlog, and not of the size."""
        before, self.backlog_seconds = self.backlog_seconds, backlog_seconds
        if before is None:
            return backlog_seconds > target_seconds
        return before > target_seconds and backlog_seconds <= SHRINKING * before

    @property
    def latency(self) -> float:
        """The median latency seen at this size."""
        return statistics.median(self.latencies)

    @property
    def throughput(self) -> float:
        """The median observed rate at this size."""
        return statistics.median(self.observed)

    @property
    def falls_short(self) -> bool:
        """Whether less is read than is offered."""
        return self.throughput < (1 - SHORT) * statistics.median(self.offered)


@dataclass(frozen=True, slots=True)
class Base:
    """The end of the phase: the size that throughput needs; `limited` when the rate is not reached by it."""

    size: Size
    limited: bool


@dataclass(slots=True)
class ThroughputPhase:
    """Goes from recommendation to recommendation until two are equal, then reviews what was seen.

    The recommendation is DS2's, from which equation 3 is taken; un-rounded rates flow downstream, since an
    operator that was rounded up passes on no more records than it gets.
    """

    most_steps: int
    patience: int
    seen: dict[Size, float] = field(default_factory=dict)
    """Size → observed rate, for every size that was held in this phase."""
    waited: int = 0
    last: Size | None = None

    def note(self, readings: Readings) -> None:
        """Remember how far the held size comes, and for how long it is held."""
        self.waited = self.waited + 1 if readings.size == self.last else 1
        self.last = readings.size
        self.seen[readings.size] = readings.throughput

    def ended(self, need: Size, readings: Readings) -> Base | None:
        """The base, once two recommendations are equal, or once no further step is made."""
        held = readings.size
        if need != held and not self._is_stuck(need, readings):
            return None
        if not readings.falls_short:
            return Base(held, limited=False)
        # a start that is slow to read must not pass for a limit that lasts
        return self._reviewed() if readings.count >= KEPT_READINGS else None

    def _is_stuck(self, need: Size, readings: Readings) -> bool:
        """Whether steps lead nowhere, or guardrails keep a size that serves, close to the recommended one."""
        if len(self.seen) > self.most_steps:
            return True
        close = all(held <= NEAR * wanted for held, wanted in zip(readings.size, need, strict=True))
        return self.waited > self.patience and close and not readings.falls_short

    def _reviewed(self) -> Base:
        """The smallest of the sizes that came as far as any: more brought nothing (section V-B)."""
        most = max(self.seen.values())
        alike = [size for size, rate in self.seen.items() if rate >= (1 - SAME_THROUGHPUT) * most]
        return Base(min(alike, key=lambda size: (sum(size), size)), limited=True)
