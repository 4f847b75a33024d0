"""Who may speak for whom in a fleet: keys and their files, and the signatures of windows and decisions.

An application's key follows from the fleet's key and its name, so one that has only its own speaks for no
other. A window is signed as the bytes that are sent, and only signed bytes are parsed: no two parsers need to
agree. A decision is signed in one canonical form, and the agent uses what it reads from that form alone.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from penstock.errors import BadInput
from penstock.journal.private_files import read_secret, write_secret

SIGNATURE = "signature"
UNSIGNED = "no signature: windows are signed where the fleet has a key"
MISFIT = "the signature does not fit the application's name"
_LINE = re.compile(rb'\{"application":("(?:[^"\\]|\\.)*"),')
_MARK = b',"signature":"'
_TAIL = len(_MARK) + 64 + len(b'"}')
"""Bytes of a signature at the end of a line."""
_FLEET, _APPLICATION = "penstock-fleet-key-1", "penstock-application-key-1"
_SECRET = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ApplicationKey:
    """The key of one application: signs its windows, and opens the decisions that are meant for it."""

    name: str
    secret: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The line of a key file."""
        return f"{_APPLICATION} {self.secret.hex()} {orjson.dumps(self.name).decode()}"

    def for_application(self, name: str) -> ApplicationKey:
        """Return the key itself; it is of no use to another application."""
        if name != self.name:
            raise BadInput(f"the key of {self.name!r}, and this application is named {name!r}")
        return self

    def sign_line(self, record: Mapping[str, Any]) -> bytes:
        """Return a window as one line of JSON, its application first and its signature last."""
        named = {"application": record["application"], **record}
        body = orjson.dumps(named)[:-1]
        return body + _MARK + _window_signature(self.secret, body) + b'"}'

    def open_decision(self, row: object) -> dict[str, Any]:
        """Return what was signed of a decision; ValueError if it is for another, or not signed."""
        if not isinstance(row, Mapping) or row.get("application") != self.name:
            raise ValueError("not a decision for this application")
        text, given = _canonical(row), str(row.get(SIGNATURE)).encode()
        if not hmac.compare_digest(given, _decision_signature(self.secret, text).encode()):
            raise ValueError("the signature does not fit")
        opened: dict[str, Any] = orjson.loads(text)
        return opened


@dataclass(frozen=True, slots=True)
class FleetKey:
    """The key that a fleet shares: whoever holds it speaks for every application, and decides."""

    secret: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The line of a key file."""
        return f"{_FLEET} {self.secret.hex()}"

    def for_application(self, name: str) -> ApplicationKey:
        """Derive an application's key."""
        return ApplicationKey(name, self._derive(name))

    def _derive(self, name: str) -> bytes:
        return hmac.digest(self.secret, b"application:" + name.encode(), "sha256")

    def find_signer(self, line: bytes) -> str:
        """Return the application that a window in JSON names, if it is signed by it; else BadInput."""
        body, tail = line[:-_TAIL], line[-_TAIL:]
        named = _LINE.match(body)
        if named is None or not tail.startswith(_MARK):
            raise BadInput(UNSIGNED)
        try:
            name: str = orjson.loads(named[1])
            secret = self._derive(name)
        except ValueError:
            raise BadInput(MISFIT) from None
        if not hmac.compare_digest(tail, _MARK + _window_signature(secret, body) + b'"}'):
            raise BadInput(MISFIT)
        return name

    def sign(self, decisions: pa.Table) -> pa.Table:
        """Return the decisions with the signature of each, by the key of the application that it is for."""
        rows = decisions.to_pylist()
        signatures = [_decision_signature(self._derive(row["application"]), _canonical(row)) for row in rows]
        return decisions.append_column(SIGNATURE, pa.array(signatures, pa.string()))


Key = FleetKey | ApplicationKey


def write_line(record: Mapping[str, Any], key: ApplicationKey | None) -> bytes:
    """Return a window as the line of JSON that an agent sends, signed where it has a key."""
    return orjson.dumps(dict(record)) if key is None else key.sign_line(record)


def parse_key(text: str) -> Key:
    """Read the line of a key file; what is wrong with it is told without the secret."""
    kind, _, rest = text.strip().partition(" ")
    secret, _, name = rest.partition(" ")
    if kind not in (_FLEET, _APPLICATION) or not _SECRET.fullmatch(secret):
        raise BadInput("not a key of a fleet: `penstock fleet key FILE` makes one")
    if kind == _FLEET and not name:
        return FleetKey(bytes.fromhex(secret))
    try:
        named = orjson.loads(name)
    except ValueError:
        named = None
    if kind == _FLEET or not isinstance(named, str):
        raise BadInput("a key with something else behind it than the application's name in quotes")
    return ApplicationKey(named, bytes.fromhex(secret))


def _window_signature(secret: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, b"window\0" + body, "sha256").hex().encode()


def _decision_signature(secret: bytes, text: bytes) -> str:
    return hmac.digest(secret, b"decision\0" + text, "sha256").hex()


def _canonical(row: Mapping[str, Any]) -> bytes:
    """Return the decision's members in the order of their names; NaN and what is missing are both null."""
    signed = {name: value for name, value in row.items() if name != SIGNATURE}
    return orjson.dumps(signed, option=orjson.OPT_SORT_KEYS)


def read_key(path: Path) -> Key:
    """Read a key file; refuse one that is not this user's alone, with the way out."""
    text = read_secret(path, "the key")
    try:
        return parse_key(text)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def read_fleet_key(path: Path) -> FleetKey:
    """Read the key of a whole fleet; one application's is not enough to judge others."""
    key = read_key(path)
    if not isinstance(key, FleetKey):
        raise BadInput(f"{path}: the key of the application {key.name!r} alone; the fleet's key is needed")
    return key


def make_fleet_key() -> FleetKey:
    """Draw a new key."""
    return FleetKey(secrets.token_bytes(32))


def write_key(path: Path, key: Key) -> None:
    """Write a key to a new file that only this user can read; one that is there is never written over."""
    try:
        write_secret(path, key.text)
    except FileExistsError:
        raise BadInput(f"{path}: there is a file already; a key is never written over") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be made: {error.strerror}") from None
