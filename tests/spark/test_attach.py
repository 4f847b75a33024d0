"""Attaching to a real application: one handle, commands from outside, a quiet end."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.cli import perform
from penstock.errors import BadSettings, SparkUnavailable, Unsupported
from penstock.journal.store import journal_at
from penstock.journal.terms import recall_terms
from penstock.runtime import control
from penstock.runtime.spark_ui import SparkTab
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.own_cluster]


def test_one_application_from_attach_to_its_end(
    local_cluster: Callable[..., SparkSession], tmp_path: Path
) -> None:
    spark = local_cluster(held=1)
    settings = {
        "mode": "observe",
        "policy_interval": "2s",
        "journal": str(tmp_path / "journal.db"),
        "runtime_directory": str(tmp_path / "run"),
        "metrics": "127.0.0.1:0",
    }
    with pytest.raises(BadSettings, match="did you mean 'ds2'"):
        penstock.attach(spark, policy="ds3", settings=settings)
    with pytest.raises(Unsupported, match="SparkSession is needed"):
        penstock.attach("not a session")
    with pytest.raises(Unsupported, match="the Spark UI is off"):
        SparkTab(spark)
    handle = penstock.attach(spark, settings=settings)
    assert penstock.attach(spark, settings=settings) is handle

    stream = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    query = stream.writeStream.format("noop").queryName("noop").trigger(processingTime="1 second").start()
    running = control.find_running(tmp_path / "run", spark.sparkContext.applicationId)
    wait_for("a query", lambda: running.ask("status")["status"]["queries"])
    status = running.ask("status")["status"]
    assert (status["mode"], status["executors"], status["slots"]) == ("observe", 1, 2)
    assert status["queries"][0]["name"] == "noop"
    with urlopen(status["metrics_url"]) as scraped:
        text = scraped.read().decode()
    assert re.search(r'penstock_executors{application="app-.*kind="held".*} 1.0', text)
    assert re.search(r'penstock_query_behind{.*query="noop"} ', text)
    page = tmp_path / "report.html"
    told = ["--journal", str(settings["journal"]), "--html", str(page)]
    assert perform(["report", spark.sparkContext.appName, *told]) == 0
    with closing(journal_at(settings["journal"])) as journal:
        (terms,) = recall_terms(journal, spark.sparkContext.appName).values()
    assert terms.executor_memory_bytes and "core-hours held" in page.read_text()
    assert query.isActive

    handle.detach()
    assert not handle.running
    fleet = tmp_path / "fleet"
    again = penstock.attach(spark, settings=settings, report_to=str(fleet))
    assert again is not handle
    wait_for(
        "a report to the fleet",
        lambda: [file for file in fleet.rglob("*") if file.is_file() and file.stat().st_size],
    )
    query.stop()
    spark.stop()
    wait_for("its end", lambda: not again.running)
    with pytest.raises(SparkUnavailable):
        penstock.attach(spark, settings=settings)
