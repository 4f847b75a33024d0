"""The tab in a real application's own Spark UI: there, filled, escaped, and gone with the autopilot."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest

import penstock
from tests.spark.conftest import ClusterFactory
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.own_cluster]


def read(address: str) -> str:
    with urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())


def is_gone(address: str) -> bool:
    """Spark sends those who ask for a page that is not there to its first one."""
    page = read(f"{address}/penstock/")
    return "Spark Jobs" in page and "/penstock/" not in page


def test_the_spark_ui_shows_how_the_autopilot_stands(local_cluster: ClusterFactory, tmp_path: Path) -> None:
    spark = local_cluster(executors=1, conf={"spark.ui.enabled": "true", "spark.ui.port": "0"})
    settings = {
        "mode": "observe",
        "policy_interval": "1s",
        "journal": str(tmp_path / "journal.db"),
        "runtime_directory": str(tmp_path / "run"),
    }
    address = spark.sparkContext.uiWebUrl
    handle = penstock.attach(spark, settings=settings)
    stream = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    writer = stream.writeStream.format("noop").queryName("<i>noop</i>").trigger(processingTime="1 second")
    query = writer.start()
    page = wait_for(
        "the query on the tab",
        lambda: text if "&lt;i&gt;noop" in (text := read(f"{address}/penstock/")) else "",
        seen=lambda: read(f"{address}/penstock/"),
    )
    assert "<i>noop" not in page, "a query's name is text"
    assert "executors held" in page and "Last decisions" in page and "observing only" in page
    assert "/penstock/" in read(f"{address}/environment/"), "every page of the UI links to it"
    handle.detach()
    wait_for("its end with the autopilot", lambda: is_gone(address))
    assert query.isActive
    silent = penstock.attach(spark, settings={**settings, "spark_ui_tab": False})
    wait_for("a cycle", lambda: silent.status()["heartbeat"]["beats"] > 1)
    assert is_gone(address)
