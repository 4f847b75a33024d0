"""How restarts of a job ended, also those of its former drivers: only the journal knows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from penstock.errors import PenstockError
from penstock.journal.former_runs import list_aliases
from penstock.journal.records import ActionRecord
from penstock.journal.store import Journal

log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
MOST_ACTIONS = 100


class RestartWatch:
    """Looks in the journal once a minute, and raises nothing."""

    def __init__(self, journal: Journal, name: str, tell: Callable[[Mapping[str, float]], None]) -> None:
        self._journal, self._name, self._tell = journal, name, tell
        self._next_at = float("-inf")

    def look(self, now: float) -> None:
        """Tell when restarts ended last, if it is time to look."""
        # a clock that went back must not silence it
        if self._next_at - EVERY_SECONDS <= now < self._next_at:
            return
        self._next_at = now + EVERY_SECONDS
        try:
            names = list_aliases(self._journal, self._name)
            self._tell(find_restarts(self._journal.actions(names, MOST_ACTIONS)))
        except PenstockError as error:
            log.debug("%s: how restarts ended is not known: %s", self._name, error)


def find_restarts(actions: Iterable[ActionRecord]) -> dict[str, float]:
    """Return when an action on Spark's settings ended last, by how it ended."""
    found: dict[str, float] = {}
    for action in actions:
        if action.settings and action.status is not None and action.ended_at is not None:
            status = action.status.value
            found[status] = max(action.ended_at, found.get(status, action.ended_at))
    return found
