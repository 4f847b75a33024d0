"""Trials of restarts: a real supervisor, a real journal, and a driver whose output counts every batch."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from penstock.errors import ActionFailed
from penstock_lab.experiments.faults.disks import LoopDisk
from penstock_lab.experiments.faults.disturbances import DRIFT, HOUR
from penstock_lab.experiments.faults.journals import JournalPlace, open_place
from penstock_lab.experiments.faults.matrix import (
    CHECKPOINT_FAULTS,
    CHECKPOINT_FULL,
    CHECKPOINT_SLOW,
    CLOCK_FAULTS,
    DRIVER_FROZEN,
    DRIVER_KILLED,
    HUNG,
    SUPERVISOR_KILLED,
    TWO_CONTROLLERS,
    TWO_DRIVERS,
    FaultCell,
)
from penstock_lab.experiments.faults.rows import Effects, Shown, make_row
from penstock_lab.experiments.faults.supervised.driver import AFTER, ASKS_EVERY, CHECKPOINT
from penstock_lab.experiments.faults.supervised.process import REFUSED
from penstock_lab.experiments.measurement import Row

BATCHES = 200
PATIENCE = 240.0
LASTS = 2.0
"""Seconds that a fault lasts."""
WITHIN = 60.0
"""Seconds after a fault in which a batch with the new settings is to end; a start takes a second or more."""
PROCESSES = "real processes"
MOST_STARTS = 60


class Supervised:
    """A supervised job in a directory, with the journal that it writes to."""

    def __init__(self, directory: Path, place: JournalPlace, **plan: Any) -> None:
        self.directory, self._place = directory, place
        self._plan = {"batches": BATCHES, "journal": place.address, **plan}
        self.mended_at = 0.0
        self.disk: LoopDisk | None = None
        """The disk of the checkpoint, where it is struck."""

    def start(self, **changes: Any) -> subprocess.Popen[bytes]:
        """Start a supervisor."""
        module = "penstock_lab.experiments.faults.supervised.process"
        plan = json.dumps({**self._plan, **changes})
        command = [sys.executable, "-m", module, str(self.directory), self._place.address, plan]
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log)

    def read_notes(self, kind: str) -> list[tuple[float, str, str]]:
        """Return time, memory and number of what the drivers noted."""
        path = self.directory / "notes"
        lines = path.read_text().splitlines() if path.exists() else []
        split = [line.split(" ") for line in lines]
        return [(float(at), memory, what) for at, noted, memory, what in split if noted == kind]

    def await_batches(self, count: int) -> None:
        """Wait until so many batches have ended."""
        deadline = time.monotonic() + PATIENCE
        while len(self.read_notes("batch")) < count:
            if time.monotonic() > deadline:
                raise ActionFailed(f"no {count} batches within {PATIENCE:g} s: {self.read_log()}")
            time.sleep(0.02)

    def finish(self, process: subprocess.Popen[bytes]) -> int:
        """Start supervisors, as whoever watches the job does, until one of them has seen it to its end."""
        code = process.wait(PATIENCE)
        for _ in range(MOST_STARTS):
            if code == 0:
                return 0
            self._end_orphan()
            self.mended_at = time.time()
            code = self.start(killed_at=None).wait(PATIENCE)
        return code

    def _end_orphan(self) -> None:
        """End the driver of a supervisor that was killed, as the refusal of the next one asks for."""
        for process in psutil.process_iter(["cmdline"]):
            if str(self.directory) in (process.info["cmdline"] or ()):
                process.terminate()
                process.wait(PATIENCE)

    def show(self, code: int) -> Shown:
        """Tell what the run has shown."""
        # a start with the old settings belongs to the action, too: it undoes it
        done = [int(what) for _, memory, what in self.read_notes("start") if what and memory == AFTER]
        with closing(self._place.open()) as journal:
            left = [one for one in journal.actions() if one.status is None]
        grown = [at for at, memory, _ in self.read_notes("batch") if memory == AFTER]
        late = max(0.0, grown[0] - self.mended_at) if grown and self.mended_at else 0.0
        numbers = (self.directory / "output").read_text().split()
        recovered = late if grown else None
        return Shown(numbers, Effects(tuple(sorted(set(done))), tuple(done), len(left)), code == 0, recovered)

    def read_log(self) -> str:
        """Return the end of what supervisors said."""
        return (self.directory / "log").read_text(errors="replace")[-1000:]


Strike = Callable[[Supervised, subprocess.Popen[bytes], JournalPlace], None]


def try_restart(cell: FaultCell, runs: int = 2) -> Row:
    """Run a supervised job undisturbed, and disturbed around its restart."""
    calm = run_supervised("", _do_nothing, 0)
    if cell.fault == SUPERVISOR_KILLED:
        disturbed = _kill_everywhere()
    else:
        # before it asks for a restart, and while one is under way
        moments = (ASKS_EVERY // 2, ASKS_EVERY)[:runs]
        strike = STRIKES.get(cell.fault, _strike_journal)
        disturbed = [run_supervised(cell.fault, strike, moment) for moment in moments]
    return make_row(cell, calm, disturbed, WITHIN, PROCESSES)


def run_supervised(fault: str, strike: Strike, after_batches: int, **plan: Any) -> Shown:
    """Run a supervised job to its end, with a fault after so many batches."""
    with prepare(fault, **plan) as job:
        process = job.start()
        try:
            if after_batches:
                job.await_batches(after_batches)
                strike(job, process, job._place)
                job.mended_at = time.time()
            return job.show(job.finish(process))
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(PATIENCE)


@contextmanager
def prepare(fault: str, **plan: Any) -> Iterator[Supervised]:
    """Prepare a directory and a journal with this fault."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-supervised-"))
    try:
        with open_place(fault) as place, ExitStack() as stack:
            job = Supervised(directory, place, **plan, input=fault)
            if fault in CHECKPOINT_FAULTS:
                job.disk = stack.enter_context(LoopDisk(directory / CHECKPOINT))
            yield job
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _kill_everywhere() -> list[Shown]:
    """Kill a supervisor before each of its instructions, one run each."""
    with prepare("") as job:
        job.finish(job.start())
        instructions = int((job.directory / "performed").read_text())
    return [run_supervised("", _do_nothing, 0, killed_at=number) for number in range(1, instructions + 1)]


