"""The agent in each application: publishes its windows, and lets the application carry out what is decided.

It is a policy like others: what the fleet's controller decided becomes its proposal, so the application's own
manager and guardrails have the last word and its journal keeps all of it. Without a controller it holds.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import orjson

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow
from penstock.decide.policy import ExpectedEffect, Hold, Policy, Proposal, Resize, Scale
from penstock.decide.resizer import Limits
from penstock.decide.sage_fit import fit
from penstock.decide.sage_metrics import HeldSize, Rule, Sizing, Symptom
from penstock.decide.sage_sample import OF_EXECUTORS, GcClock, TouchedHeap, sample_of
from penstock.decide.sage_words import spark_settings
from penstock.errors import PenstockError
from penstock.fleet.sage_columns import SIZE

log = logging.getLogger(__name__)

LOOK_BACK_SECONDS = 3600.0
"""Decisions older than this have long run out."""
MOST_UNSENT = 60
"""Windows kept while they cannot be published: ten minutes of them, and the oldest are worth least."""


@dataclass(frozen=True, slots=True)
class FleetDecision:
    """A decision addressed to one application; sizes are absolute, so doing it again changes nothing."""

    decision_id: int
    expires_at: float
    reason: str
    parallelism: int | None = None
    settings: Mapping[str, str] | None = None

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> FleetDecision:
        """A row of the controller's decisions."""
        settings = orjson.loads(row["settings"]) if row["settings"] else None
        sizes = row["parallelism"]
        return FleetDecision(row["decision_id"], row["expires_at"], row["reason"], sizes, settings)


class Transport(Protocol):
    """How windows get to the controller and decisions back; raises PenstockError when it cannot."""

    def publish(self, record: Mapping[str, Any]) -> None:
        """Send one window."""

    def decisions(self, application: str) -> Sequence[FleetDecision]:
        """Decisions addressed to this application that were not given before, oldest first."""


