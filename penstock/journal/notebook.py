"""Knowledge that outlives its process, kept in the journal: of policies, pipelines and agents."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import Learner, Policy, Proposal, Resize
from penstock.errors import PenstockError
from penstock.journal.ports import Memories

Body = Mapping[str, Any]


class Notebook:
    """One owner's memories of one kind, each with the time of its writing; raises JournalUnavailable.

    What has not changed is not written again, unless `again_after` seconds have passed: a body that still
    holds must not grow too old to be believed.
    """

    def __init__(self, memories: Memories, owner: str, kind: str, again_after: float = math.inf) -> None:
        self.owner, self.kind = owner, kind
        self._memories, self._again_after = memories, again_after
        self._written: dict[str, tuple[float, Body]] = {}

    def read(self) -> Mapping[str, Body]:
        """Return all that was written, by this process or by earlier ones."""
        return self._memories.recall(self.owner, self.kind)

    def write(self, now: float, bodies: Mapping[str, Body]) -> None:
        """Write what differs from the last time; what fails is tried again with the next call."""
        self._written = {key: known for key, known in self._written.items() if key in bodies}
        for key, body in bodies.items():
            at, before = self._written.get(key, (now, None))
            if body != before or now - at >= self._again_after:
                self._memories.remember(now, self.owner, self.kind, key, {**body, "at": now})
                self._written[key] = now, body


def is_fresh(body: object, now: float, oldest_seconds: float) -> bool:
    """Tell whether a body was written in this past; one from the future is of a clock that went back."""
    at = body.get("at") if isinstance(body, Mapping) else None
    return isinstance(at, int | float) and now - oldest_seconds <= at <= now


log = logging.getLogger(__name__)

KEEP_EVERY_SECONDS = 60.0
OLDEST_SECONDS = 7 * 86_400.0
"""Older entries say more about another time than about this run."""
AGAIN_SECONDS = 86_400.0
"""An unchanged entry is written anew after so long, since it still holds: a run may last for weeks."""


def add_memory(policy: Policy, memories: Memories, owner: str) -> Policy:
    """Return the policy with a memory, if it learns; `owner` is a name that the next run has, too."""
    if not isinstance(policy, Learner):
        return policy
    notebook = Notebook(memories, owner, policy.memory_kind, AGAIN_SECONDS)
    return RememberingPolicy(policy, policy, notebook)


class RememberingPolicy:
    """A policy that recalls before its first proposal and remembers once a minute.

    A journal that fails costs a note, and never a proposal.
    """

    def __init__(self, policy: Policy, learner: Learner, notebook: Notebook) -> None:
        self._policy, self._learner, self._notebook = policy, learner, notebook
        self._recalled = False
        self._keep_at = float("-inf")

    @property
    def name(self) -> str:
        """The name of the policy itself."""
        return self._policy.name

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        """Return what the policy says, with what it knows from earlier runs."""
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
        owner, kind = self._notebook.owner, self._notebook.kind
        try:
            found = self._notebook.read()
            fresh = {key: body for key, body in found.items() if is_fresh(body, now, OLDEST_SECONDS)}
            notes = [f"{key}: too old or undated" for key in found if key not in fresh]
            notes += self._learner.recall(fresh)
        except PenstockError as error:
            notes, fresh = [str(error)], {}
        if fresh:
            log.info("%s: took up %s learned in earlier runs: %s", owner, kind, ", ".join(fresh))
        for note in notes:
            log.warning("%s: of the %s learned earlier: %s", owner, kind, note)

    def _remember(self, now: float) -> None:
        try:
            self._notebook.write(now, self._learner.learned())
        except PenstockError as error:
            log.warning("%s: what was learned could not be kept: %s", self._notebook.owner, error)
