"""One controller of several decides for a fleet; the others stand by and take over when they miss it."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from penstock.errors import ActionFailed, NotLeading
from penstock.journal.leading import Leadership, LeaseKeeper
from penstock.journal.store import Journal

log = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
"""How long others wait for a sign of the one that leads; three rounds, and Spark's own pauses."""
LOOK_SECONDS = 1.0


class LeaderJob(Protocol):
    """The job that decides, while it runs."""

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Wait for its end, so many seconds at most; return whether it has ended."""

    def stop(self) -> None:
        """End it."""


def make_keeper(journal: Journal, directory: Path, patience: float = LEASE_SECONDS) -> LeaseKeeper:
    """Return the keeper of a fleet's lease; the directory's path tells fleets in one journal apart."""
    holder = f"{socket.gethostname()}:{os.getpid()}"
    return LeaseKeeper(Leadership(journal.leases, f"fleet {directory.resolve()}", holder, patience))


class Standby:
    """Runs a fleet's job while this process leads, and waits for its turn while it does not."""

    def __init__(
        self,
        keeper: LeaseKeeper,
        say: Callable[[str], None],
        look: float = LOOK_SECONDS,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """`beat` is called with each look: a Spark that does not answer keeps it from being called."""
        self._keeper, self._say, self._look, self._beat = keeper, say, look, beat

    def require_lead(self) -> None:
        """Raise NotLeading unless this process leads at this moment, asked of the store."""
        self._keeper.refresh()
        if self._keeper.lease is None:
            raise NotLeading("another controller decides for this fleet: nothing is written here")

    def run(self, start: Callable[[], LeaderJob], once: bool = False) -> None:
        """Start the job when it is this one's turn, and end it when another takes over; until it ends."""
        self._keeper.start()
        try:
            if once:
                self._wait_while_nobody_leads()
            while not self._serve_term(start):
                log.warning("another controller has taken over: standing by")
        finally:
            self._keeper.stop()

    def _wait_while_nobody_leads(self) -> None:
        """Wait for the lease of one that was killed; give up where its holder lives, or nothing is known."""
        leadership = self._keeper.leadership
        first, give_up_at = leadership.watched, time.monotonic() + 1.5 * leadership.patience
        while self._keeper.lease is None:
            seen = leadership.watched
            if first is not None and seen is not None and not seen.free and seen != first:
                raise ActionFailed(f"{seen.holder} decides for this fleet: stop it, or leave out --once")
            if first is None and time.monotonic() > give_up_at:
                raise ActionFailed("who decides for this fleet cannot be told: its journal does not answer")
            self._pause()

    def _pause(self) -> None:
        self._beat()
        time.sleep(self._look)

    def _serve_term(self, start: Callable[[], LeaderJob]) -> bool:
        """Wait for the lead and run the job; return whether it has ended by itself."""
        told: Any = None
        while self._keeper.lease is None:
            leader = self._keeper.leadership.leader or "nobody yet"
            if leader != told:
                self._say(f"standing by: {leader} decides for this fleet")
            told = leader
            self._pause()
        job = start()
        while not job.awaitTermination(self._look):
            self._beat()
            if self._keeper.lease is None:
                job.stop()
                return False
        return True
