"""A driver killed in mid-migration: the next run goes on from the checkpoint, and the journal says so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing

import pytest

from penstock.decide.outcome import Status
from penstock.journal.store import open_journal
from penstock_lab.workloads.key_count import KeyCount
from tests.waiting import wait_for

# two drivers are started; former runs in the journal and restarts from a checkpoint have tests of their own
pytestmark = [pytest.mark.spark, pytest.mark.soak]

KEYS, BINS, RECORDS = 300, 6, 4_000
SCRIPT = f"""
import json, sys
from pathlib import Path

import penstock
from penstock_lab.ground.spark_cluster import ClusterShape, start_cluster
from penstock_lab.workloads.key_count import KeyCount, build_key_count

place, drained = Path(sys.argv[1]), sys.argv[2] == "drained"
spark = start_cluster(ClusterShape(2, 1, name="counted twice"))
workload = KeyCount("constant:250", {KEYS}, bins={BINS}, preload=False, max_records={RECORDS},
                    max_records_per_batch=400)

def keep(rows, batch):
    found = {{str(row.key): row["count"] for row in rows.collect()}}
    written = place / "unfinished"
    written.write_text(json.dumps(found))
    written.rename(place / f"batch-{{batch:04d}}.json")

writer = build_key_count(spark, workload).writeStream.outputMode("update").foreachBatch(keep)
writer = writer.option("checkpointLocation", str(place / "checkpoint")).queryName("counts")
query = writer.trigger(processingTime="500 milliseconds").start()
settings = {{"journal": str(place / "journal.db"), "policy_interval": "600s", "control_socket": False}}
autopilot = penstock.attach(spark, settings=settings)
while query.lastProgress is None or query.lastProgress.batchId < 2:
    query.awaitTermination(0.2)
if drained:
    autopilot.state.drain(min(worker.worker for worker in autopilot.state.views()[0].workers))
latest = {{}}
while sum(latest.values()) < {RECORDS}:
    query.awaitTermination(0.2)
    for file in sorted(place.glob("batch-*")):
        latest |= json.loads(file.read_text())
autopilot.detach()
query.stop()
spark.stop()
"""


def start(tmp_path, mode):
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path), mode]
    # a session of its own, so that Spark's processes can be killed with the driver
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def moving(tmp_path, driver):
    """The action under way, once a bin has moved and others have not."""
    assert driver.poll() is None, driver.stdout.read()
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        return next((action for action in journal.actions() if action.status is None), None)


def counts(tmp_path):
    latest = {}
    for file in sorted(tmp_path.glob("batch-*")):
        latest |= json.loads(file.read_text())
    return {int(key): count for key, count in latest.items()}


def test_a_driver_killed_in_mid_migration(tmp_path):
    driver = start(tmp_path, "drained")
    try:
        action = wait_for("a migration", lambda: moving(tmp_path, driver), every=0.2)
        wait_for("two batches", lambda: len(list(tmp_path.glob("batch-*"))) >= 5, every=0.1)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    interrupted = counts(tmp_path)
    again = start(tmp_path, "as it is")
    try:
        said, _ = again.communicate(timeout=240)
    finally:
        if again.poll() is None:
            os.killpg(again.pid, signal.SIGKILL)

    assert again.returncode == 0, said
    assert 0 < sum(interrupted.values()) < RECORDS
    assert counts(tmp_path) == KeyCount("constant:250", KEYS, preload=False).count_keys(RECORDS)
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        closed = journal.action(action.action_id)
        assert closed.status is Status.UNKNOWN
        assert "took up the state from the checkpoint" in closed.detail
        assert not any(journal.unfinished(one.application) for one in journal.actions())
