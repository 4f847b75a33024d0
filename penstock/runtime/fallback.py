"""The answer while metrics are missing: none for a while, then the size that the user has set."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow, SlotWindow
from penstock.decide.policy import ExpectedEffect, Scale
from penstock.errors import PenstockError
from penstock.runtime.ports import Actuator, Source

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NoMetrics(NotReady):
    """Metrics have failed for long, and the user has said how many executors there shall be then.

    `window` knows what is held, and nothing else.
    """

    window: ApplicationWindow = field(kw_only=True)
    fallback: Scale = field(kw_only=True)


class SourceWithFallback:
    """A source that has an answer when metrics fail for longer than `after` seconds.

    Shorter failures are raised as before. Without `executors`, or without an actuator, the answer is to hold.
    """

    def __init__(
        self,
        application: str,
        source: Source,
        actuator: Actuator | None,
        executors: int | None,
        after: float,
    ) -> None:
        self._application, self._source, self._actuator = application, source, actuator
        self._executors, self._after = executors, after
        self._failing_since: float | None = None
        self._told = False

    def observe(self, now: float) -> ApplicationWindow | NotReady:
        """Return what the source sees; in its place, after long, what to do without it."""
        try:
            seen = self._source.observe(now)
        except PenstockError as problem:
            # a clock that went back must not make the wait longer
            since = now if self._failing_since is None else min(now, self._failing_since)
            self._failing_since = since
            if now - since < self._after:
                raise
            return self._fall_back(now, f"no metrics for {(now - since) / 60:.0f} minutes: {problem}")
        if self._told:
            log.warning("%s: metrics are there again", self._application)
        self._failing_since, self._told = None, False
        return seen

    def _fall_back(self, now: float, reason: str) -> NotReady:
        held = dict(self._actuator.held()) if self._actuator is not None and self._executors else {}
        if not self._told:
            does = f"falling back to {self._executors} executors" if held else "the size stays"
            log.warning("%s: %s; %s", self._application, reason, does)
        self._told = True
        if self._executors is None or EXECUTORS not in held:
            return NotReady(reason, "metrics; the size stays")
        window = SlotWindow(
            application=self._application,
            start=now,
            end=now,
            parallelism=held,
            queries=(),
            executors=(),
            slots_per_executor=1,
        )
        effect = ExpectedEffect("the size that fallback_executors states")
        scale = Scale({EXECUTORS: self._executors}, f"{reason}; fallback_executors says so", effect)
        return NoMetrics(reason, "metrics", window=window, fallback=scale)