class Memory(Protocol):
    """Where the number of the last decision outlives the driver: the journal."""

    def remember(self, now: float, owner: str, kind: str, key: str, body: dict[str, Any]) -> None:
        """Write over what was there."""

    def recall(self, owner: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """What was written."""


class Sized(Protocol):
    """What the application holds, or would hold with these settings of Spark in place of its own."""

    def __call__(self, window: ApplicationWindow, settings: Mapping[str, str], /) -> HeldSize:
        """Of one executor."""


class FleetPolicy:
    """Proposes what the controller decided until it is so, refused for good, or out of date; each once."""

    name = "fleet"

    def __init__(
        self,
        application: str,
        transport: Transport,
        memory: Memory,
        needs: Policy,
        held: Sized,
        correlation: Callable[[ApplicationWindow], float] = lambda window: math.nan,
        limits: Callable[[ApplicationWindow], Limits] | None = None,
        warm_up_seconds: float = 0.0,
    ) -> None:
        """`limits` tells what hosts and quotas give now, of which the controller knows nothing."""
        self.application = application
        self._transport, self._memory, self._needs = transport, memory, needs
        self._held, self._correlation, self._limits = held, correlation, limits
        self._unsent: deque[Mapping[str, Any]] = deque(maxlen=MOST_UNSENT)
        self._pending: FleetDecision | None = None
        self._handled: int | None = None
        self._gc, self._touched = GcClock(), TouchedHeap()
        self._warm_up_seconds, self._warm_at = warm_up_seconds, math.nan

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Publish the window, and answer with what the controller asks for, if anything."""
        now = window.end
        if not window.queries:
            # the controller knows no first batch, and might take memory away in it
            return NotReady("no batch has ended yet, so nothing is reported", "the first batch")
        answer: Proposal | NotReady
        try:
            self._fetch(now, self._last_handled())
            answer = self._answer(now, window)
        except PenstockError as error:
            answer = _out_of_reach(error)
        try:
            # also where no decision could be had: the window must not be lost
            self._publish(window)
        except PenstockError as error:
            return _out_of_reach(error)
        return answer

    def _last_handled(self) -> int:
        if self._handled is None:
            known = self._memory.recall(self.application, "fleet").get("handled", {})
            self._handled = int(known.get("decision", 0))
        return self._handled

    def _fetch(self, now: float, handled: int) -> None:
        """Of all decisions the newest counts; one that came twice or too late counts for nothing."""
        found = [one for one in self._transport.decisions(self.application) if one.decision_id > handled]
        for decision in found:
            known = self._pending.decision_id if self._pending is not None else 0
            if decision.expires_at >= now and decision.decision_id > known:
                self._pending = decision
        # last, since it may fail, and what was handed over is not handed over again
        for decision in found:
            if decision.expires_at < now:
                self._close(now, decision, "it came after its time")

    def _answer(self, now: float, window: ApplicationWindow) -> Proposal | NotReady:
        decision = self._pending
        if decision is None:
            return Hold("the fleet's controller asks for no change")
        fitted, notes = self._fitted(decision, window)
        reason = "; ".join((decision.reason, *notes))
        if fitted is not None and window.parallelism.get(EXECUTORS, 0) == fitted.parallelism:
            self._close(now, decision, "done")
            return Hold(f"the size is the one that the controller asked for: {reason}")
        if decision.expires_at < now:
            self._close(now, decision, "not done in its time")
            return Hold("the controller's last decision is out of date")
        if fitted is None:
            # hosts may have more to give a little later, so that it is asked again until it is out of date
            return Hold(f"what the controller asks for cannot be met: {reason}")
        if fitted.settings is not None:
            return self._resize(now, fitted, window, reason)
        sizes = {EXECUTORS: int(fitted.parallelism or 1)}
        return Scale(sizes, reason, ExpectedEffect("what the controller expects"))

    def _resize(self, now: float, decision: FleetDecision, window: ApplicationWindow, reason: str) -> Resize:
        self._close(now, decision, "proposed once: new settings need new executors")
        settings = decision.settings or {}
        told = window.sizing.settings if window.sizing is not None else {}
        before = {key: told[key] for key in settings if key in told}
        return Resize(settings, reason, ExpectedEffect("what the controller expects"), before)

    def _fitted(
        self, decision: FleetDecision, window: ApplicationWindow
    ) -> tuple[FleetDecision | None, tuple[str, ...]]:
        """What this application's hosts and quotas leave of a decision, and what stood in the way."""
        if self._limits is None:
            return decision, ()
        held = self._held(window, {})
        wanted = self._held(window, decision.settings or {})
        if decision.parallelism is not None:
            wanted = replace(wanted, parallelism=decision.parallelism)
        fitted = fit(held, Sizing(Rule.NONE, Symptom.NONE, math.nan, math.nan, wanted), self._limits(window))
        if fitted.decision is None:
            return None, fitted.notes
        if not fitted.notes:
            return decision, ()
        if decision.settings is None:
            return replace(decision, parallelism=fitted.decision.after.parallelism), fitted.notes
        return replace(decision, settings=spark_settings(held, fitted.decision.after)), fitted.notes

    def _close(self, now: float, decision: FleetDecision, outcome: str) -> None:
        """The number is on the disk before it is acknowledged: after a restart it is not begun again."""
        number = max(decision.decision_id, self._handled or 0)
        body = {"decision": number, "outcome": outcome}
        self._memory.remember(now, self.application, "fleet", "handled", body)
        log.info("%s: decision %d: %s", self.application, decision.decision_id, outcome)
        self._handled = number
        if self._pending is not None and self._pending.decision_id <= number:
            self._pending = None

    def _publish(self, window: ApplicationWindow) -> None:
        """Send this window and those that could not be sent before; what cannot be sent waits."""
        self._unsent.append(self.record(window))
        while self._unsent:
            self._transport.publish(self._unsent[0])
            self._unsent.popleft()

    def record(self, window: ApplicationWindow) -> dict[str, Any]:
        """The window as the controller reads it; what Spark does not tell is left out."""
        held = self._held(window, {})
        metrics = sample_of(window, self._gc, self._touched, self._needed(window))
        metrics["service_correlation"] = self._correlation(window)
        if not self._is_warm(window):
            metrics |= dict.fromkeys(OF_EXECUTORS, math.nan)
        del metrics["seconds"]  # it follows from the ends of the window
        return {
            "application": self.application,
            "start": window.start,
            "end": window.end,
            "acknowledged": self._handled or 0,
            **{f"held_{name}": getattr(held, name) for name in SIZE if math.isfinite(getattr(held, name))},
            **{name: value for name, value in metrics.items() if math.isfinite(value)},
        }

    def _is_warm(self, window: ApplicationWindow) -> bool:
        """After the first batch state is read back and code still compiled: what it costs does not last."""
        if math.isnan(self._warm_at):
            self._warm_at = window.end + self._warm_up_seconds
        return window.end >= self._warm_at

    def _needed(self, window: ApplicationWindow) -> float:
        """What the application's own model of its costs asks for; better than rates alone can tell."""
        answer = self._needs.propose(window)
        if isinstance(answer, Scale):
            return float(answer.parallelism.get(EXECUTORS, math.nan))
        return float(window.parallelism.get(EXECUTORS, math.nan)) if isinstance(answer, Hold) else math.nan


def _out_of_reach(error: PenstockError) -> NotReady:
    return NotReady(f"the fleet's controller is out of reach: {error}", "its return")