def _do_nothing(job: Supervised, process: subprocess.Popen[bytes], place: JournalPlace) -> None:
    """Leave it alone: what the driver says itself is the fault, or there is none."""


def _strike_journal(job: Supervised, process: subprocess.Popen[bytes], place: JournalPlace) -> None:
    place.strike()
    time.sleep(LASTS)
    place.mend()


def _freeze(job: Supervised, process: subprocess.Popen[bytes], place: JournalPlace) -> None:
    process.send_signal(signal.SIGSTOP)
    time.sleep(LASTS)
    process.send_signal(signal.SIGCONT)


def _kill_driver(job: Supervised, process: subprocess.Popen[bytes], place: JournalPlace) -> None:
    with suppress(psutil.NoSuchProcess):
        _find_driver(process).kill()


def _freeze_driver(job: Supervised, process: subprocess.Popen[bytes], place: JournalPlace) -> None:
    driver = _find_driver(process)
    driver.suspend()
    time.sleep(LASTS)
    # it may have been ended by its supervisor meanwhile
    with suppress(psutil.NoSuchProcess):
        driver.resume()


def _find_driver(process: subprocess.Popen[bytes]) -> psutil.Process:
    """Wait for the driver of a supervisor: between two of them there is none for a moment."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for child in psutil.Process(process.pid).children():
            return child
        time.sleep(0.02)
    raise ActionFailed("the supervisor starts no driver")


def _slow_checkpoint(job: Supervised, process: subprocess.Popen[bytes], place: JournalPlace) -> None:
    assert job.disk is not None
    job.disk.slow_down(LASTS)


def _fill_checkpoint(job: Supervised, process: subprocess.Popen[bytes], place: JournalPlace) -> None:
    """Leave no room until the job has failed with all settings that it knows."""
    assert job.disk is not None
    job.disk.fill()
    process.wait(PATIENCE)
    job.disk.empty()


def _set_clock(wrong: float, drift: float) -> Strike:
    def strike(job: Supervised, process: subprocess.Popen[bytes], place: JournalPlace) -> None:
        unfinished = job.directory / "clock.new"
        unfinished.write_text(f"{wrong} {drift}")
        unfinished.rename(job.directory / "clock")
        time.sleep(LASTS)
        (job.directory / "clock").unlink()

    return strike


def _start_second(runtime: str) -> Strike:
    """Start a second supervisor of the job; it has to see that one runs."""

    def strike(job: Supervised, process: subprocess.Popen[bytes], place: JournalPlace) -> None:
        code = job.start(runtime=runtime).wait(PATIENCE)
        if code != REFUSED:
            raise ActionFailed(f"a second supervisor ran, and ended with code {code}: {job.read_log()}")

    return strike


STRIKES: dict[str, Strike] = {
    HUNG: _freeze,
    DRIVER_KILLED: _kill_driver,
    DRIVER_FROZEN: _freeze_driver,
    CHECKPOINT_SLOW: _slow_checkpoint,
    CHECKPOINT_FULL: _fill_checkpoint,
    TWO_CONTROLLERS: _start_second("run"),
    # these share the journal alone, as on two machines with one PostgreSQL
    TWO_DRIVERS: _start_second("another"),
    **{
        fault: _set_clock(wrong, drift)
        for fault, (wrong, drift) in zip(CLOCK_FAULTS, ((HOUR, 0.0), (-HOUR, 0.0), (0.0, DRIFT)), strict=True)
    },
    **dict.fromkeys(("input torn", "input doubled", "input hostile"), _do_nothing),
}
