"""A real application in a real browser: its figures, its costs, pause and resume, and its end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.journal.store import open_journal
from tests.browser.browser import find, opened_browser, wait_for_script, wait_for_text
from tests.view.dashboard.served import served
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 1


def test_a_real_application_is_watched_paused_and_resumed(
    local_cluster: Callable[..., SparkSession], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spark = local_cluster(held=HELD)
    places = {"journal": str(tmp_path / "journal.db"), "runtime_directory": str(tmp_path / "run")}
    settings = {**places, "policy_interval": "1s", "max_executors": 1, "dashboard": "127.0.0.1:0"}
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
        for order, word in (("pause", "paused by"), ("resume", "keeps up")):
            browser.execute_script("arguments[0].click()", find(browser, f"#{order}"))
            browser.execute_script("arguments[0].click()", find(browser, "#dialog-yes"))
            wait_for_text(browser, "#summary", word)
        query.stop()
        handle.detach()
        wait_for_text(browser, "#summary .state", "ended")
    with closing(open_journal(places["journal"])) as journal:
        given = [one.reason.partition(" by ")[0] for one in journal.decisions(key) if one.policy == "by hand"]
    assert given == ["paused", "resumed"]
