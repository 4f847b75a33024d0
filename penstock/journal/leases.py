"""Who of several controllers leads: a row a name, that its holder counts up and others watch.

No clocks are compared. A holder raises `beats` every so often; whoever has seen a row stand still for long
enough, by a clock of his own, may take it over. Each takeover raises `term`, so what an earlier holder still
wants to do can be told apart and refused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from penstock.journal.databases import Database
from penstock.journal.schema import leases

NOBODY = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lead under a name: its holder, its term, and how often the holder has renewed it."""

    name: str
    holder: str
    term: int
    beats: int

    @property
    def free(self) -> bool:
        """Whether its last holder gave it back."""
        return self.holder == NOBODY


class Leases:
    """The leases of a journal. Each method is one transaction, and raises JournalUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def seen(self, name: str) -> Lease | None:
        """Return the lease as it stands; None where nobody has ever led."""
        with self._database.reading() as connection:
            return _read(connection, name)

    def take(self, name: str, holder: str, seen: Lease | None) -> Lease | None:
        """Lead from now on; return None where anything has changed since it was `seen`."""
        with self._database.writing() as connection:
            if _read(connection, name) != seen:
                return None
            taken = Lease(name, holder, 1 if seen is None else seen.term + 1, 0)
            if seen is None:
                connection.execute(sa.insert(leases).values(asdict(taken)))
            else:
                _update(connection, taken)
            return taken

    def renew(self, lease: Lease) -> Lease | None:
        """Say that the holder is there; return None where another has taken over."""
        with self._database.writing() as connection:
            now = _read(connection, lease.name)
            if now is None or now.term != lease.term:
                return None
            renewed = replace(now, beats=now.beats + 1)
            _update(connection, renewed)
            return renewed

    def release(self, lease: Lease) -> None:
        """Give it back, so that another need not wait; do nothing where another leads already."""
        with self._database.writing() as connection:
            if still_holds(connection, lease):
                _update(connection, replace(lease, holder=NOBODY))


def still_holds(connection: Connection, lease: Lease) -> bool:
    """Tell, within a transaction, whether this term of the lease is the present one."""
    now = _read(connection, lease.name)
    return now is not None and now.term == lease.term and not now.free


def _read(connection: Connection, name: str) -> Lease | None:
    row = connection.execute(sa.select(leases).where(leases.c.name == name)).mappings().first()
    return None if row is None else Lease(**row)


def _update(connection: Connection, lease: Lease) -> None:
    connection.execute(sa.update(leases).where(leases.c.name == lease.name).values(asdict(lease)))
