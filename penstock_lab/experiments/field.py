"""Ordinary jobs on the proving ground: Penstock with all defaults beside dynamic allocation and fixed sizes.

The least size that keeps up is searched on the same ground, by runs of a fixed size. Rows that are done are
kept in a file, so that a run that was broken off goes on where it stopped.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from penstock.errors import PenstockError
from penstock.journal.records import ActionRecord, DecisionRecord
from penstock.journal.store import open_journal
from penstock_lab.experiments.field_rows import FieldTrial, KeptRows, Ran, make_row, summarise_field
from penstock_lab.experiments.field_trace import (
    FieldTrace,
    read_notes,
)
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row, shorten_error
from penstock_lab.ground.hosts import HostShape
from penstock_lab.ground.java_servers import read_tail
from penstock_lab.ground.kafka_broker import kafka_broker
from penstock_lab.ground.proving_ground import ProvingGround
from penstock_lab.jobs.catalog import JOBS, OrdinaryJob
from penstock_lab.jobs.contents import Fed
from penstock_lab.jobs.lookup_service import lookup_service
from penstock_lab.jobs.places import RunPlace

QUICK_JOBS = ("small-files-lookup", "numpy-scoring", "no-trigger", "three-jobs")
KEPT = Path("artifacts") / "field.jsonl"
WORKERS = 8
HOST = HostShape(cores=1, cpu=0.15)
BUSY_SLOTS = 2.6
"""Slots that a job's load keeps busy: with the default headroom three or four executors are right."""


SEARCH_SECONDS, STEADY_SECONDS, IDLE_SECONDS = 80.0, 180.0, 90.0
"""Lengths of a run at a fixed size, of one that is steered, and of the time without input after it."""
QUICK_SECONDS = 110.0
MOST_PATIENCE = 120.0


