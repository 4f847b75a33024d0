"""What is known of a job beyond its runs: the settings that worked, its restarts, and one under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from penstock.decide.quiet_hours import DAY
from penstock.decide.restarts import RestartHistory

KIND, KEY = "supervise", "job"
MOST_FAILED = 20
"""Settings that did not work, and are not tried again; the newest are kept."""


class Memories(Protocol):
    """The journal, as far as memories go; raises JournalUnavailable."""

    def remember(self, now: float, owner: str, kind: str, key: str, body: dict[str, Any]) -> None:
        """Write over what is known by this key."""

    def recall(self, owner: str, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Key → what is known."""


@dataclass(frozen=True, slots=True)
class JobMemory:
    """One job; `action_id` is the restart that is under way, `driver` the process that runs it."""

    proven: Mapping[str, str] = field(default_factory=dict)
    action_id: int | None = None
    wanted: Mapping[str, str] = field(default_factory=dict)
    phase: str = ""
    restarts: tuple[float, ...] = ()
    failed: tuple[Mapping[str, str], ...] = ()
    fixed: tuple[str, ...] = ()
    driver: Mapping[str, Any] = field(default_factory=dict)

    @property
    def history(self) -> RestartHistory:
        """As the rules on restarts look at it."""
        return RestartHistory(self.restarts, self.failed, frozenset(self.fixed))

    def restarting(self, now: float) -> JobMemory:
        """A restart has begun; it counts whatever becomes of it."""
        return replace(self, restarts=(*(at for at in self.restarts if now - DAY < at <= now), now))

    def without_success(self, settings: Mapping[str, str], not_taken: tuple[str, ...]) -> JobMemory:
        """These settings are not to be tried again."""
        if not_taken:
            return replace(self, fixed=tuple(sorted({*self.fixed, *not_taken})))
        return replace(self, failed=(*self.failed, dict(settings))[-MOST_FAILED:])

    def seeing(self, in_effect: Mapping[str, str]) -> JobMemory:
        """What is in effect nowhere is not set by the script any more: it may have been edited."""
        return replace(self, fixed=tuple(key for key in self.fixed if key in in_effect))


def recalled(memories: Memories, job: str) -> JobMemory:
    """What is known of the job; what cannot be read counts as unknown."""
    body = memories.recall(job, KIND).get(KEY, {})
    try:
        return JobMemory(
            proven=_texts(body.get("proven", {})),
            action_id=int(body["action_id"]) if body.get("action_id") is not None else None,
            wanted=_texts(body.get("wanted", {})),
            phase=str(body.get("phase", "")),
            restarts=tuple(float(at) for at in body.get("restarts", ())),
            failed=tuple(_texts(one) for one in body.get("failed", ())),
            fixed=tuple(str(key) for key in body.get("fixed", ())),
            driver=dict(body.get("driver", {})),
        )
    except (TypeError, ValueError, AttributeError):
        return JobMemory()


def remembered(memories: Memories, now: float, job: str, known: JobMemory) -> None:
    """Write it down."""
    body: dict[str, Any] = {
        "proven": dict(known.proven),
        "action_id": known.action_id,
        "wanted": dict(known.wanted),
        "phase": known.phase,
        "restarts": list(known.restarts),
        "failed": [dict(one) for one in known.failed],
        "fixed": list(known.fixed),
        "driver": dict(known.driver),
    }
    memories.remember(now, job, KIND, KEY, body)


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in given.items()}
