"""A first batch that never ends, since a Python worker has eaten the memory: it is seen all the same."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest

import penstock
from penstock.journal.store import open_journal
from penstock.observe.executors.metrics import metrics_conf
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.own_cluster]

OVERHEAD = "spark.executor.memoryOverhead"


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def started(spark, release: Path, checkpoint: Path):
    """One task, whose Python worker holds 500 MB until the file is there."""
    place = str(release)

    def hoard(batches):  # defined here, so that it travels to executors that do not know this module
        import time
        from pathlib import Path

        held = b"x" * (500 << 20)
        while held and not Path(place).exists():
            time.sleep(0.2)
        yield from batches

    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10)
    eaten = numbers.option("numPartitions", 1).load().mapInArrow(hoard, "timestamp timestamp, value bigint")
    writer = eaten.writeStream.format("noop").queryName("eater").trigger(processingTime="1 second")
    return writer.option("checkpointLocation", str(checkpoint)).start()


def test_a_first_batch_that_is_short_of_memory_leads_to_a_recommendation(local_cluster, tmp_path: Path):
    port, place = free_port(), tmp_path / "journal.db"
    conf = {**metrics_conf("127.0.0.1", port, every_seconds=1.0), OVERHEAD: "384m"}
    spark = local_cluster(executors=2, cores=1, conf=conf)
    settings = {
        "mode": "observe",
        "policy_interval": "3s",
        "sage_up_window": "20s",
        "sage_down_window": "30s",
        "journal": str(place),
        "runtime_directory": str(tmp_path / "run"),
        "executor_metrics": "listen",
        "executor_metrics_port": port,
    }
    query = started(spark, tmp_path / "release", tmp_path / "checkpoint")
    autopilot = penstock.attach(spark, policy="sage", settings=settings)
    try:
        with closing(open_journal(place)) as journal:

            def recommended():
                changes = [one for one in journal.decisions() if one.answer["kind"] == "resize"]
                return changes[-1] if changes else None

            decision = wait_for("a recommendation", recommended, every=1.0, patience=150)
            assert query.lastProgress is None, "no batch has ended"
            assert not journal.observations(), "and nothing is told of queries that nobody knows yet"
    finally:
        (tmp_path / "release").touch()
        autopilot.detach()
        query.stop()
    assert decision.verdict["guardrail"] == "recommend-only"
    assert set(decision.answer["settings"]) == {OVERHEAD}
    assert decision.answer["reason"].startswith("P2")
    assert "no batch has ended yet" in decision.answer["reason"]
