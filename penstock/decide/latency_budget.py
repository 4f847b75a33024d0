"""A budget of changes for what is made for latency alone; what throughput needs is never held back."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.autrascale_search import ChangeBudget
from penstock.decide.policy import Hold, Proposal, Scale


class LatencyBudget:
    """Notices which changes were made for latency, and answers with a hold once they are too many."""

    def __init__(self, per_hour: int) -> None:
        self._per_hour = per_hour
        self._budget = ChangeBudget(per_hour)
        self._held: Mapping[str, int] = {}
        self._asked = False

    def within(
        self, window: ApplicationWindow, answer: Proposal | NotReady, urgent: bool
    ) -> Proposal | NotReady:
        """The answer, or a hold where the hour has seen enough changes and throughput needs none."""
        held = dict(window.parallelism)
        if self._asked and self._held and held != self._held:
            self._budget.note(window.end)
        self._held = held
        self._asked = isinstance(answer, Scale) and not urgent
        if not isinstance(answer, Scale) or urgent or self._budget.allows(window.end, 1):
            return answer
        self._asked = False
        reason = f"{self._per_hour} changes for latency were made in the last hour, the most allowed"
        return Hold(f"{reason}; asked for: {answer.reason}", answer.expected.figures)
