"""A real streaming job, restarted from its checkpoint with another heap by `penstock run --allow-restart`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from penstock.decide.outcome import Status
from penstock.journal.overrides import add_override
from penstock.journal.records import ActionRecord
from penstock.journal.store import Journal, open_journal
from penstock_lab.ground.class_archive import ClassArchive
from penstock_lab.ground.spark_cluster import LIGHT_JVM
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

MIB = 1024 * 1024
ROWS = 50
PATIENCE = 130.0
"""Seconds for one start of Spark; on a busy machine its first batch has taken 76."""
SCRIPT = """
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

root = Path(sys.argv[1])
spark = SparkSession.builder.appName("restarted job").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
with (root / "starts").open("a") as starts:
    starts.write(spark.conf.get("spark.executor.memory") + "\\n")
numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", int(sys.argv[2]))
double = udf(lambda value: 2 * value, "long")
doubled = numbers.option("numPartitions", 1).load().select(double("value").alias("value"))
writer = doubled.writeStream.format("json").trigger(processingTime="1 second").queryName("doubled")
query = writer.option("checkpointLocation", str(root / "checkpoint")).start(str(root / "output"))
while query.isActive and not (root / "enough").exists():
    query.awaitTermination(0.3)
query.stop()
spark.stop()
"""
CONF = {
    "spark.master": "local-cluster[1,1,1024]",
    "spark.executor.memory": "512m",
    "spark.executor.heartbeatInterval": "1s",
    "spark.ui.enabled": "false",
    "spark.penstock.executor_metrics": "listen",
    "spark.penstock.executor_metrics_every": "1s",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    ours = {
        "PENSTOCK_JOURNAL": str(tmp_path / "journal.db"),
        "PENSTOCK_RUNTIME_DIRECTORY": str(tmp_path / "run"),
        "PENSTOCK_POLICY_INTERVAL": "2s",
        # a PySpark executor outgrows Spark's own 384 MiB beside a heap this small, and P2 would say so
        "PENSTOCK_SAGE_PIN": "overhead,cpu,parallelism",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    return {**os.environ, **ours}


def written(root: Path) -> list[int]:
    """What the sink has committed, by its own log."""
    lines = [
        line
        for log in (root / "output" / "_spark_metadata").glob("[0-9]*")
        for line in log.read_text().splitlines()
    ]
    files = {json.loads(line)["path"].removeprefix("file://") for line in lines if line.startswith("{")}
    return sorted(json.loads(row)["value"] for file in files for row in Path(file).read_text().splitlines())


def started(journal: Journal) -> str | None:
    """The application's id, once enough windows with metrics are behind it."""
    seen = journal.observations()
    return seen[-1].application if len(seen) >= 4 else None


@contextmanager
def running(environment: dict[str, str], root: Path) -> Iterator[subprocess.Popen[str]]:
    """The job under a supervisor that may restart it."""
    script = root / "job.py"
    script.write_text(SCRIPT)
    (root / "events").mkdir()
    events = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(root / "events")}
    java = {"spark.executor.extraJavaOptions": " ".join((LIGHT_JVM, *ClassArchive("driver").options))}
    given = {**CONF, **events, **java, "spark.eventLog.compress": "false"}
    conf = [word for key, value in given.items() for word in ("--conf", f"{key}={value}")]
    command = [sys.executable, "-m", "penstock.cli", "run", "--policy", "sage", "--allow-restart", "--json"]
    words = [*command, *conf, str(script), str(root), str(ROWS)]
    job = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield job
    finally:
        (root / "enough").touch()
        if job.poll() is None:
            job.terminate()
            job.wait(timeout=60)


def refused(journal: Journal) -> bool:
    """Whether what did not come up was asked for again, and not tried again."""
    return any(one.verdict.get("guardrail") == "failed-before" for one in journal.decisions())


