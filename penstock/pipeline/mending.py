"""When a query that was broken off is started again: soon at first, then later and later, not for ever."""

from __future__ import annotations

FIRST_WAIT_SECONDS = 1.0
MOST_TRIES = 6
"""In a row, with no batch between them: with waits that double, and what clients of a broker wait by
themselves, these take from one minute to some ten."""
CALM_SECONDS = 120.0
"""A query that runs so long, though it may have nothing to do, is well again."""


class Mending:
    """Counts the tries of one query; time is passed in."""

    def __init__(self) -> None:
        self.restarts = 0
        """All that there were."""
        self.given_up = False
        self._tries = 0
        self._next: float | None = None
        self._running_since: float | None = None

    def note_running(self, now: float) -> None:
        """Note that the query is seen to run."""
        if self._running_since is None:
            self._running_since = now
        elif now - self._running_since >= CALM_SECONDS:
            self._tries = 0

    def note_batch(self) -> None:
        """Note that a batch has ended well."""
        self._tries = 0

    def is_due(self, now: float) -> bool:
        """Tell whether a query that does not run is to be started now; count it as a try if so."""
        self._running_since = None
        if self._tries >= MOST_TRIES:
            self.given_up = True
            return False
        longest = now + FIRST_WAIT_SECONDS * 2**self._tries
        # a moment further away was set before the clock went back
        if self._next is None or self._next > longest:
            self._next = longest
        if now < self._next:
            return False
        self._next = None
        self._tries += 1
        self.restarts += 1
        return True
