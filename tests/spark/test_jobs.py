"""Ordinary jobs, run from their scripts on a real cluster: what they write is the right answer."""

import os
import signal
import subprocess
import sys
import threading

import orjson
import pytest

from penstock.runtime.launch import run_script
from penstock_lab.ground.kafka_broker import connector_jars, kafka_broker
from penstock_lab.ground.spark_cluster import restore_settings
from penstock_lab.jobs.catalog import JOBS, find_job
from penstock_lab.jobs.contents import Fed
from penstock_lab.jobs.feed import feed_job
from penstock_lab.jobs.lookup_service import lookup_service
from penstock_lab.jobs.places import RunPlace
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 2

AT_ONCE = "three-jobs"
BY_THE_CLOCK = "small-files-lookup"
ALONE = "kafka-windows"
"""Its sink answers with objects of the connector, which must be there when Spark starts."""
RATE, SECONDS = 30, 50
"""Of event time: long enough for windows and sessions to end."""


@pytest.fixture(scope="module")
def spark(local_cluster):
    session = local_cluster(held=HELD)
    # a job of a user has Spark's defaults here; the shared cluster does without the batches that end windows
    session.conf.unset("spark.sql.streaming.noDataMicroBatches.enabled")
    return session


@pytest.fixture(scope="module")
def brokers(spark, broker):
    for jar in connector_jars():
        spark.sql(f"ADD JAR '{jar}'")
    return broker


@pytest.fixture
def own_process(spark):
    """Give back what a script changes of the process and of the session in which it runs."""
    arguments, path, handler = sys.argv, sys.path.copy(), signal.getsignal(signal.SIGTERM)
    settings = dict(spark.conf.getAll)
    yield
    sys.argv, sys.path[:] = arguments, path
    signal.signal(signal.SIGTERM, handler)
    restore_settings(spark, settings)


@pytest.fixture
def place_of(request, tmp_path):
    """Return the place of a job's run, with the servers that the job needs."""

    def build(job):
        brokers = request.getfixturevalue("brokers") if job.uses_kafka else ""
        service = request.getfixturevalue("service") if job.asks_service else ""
        return RunPlace(tmp_path, brokers, service)

    return build


@pytest.fixture
def service():
    with lookup_service(wait_ms=5) as address:
        yield address


def quick(job):
    """Return arguments with which a batch of little input takes little time."""
    triggers = [] if job.name in ("no-trigger", "available-now") else ["--trigger", "0 seconds"]
    return ["--partitions", "2", *triggers]


def check(job, place, fed):
    found = job.check(place, fed)
    assert found.equal, found
    assert job.answer(job.content, fed)


def test_a_backlog_gives_the_right_answer(own_process, place_of):
    job, fed = find_job(AT_ONCE), Fed(f"constant:{RATE}", SECONDS, seed=3)
    place = place_of(job)
    feed_job(job, place, fed, at_once=True)
    place.stop_file.touch()
    command = job.command(place)
    assert run_script(job.script, [*command[1:], *quick(job)]) == 0
    check(job, place, fed)


def test_input_that_comes_by_the_clock_gives_the_right_answer(own_process, place_of):
    run_by_the_clock(place_of, BY_THE_CLOCK, Fed("steps:0=20,4=40", 8, seed=5))


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in JOBS if name not in (BY_THE_CLOCK, ALONE)])
def test_every_job_gives_the_right_answer(own_process, place_of, name):
    run_by_the_clock(place_of, name, Fed("bursts:base=20,peak=60,every=10,length=3", 25, seed=7))


@pytest.mark.soak
@pytest.mark.own_cluster
def test_penstock_runs_a_job_until_it_is_told_to_end(tmp_path):
    job, fed = find_job(ALONE), Fed("constant:40", 30, seed=9)
    with kafka_broker(tmp_path / "kafka") as address:
        place = RunPlace(tmp_path / "run", address)
        job.prepare(place)
        with (tmp_path / "log").open("w+") as log:
            running = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", "run", *job.command(place), *quick(job)],
                env={**os.environ, **own_cluster(tmp_path)},
                stdout=log,
                stderr=log,
            )
            try:
                feed_job(job, place, fed)
                wait_for("a first result", lambda: running.poll() is not None or job.output(place))
                running.send_signal(signal.SIGTERM)
                code = running.wait(timeout=120)
            finally:
                running.kill()
        assert code == 0, (tmp_path / "log").read_text()
        check(job, place, fed)


def own_cluster(directory):
    """Return the environment of a script that starts a Spark of its own, with the connector."""
    jars = ",".join(map(str, connector_jars()))
    conf = ["--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"]
    return {
        "PYSPARK_SUBMIT_ARGS": " ".join(
            ["--master", "local-cluster[2,1,512]", "--jars", jars, *conf, "pyspark-shell"]
        ),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PENSTOCK_JOURNAL": str(directory / "journal.db"),
        "PENSTOCK_RUNTIME_DIRECTORY": str(directory / "runtime"),
    }


def run_by_the_clock(place_of, name, fed):
    job = find_job(name)
    place = place_of(job)
    job.prepare(place)
    servers = ["--brokers", place.brokers, "--service", place.service]
    feed = [sys.executable, "-m", "penstock_lab.jobs.feed", name, str(place.directory), *servers]
    given = ["--rate", fed.profile, "--seconds", str(fed.seconds), "--seed", str(fed.seed)]
    feeding = subprocess.Popen([*feed, *given])
    stopping = threading.Thread(target=lambda: (feeding.wait(), place.stop_file.touch()))
    stopping.start()
    if job.ends_by_itself:
        stopping.join()
    assert run_script(job.script, [*job.command(place)[1:], *quick(job)]) == 0
    stopping.join()
    assert feeding.returncode == 0
    state = orjson.loads(place.feed_state.read_bytes())
    assert state["ended"] and state["records"] == state["of_records"] == fed.records
    check(job, place, fed)
