"""Any policy, with sizes kept within limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import Hold, Policy, Proposal, Scale

UnitLimits = Mapping[str, tuple[int, int]]
"""Unit → the fewest and the most instances that it may have."""


class WithinLimits:
    """A policy whose sizes are brought within limits, and whose pinned units stay as they are.

    A unit without limits of its own has at least `least`. Sage's needs are bounded so: its rule P5 would ask
    for less than the least in every round, in vain, and no rule after it would ever be asked.
    """

    def __init__(
        self,
        policy: Policy,
        limits: UnitLimits | None = None,
        pinned: Callable[[], Mapping[str, int]] = dict,
        least: int = 1,
    ) -> None:
        self._policy, self._limits, self._pinned, self._least = policy, limits or {}, pinned, least

    @property
    def name(self) -> str:
        """The name of the policy itself."""
        return self._policy.name

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Ask the policy, and bring each size as near to its answer as is allowed."""
        answer = self._policy.propose(window)
        if not isinstance(answer, Scale):
            return answer
        pinned = self._pinned()
        wanted = {name: size for name, size in answer.parallelism.items() if name in window.parallelism}
        sizes = {name: self._allow(name, size, pinned) for name, size in wanted.items()}
        bent = [
            f"{name} {size} → {sizes[name]} ({'pinned' if name in pinned else 'its limit'})"
            for name, size in wanted.items()
            if sizes[name] != size
        ]
        reason = "; ".join([answer.reason, *(["kept: " + ", ".join(bent)] if bent else [])])
        if all(window.parallelism[name] == size for name, size in sizes.items()):
            return Hold(reason, answer.expected.figures)
        return replace(answer, parallelism=sizes, reason=reason)

    def _allow(self, name: str, wanted: int, pinned: Mapping[str, int]) -> int:
        least, most = self._limits.get(name, (self._least, max(self._least, wanted)))
        return pinned.get(name, min(max(wanted, least), most))
