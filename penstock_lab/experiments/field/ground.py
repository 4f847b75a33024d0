"""The ground of the field: each trial is a driver and a feed, in processes of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import orjson

from penstock.journal.records import ActionRecord, DecisionRecord
from penstock.journal.store import open_journal
from penstock.runtime.launch import write_submit_arguments
from penstock.settings.model import load_settings
from penstock_lab.experiments.field.driver import list_settings
from penstock_lab.experiments.field.plan import HOST, WORKERS, FieldTrial
from penstock_lab.experiments.field.rows import Ran
from penstock_lab.experiments.field.trace import FieldTrace, read_notes
from penstock_lab.experiments.measurement import find_changes, shorten_error
from penstock_lab.ground.class_training import train_drivers
from penstock_lab.ground.hosts import HostShape
from penstock_lab.ground.java_servers import read_tail
from penstock_lab.ground.kafka_broker import connector_jars, kafka_broker
from penstock_lab.ground.proving_ground import ProvingGround
from penstock_lab.jobs.catalog import OrdinaryJob
from penstock_lab.jobs.contents import Fed
from penstock_lab.jobs.lookup_service import lookup_service
from penstock_lab.jobs.places import RunPlace

MOST_PATIENCE = 120.0
START_PATIENCE = 60.0
"""Seconds in which the executors to begin with are awaited before the feed starts without them."""
FEED_START = 3.0
"""Seconds that a feed has for its own start."""


class Field:
    """The ground, with a broker and a lookup service where jobs need them, for the length of a `with`."""

    def __init__(self, jobs: Sequence[OrdinaryJob], workers: int = WORKERS, host: HostShape = HOST) -> None:
        self._jobs, self._workers, self._host = jobs, workers, host
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> Field:
        train_drivers()
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
        environment = add_connector(self.ground.environment(), trial.job) | {"PENSTOCK_JOURNAL": str(journal)}
        log = (place.directory / "driver.log").open("wb")
        running: list[subprocess.Popen[bytes]] = []

        def start(command: Sequence[str]) -> subprocess.Popen[bytes]:
            running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
            return running[-1]

        try:
            if trial.is_backlog:
                start([*_feed(trial, place, time.time()), "--at-once"]).wait()
            driver = start([*_drive(trial, notes, self.most), *trial.job.command(place)])
            _await_executors(driver, notes, trial)
            fed_from = time.time() + (0.0 if trial.is_backlog else FEED_START)
            feed = None if trial.is_backlog else start(_feed(trial, place, fed_from))
            failure = _await_end(driver, feed, trial, place)
        finally:
            for process in reversed(running):
                _end(process)
            log.close()
        told = failure and f"{failure}: {shorten_error(read_tail(place.directory / 'driver.log'))}"
        fed = Fed(trial.profile, trial.seconds, 0)
        decisions, actions = _read_journal(journal)
        return Ran(
            trial,
            fed_from,
            read_notes(notes) if notes.exists() else FieldTrace((), ()),
            decisions,
            actions,
            output_equal=None if failure else trial.job.check(place, fed).equal,
            failure=told or "",
            settings=list_changes(trial, environment, self.most, place.directory),
            feed_late_seconds=_read_lateness(place),
        )


def add_connector(
    environment: Mapping[str, str], job: OrdinaryJob, find_jars: Callable[[], Sequence[Path]] = connector_jars
) -> dict[str, str]:
    """Give the driver of a job that reads Kafka Spark's connector, as a user does by `spark.jars`."""
    if not job.uses_kafka:
        return dict(environment)
    jars = {"spark.jars": ",".join(map(str, find_jars()))}
    return {**environment, "PYSPARK_SUBMIT_ARGS": write_submit_arguments(jars, environment)}


def list_changes(
    trial: FieldTrial, environment: Mapping[str, str], most: int, directory: Path
) -> dict[str, str]:
    """Return the settings of a trial's system that differ from its defaults; files by their names there."""
    if trial.system != "penstock":
        return list_settings(trial.system, trial.executors, most)
    plain = {name: value for name, value in environment.items() if not name.startswith("PENSTOCK_")}
    changed = find_changes(load_settings(environment=environment), load_settings(environment=plain))
    return {name: str(value).replace(f"{directory}/", "") for name, value in changed.items()}


def _drive(trial: FieldTrial, notes: Path, most: int) -> list[str]:
    system = "fixed" if trial.system == "fixed-peak" else trial.system
    return [
        *(sys.executable, "-m", "penstock_lab.experiments.field.driver"),
        *("--system", system, "--executors", str(trial.executors)),
        *("--most", str(most), "--notes", str(notes)),
    ]


def _feed(trial: FieldTrial, place: RunPlace, start: float) -> list[str]:
    return [
        *(sys.executable, "-m", "penstock_lab.jobs.feed", trial.job.name, str(place.directory)),
        *("--rate", trial.profile, "--seconds", f"{trial.seconds:g}", "--start", f"{start:.3f}"),
        *("--brokers", place.brokers, "--service", place.service),
    ]


def _await_executors(driver: subprocess.Popen[bytes], notes: Path, trial: FieldTrial) -> None:
    """Wait until the executors to begin with are there: what comes before is a backlog of the start alone."""
    until = time.monotonic() + START_PATIENCE
    while driver.poll() is None and time.monotonic() < until:
        held = read_notes(notes).held if notes.exists() else ()
        if held and is_begun(trial, held[-1][1]):
            return
        time.sleep(0.5)


def is_begun(trial: FieldTrial, held: int) -> bool:
    """Tell whether a trial has the executors that it begins with; dynamic allocation chooses its own."""
    return held >= 1 if trial.system == "dynamic-allocation" else held == trial.executors


def _read_lateness(place: RunPlace) -> float | None:
    """Return by how much the feed was late at worst."""
    if not place.feed_state.exists():
        return None
    return float(orjson.loads(place.feed_state.read_bytes())["most_late_seconds"])


def _await_end(
    driver: subprocess.Popen[bytes], feed: subprocess.Popen[bytes] | None, trial: FieldTrial, place: RunPlace
) -> str:
    """Wait for the feed, the time without input and the job's own end; say what went wrong."""
    if feed is None:
        return _await_code(driver, trial.most_seconds)
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
    return _await_code(driver, MOST_PATIENCE)


def _await_code(driver: subprocess.Popen[bytes], patience: float) -> str:
    try:
        code = driver.wait(patience)
    except subprocess.TimeoutExpired:
        return f"the job did not end within {patience:g} s"
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
