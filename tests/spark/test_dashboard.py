"""Real applications in a real browser: figures, costs, pause and resume, moved state, and the end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from selenium.webdriver import Chrome

import penstock
from penstock.decide.outcome import Status
from penstock.decide.policy import BINS
from penstock.journal.store import open_journal
from penstock_lab.ground.spark_cluster import hold_executors
from penstock_lab.workloads.state_stores import ROCKSDB_STATE
from tests.browser.browser import find, opened_browser, wait_for_script, wait_for_text
from tests.view.dashboard.served import served
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 1
BINS_OF_QUERY = 4
WITH_STATE = "document.querySelectorAll('td.bins:has(.bin)').length"


COST = (
    "parseFloat([...document.querySelectorAll('#summary .tile')].filter(one => one.textContent.includes("
    "'cost so far'))[0].querySelector('.value').textContent.replace(',', ''))"
)


def press(browser: Chrome, selector: str) -> None:
    """Press a button as scripts do: what changes meanwhile may move it."""
    browser.execute_script("arguments[0].click()", find(browser, selector))


def test_a_real_application_is_watched_paused_and_resumed(
    local_cluster: Callable[..., SparkSession], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spark = local_cluster(held=HELD)
    places = {"journal": str(tmp_path / "journal.db"), "runtime_directory": str(tmp_path / "run")}
    # so dear that the seconds of this test cost whole units of money
    prices = {"price_per_core_hour": 36_000.0}
    settings = {**places, **prices, "policy_interval": "1s", "max_executors": 1, "dashboard": "127.0.0.1:0"}
    caplog.set_level(logging.INFO, "penstock.runtime.beside")
    handle = penstock.attach(spark, settings=settings)
    said = wait_for(
        "the dashboard of the driver", lambda: [one for one in caplog.messages if "dashboard is at" in one]
    )
    of_driver = said[0].rpartition(" ")[2]
    stream = spark.readStream.format("rate").option("rowsPerSecond", 500).load()
    query = stream.writeStream.format("noop").queryName("<noop>").trigger(processingTime="1 second").start()
    key = spark.sparkContext.applicationId
    with served(tmp_path / "run") as client, opened_browser() as browser:
        browser.get(of_driver)
        wait_for_text(browser, f"#row-{key}", "of 500/s")
        browser.get(f"{client.base_url}applications/{key}")
        wait_for_text(browser, "#decisions", "hold")
        wait_for_script(browser, "!document.getElementById('whatif').hidden")
        wait_for_text(browser, "#whatif-executors", "1 (held)")
        # one size all along: no more and no less than the peak, and than at the start
        wait_for_text(browser, "#summary", "±0 % to peak, ±0 % to start")
        wait_for_script(browser, f"{COST} > 1")
        for order, word in (("pause", "paused by"), ("resume", "keeps up")):
            press(browser, f"#{order}")
            press(browser, "#dialog-yes")
            wait_for_text(browser, "#summary", word)
        query.stop()
        handle.detach()
        wait_for_text(browser, "#summary .state", "ended")
    with closing(open_journal(places["journal"])) as journal:
        given = [one.reason.partition(" by ")[0] for one in journal.decisions(key) if one.policy == "by hand"]
    assert given == ["paused", "resumed"]


def test_a_rebalance_is_planned_looked_at_and_begun_on_the_page(
    local_cluster: Callable[..., SparkSession], tmp_path: Path
) -> None:
    spark = local_cluster(held=HELD)
    spark.conf.set("spark.sql.shuffle.partitions", str(BINS_OF_QUERY))
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB_STATE)
    stream = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
    counts = stream.groupBy((stream.value % 97).alias("key")).count().writeStream.format("noop")
    counts = counts.outputMode("update").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = counts.queryName("counts").trigger(processingTime="1 second").start()
    wait_for("two batches", lambda: (query.lastProgress or {"batchId": -1})["batchId"] >= 1)
    # the state is where it began: the second executor has none
    hold_executors(spark, 2)
    places = {"journal": str(tmp_path / "journal.db"), "runtime_directory": str(tmp_path / "run")}
    bounds = {"min_executors": 2, "max_executors": 2}
    handle = penstock.attach(spark, settings={**places, **bounds, "policy_interval": "1s"})
    # orders by hand are carried out, and it spreads nothing by itself
    handle.pause()
    key = spark.sparkContext.applicationId
    with served(tmp_path / "run") as client, opened_browser() as browser:
        browser.get(f"{client.base_url}applications/{key}/state")
        wait_for_script(browser, "document.querySelectorAll('td.bins').length === 2")
        press(browser, '[data-order="rebalance"]')
        wait_for_script(browser, "document.querySelectorAll('dialog[open] .moves tbody tr').length > 0")
        assert browser.execute_script(f"return {WITH_STATE}") == 1
        press(browser, "#dialog-yes")
        # how many bins move depends on how long their tasks have taken
        wait_for_script(
            browser, r"/([1-3]) of \1 bins moved/.test(document.getElementById('map').textContent)"
        )
        wait_for_script(browser, f"{WITH_STATE} === 2")
    with closing(open_journal(places["journal"])) as journal:
        (action,) = wait_for(
            "the end of the action", lambda: [one for one in journal.actions(key) if one.status is not None]
        )
    assert action.status is Status.DONE and 1 <= action.planned[BINS] < BINS_OF_QUERY
    assert action.reason.startswith("rebalanced by")
    handle.detach()
    query.stop()
