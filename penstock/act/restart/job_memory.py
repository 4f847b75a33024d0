"""The memory of a job beyond its runs: settings that worked, restarts, and one under way."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.decide.manager.restarts import RestartHistory
from penstock.decide.sage.sizes import sizing_settings
from penstock.errors import ActionFailed, BadInput
from penstock.journal.former_runs import process_is_over
from penstock.journal.ports import Memories

KIND, KEY = "supervise", "job"
MOST_FAILED = 20
"""Settings that did not work, and are not tried again; the newest are kept."""
MOST_RESTARTS = 1000
"""As many as any budget allows in a day."""


@dataclass(frozen=True, slots=True)
class JobMemory:
    """One job; `action_id` is the restart that is under way, `driver` the process that runs it.

    `supervisor` is the process that sees to it, and is written down before its driver is started.

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
    supervisor: Mapping[str, Any] = field(default_factory=dict)
    unusable: tuple[str, ...] = ()

    @property
    def history(self) -> RestartHistory:
        """The same as the rules on restarts look at it."""
        return RestartHistory(self.restarts, self.failed, frozenset(self.fixed))

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
            supervisor=dict(body.get("supervisor", {})),
            unusable=tuple(unusable),
        )
    except (TypeError, ValueError, AttributeError, OverflowError):
        return JobMemory()


def remember_job(memories: Memories, now: float, job: str, known: JobMemory) -> None:
    """Write down what is known of the job."""
    memories.remember(now, job, KIND, KEY, _write_body(known))


def claim_job(memories: Memories, now: float, job: str, known: JobMemory) -> None:
    """Write down who is about to run the job, with nobody in between; ActionFailed if somebody else does."""

    def claim(body: Mapping[str, Any] | None) -> dict[str, Any]:
        for part in ("driver", "supervisor"):
            process = (body or {}).get(part) or {}
            if process != known.supervisor and runs_here(process):
                raise ActionFailed(
                    f"this job already runs as process {process.get('pid')}, "
                    "and two would share a checkpoint: end that one first"
                )
        return _write_body(known)

    memories.revise(now, job, KIND, KEY, claim)


def runs_here(process: object) -> bool:
    """Tell whether this is a process of this machine that has not ended."""
    return (
        isinstance(process, Mapping)
        and process.get("host") == socket.gethostname()
        and not process_is_over(process)
    )


def _write_body(known: JobMemory) -> dict[str, Any]:
    body = asdict(known)
    del body["unusable"]
    return body


def _sizes(given: object, unusable: list[str]) -> dict[str, str]:
    """Read the settings, all or none: they end on a command line, and others may have written them."""
    try:
        return sizing_settings(given)
    except BadInput as error:
        unusable.append(str(error))
        return {}