class Field:
    """The ground, with a broker and a lookup service where jobs need them, for the length of a `with`."""

    def __init__(self, jobs: Sequence[OrdinaryJob], workers: int = WORKERS, host: HostShape = HOST) -> None:
        self._jobs, self._workers, self._host = jobs, workers, host
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> Field:
        with self._stack as stack:
            self.ground = stack.enter_context(ProvingGround(self._workers, self._host))
            self.directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-field-")))
            self.brokers, self.service = "", ""
            if any(job.uses_kafka for job in self._jobs):
                self.brokers = stack.enter_context(kafka_broker(self.directory / "kafka"))
            if any(job.asks_service for job in self._jobs):
                self.service = stack.enter_context(lookup_service())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def most(self) -> int:
        """The most executors that there can be."""
        return self._workers

    def run(self, trial: FieldTrial) -> Ran:
        """Run one trial; one that fails is told, with what was seen of it."""
        self._count += 1
        place = RunPlace(self.directory / f"trial-{self._count}", self.brokers, self.service)
        place.directory.mkdir()
        try:
            return self._run(trial, place)
        finally:
            shutil.rmtree(place.directory, ignore_errors=True)

    def _run(self, trial: FieldTrial, place: RunPlace) -> Ran:
        trial.job.prepare(place)
        notes, journal = place.directory / "notes.jsonl", place.directory / "journal.db"
        log = (place.directory / "driver.log").open("wb")
        driver = subprocess.Popen(
            [*_drive(trial, notes, self.most), *trial.job.command(place)],
            env=self.ground.environment() | {"PENSTOCK_JOURNAL": str(journal)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        feed = subprocess.Popen(
            _feed(trial, place), env=self.ground.environment(), stdout=log, stderr=subprocess.STDOUT
        )
        fed_from = time.time()
        try:
            failure = _await_end(driver, feed, trial, place)
        finally:
            for process in (feed, driver):
                _end(process)
        fed = Fed(f"constant:{trial.rate:g}", trial.seconds, 0)
        equal = None if failure else trial.job.check(place, fed).equal
        told = failure and f"{failure}: {shorten_error(read_tail(place.directory / 'driver.log'))}"
        trace = read_notes(notes) if notes.exists() else FieldTrace((), ())
        decisions, actions = _read_journal(journal)
        return Ran(
            trial, fed_from, fed_from + trial.seconds, trace, decisions, actions, equal, failure=told or ""
        )


def _drive(trial: FieldTrial, notes: Path, most: int) -> list[str]:
    return [
        *(sys.executable, "-m", "penstock_lab.experiments.field_driver"),
        *("--system", trial.system, "--executors", str(trial.executors)),
        *("--most", str(most), "--notes", str(notes)),
    ]


def _feed(trial: FieldTrial, place: RunPlace) -> list[str]:
    return [
        *(sys.executable, "-m", "penstock_lab.jobs.feed", trial.job.name, str(place.directory)),
        *("--rate", f"constant:{trial.rate:g}", "--seconds", f"{trial.seconds:g}"),
        *("--brokers", place.brokers, "--service", place.service),
    ]


def _await_end(
    driver: subprocess.Popen[bytes], feed: subprocess.Popen[bytes], trial: FieldTrial, place: RunPlace
) -> str:
    """Wait for the feed, the time without input and the job's own end; say what went wrong."""
    until = time.monotonic() + trial.seconds + MOST_PATIENCE
    while feed.poll() is None and driver.poll() is None and time.monotonic() < until:
        time.sleep(0.5)
    if driver.poll() is not None:
        return f"the job ended with code {driver.returncode} before its input did"
    if feed.poll() != 0:
        return "the feed failed"
    until = time.monotonic() + trial.idle_seconds
    while driver.poll() is None and time.monotonic() < until:
        time.sleep(0.5)
    place.stop_file.touch()
    try:
        code = driver.wait(MOST_PATIENCE)
    except subprocess.TimeoutExpired:
        return f"the job did not end within {MOST_PATIENCE:g} s"
    return "" if code == 0 else f"the job ended with code {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _read_journal(path: Path) -> tuple[tuple[DecisionRecord, ...], tuple[ActionRecord, ...]]:
    if not path.exists():
        return (), ()
    journal = open_journal(path, create=False)
    try:
        return journal.decisions(), journal.actions()
    finally:
        journal.close()


@dataclass(slots=True)
class Search:
    """The least size that keeps up with a load, found by runs of a fixed size; every run is kept."""

    trials: Field
    job: OrdinaryJob
    rate: float
    runs: dict[int, Ran] = field(default_factory=dict)

    def find_oracle(self, first: int) -> int | None:
        """Search from a guess up or down; None where no size keeps up."""
        size = min(max(1, first), self.trials.most)
        if self._does(size):
            while size > 1 and self._does(size - 1):
                size -= 1
            return size
        while size < self.trials.most:
            size += 1
            if self._does(size):
                return size
        return None

    def _does(self, size: int) -> bool:
        if size not in self.runs:
            trial = FieldTrial(self.job, "fixed", size, self.rate, SEARCH_SECONDS)
            self.runs[size] = self.trials.run(trial)
        return self.runs[size].keeps_up


def run(extent: Extent, progress: Progress) -> Measurement:
    """Run the jobs, each from too few and from too many executors."""
    jobs = [job for job in JOBS.values() if not job.ends_by_itself]
    if extent.quick or extent.report:
        jobs = [job for job in jobs if job.name in QUICK_JOBS]
    kept = KeptRows(KEPT if not extent.quick else KEPT.with_name("field-quick.jsonl"))
    rows: list[Row] = []
    failures: list[str] = []
    with Field(jobs) as ground:
        for number, job in enumerate(jobs, start=1):
            progress(f"job {number} of {len(jobs)}: {job.name}")
            try:
                rows += run_job(ground, job, kept, extent.quick, progress)
            except PenstockError as error:
                failures.append(f"{job.name}: {error}")
        notes = [f"{ground.ground.describe()['ground']}, {WORKERS} hosts of {HOST.cpu:g} cores"]
    failures += [f"{row['job']}, {row['system']}: {row['failure']}" for row in rows if row["failure"]]
    if not extent.quick and not failures:
        kept.forget()
    return Measurement(rows, summarise_field(rows), notes, failures, quick=extent.quick)


def run_job(
    trials: Field, job: OrdinaryJob, kept: KeptRows, quick: bool, tell: Callable[[str], None]
) -> list[Row]:
    """Return the rows of one job: the oracle's own, and each system from too few and from too many.

    A quick run computes the oracle from what a record costs, and has no row for it.
    """
    rate = float(f"{job.cost.rate(BUSY_SLOTS, HOST.cpu):.2g}")
    oracle, rows = math.ceil(BUSY_SLOTS), []
    if not quick:
        peak = kept.find(job.name, "right", "fixed-peak") or kept.add(_search_peak(trials, job, rate))
        rows, oracle = [peak], peak["oracle_executors"]
        tell(f"{job.name}: {oracle} executors keep up with {rate:g} records/s")
    starts = {"over": trials.most} if quick else {"under": 1, "over": trials.most}
    seconds, idle = (QUICK_SECONDS, 0.0) if quick else (STEADY_SECONDS, IDLE_SECONDS)
    for start, executors in starts.items():
        for system in ("penstock",) if quick else ("penstock", "dynamic-allocation"):
            row = kept.find(job.name, start, system)
            if row is None:
                trial = FieldTrial(job, system, executors, rate, seconds, idle if system == "penstock" else 0)
                row = kept.add(make_row(trials.run(trial), start, system, oracle))
                tell(f"{job.name}, {system} from {executors}: ended at {row['final_executors']}")
            rows.append(row)
    return rows


def _search_peak(trials: Field, job: OrdinaryJob, rate: float) -> Row:
    """Search the oracle, and make the row of its own run."""
    search = Search(trials, job, rate)
    oracle = search.find_oracle(math.ceil(BUSY_SLOTS))
    right = search.runs[oracle if oracle is not None else max(search.runs)]
    return make_row(right, "right", "fixed-peak", oracle)
