"""The loop's heartbeat, and who listens to it: the status, the log, `penstock health`.

This module is loaded by `import penstock`, so it imports at the top only what costs nothing.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

INTERVALS = 3
"""A loop that has not come round for so many policy intervals hangs."""
LEAST_SECONDS = 5.0
"""However short the interval is: a machine with much to do may take so long."""


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
