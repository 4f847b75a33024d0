"""A lock on a job, so that no two drivers share its checkpoint.

The driver inherits the locked file: the lock holds as long as the supervisor or its driver lives, and goes
with them however they end. Nobody has to find out whether a number still is the same process.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from penstock.errors import ActionFailed, Unsupported
from penstock.journal.private_files import make_private_directory

VARIABLE = "SUPERVISED_LOCK"
"""Names the locked file's number in the environment of a supervised driver."""
LONGEST_NOTE = 4096


class JobLock:
    """The lock of one job among those of this user, in his runtime directory."""

    def __init__(self, directory: Path, job: str) -> None:
        digest = hashlib.sha256(job.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self._path = directory / f"job-{digest}.lock"
        self._file: int | None = None

    def take(self) -> None:
        """Take the lock, or raise ActionFailed and name its holder; Unsupported if nothing can be locked."""
        make_private_directory(self._path.parent)
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unsupported(f"{self._path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read_holder(file)
            os.close(file)
            raise ActionFailed(
                f"this job already runs{holder}, and two would share a checkpoint: end that one first"
            ) from None
        except OSError as error:
            os.close(file)
            raise Unsupported(f"{self._path} cannot be locked: {error.strerror}") from error
        self._file = file
        self.note(supervisor=os.getpid())

    def note(self, **holder: int) -> None:
        """Write into the file who holds it, for the message to whoever comes second."""
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, orjson.dumps(holder), 0)

    def passed_on(self) -> tuple[int, ...]:
        """Return what the driver is to inherit."""
        return () if self._file is None else (self._file,)

    def close(self) -> None:
        """Let go; a driver that still lives holds on."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def hold_inherited_lock() -> None:
    """Hold the lock of this driver's job to its end, and let nothing that it starts hold it longer."""
    number = os.environ.pop(VARIABLE, "")
    if number.isdecimal():
        # whoever passes the variable on may have closed the file
        with suppress(OSError):
            os.set_inheritable(int(number), False)


def _read_holder(file: int) -> str:
    try:
        holder: Any = orjson.loads(os.pread(file, LONGEST_NOTE, 0))
        return f" as process {int(holder.get('driver') or holder['supervisor'])}"
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return ""
