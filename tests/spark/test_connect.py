"""Spark Connect: a server with the autopilot attached, its remote clients, and both in one process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ActionFailed
from penstock.runtime.control import Running, find_running
from penstock_lab.ground.spark_cluster import ClusterShape, cluster_conf
from tests.commands.command_line import COMMAND
from tests.waiting import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.own_cluster]

SERVING = re.compile(r"serving Spark Connect at (sc://localhost:\d+); .*\$\(cat (\S+)\)")
CLIENT = """
import sys
from pyspark.sql import SparkSession
import penstock
from penstock.errors import Unsupported

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
numbers = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
writer = numbers.writeStream.format("noop").trigger(processingTime="1 second")
query = writer.queryName(sys.argv[2]).option("checkpointLocation", sys.argv[3]).start()
while query.lastProgress is None:
    query.awaitTermination(0.2)
try:
    penstock.attach(spark)
except Unsupported as refused:
    print(refused)
if len(sys.argv) > 4:
    spark.stop()
"""
IN_ONE_PROCESS = """
import json, sys, time
from pyspark.sql import SparkSession
import penstock

builder = SparkSession.builder.master("local[2]").appName("all in one").config("spark.ui.enabled", "false")
builder = builder.config("spark.connect.grpc.binding.address", "127.0.0.1")
spark = builder.config("spark.api.mode", "connect").getOrCreate()
handle = penstock.attach(spark, settings=json.loads(sys.argv[1]))
assert penstock.attach(spark) is handle
numbers = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
query = numbers.writeStream.format("noop").queryName("near").trigger(processingTime="1 second").start()
deadline = time.monotonic() + 60
while not handle.status()["queries"] and time.monotonic() < deadline:
    time.sleep(0.5)
print(type(spark).__module__, [query["name"] for query in handle.status()["queries"]])
query.stop()
handle.detach()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    settings = {
        "PENSTOCK_JOURNAL": tmp_path / "journal.db",
        "PENSTOCK_RUNTIME_DIRECTORY": tmp_path / "run",
        "PENSTOCK_POLICY_INTERVAL": "1s",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    without = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_CONNECT")}
    return {**without, **{name: str(value) for name, value in settings.items()}}


@pytest.fixture
def server(environment: dict[str, str], tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    shape = ClusterShape(executors=2, cores=1)
    conf = {**cluster_conf(shape), "spark.master": shape.master, "spark.app.name": "hub"}
    pairs = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            [*COMMAND, "connect-server", "--port", "0", "--json", *pairs],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env=environment,
        )
    yield process
    with suppress(subprocess.TimeoutExpired):
        process.terminate()
        process.wait(timeout=60)
    process.kill()


def run_client(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CLIENT, *arguments]
    return subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=120, check=False
    )


def ask_status(environment: Mapping[str, str]) -> Any:
    """The status of the only application that runs, as another command tells it."""
    called = [*COMMAND, "status", "--json"]
    ran = subprocess.run(called, env=dict(environment), capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def take_order(running: Running) -> bool:
    """Order one executor; refused only while the policy's own change is under way."""
    try:
        return bool(running.ask("scale", executors=1))
    except ActionFailed as refused:
        assert "under way" in str(refused)
        return False


def test_the_streams_of_remote_clients_are_seen_and_sized_and_outlive_them(
    server: subprocess.Popen[str], environment: dict[str, str], tmp_path: Path
) -> None:
    said = tmp_path / "said"

    def ready() -> re.Match[str] | None:
        assert server.poll() is None, said.read_text()
        return SERVING.search(said.read_text())

    found = wait_for("the server's address", ready, every=0.5)
    address, token = found[1], Path(found[2])
    assert token.stat().st_mode & 0o077 == 0
    knowing = {**environment, "SPARK_CONNECT_AUTHENTICATE_TOKEN": token.read_text().strip()}

    stranger = run_client(environment, address, "stranger", str(tmp_path / "none"))
    assert stranger.returncode == 1 and "No authentication token provided" in stranger.stderr

    stays = run_client(knowing, address, "far", str(tmp_path / "far"))
    assert stays.returncode == 0, stays.stderr
    assert "its driver is another process" in stays.stdout and "penstock connect-server" in stays.stdout
    ends = run_client(knowing, address, "short", str(tmp_path / "short"), "ends its session")
    assert ends.returncode == 0, ends.stderr

    def only_far() -> Any:
        status = ask_status(environment)
        return status if [query["name"] for query in status["queries"]] == ["far"] else None

    status = wait_for("the query that outlives its client, alone", only_far, every=1.0)
    assert (status["name"], status["mode"]) == ("hub", "act")
    assert status["attached"] and status["error"] is None and not status["paused"]
    running = find_running(tmp_path / "run", "hub")
    running.ask("pause")
    wait_for("an order that is taken", lambda: take_order(running), every=0.5)
    wait_for("one executor less", lambda: ask_status(environment)["executors"] == 1, every=1.0)
    assert only_far(), "its query runs on"

    server.send_signal(signal.SIGTERM)
    printed, _ = server.communicate(timeout=60)
    assert server.returncode == 0, said.read_text()
    (line,) = printed.splitlines()
    result = json.loads(line)
    assert result["address"] == address and result["applications"][0]["name"] == "hub"
    assert not token.exists()
    assert not re.search("Traceback|Query far .* terminated with error", said.read_text()), said.read_text()


def test_a_connect_session_whose_server_is_in_this_process_is_attached_to_its_driver(
    environment: dict[str, str], tmp_path: Path
) -> None:
    settings = {"mode": "observe", "policy_interval": "1s", "journal": str(tmp_path / "journal.db")}
    called = [sys.executable, "-c", IN_ONE_PROCESS, json.dumps(settings)]
    ran = subprocess.run(called, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "pyspark.sql.connect.session ['near']"
