"""Every function within its own limits, and pinned ones as they are, whatever a policy proposes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import Hold, Policy, Proposal, Scale

Limits = Mapping[str, tuple[int, int]]


class WithinLimits:
    """A policy whose sizes are kept within what each function may have."""

    def __init__(self, policy: Policy, limits: Limits, pinned: Callable[[], Mapping[str, int]]) -> None:
        self._policy, self._limits, self._pinned = policy, limits, pinned

    @property
    def name(self) -> str:
        """The name of the policy itself."""
        return self._policy.name

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """What the policy says, with each function's size as near to it as is allowed."""
        answer = self._policy.propose(window)
        if not isinstance(answer, Scale):
            return answer
        pinned = self._pinned()
        sizes = {
            name: self._allowed(name, wanted, pinned)
            for name, wanted in answer.parallelism.items()
            if name in window.parallelism
        }
        bent = [
            f"{name} {wanted} → {sizes[name]} ({'pinned' if name in pinned else 'its limit'})"
            for name, wanted in answer.parallelism.items()
            if name in sizes and sizes[name] != wanted
        ]
        reason = "; ".join([answer.reason, *(["kept: " + ", ".join(bent)] if bent else [])])
        if all(window.parallelism[name] == size for name, size in sizes.items()):
            return Hold(reason, answer.expected.figures)
        return replace(answer, parallelism=sizes, reason=reason)

    def _allowed(self, name: str, wanted: int, pinned: Mapping[str, int]) -> int:
        least, most = self._limits.get(name, (1, wanted))
        return pinned.get(name, min(max(wanted, least), most))
