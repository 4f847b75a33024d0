"""Ordinary jobs at work: with an autopilot, while their state moves, and under a supervisor."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import psutil

from penstock.errors import ActionFailed, JournalUnavailable
from penstock.journal.former_runs import KIND
from penstock.journal.overrides import add_override
from penstock.journal.store import Journal, open_journal
from penstock_lab.experiments.faults.regimes.regime import PATIENCE, Regime
from penstock_lab.ground.proving_ground import ProvingGround
from penstock_lab.jobs.catalog import find_job
from penstock_lab.jobs.contents import Fed
from penstock_lab.jobs.places import RunPlace

RATE, FEED_SECONDS, SEED = "constant:60", 70.0, 0
MORE_BATCHES = 2


class LoopRegime(Regime):
    """An ordinary job under `penstock run`."""

    job_name = "numpy-scoring"
    """A job whose right answer a batch query gives."""

    def __init__(
        self,
        ground: ProvingGround,
        place: Path,
        seconds: float = FEED_SECONDS,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Input comes for so many seconds; `settings` go into the driver's environment."""
        super().__init__(ground, place)
        self._seconds, self._settings = seconds, dict(settings or {})
        self.job, self._run = find_job(self.job_name), RunPlace(place)
        self._feed: subprocess.Popen[bytes] | None = None
        self._marked = 0

    @property
    def checkpoint(self) -> Path:
        """The job's checkpoint."""
        return self._run.checkpoint

    def command(self) -> list[str]:
        """Run the script with the autopilot attached."""
        return ["penstock.cli", "run", *self.job.command(self._run)]

    def start(self) -> None:
        """Start the driver, and with the first one the feed."""
        if self._feed is None:
            self.job.prepare(self._run)
            feed = [
                sys.executable,
                "-m",
                "penstock_lab.jobs.feed",
                self.job_name,
                str(self.place),
                "--rate",
                RATE,
            ]
            self._feed = subprocess.Popen([*feed, "--seconds", f"{self._seconds:g}", "--seed", str(SEED)])
        super().start()

    def environment(self) -> dict[str, str]:
        """Return the environment of its driver, with further settings."""
        return super().environment() | self._settings

    def await_work(self) -> None:
        """Wait until batches end on all executors."""
        self.wait("work", lambda: self.count_batches() >= MORE_BATCHES and self._is_full())

    def mark(self) -> None:
        """Note the newest batch."""
        self._marked = self.count_batches()

    def has_recovered(self) -> bool:
        """Tell whether batches end again on all executors."""
        return self._is_full() and self.count_batches() >= self._marked + MORE_BATCHES

    def finish(self) -> bool:
        """Wait for the feed and for the job's own end, and compare its output with the batch query's."""
        assert self._feed is not None
        if self._feed.wait(PATIENCE):
            raise ActionFailed("the feed failed")
        self._run.stop_file.touch()
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise ActionFailed(f"the job did not end within {PATIENCE:g} s") from None
        self.has_failed = code != 0
        return self.job.check(self._run, Fed(RATE, self._seconds, SEED)).equal

    def end(self) -> None:
        """End the driver and the feed."""
        super().end()
        if self._feed is not None and self._feed.poll() is None:
            self._feed.kill()
            self._feed.wait()

    def count_batches(self) -> int:
        """Return how many batches are committed."""
        folder = self.checkpoint / "commits"
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        return max((int(name) + 1 for name in names if name.isdecimal()), default=0)

    def _is_full(self) -> bool:
        return self.count_executors() >= len(self.ground.workers)

    def open_journal(self) -> Journal:
        """Open the autopilot's journal."""
        return open_journal(self.place / "journal.db", create=False)

    def await_action(self) -> None:
        """Wait until an action is under way."""

        def is_open() -> bool:
            try:
                with closing(self.open_journal()) as journal:
                    return any(one.status is None for one in journal.actions())
            except JournalUnavailable:
                return False

        self.wait("an action", is_open, PATIENCE)


class MigrationRegime(LoopRegime):
    """A job with state, all of which moves away from one executor."""

    job_name = "stream-join"

    def await_work(self) -> None:
        """Wait for batches, and order a drain."""
        super().await_work()
        command = [sys.executable, "-m", "penstock.cli", "drain", "--no-wait", self._find_executor()]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise ActionFailed(f"the drain was refused: {done.stderr.strip()}")
        self.await_action()

    def _find_executor(self) -> str:
        """Return the id of an executor, from its command line."""
        (number, *_) = [pid for host in self.ground.hosts for pid in host.executors()]
        words = psutil.Process(number).cmdline()
        return str(words[words.index("--executor-id") + 1])


class RestartRegime(LoopRegime):
    """The same job under a supervisor, while it is restarted with a larger heap."""

    def command(self) -> list[str]:
        """Run the script under a supervisor; memory is sized, and everything else stays."""
        listen = ("--conf", "spark.penstock.executor_metrics=listen")
        script = self.job.command(self._run)
        return ["penstock.cli", "run", "--policy", "sage", "--allow-restart", *listen, *script]

    def environment(self) -> dict[str, str]:
        """Leave all sizes but that of the heap alone."""
        return super().environment() | {"PENSTOCK_SAGE_PIN": "overhead,cpu,parallelism"}

    def await_work(self) -> None:
        """Wait for windows, and force more heap."""
        super().await_work()

        def is_known() -> bool:
            with closing(self.open_journal()) as journal:
                return len(journal.observations()) >= 4

        self.wait("windows", is_known)
        with closing(self.open_journal()) as journal:
            (name, *_) = journal.recall_all(KIND)
            add_override(journal, time.time(), name, "faults", force="P1")
        self.await_action()

    def has_recovered(self) -> bool:
        """Tell whether no restart is under way, and batches end again on all executors."""
        with closing(self.open_journal()) as journal:
            under_way = any(one.status is None for one in journal.actions())
        return not under_way and super().has_recovered()
