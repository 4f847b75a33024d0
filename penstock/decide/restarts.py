"""Whether new executor settings may be brought about by a restart now: recommending is the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock.decide.policy import Resize
from penstock.decide.quiet_hours import DAY, QuietSpan, quiet_for
from penstock.decide.verdict import Accepted, Rejected


class RestartJudge(Protocol):
    """What says whether settings that need a restart are brought about."""

    def judge(self, now: float, resize: Resize) -> Accepted | Rejected:
        """Accepted, or rejected by a named rule."""


class Restarter(Protocol):
    """What brings them about; the application ends by it."""

    def ask(self, now: float, application: str, decision_id: int, resize: Resize) -> str:
        """Write the intent, ask for the restart, and say why nothing else is done meanwhile."""


@dataclass(frozen=True, slots=True)
class RestartRules:
    """How often and when an application may be restarted."""

    per_day: int = 4
    quiet: tuple[QuietSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class RestartHistory:
    """What is known of earlier restarts of the same job: when, and what did not work.

    `fixed` are settings that the script itself sets, so that a restart does not change them.
    """

    at: tuple[float, ...] = ()
    failed: tuple[Mapping[str, str], ...] = ()
    fixed: frozenset[str] = field(default_factory=frozenset)


class RecommendOnly:
    """Restarts nothing: what would be done is said and recorded."""

    def judge(self, now: float, resize: Resize) -> Rejected:
        """Rejected, with what would be set."""
        wanted = ", ".join(f"{key}={value}" for key, value in resize.settings.items())
        return Rejected(
            "recommend-only",
            f"{wanted} is recommended and needs a restart, which `penstock run --allow-restart` may do; "
            f"{resize.reason}",
        )


def judged(now: float, resize: Resize, rules: RestartRules, history: RestartHistory) -> Accepted | Rejected:
    """Accepted, unless a rule forbids it now."""
    for name, reason in _obstacles(now, resize, rules, history):
        return Rejected(name, f"{reason}; wanted because: {resize.reason}")
    return Accepted(resize)


def recent(times: Sequence[float], now: float) -> list[float]:
    """Restarts of the last 24 hours; one from the future is from before the clock went back."""
    return [at for at in times if now - DAY < at]


def _obstacles(
    now: float, resize: Resize, rules: RestartRules, history: RestartHistory
) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    fixed = sorted(set(resize.settings) & history.fixed)
    if fixed:
        found.append(
            ("set-in-script", f"the script sets {', '.join(fixed)} itself, so a restart changes nothing")
        )
    if dict(resize.settings) in [dict(one) for one in history.failed]:
        found.append(("failed-before", "the application did not come up with these settings before"))
    quiet = quiet_for(rules.quiet, now)
    if quiet > 0:
        found.append(("quiet-hours", f"nothing is restarted for another {quiet / 60:.0f} minutes"))
    done = recent(history.at, now)
    if len(done) >= rules.per_day:
        found.append(("restart-budget", f"{len(done)} of {rules.per_day} restarts of 24 hours are used up"))
    return found
