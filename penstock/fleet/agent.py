"""The agent in each application: publishes its windows, and lets the application carry out what is decided.

It is a policy like others: what the fleet's controller decided becomes its proposal, so the application's own
manager and guardrails have the last word and its journal keeps all of it. Without a controller it holds.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow
from penstock.decide.policy import ExpectedEffect, Hold, Policy, Proposal, Resize, Scale
from penstock.decide.sage.columns import SIZE
from penstock.decide.sage.metrics import (
    OF_EXECUTORS,
    GcClock,
    HeldSize,
    Rule,
    Sizing,
    Symptom,
    TouchedHeap,
    sample_of,
)
from penstock.decide.sage.resizer import Limits, fit
from penstock.decide.sage.sizes import held_from, spark_settings
from penstock.errors import PenstockError
from penstock.fleet.decision import FleetDecision, latest_number
from penstock.journal.notebook import Notebook
from penstock.journal.ports import Memories
from penstock.units.texts import show_value

log = logging.getLogger(__name__)

MOST_UNSENT = 60
"""Windows kept while they cannot be published: ten minutes of them, and the oldest are worth least."""


class Transport(Protocol):
    """How windows get to the controller and decisions back; raises PenstockError when it cannot."""

    refusal: str
    """Why no decision is believed, and the way out; empty while they are."""

    def publish(self, record: Mapping[str, Any]) -> None:
        """Send one window."""

    def decisions(self, application: str) -> Sequence[FleetDecision]:
        """Return the decisions for this application that were not returned before, oldest first."""


class FleetPolicy:
    """Proposes what the controller decided until it is so, refused for good, or out of date; each once."""

    name = "fleet"

    def __init__(
        self,
        application: str,
        transport: Transport,
        memories: Memories,
        needs: Policy,
        spark_conf: Mapping[str, str],
        correlation: Callable[[ApplicationWindow], float] = lambda window: math.nan,
        limits: Callable[[ApplicationWindow], Limits] | None = None,
        warm_up_seconds: float = 0.0,
    ) -> None:
        """`needs` is the policy that would decide alone: its answer is told as what the application needs.

        The controller knows the application by its name, which outlives the driver. `limits` tells what hosts
        and quotas give now, of which the controller knows nothing.
        """
        self.application = application
        self._transport, self._needs = transport, needs
        self._notebook = Notebook(memories, application, "fleet")
        self._conf, self._correlation, self._limits = spark_conf, correlation, limits
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
            self._fetch(now, self._last_handled(now))
            answer = self._answer(now, window)
        except PenstockError as error:
            answer = _out_of_reach(error)
        try:
            # also where no decision could be had: the window must not be lost
            self._publish(window)
        except PenstockError as error:
            return _out_of_reach(error)
        return answer

    def _last_handled(self, now: float) -> int:
        if self._handled is None:
            known = self._notebook.read().get("handled", {}).get("decision", 0)
            if not isinstance(known, int) or not 0 <= known <= latest_number(now):
                # with it no later decision would ever count; those of before may well have been handled
                log.warning("%s: no decision can have had the number %s", self.application, show_value(known))
                known = round(now * 1000)
            self._handled = known
        return self._handled

    def _fetch(self, now: float, handled: int) -> None:
        """Take up the newest decision; one that came twice or too late counts for nothing."""
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
            return Hold(self._transport.refusal or "the fleet's controller asks for no change")
        fitted, notes = self._fit(decision, window)
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

    def _fit(
        self, decision: FleetDecision, window: ApplicationWindow
    ) -> tuple[FleetDecision | None, tuple[str, ...]]:
        """Return what hosts and quotas leave of a decision, and what stood in the way."""
        if self._limits is None:
            return decision, ()
        held = held_from(self._conf, window)
        wanted = held_from({**self._conf, **(decision.settings or {})}, window)
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
        """Write the number down before it is acknowledged: after a restart it is not begun again."""
        number = max(decision.decision_id, self._handled or 0)
        self._notebook.write(now, {"handled": {"decision": number, "outcome": outcome}})
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
        """Return the window as the controller reads it; what Spark does not tell is left out."""
        metrics = sample_of(window, self._gc, self._touched, self._find_need(window))
        metrics["service_correlation"] = self._correlation(window)
        if not self._is_warm(window):
            metrics |= dict.fromkeys(OF_EXECUTORS, math.nan)
        return record_window(
            self.application,
            window.start,
            window.end,
            self._handled or 0,
            held_from(self._conf, window),
            metrics,
        )

    def _is_warm(self, window: ApplicationWindow) -> bool:
        """Return whether the warm-up is over: state read back and code compiled cost what does not last."""
        if math.isnan(self._warm_at):
            self._warm_at = window.end + self._warm_up_seconds
        return window.end >= self._warm_at

    def _find_need(self, window: ApplicationWindow) -> float:
        """Return what the application's own policy asks for, which knows its costs."""
        answer = self._needs.propose(window)
        if isinstance(answer, Scale):
            return float(answer.parallelism.get(EXECUTORS, math.nan))
        return float(window.parallelism.get(EXECUTORS, math.nan)) if isinstance(answer, Hold) else math.nan


def record_window(
    application: str,
    start: float,
    end: float,
    acknowledged: int,
    held: HeldSize,
    metrics: Mapping[str, float],
) -> dict[str, Any]:
    """Return a window as the controller reads it; what was not measured is left out."""
    sizes = {f"held_{name}": getattr(held, name) for name in SIZE}
    # the length of a window follows from its ends
    measured = {name: value for name, value in metrics.items() if name != "seconds"}
    return {
        "application": application,
        "start": start,
        "end": end,
        "acknowledged": acknowledged,
        **{name: value for name, value in {**sizes, **measured}.items() if math.isfinite(value)},
    }


def _out_of_reach(error: PenstockError) -> NotReady:
    return NotReady(f"the fleet's controller is out of reach: {error}", "its return")
