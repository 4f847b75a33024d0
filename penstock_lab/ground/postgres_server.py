"""Real PostgreSQL servers on loopback, each in a directory of its own: one, or one with a standby."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg

PATIENCE_SECONDS = 60
_numbers = itertools.count()


class PostgresServer:
    """Can be stopped and started again; its data stay."""

    def __init__(self, directory: Path, copied_from: PostgresServer | None = None) -> None:
        """A server that is a copy of another one follows it."""
        self.directory = directory
        self.port = _free_port()
        self.options: tuple[str, ...] = ()
        self._process: subprocess.Popen[bytes] | None = None
        _give_away(directory)
        if copied_from is None:
            plain = ("-U", "penstock", "-A", "trust", "--no-sync", "-E", "UTF8")
            _run(_program("initdb"), "-D", str(self._data), *plain)
        else:
            source = ("-d", copied_from.url("postgres"), "--checkpoint=fast", "--no-sync")
            _run(_program("pg_basebackup"), "-D", str(self._data), "--write-recovery-conf", *source)

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = ["-D", str(self._data), "-p", str(self.port), "-k", str(self.directory), "-h", "127.0.0.1"]
        command = [_program("postgres"), *options, "-c", "fsync=off", *self.options]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **_user())
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            if time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL does not answer:\n{self._read_log()}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"PostgreSQL did not start:\n{self._read_log()}")
        try:
            psycopg.connect(self.url("postgres")).close()
        except psycopg.OperationalError:
            return False
        return True

    def _read_log(self) -> str:
        return (self.directory / "server.log").read_text()[-2000:]

    def stop(self) -> None:
        """End it in order; open connections are cut."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)  # a fast shutdown
            self._process.wait(timeout=PATIENCE_SECONDS)
            self._process = None

    def kill(self) -> None:
        """End it as a crash of its machine does; its children notice and end, too."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def promote(self) -> None:
        """Let a standby lead."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true, 60)")

    def url(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://penstock@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Make an empty database, and return its address."""
        name = f"journal_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)


class StandbyPair:
    """A server and a standby that has every commit before it is confirmed, for the length of a `with`."""

    def __init__(self, directory: Path, alone: bool = False) -> None:
        """`alone` leaves the standby out."""
        self._directory, self._alone = directory, alone
        self._servers: list[PostgresServer] = []

    def __enter__(self) -> Self:
        try:
            self._directory.chmod(0o755)
            self._add("first")
            if not self._alone:
                self.second = self._add("second", self.first)
                named = "ALTER SYSTEM SET synchronous_standby_names = '*'"
                with psycopg.connect(self.first.url("postgres"), autocommit=True) as connection:
                    connection.execute(named)
                    connection.execute("SELECT pg_reload_conf()")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        # the follower first: a leader waits for it with its end
        for server in reversed(self._servers):
            server.stop()

    @property
    def first(self) -> PostgresServer:
        """The server that leads at first."""
        return self._servers[0]

    def promote(self) -> None:
        """Let the second server take over; nobody follows it."""
        self.second.promote()
        with psycopg.connect(self.second.url("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            connection.execute("SELECT pg_reload_conf()")

    def new_database(self) -> str:
        """Return the address of an empty database, with both servers: the one that can be written counts."""
        made = self.first.new_database()
        if self._alone:
            return made
        name = made.rpartition("/")[2]
        hosts = "&".join(f"host=127.0.0.1:{server.port}" for server in self._servers)
        return f"postgresql://penstock@/{name}?{hosts}&target_session_attrs=read-write"

    def _add(self, name: str, copied_from: PostgresServer | None = None) -> PostgresServer:
        place = self._directory / name
        place.mkdir()
        server = PostgresServer(place, copied_from)
        self._servers.append(server)
        server.start()
        return server


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server for the length of a `with`."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    server = None
    try:
        server = PostgresServer(directory)
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _program(name: str) -> str:
    """On the path, or where Debian puts it."""
    found = shutil.which(name) or next(
        (str(path) for path in sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)), None
    )
    if found is None:
        raise RuntimeError(f"{name} is not there: install PostgreSQL, or run scripts/setup.sh postgres")
    return found


def _user() -> dict[str, Any]:
    """The server refuses to run as root."""
    if os.getuid() != 0:
        return {}
    account = pwd.getpwnam("postgres")
    return {"user": account.pw_uid, "group": account.pw_gid}


def _give_away(directory: Path) -> None:
    if owner := _user():
        os.chown(directory, owner["user"], owner["group"])


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **_user())
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
