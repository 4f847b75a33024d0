"""What a server for Spark Connect is told, whom it lets in, and where its clients find it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import BadInput, Unsupported
from penstock.journal.private_files import make_private_directory, write_secret
from penstock.runtime.listening import is_loopback, why_not_free

PORT_KEY, ADDRESS_KEY = "spark.connect.grpc.binding.port", "spark.connect.grpc.binding.address"
TOKEN_KEY, TOKEN_VARIABLE = "spark.connect.authenticate.token", "SPARK_CONNECT_AUTHENTICATE_TOKEN"
USUAL_PORT = 15002
"""The port that a client of Spark Connect takes where its address names none."""

DEFAULTS = {
    ADDRESS_KEY: "127.0.0.1",
    PORT_KEY: str(USUAL_PORT),
    # as Spark's own server has them: files and classes of one client are not those of another
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}


def complete_conf(given: Mapping[str, str], port: int | None) -> dict[str, str]:
    """Return Spark's settings of a server: loopback, unless `given` names another address."""
    asked = {} if port is None else {PORT_KEY: str(port)}
    return {**DEFAULTS, **given, **asked}


def choose_token(given: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, bool]:
    """Return the token that clients must have, and whether the user gave it; else it is a new one."""
    known = given.get(TOKEN_KEY) or environment.get(TOKEN_VARIABLE)
    return (known, True) if known else (secrets.token_urlsafe(32), False)


@contextmanager
def keep_token(directory: Path, port: int, token: str) -> Iterator[Path]:
    """Keep a token where only this user can read it, until the server ends."""
    make_private_directory(directory)
    file = directory / f"connect-{port}.token"
    # of a server that was killed: this one has its port now
    file.unlink(missing_ok=True)
    try:
        write_secret(file, token)
        yield file
    finally:
        file.unlink(missing_ok=True)


def name_address(host: str, port: int) -> str:
    """Return where clients find the server: a token goes to `localhost` alone without TLS."""
    if is_loopback(host):
        return f"sc://localhost:{port}"
    return f"sc://[{host}]:{port}" if ":" in host else f"sc://{host}:{port}"


def read_port(conf: Mapping[str, str]) -> int:
    """Return the port to listen at; 0 takes a free one."""
    written = conf[PORT_KEY]
    if not written.isascii() or not written.isdecimal() or int(written) > 65535:
        raise BadInput(f"{PORT_KEY}: a port from 0 to 65535 is expected, not {written!r}")
    return int(written)


def require_free(host: str, port: int, way_out: str) -> None:
    """Refuse an address at which nobody can listen, before Spark is up."""
    problem = why_not_free(host, port)
    if problem is not None:
        raise Unsupported(f"cannot serve at {host}:{port}: {problem}; {way_out}")
