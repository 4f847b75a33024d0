"""Files of a fleet: read within bounds, written whole, and believed by who owns them."""

from __future__ import annotations

import os
import re
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

from penstock.errors import ActionFailed, BadInput

MIB = 1 << 20
MOST_FILE_BYTES = 64 * MIB
"""A hundred thousand windows as agents send them take about as much."""
WAY_OUT = "or give the fleet a key, `fleet_key_file`"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_LOCAL = re.compile(r"^file:(?://)?(?=/)")


def read_bounded(path: Path) -> bytes:
    """Read a regular file that is not too large; BadInput otherwise, also if it grows meanwhile."""
    with _open_regular(path) as file:
        check_size(os.fstat(file.fileno()).st_size, MOST_FILE_BYTES)
        content = file.read(MOST_FILE_BYTES + 1)
    check_size(len(content), MOST_FILE_BYTES)
    return content


def _open_regular(path: Path) -> BinaryIO:
    """Open a file to read it; BadInput where it is none, as a pipe, and without waiting for one."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise BadInput("not a regular file")
    return file


def count_lines(path: Path) -> int:
    """Count the lines of a file of any size; one that cannot be read has none."""
    try:
        with _open_regular(path) as file:
            return sum(part.count(b"\n") for part in iter(lambda: file.read(MIB), b""))
    except (BadInput, OSError):
        return 0


def check_size(size: int, most: int) -> None:
    """Refuse more bytes than are allowed."""
    if size > most:
        raise BadInput(f"{_show_size(size)} are more than the {_show_size(most)} that it may have")


def _show_size(size: int) -> str:
    return f"{size} bytes" if size < MIB else f"{size / MIB:,.1f} MiB"


def write_whole(path: Path, content: bytes) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, never a part.

    The unfinished file has a name that nobody can guess, and is a new one: whoever may write to the directory
    could have laid a link there, or keep open what he made himself.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        make_directory(path.parent)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ActionFailed(f"{path}: cannot be written: {error.strerror}") from error


def make_directory(path: Path) -> None:
    """Make a directory and those above it; whatever the umask, others cannot write to it."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(mode=0o755, exist_ok=True)


def local_path(address: str) -> Path | None:
    """Return the path of a file as Spark names it; None where it is on no file system of this machine."""
    path = _LOCAL.sub("", address)
    return Path(path) if path.startswith("/") else None


def find_trusted_users() -> frozenset[int]:
    """Return the users whose files are believed: this one and root."""
    return frozenset({0, os.geteuid()})


class Ownership:
    """Says why files are not believed; each directory is looked at once, so make a new one for each round."""

    def __init__(self, users: frozenset[int]) -> None:
        self._users = users
        self._known: dict[Path, str] = {}

    def distrust_file(self, path: Path) -> str:
        """Say why a file is not believed, and the way out; empty if it is."""
        return self._distrust(path) or self.distrust_directory(path.parent)

    def distrust_directory(self, path: Path) -> str:
        """Say why nothing in a directory is believed: it, or one above it, is open to others."""
        if path not in self._known:
            places = dict.fromkeys((path.absolute(), path.resolve()))
            above = dict.fromkeys(parent for place in places for parent in place.parents)
            faults = [*map(self._distrust, places), *(self._distrust(one, is_above=True) for one in above)]
            self._known[path] = next(filter(None, faults), "")
        return self._known[path]

    def _distrust(self, path: Path, is_above: bool = False) -> str:
        try:
            found = path.stat()
        except OSError as error:
            return f"{path}: its owner cannot be looked at: {error.strerror}"
        if found.st_uid not in self._users:
            return f"{path}: belongs to user {found.st_uid}, who is not believed: chown it, {WAY_OUT}"
        # in a sticky directory, as /tmp, nobody can replace what is another's
        if found.st_mode & _OTHERS and not (is_above and found.st_mode & stat.S_ISVTX):
            return f"{path}: others may write it: chmod go-w it, {WAY_OUT}"
        return ""
