"""Baseline: the proposal for streaming in Spark that was not merged (SPARK-24815).

The time of a batch is compared with its trigger interval: over one share of it executors are added, twice as
many in each round; under another a part of them is taken away. What a batch costs is not asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median
from typing import ClassVar

from pydantic import Field

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, SlotWindow
from penstock.decide.goals import SizeBounds
from penstock.decide.policy import ExpectedEffect, Hold, Proposal, Scale
from penstock.decide.readings import count_held
from penstock.units.fields import Ratio
from penstock.units.section import Section


class TriggerIntervalSettings(Section):
    """Shares of the trigger interval as fractions of one."""

    prefix: ClassVar[str] = "trigger_interval_"
    below: ClassVar = ("scale_in_share", "scale_out_share")

    scale_out_share: Ratio = Field(
        0.9, gt=0, le=1, description="The share of its interval from which a batch asks for executors."
    )
    scale_in_share: Ratio = Field(
        0.5, gt=0, le=1, description="The share of its interval below which batches let executors go."
    )
    release_share: Ratio = Field(
        0.1, gt=0, le=1, description="The share of the executors that trigger-interval lets go at once."
    )


class TriggerIntervalPolicy:
    """Follows the slowest query's batch time over its trigger interval; remembers the round."""

    name = "trigger-interval"

    def __init__(self, settings: TriggerIntervalSettings, bounds: SizeBounds) -> None:
        self._settings, self._bounds = settings, bounds
        self._to_add = 1

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Compare the usual batch of each query with its interval; the slowest decides."""
        if not isinstance(window, SlotWindow):
            return NotReady("trigger-interval needs batches, and here operators run without them")
        held = count_held(window)
        if isinstance(held, NotReady):
            return held
        shares = dict(_measure_shares(window))
        if not shares:
            return NotReady("no batch of a query with a trigger interval finished", "such a batch")
        slowest = max(shares, key=lambda name: shares[name])
        return self._decide(held, slowest, shares[slowest])

    def _decide(self, held: int, query: str, share: float) -> Proposal:
        settings = self._settings
        told = f"batches of {query} take {share:.0%} of their interval"
        if share > settings.scale_out_share and held < self._bounds.most:
            return self._add(held, told, share)
        self._to_add = 1
        figures = {"utilisation_ratio": share}
        if share > settings.scale_out_share:
            return Hold(f"{told}, and no more than {self._bounds.most} executors are allowed", figures)
        if share < settings.scale_in_share and held > self._bounds.least:
            fewer = max(1, int(held * settings.release_share))
            wanted = max(self._bounds.least, held - fewer)
            reason = f"{held} → {wanted} executors: {told}, less than {settings.scale_in_share:.0%}"
            return Scale({EXECUTORS: wanted}, reason, ExpectedEffect("longer batches"))
        band = f"{settings.scale_in_share:.0%} to {settings.scale_out_share:.0%}"
        return Hold(f"{told}; the range is {band}", figures)

    def _add(self, held: int, told: str, share: float) -> Scale:
        wanted = min(self._bounds.most, held + self._to_add)
        self._to_add *= 2
        reason = f"{held} → {wanted} executors: {told}, more than {self._settings.scale_out_share:.0%}"
        figures = {"utilisation_ratio": share * held / wanted}
        return Scale({EXECUTORS: wanted}, reason, ExpectedEffect("shorter batches", figures))


def _measure_shares(window: SlotWindow) -> Iterator[tuple[str, float]]:
    """Return query → the median of its batch times over its interval; broken times are left out."""
    for query in window.queries:
        seconds = [batch.seconds for batch in query.batches if 0 <= batch.seconds < math.inf]
        period = query.period_seconds
        if seconds and period is not None and 0 < period < math.inf:
            yield query.name, median(seconds) / period
