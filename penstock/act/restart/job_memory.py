"""The memory of a job beyond its runs: settings that worked, restarts, and one under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.decide.manager.restarts import DAY, RestartHistory
from penstock.decide.sage.sizes import sizing_settings
from penstock.errors import BadInput
from penstock.journal.ports import Memories

KIND, KEY = "supervise", "job"
MOST_FAILED = 20
"""Settings that did not work, and are not tried again; the newest are kept."""


@dataclass(frozen=True, slots=True)
class JobMemory:
    """One job; `action_id` is the restart that is under way, `driver` the process that runs it.

    `unusable` says which settings in the journal no sizing can have written; they are as unknown.
    """

    proven: Mapping[str, str] = field(default_factory=dict)
    action_id: int | None = None
    wanted: Mapping[str, str] = field(default_factory=dict)
    phase: str = ""
    restarts: tuple[float, ...] = ()
    failed: tuple[Mapping[str, str], ...] = ()
    fixed: tuple[str, ...] = ()
    driver: Mapping[str, Any] = field(default_factory=dict)
    unusable: tuple[str, ...] = ()

    @property
    def history(self) -> RestartHistory:
        """The same as the rules on restarts look at it."""
        return RestartHistory(self.restarts, self.failed, frozenset(self.fixed))

    def restarting(self, now: float) -> JobMemory:
        """Note that a restart has begun; it counts whatever becomes of it."""
        return replace(self, restarts=(*(at for at in self.restarts if now - DAY < at <= now), now))

    def without_success(self, settings: Mapping[str, str], not_taken: tuple[str, ...]) -> JobMemory:
        """Note settings that are not to be tried again."""
        if not_taken:
            return replace(self, fixed=tuple(sorted({*self.fixed, *not_taken})))
        return replace(self, failed=(*self.failed, dict(settings))[-MOST_FAILED:])

    def seeing(self, in_effect: Mapping[str, str]) -> JobMemory:
        """Forget fixed settings that are in effect nowhere: the script may have been edited."""
        return replace(self, fixed=tuple(key for key in self.fixed if key in in_effect))


def recall_job(memories: Memories, job: str) -> JobMemory:
    """Recall what is known of the job; what cannot be read counts as unknown."""
    body = memories.recall(job, KIND).get(KEY, {})
    unusable: list[str] = []
    try:
        return JobMemory(
            proven=_sizes(body.get("proven", {}), unusable),
            action_id=int(body["action_id"]) if body.get("action_id") is not None else None,
            wanted=_sizes(body.get("wanted", {}), unusable),
            phase=str(body.get("phase", "")),
            restarts=tuple(float(at) for at in body.get("restarts", ())),
            failed=tuple(filter(None, (_sizes(one, unusable) for one in body.get("failed", ())))),
            fixed=tuple(str(key) for key in body.get("fixed", ())),
            driver=dict(body.get("driver", {})),
            unusable=tuple(unusable),
        )
    except (TypeError, ValueError, AttributeError, OverflowError):
        return JobMemory()


def remember_job(memories: Memories, now: float, job: str, known: JobMemory) -> None:
    """Write down what is known of the job."""
    body = asdict(known)
    del body["unusable"]
    memories.remember(now, job, KIND, KEY, body)


def _sizes(given: object, unusable: list[str]) -> dict[str, str]:
    """Read the settings, all or none: they end on a command line, and others may have written them."""
    try:
        return sizing_settings(given)
    except BadInput as error:
        unusable.append(str(error))
        return {}
