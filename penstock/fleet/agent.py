"""The agent in each application: publishes its windows, and lets the application carry out what is decided.

It is a policy like others: what the fleet's controller decided becomes its proposal, so the application's own
manager and guardrails have the last word and its journal keeps all of it. Without a controller it holds.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow
from penstock.decide.policy import ExpectedEffect, Hold, Policy, Proposal, Resize, Scale
from penstock.decide.sage_metrics import HeldSize
from penstock.decide.sage_sample import GcClock, sample_of
from penstock.errors import PenstockError
from penstock.fleet.sage_columns import SIZE

log = logging.getLogger(__name__)

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


class FleetPolicy:
    """Proposes what the controller decided until it is so, refused for good, or out of date; each once."""

    name = "fleet"

    def __init__(
        self,
        application: str,
        transport: Transport,
        memory: Memory,
        needs: Policy,
        held: Callable[[ApplicationWindow], HeldSize],
        correlation: Callable[[ApplicationWindow], float] = lambda window: math.nan,
    ) -> None:
        self.application = application
        self._transport, self._memory, self._needs = transport, memory, needs
        self._held, self._correlation = held, correlation
        self._unsent: deque[Mapping[str, Any]] = deque(maxlen=MOST_UNSENT)
        self._pending: FleetDecision | None = None
        self._handled: int | None = None
        self._gc = GcClock()

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Publish the window, and answer with what the controller asks for, if anything."""
        now = window.end
        try:
            handled = self._last_handled()
            self._fetch(now, handled)
            answer = self._answer(now, window)
            self._publish(window)
        except PenstockError as error:
            return NotReady(f"the fleet's controller is out of reach: {error}", "its return")
        return answer

    def _last_handled(self) -> int:
        if self._handled is None:
            known = self._memory.recall(self.application, "fleet").get("handled", {})
            self._handled = int(known.get("decision", 0))
        return self._handled

    def _fetch(self, now: float, handled: int) -> None:
        """Of all decisions the newest counts; one that came twice or too late counts for nothing."""
        for decision in self._transport.decisions(self.application):
            if decision.decision_id <= handled:
                continue
            if decision.expires_at < now:
                self._close(now, decision, "it came after its time")
            elif self._pending is None or decision.decision_id > self._pending.decision_id:
                self._pending = decision

    def _answer(self, now: float, window: ApplicationWindow) -> Proposal | NotReady:
        decision = self._pending
        if decision is None:
            return Hold("the fleet's controller asks for no change")
        if decision.settings is not None:
            self._close(now, decision, "proposed once: new settings need new executors")
            expected = ExpectedEffect("what the controller expects")
            told = window.sizing.settings if window.sizing is not None else {}
            before = {key: told[key] for key in decision.settings if key in told}
            return Resize(decision.settings, decision.reason, expected, before)
        if window.parallelism.get(EXECUTORS) == decision.parallelism:
            self._close(now, decision, "done")
            return Hold(f"the size is the one that the controller asked for: {decision.reason}")
        if decision.expires_at < now:
            self._close(now, decision, "not done in its time")
            return Hold("the controller's last decision is out of date")
        sizes = {EXECUTORS: int(decision.parallelism or 1)}
        return Scale(sizes, decision.reason, ExpectedEffect("what the controller expects"))

    def _close(self, now: float, decision: FleetDecision, outcome: str) -> None:
        """The number is on the disk before it is acknowledged: after a restart it is not begun again."""
        number = max(decision.decision_id, self._handled or 0)
        body = {"decision": number, "outcome": outcome}
        self._memory.remember(now, self.application, "fleet", "handled", body)
        log.info("%s: decision %d: %s", self.application, decision.decision_id, outcome)
        self._handled, self._pending = number, None

    def _publish(self, window: ApplicationWindow) -> None:
        """Send this window and those that could not be sent before; what cannot be sent waits."""
        self._unsent.append(self.record(window))
        while self._unsent:
            self._transport.publish(self._unsent[0])
            self._unsent.popleft()

    def record(self, window: ApplicationWindow) -> dict[str, Any]:
        """The window as the controller reads it; what Spark does not tell is left out."""
        held = self._held(window)
        metrics = sample_of(window, self._gc, self._needed(window))
        metrics["service_correlation"] = self._correlation(window)
        del metrics["seconds"]  # it follows from the ends of the window
        return {
            "application": self.application,
            "start": window.start,
            "end": window.end,
            "acknowledged": self._handled or 0,
            **{f"held_{name}": getattr(held, name) for name in SIZE if math.isfinite(getattr(held, name))},
            **{name: value for name, value in metrics.items() if math.isfinite(value)},
        }

    def _needed(self, window: ApplicationWindow) -> float:
        """What the application's own model of its costs asks for; better than rates alone can tell."""
        answer = self._needs.propose(window)
        if isinstance(answer, Scale):
            return float(answer.parallelism.get(EXECUTORS, math.nan))
        return float(window.parallelism.get(EXECUTORS, math.nan)) if isinstance(answer, Hold) else math.nan
