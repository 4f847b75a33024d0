"""A supervisor in a process of its own, over a driver that counts.

    python -m penstock_lab.experiments.faults.supervised.process DIRECTORY JOURNAL PLAN

The plan may kill it before one of its instructions. The wall clock follows the file `clock` in the directory.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.act.restart import machine
from penstock.act.restart.job_lock import JobLock
from penstock.act.restart.settings import RestartSettings
from penstock.act.restart.shell import Job, Supervisor
from penstock.errors import PenstockError
from penstock.journal.store import journal_at

REFUSED = 75


class FileClock:
    """A wall clock that a file puts wrong: by so many seconds, and more each second since it was written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> float:
        """Tell the time."""
        now = time.time()
        if not self._path.exists():
            return now
        wrong, drift = map(float, self._path.read_text().split())
        return now + wrong + drift * (now - self._path.stat().st_mtime)


class MortalSupervisor(Supervisor):
    """A supervisor that is killed before its n-th instruction."""

    def __init__(self, *parts: Any, killed_at: int | None = None) -> None:
        super().__init__(*parts)
        self._killed_at, self.performed = killed_at, 0

    def _perform(self, instruction: machine.Instruction) -> None:
        self.performed += 1
        if self.performed == self._killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        super()._perform(instruction)


def main() -> int:
    """Supervise, and write down how many instructions that took."""
    directory, plan = Path(sys.argv[1]), json.loads(sys.argv[3])
    counting = [sys.executable, "-m", "penstock_lab.experiments.faults.supervised.driver"]

    def command(settings: Mapping[str, str]) -> list[str]:
        return [*counting, json.dumps(dict(settings)), str(directory), json.dumps(plan)]

    lock = JobLock(directory / plan.get("runtime", "run"), "counting")
    patience = RestartSettings(stop_timeout=20.0, verify_timeout=60.0)
    parts = (Job("counting", command), lock, journal_at(sys.argv[2]), patience, _say)
    supervisor = MortalSupervisor(*parts, FileClock(directory / "clock"), killed_at=plan.get("killed_at"))
    try:
        code = supervisor.run()
    except PenstockError as error:
        _say(str(error))
        return REFUSED
    (directory / "performed").write_text(str(supervisor.performed))
    return code


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
