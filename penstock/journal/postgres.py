"""The PostgreSQL database under the journal of a fleet: durable commits, foreign errors translated."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from penstock.errors import BadInput, JournalUnavailable
from penstock.journal.address import without_password
from penstock.journal.schema import check_version, migrate, present_version, version_of

CONNECT_SECONDS = 5
STUCK_SECONDS = 10.0
"""How long a writer may do nothing in the middle of a transaction before the server breaks it off: one whose
process was stopped, or whose machine is gone, would keep all others from writing."""
BUSY_SECONDS = 15.0
"""How long a writer waits for another one; longer than one that is stuck can hold it up."""
_LOCK = 7_305_118
"""The advisory lock under which one of several controllers brings the tables up to date."""


class PostgresDatabase:
    """One journal in a PostgreSQL database; it is opened at its first use, and again after it was away."""

    def __init__(
        self,
        url: str,
        create: bool = True,
        busy_seconds: float = BUSY_SECONDS,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            raise BadInput("the journal's address is not postgresql://USER@HOST:PORT/DATABASE") from None
        self.create = create
        self._patience = {"lock": f"{busy_seconds * 1000:.0f}ms", "idle": f"{stuck_seconds * 1000:.0f}ms"}
        self._shown = without_password(url)
        self.engine = sa.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            connect_args={"connect_timeout": CONNECT_SECONDS},
            # a connection that a restart of the server has broken is noticed before it is used
            pool_pre_ping=True,
            json_serializer=lambda value: orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode(),
            json_deserializer=orjson.loads,
        )
        self._lock = threading.Lock()
        self._up_to_date = False

    @property
    def name(self) -> str:
        """What messages call it; without the password."""
        return self._shown

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is on the server's disk when the block has ended; one writer at a time.

        Numbers of rows are given out in the order of commits only if writers take turns, as with SQLite.
        """
        with self._translated("written"):
            self._open()
            with self.engine.begin() as connection:
                self._take_turn(connection)
                yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent view that neither waits for a writer nor holds one up."""
        with self._translated("read"):
            self._open()
            isolated = self.engine.connect().execution_options(isolation_level="REPEATABLE READ")
            with isolated as connection, connection.begin():
                yield connection

    def close(self) -> None:
        """Give back the connections; a later use connects again."""
        with self._lock:
            self._up_to_date = False
            self.engine.dispose()

    def _open(self) -> None:
        with self._lock:
            if self._up_to_date:
                return
            with self.engine.begin() as connection:
                version = version_of(connection, self.name)
                check_version(version, self.name)
                if version == 0 and not self.create:
                    raise JournalUnavailable(f"there is no journal at {self.name}")
                if version != present_version():
                    self._take_turn(connection)
                    migrate(connection, self.name)
            self._up_to_date = True

    def _take_turn(self, connection: Connection) -> None:
        """Wait until no other writer is at it, though not for ever; holds for this transaction alone."""
        patience = "set_config('lock_timeout', :lock, true), "
        patience += "set_config('idle_in_transaction_session_timeout', :idle, true)"
        connection.execute(sa.text(f"SELECT {patience}"), self._patience)
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_LOCK})"))

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
            self.close()  # the server may come back as another one: look at its tables again
            raise JournalUnavailable(
                f"the journal {self.name} cannot be {verb}: {_in_plain_words(error)}"
            ) from error


def _in_plain_words(error: Exception) -> str:
    cause = str(error.orig) if isinstance(error, DBAPIError) else str(error)
    return " ".join(cause.split()) or type(error).__name__
