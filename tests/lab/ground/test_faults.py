"""Faults on real hosts: `penstock run` names each in its reason, asks for no growth, and the job lives on.

Where the machine makes no control groups, the fixture asserts the refusal, and there is nothing to try.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.dataflow.window import EXECUTORS
from penstock.journal.records import DecisionRecord
from penstock.journal.store import open_journal
from penstock.runtime.launch import write_submit_arguments
from penstock_lab.ground.control_groups import GroupsUnavailable, explain_refusal
from penstock_lab.ground.hosts import HostShape
from penstock_lab.ground.java_servers import read_tail
from penstock_lab.ground.proving_ground import ProvingGround
from penstock_lab.jobs.catalog import find_job
from penstock_lab.jobs.places import RunPlace
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.own_cluster]

WORKERS = 3
HOST = HostShape(cores=1, cpu=0.3, memory_mb=1280)
PATIENCE = 300.0

TROUBLED = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

place = sys.argv[1]
spark = SparkSession.builder.appName("troubled").config("spark.sql.shuffle.partitions", 3).getOrCreate()

def eat(batches):
    from pathlib import Path
    for numbers in batches:
        hungry = Path(place, "hungry")
        if hungry.exists():
            hungry.unlink(missing_ok=True)
            len(b"x" * (2 << 30))
        yield numbers

def write(batch, batch_id):
    batch.write.mode("overwrite").parquet(f"{place}/out/{batch_id}")
    while Path(place, "asleep").exists():
        time.sleep(0.5)

numbers = spark.readStream.format("rate").option("rowsPerSecond", 300).option("numPartitions", 3).load()
eaten = numbers.mapInPandas(eat, "timestamp timestamp, value bigint")
query = eaten.writeStream.foreachBatch(write).option("checkpointLocation", f"{place}/checkpoint")
query.trigger(processingTime="3 seconds").start().awaitTermination()
"""


@pytest.fixture(scope="module")
def ground():
    refusal = explain_refusal()
    if refusal is not None:
        with pytest.raises(GroupsUnavailable), ProvingGround(WORKERS, HOST):
            raise AssertionError(f"it started, though {refusal}")
        yield None
        return
    with ProvingGround(WORKERS, HOST) as started:
        yield started


@dataclass
class Job:
    """A script that `penstock run` runs, and what the autopilot has said of it."""

    driver: subprocess.Popen[bytes]
    directory: Path

    def decisions(self) -> tuple[DecisionRecord, ...]:
        with closing(open_journal(self.directory / "journal.db")) as journal:
            return journal.decisions()

    def await_reason(self, *words: str, since: float = 0.0) -> DecisionRecord:
        """Wait for a decision whose reason has all the words."""

        def find() -> DecisionRecord | None:
            assert self.driver.poll() is None, read_tail(self.directory / "driver.log")
            found = [one for one in self.decisions() if one.last_at > since]
            return next((one for one in found if all(word in one.reason for word in words)), None)

        def tell() -> object:
            return [one.reason for one in self.decisions()], read_tail(self.directory / "driver.log")

        return wait_for(f"a reason with {words}", find, every=1.0, patience=PATIENCE, seen=tell)

    def await_batches(self, more: int = 3) -> None:
        """Wait until some more batches were committed."""
        commits = self.directory / "checkpoint" / "commits"

        def count() -> int:
            names = [path.name for path in commits.glob("*")] if commits.exists() else []
            return max((int(name) for name in names if name.isdecimal()), default=-1)

        first = count()
        wait_for("batches", lambda: count() >= first + more, every=1.0, patience=PATIENCE)
        assert self.driver.poll() is None, read_tail(self.directory / "driver.log")

    def list_growth(self, since: float) -> list[str]:
        """Return what asked for more executors since a moment, and was to be done."""
        with closing(open_journal(self.directory / "journal.db")) as journal:
            actions = [one for one in journal.actions() if one.intended_at > since]
        return [one.reason for one in actions if one.planned.get(EXECUTORS, 0) > one.before.get(EXECUTORS, 0)]


