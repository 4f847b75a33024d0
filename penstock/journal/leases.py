"""Who of several controllers leads: a row a name, that its holder counts up and others watch.

No clocks are compared. A holder raises `beats` every so often; whoever has seen a row stand still for long
enough, by a clock of his own, may take it over. Each takeover raises `term`, so what an earlier holder still
wants to do can be told apart and refused.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from penstock.journal.schema import leases

NOBODY = ""


class Transactions(Protocol):
    """The journal's database, as far as leases need it."""

    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that no other writer shares."""

    def reading(self) -> AbstractContextManager[Connection]:
        """A consistent view."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who leads under a name, for which time in a row, and how often he has said so."""

    name: str
    holder: str
    term: int
    beats: int

    @property
    def free(self) -> bool:
        """Whether its last holder gave it back."""
        return self.holder == NOBODY


class Leases:
    """Each method is one transaction; raises JournalUnavailable and nothing else of its own."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    def seen(self, name: str) -> Lease | None:
        """The lease as it stands; None where nobody has ever led."""
        with self._database.reading() as connection:
            return _read(connection, name)

    def take(self, name: str, holder: str, seen: Lease | None) -> Lease | None:
        """Lead from now on; None where anything has changed since it was `seen`."""
        with self._database.writing() as connection:
            if _read(connection, name) != seen:
                return None
            taken = Lease(name, holder, 1 if seen is None else seen.term + 1, 0)
            if seen is None:
                connection.execute(sa.insert(leases).values(_values(taken)))
            else:
                _update(connection, taken)
            return taken

    def renew(self, lease: Lease) -> Lease | None:
        """Say that the holder is there; None where another has taken over."""
        with self._database.writing() as connection:
            now = _read(connection, lease.name)
            if now is None or now.term != lease.term:
                return None
            renewed = replace(now, beats=now.beats + 1)
            _update(connection, renewed)
            return renewed

    def release(self, lease: Lease) -> None:
        """Give it back, so that another need not wait; does nothing where another leads already."""
        with self._database.writing() as connection:
            if holds(connection, lease):
                _update(connection, replace(lease, holder=NOBODY))


def holds(connection: Connection, lease: Lease) -> bool:
    """Whether this term of the lease is the present one, seen from within a transaction."""
    now = _read(connection, lease.name)
    return now is not None and now.term == lease.term and not now.free


def _read(connection: Connection, name: str) -> Lease | None:
    row = connection.execute(sa.select(leases).where(leases.c.name == name)).mappings().first()
    return None if row is None else Lease(row["name"], row["holder"], row["term"], row["beats"])


def _update(connection: Connection, lease: Lease) -> None:
    connection.execute(sa.update(leases).where(leases.c.name == lease.name).values(_values(lease)))


def _values(lease: Lease) -> dict[str, object]:
    return {"name": lease.name, "holder": lease.holder, "term": lease.term, "beats": lease.beats}
