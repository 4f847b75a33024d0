"""A need that is never below what an application keeps in any case."""

from __future__ import annotations

from dataclasses import replace

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import Policy, Proposal, Scale


class AtLeast:
    """What another policy asks for, of each unit at least so many.

    Sage's P5 would ask for less in every round, in vain, and no rule after it would ever be asked.
    """

    def __init__(self, inner: Policy, least: int) -> None:
        self._inner, self._least = inner, least

    @property
    def name(self) -> str:
        """The name of the policy itself."""
        return self._inner.name

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """The answer of the policy, raised where it is too little."""
        answer = self._inner.propose(window)
        if not isinstance(answer, Scale):
            return answer
        sizes = {unit: max(size, self._least) for unit, size in answer.parallelism.items()}
        return replace(answer, parallelism=sizes)
