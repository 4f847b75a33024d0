"""Places for a journal: it can be away, locked, full, read-only or deleted, and servers fail over.

The file lies on a small disk of its own, a tmpfs, so that a full disk is one and not an imitation. That takes
the right to mount; without it these cells are told as not measured.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.journal.databases import PostgresDatabase, SqliteFile
from penstock.journal.store import Journal
from penstock_lab.experiments.faults.disks import SmallDisk
from penstock_lab.experiments.faults.matrix import FILE_FAULTS, SERVER_FAULTS
from penstock_lab.ground.postgres_server import PostgresServer, StandbyPair

BUSY_SECONDS = 0.05
"""How long a writer waits for another one here: virtual time stands still meanwhile."""


class JournalPlace(ABC):
    """Where a journal is, and the fault that it can have."""

    @property
    @abstractmethod
    def address(self) -> str:
        """The setting `journal` with which it is found."""

    @abstractmethod
    def open(self) -> Journal:
        """Return the journal, which is opened at its first use."""

    @abstractmethod
    def strike(self) -> None:
        """Let the fault begin."""

    @abstractmethod
    def mend(self) -> None:
        """Let it end."""


class FilePlace(JournalPlace):
    """A SQLite file on a small disk."""

    def __init__(self, disk: SmallDisk, fault: str = "") -> None:
        self._disk, self._home = disk, disk.path / "home"
        self._home.mkdir(mode=0o700)
        self.path = self._home / "journal.db"
        strikes: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "journal away": (self._take_away, self._bring_back),
            "journal locked": (self._lock, self._unlock),
            "journal full": (disk.fill, disk.empty),
            "journal read-only": (lambda: disk.cover(self._home), lambda: disk.uncover(self._home)),
            "journal deleted": (self._delete, lambda: None),
        }
        self._strike, self._mend = strikes.get(fault, (lambda: None, lambda: None))
        self._locking: sqlite3.Connection | None = None

    @property
    def address(self) -> str:
        """The path of the file."""
        return str(self.path)

    def open(self) -> Journal:
        """Return the journal in the file; it does not wait for locks as long as an application's."""
        return Journal(SqliteFile(self.path, busy_seconds=BUSY_SECONDS))

    def strike(self) -> None:
        """Let the fault begin."""
        self._strike()

    def mend(self) -> None:
        """Let it end."""
        self._mend()

    def _take_away(self) -> None:
        """Move the directory, and leave nothing in its place in which a new one could be made."""
        self._home.rename(self._disk.path / "elsewhere")
        self._home.write_bytes(b"")

    def _bring_back(self) -> None:
        self._home.unlink()
        (self._disk.path / "elsewhere").rename(self._home)

    def _lock(self) -> None:
        self._locking = sqlite3.connect(self.path, isolation_level=None)
        self._locking.execute("BEGIN EXCLUSIVE")

    def _unlock(self) -> None:
        if self._locking is not None:
            self._locking.execute("ROLLBACK")
            self._locking.close()

    def _delete(self) -> None:
        for file in self._home.iterdir():
            file.unlink()


class DatabasePlace(JournalPlace):
    """A database of PostgreSQL; its address may name several servers."""

    def __init__(self, address: str) -> None:
        self._address = address

    @property
    def address(self) -> str:
        """The database's address."""
        return self._address

    def open(self) -> Journal:
        """Return the journal in the database."""
        return Journal(PostgresDatabase(self._address))


class ServerPlace(DatabasePlace):
    """A database of a PostgreSQL server, which goes away and comes back."""

    def __init__(self, server: PostgresServer) -> None:
        super().__init__(server.new_database())
        self._server = server

    def strike(self) -> None:
        """Stop the server: open connections are cut."""
        self._server.stop()

    def mend(self) -> None:
        """Start it again."""
        self._server.start()


class PairPlace(DatabasePlace):
    """A database of two servers, of which the second takes over."""

    def __init__(self, pair: StandbyPair) -> None:
        super().__init__(pair.new_database())
        self._pair = pair

    def strike(self) -> None:
        """Kill the first server, as a crash of its machine does."""
        self._pair.first.kill()

    def mend(self) -> None:
        """Let the second one take over."""
        self._pair.promote()


@contextmanager
def open_place(fault: str = "") -> Iterator[JournalPlace]:
    """Prepare a place with this fault; any other fault than a journal's leaves it alone."""
    if fault in SERVER_FAULTS:
        directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        try:
            with StandbyPair(directory, alone=fault == SERVER_FAULTS[0]) as pair:
                yield ServerPlace(pair.first) if fault == SERVER_FAULTS[0] else PairPlace(pair)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return
    if fault in FILE_FAULTS:
        with SmallDisk() as disk:
            yield FilePlace(disk, fault)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-journal-") as directory_name:
        disk = SmallDisk()
        disk.path = Path(directory_name)
        yield FilePlace(disk)
