"""Diagnoses that were asked for on a page: uploads within bounds, one process each, all of it removed."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from penstock.diagnose.path.spans import Span
from penstock.errors import ActionFailed, BadInput, NotFound
from penstock.units.figures import size
from penstock.view.dashboard.streaming import SteadyRounds

MOST_BYTES = 2 << 30
"""Of a log that is sent; a larger one can be named by its path."""
MOST_AT_ONCE, MOST_WAITING = 2, 4
MOST_KEPT = 10
LONGEST_LINE = 1 << 20
"""Bytes of a line of a diagnosis: it holds the answers."""
LONGEST_NAME = 120
LOOK_SECONDS, REST_SECONDS = 0.5, 10.0


@dataclass(slots=True)
class DiagnosisJob:
    """One diagnosis: what of, how far it is, and what came of it."""

    key: str
    name: str
    directory: Path
    pace: SteadyRounds
    begun: float = field(default_factory=time.time)
    progress: str = "waiting for its turn"
    error: str = ""
    answers: list[dict[str, str]] = field(default_factory=list)
    ended: float | None = None
    task: asyncio.Task[None] | None = None

    @property
    def page(self) -> Path:
        """Where the report is once it is done."""
        return self.directory / "report.html"

    def follow(self) -> AsyncIterator[None]:
        """Come back from time to time, also when it has ended: a browser that is cut off would try again."""
        return self.pace.follow(lambda: LOOK_SECONDS if self.ended is None else REST_SECONDS)


class Jobs:
    """All diagnoses of a server; the oldest are forgotten, with their files."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._jobs: dict[str, DiagnosisJob] = {}
        self._planned: list[tuple[DiagnosisJob, Path, Span]] = []
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)
        self._pace = SteadyRounds()
        self._room: tempfile.TemporaryDirectory[str] | None = None

    def list_jobs(self) -> list[DiagnosisJob]:
        """List them, newest first."""
        return sorted(self._jobs.values(), key=lambda job: -job.begun)

    def find(self, key: str) -> DiagnosisJob:
        """Return one; NotFound where there is none."""
        if key not in self._jobs:
            raise NotFound("there is no such diagnosis any more")
        return self._jobs[key]

    def diagnose(self, path: Path) -> DiagnosisJob:
        """Diagnose what is at a path of this machine."""
        return self._start(self._make(path.name or str(path)), path, Span())

    def plan(self, path: Path, span: Span) -> DiagnosisJob:
        """Have a path diagnosed as soon as the server runs."""
        job = self._make(path.name or str(path))
        self._planned.append((job, path, span))
        return job

    def open(self) -> None:
        """Begin what was planned."""
        for job, path, span in self._planned:
            self._start(job, path, span)
        self._planned.clear()

    async def receive(self, name: str, chunks: AsyncIterator[bytes]) -> DiagnosisJob:
        """Take a log that is sent, and diagnose it; BadInput if it is too large or empty."""
        job = self._make(name)
        path = job.directory / _clean(name)
        try:
            received = await self._write(path, chunks)
            if not received:
                raise BadInput("the file is empty")
        except BaseException:
            self._forget(job)
            raise
        return self._start(job, path, Span())

    def close(self) -> None:
        """End all of them, and remove what they wrote."""
        self._pace.close()
        for job in self._jobs.values():
            if job.task is not None:
                job.task.cancel()
        self._jobs.clear()
        if self._room is not None:
            self._room.cleanup()

    async def _write(self, path: Path, chunks: AsyncIterator[bytes]) -> int:
        received = 0
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                async for chunk in chunks:
                    received += len(chunk)
                    if received > self.most_bytes:
                        raise BadInput(f"the file is larger than {size(self.most_bytes)}: name its path")
                    await asyncio.to_thread(file.write, chunk)
        except OSError as error:
            raise ActionFailed(f"the file cannot be kept: {error.strerror}") from error
        return received

    def _make(self, name: str) -> DiagnosisJob:
        waiting = [job for job in self._jobs.values() if job.ended is None]
        if len(waiting) >= MOST_WAITING:
            raise ActionFailed(f"{len(waiting)} diagnoses are under way: wait for one to end")
        key = secrets.token_urlsafe(9)
        if self._room is None:
            # this user's alone, and gone with the process at the latest
            self._room = tempfile.TemporaryDirectory(prefix="penstock-diagnosis-", ignore_cleanup_errors=True)
        directory = Path(self._room.name) / key
        directory.mkdir(mode=0o700)
        job = self._jobs[key] = DiagnosisJob(key, name[:LONGEST_NAME], directory, self._pace)
        for old in [one for one in self.list_jobs() if one.ended is not None][MOST_KEPT:]:
            self._forget(old)
        return job

    def _forget(self, job: DiagnosisJob) -> None:
        self._jobs.pop(job.key, None)
        shutil.rmtree(job.directory, ignore_errors=True)

    def _start(self, job: DiagnosisJob, path: Path, span: Span) -> DiagnosisJob:
        job.task = asyncio.create_task(self._run(job, path, span))
        return job

    async def _run(self, job: DiagnosisJob, path: Path, span: Span) -> None:
        try:
            async with self._turns:
                await _work(job, path, span)
        except OSError as error:
            job.error = f"the diagnosis cannot be started: {error.strerror}"
        finally:
            job.ended = time.time()
            # the log that was sent has served
            if path.parent == job.directory:
                path.unlink(missing_ok=True)


async def _work(job: DiagnosisJob, path: Path, span: Span) -> None:
    """Run the process to its end, and note what it says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "penstock.view.dashboard.diagnosis_work",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=LONGEST_LINE,
    )
    assert process.stdin is not None and process.stdout is not None
    asked = {"path": str(path), "page": str(job.page), "name": job.name, "span": asdict(span)}
    job.progress = "starting"
    try:
        process.stdin.write(orjson.dumps(asked) + b"\n")
        async for line in process.stdout:
            _note(job, orjson.loads(line))
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    if not job.error and (code != 0 or not job.answers):
        job.error = f"the diagnosis ended with code {code}, perhaps for want of memory"


def _note(job: DiagnosisJob, said: dict[str, Any]) -> None:
    job.progress = str(said.get("progress", job.progress))
    job.error = str(said.get("error", job.error))
    job.answers = said.get("answers", job.answers)


def _clean(name: str) -> str:
    """Return a name for the file that is sent: its ending may tell how it is packed."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]", "_", name.replace("\\", "/").rpartition("/")[2]).lstrip(".")
    return f"log-{cleaned[-LONGEST_NAME:]}"
