"""The databases that hold a journal, a SQLite file or a PostgreSQL server, with their errors translated."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import orjson
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from penstock.errors import BadInput, JournalUnavailable, Unsupported
from penstock.journal.ports import hide_password
from penstock.journal.private_files import close_to_others, create_database, require_own_database
from penstock.journal.schema import check_version, migrate, present_version, read_version

log = logging.getLogger(__name__)

FILE_BUSY_SECONDS = 5.0
"""How long a writer waits for another process; one transaction of the journal takes milliseconds."""
CONNECT_SECONDS = 5
MOST_WAL_BYTES = 64 << 20
"""How large the log beside a file may get before what can be done without is not written any more: while one
reader is stuck in its transaction nothing of the log can be given back."""
STUCK_SECONDS = 10.0
"""How long a writer may do nothing in the middle of a transaction before the server breaks it off: one whose
process was stopped, or whose machine is gone, would keep all others from writing."""
SERVER_BUSY_SECONDS = 15.0
"""How long a writer waits for another one; longer than one that is stuck can hold it up."""
SILENT_SECONDS = 20.0
"""How long the machine of a server may give no sign, as one that is cut off: the system's own patience is a
quarter of an hour, and the loop stands still meanwhile."""
_LOCK = 7_305_118
"""The advisory lock under which one of several controllers writes, or brings the tables up to date."""

_WAY_OUT = "use a copy of your own, or name one in a directory of your own with the setting journal"


class Database(ABC):
    """The database under a journal; it is opened at its first use, and again after it was away."""

    plain_words: ClassVar[Mapping[str, str]] = {}
    """A part of the database's message → what it means."""

    def __init__(self, name: str, url: URL, create: bool, **options: Any) -> None:
        """`name` is what messages call it; with `create` its tables are made where there are none."""
        self.name, self.create = name, create
        self.engine = sa.create_engine(
            url,
            json_serializer=lambda value: orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode(),
            json_deserializer=orjson.loads,
            **options,
        )
        self._lock = threading.Lock()
        self._opened: object = None

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that no other writer shares, and that is durable when the block has ended."""
        with self._translate_errors("written"), self._transact(writes=True) as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a consistent view that neither waits for a writer nor holds one up."""
        with self._translate_errors("read"), self._transact(writes=False) as connection:
            yield connection

    def has_room(self) -> bool:
        """Tell whether what can be done without may be written, too."""
        return True

    def close(self) -> None:
        """Give back the connections; a later use opens the database again."""
        with self._lock:
            self._opened = None
            self.engine.dispose()

    @abstractmethod
    def _open(self) -> None:
        """See that the tables are there and up to date."""

    @abstractmethod
    def _begin(self, writes: bool) -> AbstractContextManager[Connection]:
        """Begin a transaction in the open database."""

    @contextmanager
    def _transact(self, writes: bool) -> Iterator[Connection]:
        with self._lock:
            self._open()
        with self._begin(writes) as connection:
            yield connection

    def _require_tables(self, version: int) -> bool:
        """Refuse what is no journal of ours; tell whether its tables are up to date."""
        check_version(version, self.name)
        if version == 0 and not self.create:
            # an empty file is perhaps somebody's log, and no place for tables
            raise JournalUnavailable(f"there is no journal at {self.name}")
        return version == present_version()

    @contextmanager
    def _translate_errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error, orjson.JSONDecodeError, OSError) as error:
            # a connection that met a full disk is not trusted again, and a server may come back as another
            self.close()
            said = self._describe(error)
            raise JournalUnavailable(f"the journal {self.name} cannot be {verb}: {said}") from error

    def _describe(self, error: Exception) -> str:
        if isinstance(error, OSError):
            return error.strerror or str(error)
        if isinstance(error, orjson.JSONDecodeError):
            return f"a row is damaged ({error})"
        cause = " ".join(str(error.orig if isinstance(error, DBAPIError) else error).split())
        for sign, words in self.plain_words.items():
            if sign in cause.lower():
                return f"{words} ({cause})"
        return cause or type(error).__name__