@contextmanager
def run_job(
    ground: ProvingGround, directory: Path, *command: str, conf: Mapping[str, str] | None = None
) -> Iterator[Job]:
    """Run a script under the autopilot until the end of the block."""
    directory.mkdir(exist_ok=True)
    environment = ground.environment() | {
        "PENSTOCK_JOURNAL": str(directory / "journal.db"),
        "PENSTOCK_RUNTIME_DIRECTORY": str(directory / "run"),
        "PENSTOCK_POLICY_INTERVAL": "5s",
        "PENSTOCK_MIN_EXECUTORS": str(WORKERS),
    }
    environment["PYSPARK_SUBMIT_ARGS"] = write_submit_arguments(conf or {}, environment)
    with (directory / "driver.log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", "run", *command], env=environment, stdout=log, stderr=log
        )
        try:
            yield Job(driver, directory)
        finally:
            # some scripts first finish what has arrived, which may take as long as the input comes
            driver.send_signal(signal.SIGTERM)
            try:
                driver.wait(timeout=20)
            except subprocess.TimeoutExpired:
                driver.kill()
                driver.wait()


@contextmanager
def feed(name: str, place: RunPlace, rate: float) -> Iterator[None]:
    """Send the input of an ordinary job for as long as the block lasts."""
    command = [sys.executable, "-m", "penstock_lab.jobs.feed", name, str(place.directory)]
    sending = subprocess.Popen([*command, "--rate", f"constant:{rate:g}", "--seconds", "3600"])
    try:
        yield
    finally:
        sending.kill()
        sending.wait()


def run_troubled(ground: ProvingGround, directory: Path):
    script = directory / "troubled.py"
    script.write_text(TROUBLED)
    return run_job(ground, directory, str(script), str(directory))


def test_a_foreach_batch_that_sleeps_asks_for_nothing(ground, tmp_path):
    if ground is None:
        return
    with run_troubled(ground, tmp_path) as job:
        job.await_batches()
        since = time.time()
        (tmp_path / "asleep").touch()
        job.await_reason("no task has run", "foreachBatch", since=since)
        (tmp_path / "asleep").unlink()
        job.await_batches()
        assert not job.list_growth(since)


def test_an_executor_killed_for_its_memory_is_told_with_what_to_change(ground, tmp_path):
    if ground is None:
        return
    with run_troubled(ground, tmp_path) as job:
        job.await_batches()
        since = time.time()
        (tmp_path / "hungry").touch()
        job.await_reason("executor", "was killed", "spark.executor.memoryOverhead", since=since)
        job.await_batches()
        assert not job.list_growth(since)


def test_a_source_directory_that_vanishes_is_named(ground, tmp_path):
    if ground is None:
        return
    job, place = find_job("small-files-lookup"), RunPlace(tmp_path)
    job.prepare(place)
    # or else Spark itself ends the query when files go that a batch has planned
    lenient = {"spark.sql.files.ignoreMissingFiles": "true"}
    with run_job(ground, tmp_path, *job.command(place), conf=lenient) as running:
        with feed("small-files-lookup", place, rate=40.0):
            running.await_batches()
        (folder,) = (tmp_path / "input").iterdir()
        kept = next(folder.glob("*.json")).read_bytes()
        since = time.time()
        shutil.rmtree(folder)
        running.await_reason(f"{folder} is gone", since=since)
        assert not running.list_growth(since)
        folder.mkdir()
        (folder / "late.json").write_bytes(kept)
        running.await_batches(1)


def test_an_executor_at_a_tenth_of_its_speed_is_named(ground, tmp_path):
    if ground is None:
        return
    job, place = find_job("numpy-scoring"), RunPlace(tmp_path)
    job.prepare(place)
    with (
        run_job(ground, tmp_path, *job.command(place)) as running,
        # tasks of a second and more: a throttled host runs shorter ones before its share of the time is used
        feed("numpy-scoring", place, rate=job.cost.rate(2.0, HOST.cpu)),
    ):
        running.await_batches(6)
        ground.limit(at_once=True)
        running.await_batches(3)
        since = time.time()
        ground.slow_down("worker-2", factor=10)
        try:
            running.await_reason("times as long as the others", since=since)
            assert not running.list_growth(since)
        finally:
            ground.slow_down("worker-2", factor=1)
        running.await_batches(2)
