"""A part at work on the proving ground as its users run it, with a right answer to compare with."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psutil

from penstock.errors import ActionFailed
from penstock.journal.store import open_journal
from penstock_lab.experiments.faults.rows import Effects
from penstock_lab.ground.java_servers import read_tail
from penstock_lab.ground.proving_ground import ProvingGround

PATIENCE = 240.0
"""Seconds in which something that is waited for comes."""


class Regime(ABC):
    """A part at work: started, struck by whoever holds it, waited for, and compared with the right answer."""

    def __init__(self, ground: ProvingGround, place: Path) -> None:
        self.ground, self.place = ground, place
        self.has_failed = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def checkpoint(self) -> Path:
        """The directory of its checkpoint."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line that runs it."""

    @abstractmethod
    def await_work(self) -> None:
        """Wait until it is at what faults are to disturb."""

    @abstractmethod
    def has_recovered(self) -> bool:
        """Tell whether it works again and has its size."""

    @abstractmethod
    def finish(self) -> bool:
        """Let it come to its end; tell whether its output is right."""

    def environment(self) -> dict[str, str]:
        """Return the environment of its driver."""
        return self.ground.environment() | {
            "PENSTOCK_JOURNAL": str(self.place / "journal.db"),
            "PENSTOCK_RUNTIME_DIRECTORY": str(self.place / "run"),
            "PENSTOCK_POLICY_INTERVAL": "5s",
            "PENSTOCK_MIN_EXECUTORS": str(len(self.ground.workers)),
        }

    def start(self) -> None:
        """Start its driver."""
        with (self.place / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *self.command()], env=self.environment(), stdout=log, stderr=log
            )

    def start_again(self) -> None:
        """Start the driver that was killed, as whoever watches it does."""
        self.start()

    def start_if_ended(self) -> None:
        """Start the driver again if it has ended by itself."""
        if self.process.poll() is not None:
            self.start_again()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that was started."""
        assert self._process is not None, "it was started"
        return self._process

    def kill_driver(self) -> None:
        """End the driver with all that it started on this side, as a crash of its host does."""
        for one in self._list_tree():
            one.kill()
        self.process.wait()

    def freeze(self, seconds: float) -> None:
        """Stop the driver where it is for so long."""
        tree = self._list_tree()
        for one in tree:
            one.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        for one in tree:
            one.send_signal(signal.SIGCONT)

    def await_recovery(self, seconds: float) -> None:
        """Wait for it; one that does not come back has failed."""
        self.mark()
        self.wait("its way back", self.has_recovered, seconds)

    @abstractmethod
    def mark(self) -> None:
        """Note how far it is, so that what comes after can be told from it."""

    def effects(self) -> Effects:
        """Tell which actions the journal has, and whether one is left open."""
        path = self.place / "journal.db"
        if not path.exists():
            return Effects()
        with closing(open_journal(path)) as journal:
            ids = tuple(one.action_id for one in journal.actions())
            return Effects(ids, ids, sum(one.status is None for one in journal.actions()))

    def wait(self, what: str, is_there: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait for something while the driver lives."""
        until = time.monotonic() + seconds
        while not is_there():
            if self.process.poll() is not None or time.monotonic() > until:
                self.has_failed = True
                code, held = self.process.poll(), self.count_executors()
                told = f"{what} did not come within {seconds:g} s: {held} executors, driver's code {code}"
                raise ActionFailed(f"{told}: {read_tail(self.place / 'driver.log')}")
            time.sleep(0.5)

    def end(self) -> None:
        """End whatever still runs."""
        if self._process is not None and self._process.poll() is None:
            for one in self._list_tree():
                one.kill()
            self._process.wait()

    def _list_tree(self) -> list[psutil.Process]:
        try:
            top = psutil.Process(self.process.pid)
            return [top, *top.children(recursive=True)]
        except psutil.Error:
            return []

    def count_executors(self) -> int:
        """Return how many executors run on the ground."""
        return sum(len(host.executors()) for host in self.ground.hosts)
