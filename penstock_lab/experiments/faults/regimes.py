"""The parts as their users run them on the proving ground, each with a right answer to compare with."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import orjson
import psutil

from penstock.errors import ActionFailed, JournalUnavailable, PenstockError
from penstock.fleet.places import FleetDirectory, append_window
from penstock.journal.former_runs import KIND
from penstock.journal.overrides import add_override
from penstock.journal.store import Journal, open_journal
from penstock_lab.experiments.faults.pipeline_job import NUMBERS, SQUARES, put_numbers, read_numbers
from penstock_lab.experiments.faults.rows import Effects
from penstock_lab.ground.java_servers import read_tail
from penstock_lab.ground.proving_ground import ProvingGround
from penstock_lab.jobs.catalog import find_job
from penstock_lab.jobs.contents import Fed
from penstock_lab.jobs.places import RunPlace

RATE, FEED_SECONDS, SEED = "constant:60", 70.0, 0
PATIENCE = 240.0
MORE_BATCHES = 2
GIB = 1024.0**3


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


APPLICATIONS = 12


class FleetRegime(Regime):
    """The fleet's controller over made-up members, of which every second one has too small a heap."""

    def __init__(self, ground: ProvingGround, place: Path) -> None:
        super().__init__(ground, place)
        self.root = place / "fleet"
        (self.root / "windows").mkdir(parents=True, mode=0o700)
        self.root.chmod(0o700)
        self._directory, self._round = FleetDirectory(self.root), 0

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the controller's job."""
        return self._directory.checkpoint

    def command(self) -> list[str]:
        """Run the controller."""
        master = f"spark.master={self.ground.url}"
        return ["penstock.cli", "fleet", "run", str(self.root), "--interval", "2s", "--conf", master]

    def await_work(self) -> None:
        """Wait until the first half of the members was decided for."""
        self.wait("decisions", lambda: self._publish("first") and self._decided("first"))

    def mark(self) -> None:
        """Begin to publish for the second half."""
        self._round = 0

    def has_recovered(self) -> bool:
        """Tell whether the second half was decided for."""
        return self._publish("second") and self._decided("second")

    def finish(self) -> bool:
        """End the controller; tell whether each hungry member was decided for once, and nobody else."""
        self.process.terminate()
        self.process.wait(PATIENCE)
        found = Counter((row["application"], row["rule"]) for row in self._directory.decisions())
        return found == Counter({(name, "P1"): 1 for half in ("first", "second") for name in hungry(half)})

    def effects(self) -> Effects:
        """Count a decision for one member twice as an action done twice."""
        names = sorted({row["application"] for row in self._directory.decisions()})
        done = tuple(names.index(row["application"]) for row in self._directory.decisions())
        return Effects(tuple(range(len(names))), done)

    def _publish(self, half: str) -> bool:
        self._round += 1
        end = time.time()
        for place in range(APPLICATIONS):
            name = f"{half}-{place}"
            record = describe_member(name, end, is_hungry=name in hungry(half))
            append_window(self.root / "windows", name, end, orjson.dumps(record))
        time.sleep(0.5)
        return True

    def _decided(self, half: str) -> bool:
        try:
            found = {row["application"] for row in self._directory.decisions()}
        except PenstockError:
            return False
        return hungry(half) <= found


def hungry(half: str) -> set[str]:
    """Return the members whose heap is too small."""
    return {f"{half}-{place}" for place in range(0, APPLICATIONS, 2)}


def describe_member(name: str, end: float, is_hungry: bool) -> dict[str, object]:
    """Return half a second of a member, calm but for its heap."""
    held = {"parallelism": 4, "heap_bytes": 6 * GIB, "overhead_bytes": GIB, "memory_fraction": 0.6}
    sizes = {f"held_{key}": value for key, value in {**held, "cores": 4, "task_cpus": 1}.items()}
    return {
        "application": name,
        "start": end - 0.5,
        "end": end,
        **sizes,
        "heap_used_bytes": (5.8 if is_hungry else 3.0) * GIB,
        "heap_committed_bytes": 5.9 * GIB,
        "gc_seconds": 0.01,
        "gc_count": 1,
        "memory_used_bytes": 6.65 * GIB,
        "cpu_used_cores": 2.4,
        "backlog_records": 100.0,
        "offered_per_second": 1000.0,
        "needed_parallelism": 4,
        "spilled_bytes": 0,
    }


class PipelineRegime(Regime):
    """A pipeline of two functions on file topics, one of them with state."""

    def __init__(self, ground: ProvingGround, place: Path) -> None:
        super().__init__(ground, place)
        self._put, self._marked = 0, 0
        put_numbers(place, 0)

    @property
    def checkpoint(self) -> Path:
        """The checkpoints of its functions."""
        return self.place / "checkpoints"

    def command(self) -> list[str]:
        """Run the pipeline's script."""
        return ["penstock_lab.experiments.faults.pipeline_job", str(self.place)]

    def await_work(self) -> None:
        """Wait until results come out at the end."""
        self.wait("results", lambda: self._put_more() and len(read_numbers(self.place, SQUARES)) > 0)

    def mark(self) -> None:
        """Note how many results there are."""
        self._marked = self._put

    def has_recovered(self) -> bool:
        """Tell whether all that was put in before and a part of what came after has come out."""
        found = len(set(read_numbers(self.place, SQUARES)))
        return self._put_more() and found > self._count(self._marked)

    def finish(self) -> bool:
        """Wait for the rest; tell whether every number has come out, and none twice."""
        wanted = self._count(self._put + 1)
        self.wait("the rest", lambda: len(set(read_numbers(self.place, SQUARES))) >= wanted)
        (self.place / "stop").touch()
        self.has_failed = self.process.wait(PATIENCE) != 0
        return sorted(read_numbers(self.place, SQUARES)) == sorted(read_numbers(self.place, NUMBERS))

    def _put_more(self) -> bool:
        self._put += 1
        put_numbers(self.place, self._put)
        time.sleep(0.5)
        return True

    def _count(self, files: int) -> int:
        return files * len(read_numbers(self.place, NUMBERS)) // (self._put + 1)


REGIMES: Mapping[str, Callable[[ProvingGround, Path], Regime]] = {
    "loop": LoopRegime,
    "migration": MigrationRegime,
    "fleet": FleetRegime,
    "pipeline": PipelineRegime,
    "restart": RestartRegime,
}
