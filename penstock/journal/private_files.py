"""Files and directories for one user alone: what others made first, or could write to, is refused."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from penstock.errors import BadInput, Unsupported

ROOT = 0
SECRET_MODES = (0o600, 0o400)
LONGEST_SECRET = 4096
"""Bytes that are read of a file with a secret."""
SIDES = ("", "-wal", "-shm", "-journal")
"""Files that SQLite keeps beside a database, and believes."""


def make_own_directory(directory: Path, *owners: int) -> os.stat_result:
    """Make the directory with mode 0700, or refuse one that is none of these owners'.

    Returns the status of what has this name, which may be a link.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_owner(directory, *owners)
        return directory.lstat()
    except OSError as error:
        raise Unsupported(f"cannot use the directory {directory}: {error}") from error


def make_private_directory(directory: Path) -> None:
    """Make the directory with mode 0700, or refuse one that others own or could write to."""
    found = make_own_directory(directory, os.geteuid())
    if not stat.S_ISDIR(found.st_mode):
        raise Unsupported(f"{directory} is not a directory")
    if stat.S_IMODE(found.st_mode) & 0o077:
        # not repaired by us: a setting may point at a directory that is shared on purpose
        raise Unsupported(f"{directory} is open to other users; its mode must be 0700")


def require_owner(path: Path, *owners: int) -> None:
    """Refuse what belongs to anybody else, or is reached by anybody else's link."""
    for found in (path.lstat(), path.stat()):
        if found.st_uid not in owners:
            raise Unsupported(f"{path} belongs to another user (uid {found.st_uid})")


def require_own_database(path: Path, user: int) -> None:
    """Refuse a SQLite file, or a part of it, that another user owns or may have written to.

    The directory counts as well, unless the file is there and the user's own.
    """
    if path.is_symlink() and path.lstat().st_uid not in (user, ROOT):
        raise Unsupported(f"{path} belongs to another user (uid {path.lstat().st_uid})")
    file = path.resolve()
    if not (file.exists() and file.stat().st_uid == user):
        make_own_directory(path.parent, user, ROOT)
    for part in _parts(file):
        # SQLite removes what is beside the file with its last connection
        with suppress(FileNotFoundError):
            require_owner(part, user, ROOT)
            if part.stat().st_mode & 0o022:
                raise Unsupported(f"{part} can be written by other users: chmod 600 it if you trust it")


def create_database(path: Path) -> None:
    """Create an empty file that only its user may open; SQLite gives what it puts beside it the same mode."""
    with suppress(FileExistsError):
        os.close(os.open(path.resolve(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def close_to_others(path: Path, user: int) -> None:
    """Take from others the right to read the user's own file, and what is beside it."""
    for part in _parts(path.resolve()):
        # a file system may know no modes; that others can read it is no reason not to use it
        with suppress(OSError):
            found = part.stat()
            if found.st_uid == user and stat.S_IMODE(found.st_mode) & 0o077:
                part.chmod(0o600)


def write_secret(path: Path, text: str) -> None:
    """Write one line to a new file that only this user can read; one that is there is never written over."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def read_secret(path: Path, what: str) -> str:
    """Read a file that holds a secret; refuse one that is not this user's alone, with the way out."""
    try:
        # without waiting, should it be a pipe
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise BadInput(f"{path}: {what} cannot be read: {error.strerror}") from None
    try:
        _check_secret(path, what, os.fstat(descriptor))
        return os.read(descriptor, LONGEST_SECRET).decode("utf-8", "replace")
    except OSError as error:
        raise BadInput(f"{path}: {what} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _check_secret(path: Path, what: str, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise BadInput(f"{path}: not a file that could hold {what}")
    if found.st_uid != os.geteuid():
        raise BadInput(
            f"{path}: {what} belongs to user {found.st_uid}, not to this one ({os.geteuid()}): "
            f"use a copy of your own"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode not in SECRET_MODES:
        raise BadInput(f"{path}: {what} has mode {mode:04o}, others may get at it: chmod 600 {path}")


def _parts(file: Path) -> list[Path]:
    return [Path(f"{file}{side}") for side in SIDES]