class SqliteFile(Database):
    """One journal file, with a write-ahead log.

    Every use first looks whether the file is still the one that was opened: SQLite would go on writing
    into a file that someone has deleted, and an intent written there would not survive a crash.
    """

    plain_words: ClassVar[Mapping[str, str]] = {
        "full": "the disk is full",
        "readonly": "it is read-only, or its directory is: to be read it must lie where you may write, too",
        "locked": "another process has kept it locked for too long",
        "not a database": "the file is not a SQLite database",
        "malformed": "the file is damaged",
        "disk i/o": "the disk does not take or give the data",
    }

    def __init__(
        self,
        path: Path,
        create: bool = True,
        busy_seconds: float = FILE_BUSY_SECONDS,
        user: int | None = None,
        most_wal_bytes: int = MOST_WAL_BYTES,
    ) -> None:
        """`user` is whose files are believed beside root's: by default that of this process."""
        self.path = path.absolute()
        self.busy_seconds, self._most_wal_bytes = busy_seconds, most_wal_bytes
        self._warned = False
        self.user = os.geteuid() if user is None else user
        url = URL.create("sqlite+pysqlite", database=str(self.path))
        super().__init__(str(self.path), url, create, connect_args={"timeout": busy_seconds})
        event.listen(self.engine, "connect", _prepare)
        event.listen(self.engine, "begin", _begin)

    @contextmanager
    def _begin(self, writes: bool) -> Iterator[Connection]:
        with self.engine.connect().execution_options(writes=writes) as connection, connection.begin():
            yield connection

    def has_room(self) -> bool:
        """Tell whether the log beside the file is small enough; one that is not is tried to be emptied."""
        room = self._wal_bytes() <= self._most_wal_bytes or self._empty_log()
        if not room and not self._warned:
            log.warning(
                "the journal %s: the log beside it has %d MiB, since a reader is stuck in the middle of its "
                "reading: observations are left out until that ends",
                self.name,
                self._wal_bytes() >> 20,
            )
        self._warned = not room
        return room

    def _wal_bytes(self) -> int:
        try:
            return Path(f"{self.path}-wal").stat().st_size
        except OSError:
            return 0

    def _empty_log(self) -> bool:
        """Try to empty the log without waiting for readers; tell whether that worked."""
        try:
            with closing(
                sqlite3.connect(f"{self.path.as_uri()}?mode=rw", timeout=0.0, uri=True)
            ) as connection:
                busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error:
            return False
        return not busy

    def _open(self) -> None:
        found = self._identify()
        if found is not None and found == self._opened:
            return
        self._opened = None
        self.engine.dispose()
        self._check_place(found)
        self._bring_up_to_date()
        close_to_others(self.path, self.user)
        self._opened = self._identify()

    def _check_place(self, found: tuple[int, int] | None) -> None:
        if self.path.is_dir():
            raise JournalUnavailable(f"the journal {self.name} is a directory; a file is expected")
        if found is None and not self.create:
            raise JournalUnavailable(f"there is no journal at {self.name}")
        try:
            require_own_database(self.path, self.user)
        except Unsupported as error:
            raise JournalUnavailable(
                f"the journal {self.name} cannot be used: {error}; {_WAY_OUT}"
            ) from error
        if self.create:
            create_database(self.path)

    def _bring_up_to_date(self) -> None:
        if self._identify() is not None:
            with self._begin(writes=False) as connection:
                version = read_version(connection, self.name)
            if self._require_tables(version):
                return
        self._use_write_ahead_log()
        with self._begin(writes=True) as connection:
            migrate(connection, self.name)

    def _use_write_ahead_log(self) -> None:
        """Let readers and a writer work side by side; SQLite does not wait for this lock, we do."""
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

    def _identify(self) -> tuple[int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino


def _prepare(connection: sqlite3.Connection, _: object) -> None:
    # The driver's own transactions begin too late: a reader that turns writer would be refused at once
    # instead of waiting for its turn. `_begin` starts them instead.
    connection.isolation_level = None
    # FULL: an intent is on the disk before its effect, also if the machine loses power in between.
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    # after a long log the file is cut back, and does not stay as large as it once was
    connection.execute(f"PRAGMA journal_size_limit={MOST_WAL_BYTES}")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _watch_for_silence(seconds: float) -> dict[str, int]:
    """Return the options by which a connection ends whose other machine gives no sign for so long."""
    probes = {"keepalives_idle": seconds / 2, "keepalives_interval": seconds / 4, "keepalives_count": 2.0}
    told = {name: max(1, round(value)) for name, value in probes.items()}
    return {**told, "tcp_user_timeout": round(seconds * 1000)}


class PostgresDatabase(Database):
    """One journal in a PostgreSQL database.

    Writers take turns, as with SQLite: only then are the numbers of rows given out in the order of commits.
    """

    def __init__(
        self,
        url: str,
        create: bool = True,
        busy_seconds: float = SERVER_BUSY_SECONDS,
        stuck_seconds: float = STUCK_SECONDS,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        try:
            parsed = make_url(url).set(drivername="postgresql+psycopg")
        except (ArgumentError, ValueError):
            raise BadInput("the journal's address is not postgresql://USER@HOST:PORT/DATABASE") from None
        self._patience = {"lock": f"{busy_seconds * 1000:.0f}ms", "idle": f"{stuck_seconds * 1000:.0f}ms"}
        patience = {"connect_timeout": CONNECT_SECONDS, **_watch_for_silence(silent_seconds)}
        given = {name: value for name, value in patience.items() if name not in parsed.query}
        # the ping notices a connection that a restart of the server has broken, before it is used
        options = {"connect_args": given, "pool_pre_ping": True}
        try:
            super().__init__(hide_password(url), parsed, create, **options)
        except ImportError:
            raise Unsupported(
                "a journal in PostgreSQL needs psycopg: install penstock with its extra, penstock[postgres]"
            ) from None

    @contextmanager
    def _begin(self, writes: bool) -> Iterator[Connection]:
        if writes:
            with self.engine.begin() as connection:
                self._take_turn(connection)
                yield connection
        else:
            isolated = self.engine.connect().execution_options(isolation_level="REPEATABLE READ")
            with isolated as connection, connection.begin():
                yield connection

    def _open(self) -> None:
        if self._opened:
            return
        with self.engine.begin() as connection:
            if not self._require_tables(read_version(connection, self.name)):
                self._take_turn(connection)
                migrate(connection, self.name)
        self._opened = True

    def _take_turn(self, connection: Connection) -> None:
        """Wait, within bounds, until no other writer is at it; this holds for this transaction alone."""
        patience = "set_config('lock_timeout', :lock, true), "
        patience += "set_config('idle_in_transaction_session_timeout', :idle, true)"
        connection.execute(sa.text(f"SELECT {patience}"), self._patience)
        connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
