"""Restarts for new executor settings: whether one is allowed now, how often, and in which hours of the day.

Times are seconds since the epoch, in UTC. Recommending is the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from penstock.decide.manager.quiet import QuietSpan, find_quiet_seconds, tell_wait
from penstock.decide.policy import Resize
from penstock.decide.sage.sizes import sizing_settings
from penstock.decide.verdict import Accepted, Rejected
from penstock.errors import BadInput

DAY = 86_400.0


class RestartJudge(Protocol):
    """Judges whether settings that need a restart are brought about."""

    def judge(self, now: float, resize: Resize) -> Accepted | Rejected:
        """Accept the settings, or reject them by a named rule."""


class Restarter(Protocol):
    """Brings new settings about by a restart, which ends the application."""

    def ask(self, now: float, application: str, decision_id: int, resize: Resize) -> str:
        """Write the intent, ask for the restart, and say why nothing else is done meanwhile."""


@dataclass(frozen=True, slots=True)
class RestartRules:
    """Limits of how often and when an application may be restarted."""

    per_day: int = 4
    quiet: tuple[QuietSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class RestartHistory:
    """Earlier restarts of the same job: when they were, and which settings did not work.

    `fixed` are settings that the script itself sets, so that a restart does not change them.
    """

    at: tuple[float, ...] = ()
    failed: tuple[Mapping[str, str], ...] = ()
    fixed: frozenset[str] = field(default_factory=frozenset)


class RecommendOnly:
    """Restarts nothing, but says and records what would be set."""

    def judge(self, now: float, resize: Resize) -> Rejected:
        """Reject the settings and say what they are."""
        wanted = ", ".join(f"{key}={value}" for key, value in resize.settings.items())
        return Rejected(
            "recommend-only",
            f"{wanted} is recommended and needs a restart, which `penstock run --allow-restart` may do; "
            f"{resize.reason}",
        )


def judge_restart(
    now: float, resize: Resize, rules: RestartRules, history: RestartHistory
) -> Accepted | Rejected:
    """Accept settings that say a size, as Spark is told them, unless a rule forbids it now."""
    try:
        resize = replace(resize, settings=sizing_settings(resize.settings))
    except BadInput as error:
        return Rejected("not-a-size", f"{error}; wanted because: {resize.reason}")
    for name, reason in _find_obstacles(now, resize, rules, history):
        return Rejected(name, f"{reason}; wanted because: {resize.reason}")
    return Accepted(resize)


def find_recent(times: Sequence[float], now: float) -> list[float]:
    """Find the restarts of the last 24 hours; one from the future is from before the clock went back."""
    return [at for at in times if now - DAY < at]


def _find_obstacles(
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
    quiet = find_quiet_seconds(rules.quiet, now)
    if quiet > 0:
        found.append(("quiet-hours", f"nothing is restarted for another {tell_wait(quiet)}"))
    done = find_recent(history.at, now)
    if len(done) >= rules.per_day:
        found.append(("restart-budget", f"{len(done)} of {rules.per_day} restarts of 24 hours are used up"))
    return found