def overridden(
    job: subprocess.Popen[str],
    root: Path,
    until: Callable[[Journal], bool] = lambda journal: True,
    **words: object,
) -> tuple[str, ActionRecord, dict]:
    """Say a word to the running job, and wait until it has led to an action and further batches."""
    with closing(open_journal(root / "journal.db")) as journal:
        first = wait_for("windows", lambda: started(journal), patience=PATIENCE)
        add_override(journal, time.time(), "restarted job", "ops", **words)
        (action,) = wait_for(
            "the end", lambda: [a for a in journal.actions() if a.status], patience=2 * PATIENCE
        )
        before = len(written(root))
        wait_for("batches after it", lambda: len(written(root)) >= before + 2 * ROWS, every=0.5)
        wait_for("what follows", lambda: until(journal), patience=PATIENCE)
        (root / "enough").touch()
        told = json.loads((job.communicate(timeout=60)[0] or "").splitlines()[-1])
        # the pause is written after the end
        return first, journal.action(action.action_id), told


def read_command(process: psutil.Process) -> list[str]:
    """Return a process's command line; one that has ended meanwhile has none."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def find_secret_on_no_command_line() -> str:
    """Return the word by which executors' reports are believed, from the file in which Spark reads it."""

    def submitted() -> list[str]:
        ours = [read_command(one) for one in psutil.Process().children(recursive=True)]
        return next((words for words in ours if "--properties-file" in words), [])

    words = wait_for("Spark's command line", submitted, patience=PATIENCE)
    file = Path(words[words.index("--properties-file") + 1])
    (secret,) = [line.split()[1] for line in file.read_text().splitlines()]
    assert len(secret) == 32 and file.stat().st_mode & 0o077 == 0
    shown = [read_command(one) for one in psutil.process_iter()]
    assert not any(secret in word for words in shown for word in words)
    return secret


def test_a_forced_heap_restarts_the_job_and_its_output_is_right(environment, tmp_path):
    with running(environment, tmp_path) as job:
        secret = find_secret_on_no_command_line()
        first, action, told = overridden(job, tmp_path, force="P1")

    assert action.status is Status.DONE, action.detail
    assert (action.application, action.settings) == (first, {"spark.executor.memory": ("512m", "768m")})
    assert action.measured is not None and action.measured["pause_seconds"] > 0
    assert "forced by ops" in action.reason
    assert (tmp_path / "starts").read_text().split() == ["512m", "768m"]
    values = written(tmp_path)
    assert values == [2 * number for number in range(len(values))], "each record once, over both runs"
    assert (told["exit_code"], [one["status"] for one in told["restarts"]]) == (0, ["done"])
    assert len(told["applications"]) == 2
    judged = action.judged
    assert 0 < judged["heap_used_bytes"] <= judged["heap_committed_bytes"] <= 512 * MIB
    assert judged["memory_used_bytes"] > judged["heap_committed_bytes"], (
        "JVM and Python workers beside the heap"
    )
    assert judged["gc_count"] >= 0 and judged["cpu_used_cores"] >= 0
    events = "".join(log.read_text() for log in (tmp_path / "events").rglob("*") if log.is_file())
    assert "penstock_secret.prefix" in events and secret not in events, "Spark hides it"


@pytest.mark.soak
def test_cores_that_no_host_has_are_tried_once_and_the_old_ones_come_back(environment, tmp_path):
    """The only worker has one core: Spark does not start with executors of four, and the job ends at once."""
    with running(environment, tmp_path) as job:
        _, action, told = overridden(job, tmp_path, refused, pin=["cpu=4"])

    assert action.status is Status.FAILED and action.reason.startswith("set by ops")
    assert action.settings == {"spark.executor.cores": ("1", "4"), "spark.task.cpus": ("1", "4")}
    assert "with the new settings it ended with code 1; the old settings run again" in action.detail
    values = written(tmp_path)
    assert values == [2 * number for number in range(len(values))], "each record once, over all runs"
    assert [one["status"] for one in told["restarts"]] == ["failed"]
