"""Which of several processes runs a pipeline or a fleet: one leads, the others watch and take over."""

from __future__ import annotations

import logging
import threading
import time

from penstock.errors import JournalUnavailable
from penstock.journal.leases import Lease, Leases

log = logging.getLogger(__name__)

BEATS_PER_LEASE = 4
"""A leader may miss some of its beats, as on a machine with much to do, and still leads."""


class Leadership:
    """Steps through leading and watching; `now` is a clock of this process that never goes back.

    While the store does not answer a leader stays what it is: nobody else can become it there, either, and
    without a written intent it changes nothing.
    """

    def __init__(self, store: Leases, name: str, holder: str, patience: float) -> None:
        self.name, self.holder, self.patience = name, holder, patience
        self.lease: Lease | None = None
        self.before: str | None = None
        """Who led before this one, and may have left something open."""
        self._store = store
        self._watched: Lease | None = None
        self._watched_since: float | None = None

    @property
    def leader(self) -> str | None:
        """Who leads, as far as is known here."""
        known = self.lease or self._watched
        return known.holder or None if known is not None else None

    @property
    def watched(self) -> Lease | None:
        """The lease as it was seen last while another held it; None where it was never seen."""
        return self._watched

    def step(self, now: float) -> Lease | None:
        """Say that this leader is there, or look whether the leader still is; the lease while it holds."""
        try:
            if self.lease is not None:
                self._renew()
            else:
                self._watch(now)
        except JournalUnavailable as error:
            log.warning("%s: who leads cannot be told now: %s", self.name, error)
        return self.lease

    def give_back(self) -> None:
        """Let another lead at once; raises nothing."""
        lease, self.lease = self.lease, None
        try:
            if lease is not None:
                self._store.release(lease)
        except JournalUnavailable as error:
            log.warning("%s: others will wait for %g s: %s", self.name, self.patience, error)

    def _renew(self) -> None:
        assert self.lease is not None
        self.lease = self._store.renew(self.lease)
        if self.lease is None:
            self._watched_since = None
            log.warning("%s: another process has taken over", self.name)

    def _watch(self, now: float) -> None:
        seen = self._store.seen(self.name)
        if self._watched_since is None or seen != self._watched:
            self._watched, self._watched_since = seen, now
        if seen is None or seen.free or now - self._watched_since >= self.patience:
            self.lease = self._store.take(self.name, self.holder, seen)
            self.before = seen.holder if self.lease is not None and seen is not None else None


class LeaseKeeper:
    """Steps a leadership from a thread of its own: slow work elsewhere must not look like a death."""

    def __init__(self, leadership: Leadership) -> None:
        self.leadership = leadership
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-lease", daemon=True)

    @property
    def lease(self) -> Lease | None:
        """The lease, while this process leads."""
        return self.leadership.lease

    def start(self) -> None:
        """Reach for the lease once, so that the answer is known, and then from time to time."""
        self.refresh()
        self._thread.start()

    def refresh(self) -> None:
        """Step now: whoever may have slept must not believe what it knew before."""
        with self._lock:
            self.leadership.step(time.monotonic())

    def stop(self) -> None:
        """Give the lease back; may be called twice."""
        self._ended.set()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout=self.leadership.patience)
        with self._lock:
            self.leadership.give_back()

    def _run(self) -> None:
        while not self._ended.wait(self.leadership.patience / BEATS_PER_LEASE):
            try:
                self.refresh()
            except Exception:
                log.exception("%s: the lease could not be looked after", self.leadership.name)
