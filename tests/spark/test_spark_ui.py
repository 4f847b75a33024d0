"""Tab and metrics in a real application's own Spark UI: filled, guarded, and gone with the autopilot."""

from __future__ import annotations

from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

import penstock
from tests.spark.conftest import ClusterFactory
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.own_cluster]


METRICS, BACKLOG = "/metrics/penstock/prometheus", "penstock_source_backlog_records"


def read(address: str) -> str:
    with urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())


def is_gone(address: str) -> bool:
    """Spark sends those who ask for a page that is not there to its first one."""
    page = read(f"{address}/penstock/")
    return "Spark Jobs" in page and "/penstock/" not in page


def serves_metrics(address: str) -> bool:
    try:
        return "# HELP" in read(f"{address}{METRICS}")
    except HTTPError:
        return False


def scrape(address: str) -> dict[str, dict[str, float]]:
    """Return the values of each metric by the kind or the query that they are of."""
    return {
        family.name: {
            sample.labels.get("kind") or sample.labels.get("query", ""): sample.value
            for sample in family.samples
        }
        for family in text_string_to_metric_families(read(f"{address}{METRICS}"))
    }


def test_the_spark_ui_shows_how_the_autopilot_stands(local_cluster: ClusterFactory, tmp_path: Path) -> None:
    conf = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.acls.enable": "true"}
    spark = local_cluster(executors=1, conf=conf)
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
    assert "metrics_executor_" in read(f"{address}/metrics/executors/prometheus"), "Spark serves its own"
    wait_for("metrics", lambda: serves_metrics(address))
    scraped = wait_for("its query", lambda: now if (now := scrape(address))[BACKLOG] else None)
    assert list(scraped[BACKLOG]) == ["<i>noop</i>"] and scraped["penstock_executors"]["held"] == 1
    for page in ("/penstock/", METRICS):
        with pytest.raises(HTTPError, match="403"):
            read(f"{address}{page}?doAs=stranger")
    handle.detach()
    wait_for("its end with the autopilot", lambda: is_gone(address) and not serves_metrics(address))
    assert query.isActive
    silent = penstock.attach(spark, settings={**settings, "spark_ui_tab": False})
    wait_for("a cycle", lambda: silent.status()["heartbeat"]["beats"] > 1)
    assert is_gone(address) and not serves_metrics(address)
    silent.detach()
    penstock.attach(spark, settings=settings)
    wait_for("the metrics of the next one", lambda: serves_metrics(address))
