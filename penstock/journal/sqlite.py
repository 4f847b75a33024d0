"""The SQLite file under the journal: write-ahead log, durable commits, foreign errors translated."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from penstock.errors import JournalUnavailable
from penstock.journal.schema import check_version, migrate, present_version, version_of

BUSY_SECONDS = 5.0
"""How long a writer waits for another process; one transaction of the journal takes milliseconds."""

_PLAIN_WORDS = {
    "full": "the disk is full",
    "readonly": "it is read-only, or its directory is: to be read it must lie where you may write, too",
    "locked": "another process has kept it locked for too long",
    "not a database": "the file is not a SQLite database",
    "malformed": "the file is damaged",
    "disk i/o": "the disk does not take or give the data",
}


class SqliteFile:
    """One journal file; it is opened, and created where allowed, at the first use after it could not be.

    Every use first looks whether the file is still the one that was opened: SQLite would go on writing
    into a file that someone has deleted, and an intent written there would not survive a crash.
    """

    def __init__(self, path: Path, create: bool = True, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path.absolute()
        self.create = create
        self.busy_seconds = busy_seconds
        self.engine = sa.create_engine(
            URL.create("sqlite+pysqlite", database=str(self.path)),
            connect_args={"timeout": busy_seconds},
            json_serializer=lambda value: orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode(),
            json_deserializer=orjson.loads,
        )
        event.listen(self.engine, "connect", _prepare)
        event.listen(self.engine, "begin", _begin)
        self._lock = threading.Lock()
        self._opened: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return str(self.path)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is on the disk when the block has ended."""
        with self._translated("written"):
            self._open()
            with self._transaction(writes=True) as connection:
                yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A consistent view that neither waits for a writer nor holds one up."""
        with self._translated("read"):
            self._open()
            with self._transaction(writes=False) as connection:
                yield connection

    def close(self) -> None:
        """Give back the connections; a later use opens the file again."""
        with self._lock:
            self._opened = None
            self.engine.dispose()

    @contextmanager
    def _transaction(self, writes: bool) -> Iterator[Connection]:
        with self.engine.connect().execution_options(writes=writes) as connection, connection.begin():
            yield connection

    def _open(self) -> None:
        with self._lock:
            found = self._identity()
            if found is not None and found == self._opened:
                return
            self._opened = None
            self.engine.dispose()
            self._check_place(found)
            self._bring_up_to_date()
            self._opened = self._identity()

    def _check_place(self, found: tuple[int, int] | None) -> None:
        if self.path.is_dir():
            raise JournalUnavailable(f"the journal {self.name} is a directory; a file is expected")
        if found is None and not self.create:
            raise JournalUnavailable(f"there is no journal at {self.name}")
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _bring_up_to_date(self) -> None:
        if self._identity() is not None:
            with self._transaction(writes=False) as connection:
                version = version_of(connection, self.name)
            check_version(version, self.name)
            if version == present_version():
                return
            if version == 0 and not self.create:
                # an empty file is perhaps somebody's log, and no place for tables
                raise JournalUnavailable(f"there is no journal at {self.name}")
        self._use_write_ahead_log()
        with self._transaction(writes=True) as connection:
            migrate(connection, self.name)

    def _use_write_ahead_log(self) -> None:
        """Readers and a writer side by side; SQLite does not wait for its lock here, so this does."""
        give_up_at = time.monotonic() + self.busy_seconds
        while True:
            try:
                raw = self.engine.raw_connection()
                try:
                    raw.cursor().execute("PRAGMA journal_mode=WAL")
                finally:
                    raw.close()
                return
            except (sqlite3.OperationalError, DBAPIError) as error:
                if "locked" not in str(error) or time.monotonic() > give_up_at:
                    raise
                time.sleep(0.02)

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    @contextmanager
    def _translated(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, orjson.JSONDecodeError, OSError) as error:
            self.close()  # a connection that met a full or damaged disk is not trusted again
            raise JournalUnavailable(
                f"the journal {self.name} cannot be {verb}: {_in_plain_words(error)}"
            ) from error


def _prepare(connection: sqlite3.Connection, _: object) -> None:
    # The driver's own transactions begin too late: a reader that turns writer would be refused at once
    # instead of waiting for its turn. `_begin` starts them instead.
    connection.isolation_level = None
    # FULL: an intent is on the disk before its effect, also if the machine loses power in between.
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _in_plain_words(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, orjson.JSONDecodeError):
        return f"a row is damaged ({error})"
    cause = str(error.orig) if isinstance(error, DBAPIError) else str(error)
    for sign, words in _PLAIN_WORDS.items():
        if sign in cause.lower():
            return f"{words} ({cause})"
    return cause
