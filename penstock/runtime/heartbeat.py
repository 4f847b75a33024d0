"""The loop's heartbeat, and who listens to it: the status, the log, the journal, `penstock health`.

This module is loaded by `import penstock`, so it imports at the top only what costs nothing.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.journal.ports import Memories

log = logging.getLogger(__name__)

INTERVALS = 3
"""A loop that has not come round for so many policy intervals hangs."""
LEAST_SECONDS = 5.0
"""However short the interval is: a machine with much to do may take so long."""
JOURNAL_SECONDS = 60.0
HEARTBEAT = "heartbeat"
OUTDATED_SECONDS = 86_400.0
"""A run that was not heard of for longer is of the past, however it ended."""


class Heartbeat:
    """When the loop came round last, by a clock that never goes back."""

    def __init__(
        self, interval: float, timer: Callable[[], float] = time.monotonic, least: float = LEAST_SECONDS
    ) -> None:
        self.hangs_after = max(INTERVALS * interval, least)
        self._timer, self._beats, self._last = timer, 0, timer()

    def beat(self) -> None:
        """Note that the loop has come round."""
        self._last = self._timer()
        self._beats += 1

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        silent = self._timer() - self._last
        return {
            "beats": self._beats,
            "silent_seconds": silent,
            "hangs_after_seconds": self.hangs_after,
            "hangs": silent > self.hangs_after,
        }

    def describe(self) -> str | None:
        """Say that the loop hangs; None while it does not."""
        known = self.plain()
        if not known["hangs"]:
            return None
        silent, limit = f"{known['silent_seconds']:.0f} s", f"{self.hangs_after:g} s"
        return f"the autopilot hangs: its loop has not come round for {silent}, and should within {limit}"


class Watchdog:
    """Says in the log that the loop hangs, and where; from a thread of its own, since the loop's cannot."""

    def __init__(
        self,
        heart: Heartbeat,
        application: str,
        watched: threading.Thread,
        tell: Callable[[str | None], None] = lambda hangs: None,
    ) -> None:
        """`tell` is called once with how it hangs, and once with None when it goes on."""
        self._heart, self._application, self._watched, self._tell = heart, application, watched, tell
        self._ended = threading.Event()
        self._told = False
        self._thread = threading.Thread(target=self._run, name="penstock-watchdog", daemon=True)

    def start(self) -> None:
        """Begin to listen; without a thread to spare nobody does, and the application runs on."""
        try:
            self._thread.start()
        except RuntimeError as error:
            log.warning("%s: nobody watches the loop: %s", self._application, error)

    def stop(self) -> None:
        """Listen no more."""
        self._ended.set()

    def look(self) -> None:
        """Say once that the loop hangs, and once that it goes on."""
        hangs = self._heart.describe()
        if hangs is not None and not self._told:
            log.error("%s: %s; it is at:\n%s", self._application, hangs, self._find_place())
        if hangs is None and self._told:
            log.warning("%s: the autopilot's loop goes on", self._application)
        if (hangs is not None) != self._told:
            self._tell(hangs)
        self._told = hangs is not None

    def _run(self) -> None:
        while not self._ended.wait(self._heart.hangs_after / INTERVALS):
            self.look()

    def _find_place(self) -> str:
        frame = sys._current_frames().get(self._watched.ident or 0)
        return "".join(traceback.format_stack(frame)).rstrip() if frame is not None else "no thread"


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
        pulses = [(*pulse, run) for run, body in runs.items() if (pulse := _read_pulse(body, now))]
        if not pulses:
            continue
        silent, limit, ended, application = min(pulses)
        if not ended and silent < OUTDATED_SECONDS:
            known = {"silent_seconds": silent, "hangs_after_seconds": limit, "hangs": silent > limit}
            newest.append({"application": application, "name": name, **known})
    return newest


def _read_pulse(body: Any, now: float) -> tuple[float, float, bool] | None:
    """Return how far from now a run was heard of, when it hangs, and whether it ended; None for no pulse."""
    try:
        silent = abs(now - float(body["at"]))
        return silent, INTERVALS * float(body.get("every", JOURNAL_SECONDS)), bool(body.get("ended"))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
