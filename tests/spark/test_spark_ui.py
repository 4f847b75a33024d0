"""A real application's state, moved from its page in a browser, and the tab in its own Spark UI."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

import penstock
from tests.browser.browser import find, opened_browser
from tests.spark.conftest import ClusterFactory
from tests.view.dashboard.served import served
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.own_cluster]
BINS = 4


@pytest.fixture(scope="module")
def spark(local_cluster: ClusterFactory) -> SparkSession:
    """Two executors with a core each, and the UI on."""
    conf = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.sql.shuffle.partitions": str(BINS)}
    return local_cluster(executors=2, cores=1, conf=conf)


def read(address: str) -> str:
    with urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())


def is_gone(address: str) -> bool:
    """Spark sends those who ask for a page that is not there to its first one."""
    page = read(f"{address}/penstock/")
    return "Spark Jobs" in page and "/penstock/" not in page


def test_state_is_taken_off_an_executor_from_the_page(spark: SparkSession, tmp_path: Path) -> None:
    places = {"journal": str(tmp_path / "journal.db"), "runtime_directory": str(tmp_path / "run")}
    settings = {**places, "policy_interval": "1s", "min_executors": 2, "max_executors": 2}
    handle = penstock.attach(spark, settings=settings)
    counted = spark.readStream.format("rate").option("rowsPerSecond", 50).load().groupBy("value").count()
    writer = counted.writeStream.format("noop").outputMode("update").queryName("counts")
    query = (
        writer.option("checkpointLocation", str(tmp_path / "c")).trigger(processingTime="1 second").start()
    )
    with served(tmp_path / "run") as client, opened_browser() as browser:

        def read_bins() -> list[int]:
            """Return how many bins each executor has, as the page shows them."""
            rows = "[...document.querySelectorAll('#map tbody tr')]"
            counted: list[int] = browser.execute_script(
                f"return {rows}.map((row) => row.querySelectorAll('.bin').length)"
            )
            return counted

        browser.get(f"{client.base_url}applications/{spark.sparkContext.applicationId}/state")
        wait_for("bins on both executors", lambda: len(read_bins()) == 2 and 0 not in read_bins())
        # paused, so that the autopilot does not spread the state again
        handle.pause()
        for button in ("#map [data-order=drain]", "dialog[open] #dialog-yes"):
            browser.execute_script("arguments[0].click()", find(browser, button))
        wait_for("the first executor without bins", lambda: read_bins() == [0, BINS], seen=read_bins)
    assert query.isActive
    query.stop()
    handle.detach()


def test_the_spark_ui_shows_how_the_autopilot_stands(spark: SparkSession, tmp_path: Path) -> None:
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
