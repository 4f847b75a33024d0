"""`penstock run` with a real streaming script that knows nothing of Penstock, and commands from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing

import pytest

from penstock.journal.store import open_journal
from tests.waiting import wait_for

pytestmark = pytest.mark.spark

COMMAND = [sys.executable, "-m", "penstock.cli"]
SCRIPT = """
import sys
from pathlib import Path

from pyspark.sql import SparkSession

rows, code, enough = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[4])
builder = SparkSession.builder.master("local[2]").appName("my own job").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).load()
writer = numbers.writeStream.format("noop").queryName("numbers").trigger(processingTime="1 second")
query = writer.option("checkpointLocation", sys.argv[3]).start()
while query.lastProgress is None or query.lastProgress.batchId < 12 or not enough.exists():
    query.awaitTermination(0.5)
print("batches", query.lastProgress.batchId)
query.stop()
spark.stop()
sys.exit(code)
"""


@pytest.fixture
def environment(tmp_path):
    settings = {
        "PENSTOCK_JOURNAL": tmp_path / "journal.db",
        "PENSTOCK_RUNTIME_DIRECTORY": tmp_path / "run",
        "PENSTOCK_POLICY_INTERVAL": "1s",
    }
    return {**os.environ, **{name: str(value) for name, value in settings.items()}}


def asked(environment, *arguments):
    """What another command says meanwhile, as an object; None while there is nothing to talk to."""
    ran = subprocess.run(
        [*COMMAND, *arguments, "--json"], capture_output=True, text=True, env=environment, check=False
    )
    return json.loads(ran.stdout.splitlines()[-1]) if ran.returncode == 0 else None


def test_an_unchanged_script_with_the_autopilot_attached(environment, tmp_path):
    script, enough = tmp_path / "job.py", tmp_path / "enough"
    script.write_text(SCRIPT)
    job = subprocess.Popen(
        [*COMMAND, "run", "--json", str(script), "40", "7", str(tmp_path / "checkpoint"), str(enough)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )

    def seen():
        status = asked(environment, "status", "my own job")
        return status if status and status["queries"] else None

    try:
        status = wait_for("a status with the query", seen, every=2.0)
        watched = asked(environment, "watch", status["application"])
    finally:
        enough.touch()
        printed, said = job.communicate(timeout=120)

    assert (status["name"], status["mode"], status["slots"]) == ("my own job", "observe", 2)
    assert status["queries"][0]["name"] == "numbers"
    assert watched["application"] == status["application"]
    assert job.returncode == 7, said
    result = json.loads(printed.splitlines()[-1])
    assert len(printed.splitlines()) == 1 and "batches" in said
    assert (result["exit_code"], result["script"]) == (7, str(script))
    assert [one["application"] for one in result["applications"]] == [status["application"]]
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        observed = journal.observations(status["application"])
        assert any(query.name == "numbers" for record in observed for query in record.queries)
        assert journal.decisions(status["application"])
        assert not journal.actions(status["application"])
    assert asked(environment, "status") is None
