"""A fleet's directory as it was last read, for the pages of the fleet."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from markupsafe import Markup

from penstock.errors import PenstockError
from penstock.fleet.listing import FleetListing
from penstock.fleet.places import STATUS, parse_place
from penstock.fleet.remembered import RememberedFleet
from penstock.fleet.status import HOUR, summarise_fleet
from penstock.view.dashboard import fleet_rows
from penstock.view.dashboard.streaming import SteadyRounds
from penstock.view.fleet import list_figures
from penstock.view.frame import render_markup

EVERY_SECONDS = 5.0
"""A fleet plays a round every ten seconds or so."""
SUMS_SECONDS = 60.0
"""Sums of files that stay the same change as well, when an application falls silent."""
SUMS = "dashboard/fleet_sums.html.j2"


class FleetWatch:
    """A fleet's directory as it was last read; reading is done in threads, by one at a time."""

    def __init__(self, directory: RememberedFleet) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._read: tuple[object, object, FleetListing] | None = None
        self._sums: tuple[int, float, Markup] = (0, 0.0, Markup(""))
        self._pace = SteadyRounds()
        self.version = 0

    def prepare(self) -> None:
        """Read the fleet before anyone asks: the first time, with all that is loaded, takes longest."""
        # what is wrong with its files is told to who asks
        with suppress(PenstockError):
            self.look()

    def render_sums(self) -> Markup:
        """Return the sums, teams and decisions as markup; made anew when a file has changed."""
        listing, now = self.look(), time.time()
        version, made_at, made = self._sums
        if version != self.version or not 0 <= now - made_at < SUMS_SECONDS:
            made = _render_sums(self.directory, listing, now)
            self._sums = self.version, now, made
        return made

    def look(self) -> FleetListing:
        """Return the list; made anew only when a file has changed."""
        with self._lock:
            table, decisions = self.directory.status(), self.directory.decisions(time.time() - HOUR)
            newest = len(decisions), decisions[-1]["decision_id"] if decisions else None
            if self._read is None or self._read[0] is not table or self._read[1] != newest:
                known = STATUS.empty_table() if table is None else table
                former = self._read[2] if self._read is not None else None
                self._read = table, newest, FleetListing.of(known, decisions, former)
                self.version += 1
            return self._read[2]

    def follow(self) -> AsyncIterator[None]:
        """Come back from time to time, until the server ends."""
        return self._pace.follow(lambda: EVERY_SECONDS)

    def close(self) -> None:
        """End those who follow."""
        self._pace.close()


def find_fleet(named: str | None) -> FleetWatch | None:
    """Return the fleet that the settings name; None without one, or where it meets in Kafka alone."""
    place = parse_place(named) if named else None
    return FleetWatch(RememberedFleet(place)) if isinstance(place, Path) else None


def _render_sums(directory: RememberedFleet, listing: FleetListing, now: float) -> Markup:
    status = summarise_fleet(directory, now)
    return render_markup(
        SUMS,
        figures=list_figures(status),
        problem=status["overrides_problem"],
        teams=fleet_rows.describe_teams(listing.sum_teams(now)),
        decisions=fleet_rows.describe_decisions(status["decisions"]),
        rules=", ".join(f"{rule} {count}" for rule, count in status["decided_last_hour"].items()),
    )
