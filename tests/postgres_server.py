"""A real PostgreSQL server on loopback, in a directory of its own, for the length of a test session."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.waiting import wait_for

PATIENCE_SECONDS = 60
_numbers = itertools.count()


class PostgresServer:
    """Can be stopped and started again; its data stay."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        _give_away(directory)
        _run(
            _program("initdb"),
            "-D",
            str(self._data),
            "-U",
            "penstock",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
        )

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    def start(self) -> None:
        options = ["-D", str(self._data), "-p", str(self.port), "-k", str(self.directory), "-h", "127.0.0.1"]
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [_program("postgres"), *options, "-c", "fsync=off"], stdout=log, stderr=log, **_user()
            )
        wait_for("PostgreSQL", self._answers, seen=self._read_log)

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
        if self._process is not None:
            self._process.send_signal(2)  # a fast shutdown: open connections are cut
            self._process.wait(timeout=PATIENCE_SECONDS)
            self._process = None

    def url(self, database: str) -> str:
        return f"postgresql://penstock@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The address of an empty database."""
        name = f"journal_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)


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


def _user() -> dict[str, int]:
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
