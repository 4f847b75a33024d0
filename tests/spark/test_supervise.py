"""A real streaming job, restarted from its checkpoint with another heap by `penstock run --allow-restart`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from penstock.decide.outcome import Status
from penstock.journal.overrides import override
from penstock.journal.store import Journal, open_journal
from tests.spark.watching import wait_for

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


def test_a_forced_heap_restarts_the_job_and_its_output_is_right(environment, tmp_path):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    conf = [word for key, value in CONF.items() for word in ("--conf", f"{key}={value}")]
    command = [
        sys.executable,
        "-m",
        "penstock.cli",
        "run",
        "--policy",
        "sage",
        "--allow-restart",
        "--json",
        *conf,
    ]
    job = subprocess.Popen(
        [*command, str(script), str(tmp_path), str(ROWS)], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        with closing(open_journal(tmp_path / "journal.db")) as journal:
            first = wait_for("windows", lambda: started(journal), patience=PATIENCE)
            override(journal, time.time(), "restarted job", "ops", force="P1")
            done = wait_for("the end", lambda: [a for a in journal.actions() if a.status], patience=PATIENCE)
            before = len(written(tmp_path))
            wait_for("batches after it", lambda: len(written(tmp_path)) >= before + 2 * ROWS, every=0.5)
            (tmp_path / "enough").touch()
            told = json.loads((job.communicate(timeout=60)[0] or "").splitlines()[-1])
    finally:
        (tmp_path / "enough").touch()
        if job.poll() is None:
            job.terminate()
            job.wait(timeout=60)

    (action,) = done
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
