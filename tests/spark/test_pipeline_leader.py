"""Two real drivers of one pipeline: the one that leads is killed, and the other goes on where it was."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from penstock.journal.store import open_journal
from penstock.runtime.control import find_running
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PER_FILE = 50
LEASE = "10s"
"""Long enough for a leader that has to share two cores with the start of another driver."""


class Driver:
    """A process whose lines are read as they come."""

    def __init__(self, root):
        command = [sys.executable, "-m", "tests.spark.leading_driver", str(root), LEASE]
        self._said = root / f"driver-{time.monotonic_ns()}.log"
        with self._said.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, cwd=Path(__file__).parents[2]
            )

    def said(self):
        lines = self._said.read_text(errors="replace").splitlines()
        return [line for line in lines if line in ("leads", "stands by")]

    def log(self):
        return self._said.read_text(errors="replace")[-3000:]


@pytest.fixture
def drivers():
    started = []
    yield started
    for one in started:
        one.process.kill()
        one.process.wait()


def start(drivers, root):
    drivers.append(Driver(root))
    return drivers[-1]


def until(what, condition, drivers):
    wait_for(what, condition, seen=lambda: [one.log() for one in drivers])


def write(topics, number):
    topics.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame({"number": range(number * PER_FILE, (number + 1) * PER_FILE)})
    frame.to_parquet(topics / f".{number}.parquet", index=False)
    (topics / f".{number}.parquet").rename(topics / f"{number}.parquet")


def column(topic, name):
    """All values of a topic that readers can see, each as often as it was published."""
    return [v for file in topic.glob("*/*.parquet") for v in pq.read_table(file).column(name).to_pylist()]


def test_the_leader_is_killed_and_another_goes_on_exactly_where_it_was(tmp_path, drivers):
    topics = tmp_path / "topics"
    for number in range(2):
        write(topics / "numbers", number)
    first = start(drivers, tmp_path)
    until("the first leads", lambda: first.said() == ["leads"], drivers)
    second = start(drivers, tmp_path)
    until("the second stands by", lambda: second.said() == ["stands by"], drivers)
    until("records are served", lambda: column(topics / "doubled", "twice"), drivers)
    find_running(tmp_path / "run" / "pipelines", "doubling").ask("scale", function="double", parallelism=2)
    for number in range(2, 5):
        write(topics / "numbers", number)
    until("more is served", lambda: len(column(topics / "doubled", "twice")) > 2 * PER_FILE, drivers)

    os.kill(first.process.pid, signal.SIGKILL)
    until("the second leads", lambda: second.said()[-1:] == ["leads"], drivers)
    write(topics / "numbers", 5)
    wanted = [2 * number for number in range(6 * PER_FILE)]
    until("all is served", lambda: len(column(topics / "doubled", "twice")) >= len(wanted), drivers)
    until("all is counted", lambda: len(column(topics / "totals", "key")) >= len(wanted), drivers)
    status = find_running(tmp_path / "run" / "pipelines", "doubling").ask("status")["status"]
    assert status["leads"] and status["functions"]["double"]["pinned"], status
    assert (status["functions"]["double"]["parallelism"], status["error"]) == (2, None)

    second.process.terminate()
    assert second.process.wait(60) == 0, second.log()
    assert sorted(column(topics / "doubled", "twice")) == wanted
    assert Counter(column(topics / "totals", "total")) == {1: len(wanted)}
    journal = open_journal(tmp_path / "journal.db")
    lease = journal.leases.seen(f"pipeline {topics}/_penstock/checkpoints/doubling")
    assert lease.free and lease.term == 2
    assert not [record for record in journal.actions() if record.status is None]
