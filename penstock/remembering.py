"""What a policy learns outlives the driver: it is taken up by the next run of the same application."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import Learner, Policy, Proposal, Resize
from penstock.errors import PenstockError

log = logging.getLogger(__name__)

KEEP_EVERY_SECONDS = 60.0
OLDEST_SECONDS = 7 * 86_400.0
"""What is older says more about another time than about this run."""
AGAIN_SECONDS = 86_400.0
"""What has not changed for so long is written anew, for it still holds: a run may last for weeks."""


class Memories(Protocol):
    """The journal, as far as memories go; raises JournalUnavailable."""

    def remember(self, now: float, owner: str, kind: str, key: str, body: dict[str, Any]) -> None:
        """Write over what is known by this key."""

    def recall(self, owner: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Key → what is known."""


def remembering(policy: Policy, memories: Memories, owner: str) -> Policy:
    """The policy itself, unless it is one that learns; `owner` is a name that the next run has, too."""
    return RememberingPolicy(policy, policy, memories, owner) if isinstance(policy, Learner) else policy


class RememberingPolicy:
    """Recalls before its first proposal, remembers once a minute; a failure costs a note, no proposal."""

    def __init__(self, policy: Policy, learner: Learner, memories: Memories, owner: str) -> None:
        self._policy, self._learner, self._memories, self._owner = policy, learner, memories, owner
        self._recalled = False
        self._kept: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._keep_at = float("-inf")

    @property
    def name(self) -> str:
        """The name of the policy itself."""
        return self._policy.name

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """What the policy says, with what it knows from earlier runs."""
        now = window.end
        if not self._recalled:
            self._recall(now)
        answer = self._policy.propose(window)
        # a clock that went back must not stop the keeping, and new settings may end the driver
        due = isinstance(answer, Resize) or not self._keep_at - KEEP_EVERY_SECONDS <= now < self._keep_at
        if not isinstance(answer, NotReady) and due:
            self._keep_at = now + KEEP_EVERY_SECONDS
            self._remember(now)
        return answer

    def _recall(self, now: float) -> None:
        self._recalled = True
        kind = self._learner.memory_kind
        try:
            found = self._memories.recall(self._owner, kind)
            fresh = {key: body for key, body in found.items() if _is_fresh(body, now)}
            notes = [f"{key}: too old or undated" for key in found if key not in fresh]
            notes += self._learner.recall(fresh)
        except PenstockError as error:
            notes, fresh = [str(error)], {}
        if fresh:
            log.info("%s: took up %s learned in earlier runs: %s", self._owner, kind, ", ".join(fresh))
        for note in notes:
            log.warning("%s: of the %s learned earlier: %s", self._owner, kind, note)

    def _remember(self, now: float) -> None:
        kind = self._learner.memory_kind
        learned = self._learner.learned()
        self._kept = {key: kept for key, kept in self._kept.items() if key in learned}
        try:
            for key, body in learned.items():
                at, before = self._kept.get(key, (now, None))
                if body != before or now - at >= AGAIN_SECONDS:
                    self._memories.remember(now, self._owner, kind, key, {**body, "at": now})
                    self._kept[key] = now, body
        except PenstockError as error:
            log.warning("%s: what was learned could not be kept: %s", self._owner, error)


def _is_fresh(body: object, now: float) -> bool:
    at = body.get("at") if isinstance(body, Mapping) else None
    return isinstance(at, int | float) and now - OLDEST_SECONDS <= at <= now
