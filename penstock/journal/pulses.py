"""Heartbeats in the journal, where those on other machines see who lives."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.errors import PenstockError
from penstock.journal.ports import Memories

log = logging.getLogger(__name__)

HEARTBEAT = "heartbeat"
JOURNAL_SECONDS = 60.0
MISSED = 3
"""A run of which so many beats were not heard hangs, or has died."""
OUTDATED_SECONDS = 86_400.0
"""A run that was not heard of for longer is of the past, however it ended."""


class JournalPulse:
    """Writes the heartbeat to the journal, where those on other machines see it; raises nothing."""

    def __init__(self, memories: Memories, name: str, application: str, interval: float) -> None:
        self._memories, self._name, self._application = memories, name, application
        self.every = max(interval, JOURNAL_SECONDS)
        self._next_at = float("-inf")
        self._last = 0.0

    def beat(self, now: float) -> None:
        """Write it, if it is time; one that cannot be written is left out."""
        self._last = now
        # a clock that went back must not silence it
        if not self._next_at - self.every <= now < self._next_at:
            self._next_at = now + self.every
            self._write(now, ended=False)

    def close(self) -> None:
        """Say that the run has ended: its silence means nothing from now on."""
        self._write(self._last, ended=True)

    def _write(self, now: float, ended: bool) -> None:
        body = {"at": now, "every": self.every, "ended": ended}
        try:
            self._memories.remember(now, self._name or self._application, HEARTBEAT, self._application, body)
        except PenstockError as error:
            log.debug("%s: the heartbeat is not in the journal: %s", self._application, error)


def list_pulses(found: Mapping[str, Mapping[str, Mapping[str, Any]]], now: float) -> list[dict[str, Any]]:
    """Return how the newest run of each name stands, as the journal tells; those that ended are left out.

    The newest is the one that was heard of closest to now: a clock that was ahead has dated others later.
    """
    newest: list[dict[str, Any]] = []
    for name, runs in found.items():
        pulses = [(pulse, run) for run, body in runs.items() if (pulse := read_pulse(body, now))]
        if not pulses:
            continue
        pulse, application = min(pulses)
        if not pulse.ended and pulse.silent < OUTDATED_SECONDS:
            known = {"silent_seconds": pulse.silent, "hangs_after_seconds": pulse.limit}
            newest.append({"application": application, "name": name, **known, "hangs": pulse.is_late})
    return newest


class Pulse(NamedTuple):
    """How far from now a run was heard of, after which time it hangs or has died, and whether it ended."""

    silent: float
    limit: float
    ended: bool

    @property
    def is_late(self) -> bool:
        """Whether it should have been heard of since."""
        return self.silent > self.limit


def read_pulse(body: Any, now: float) -> Pulse | None:
    """Read a heartbeat in the journal; None for what is none."""
    try:
        silent, limit = abs(now - float(body["at"])), MISSED * float(body.get("every", JOURNAL_SECONDS))
        return Pulse(silent, limit, bool(body.get("ended")))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
