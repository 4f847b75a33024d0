"""Why executors were lost, and what their processes used, from what systems say."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.dataflow.window import MemoryLoss
from penstock.observe.executors.losses import Losses, RecentLosses
from penstock.observe.executors.processes import Process, TreeUse, list_processes, measure_executors
from tests.waiting import wait_for


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("Command exited with code 52", (1, 0)),
        ("Unable to create executor due to java.lang.OutOfMemoryError: Java heap space", (1, 0)),
        ("The executor with id 3 exited with exit code 52(JVM OOM).", (1, 0)),
        ("The executor with id 3 exited with exit code 137(SIGKILL, possible container OOM).", (0, 1)),
        ("Container killed by YARN for exceeding physical memory limits. 5.5 GB of 5 GB used.", (0, 1)),
        ("Command exited with code 137", (0, 1)),
        ("Executor decommissioned: released by Penstock", (0, 0)),
        ("Executor heartbeat timed out after 137000 ms", (0, 0)),
        ("Command exited with code 1", (0, 0)),
        (None, (0, 0)),
    ],
)
def test_reasons(reason, expected):
    lost = {"id": "3", "removeTime": 15_000, "removeReason": reason}
    losses = Losses()
    assert losses.counts([lost], 10.0, 20.0) == expected
    assert losses.counts([lost], 20.0, 30.0) == (0, 0), "once"
    assert Losses().counts([{"id": "3", "removeReason": reason}], 0.0, 30.0) == (0, 0)


def test_a_loss_that_spark_lists_late_counts_in_the_window_that_hears_of_it():
    lost = {"id": "3", "removeTime": 19_990, "removeReason": "Command exited with code 52"}
    losses = Losses()
    assert losses.counts([], 10.0, 20.0) == (0, 0)
    assert [losses.counts([lost], start, start + 10.0) for start in (20.0, 30.0)] == [(1, 0), (0, 0)]
    early = Losses()
    assert [early.counts([lost], start, start + 10.0) for start in (9.0, 19.0)] == [(0, 0), (1, 0)]
    assert Losses().counts([lost], 100.0, 110.0) == (0, 0), "of a time before anybody looked"


def test_an_executors_tree_counts_as_a_whole():
    command = ("java", "--executor-id", "2", "--app-id", "app-7")
    table = [
        Process(10, 1, 5.0, 300.0, command),
        Process(11, 10, 2.0, 50.0, ("python", "-m", "pyspark.daemon")),
        Process(12, 11, 1.5, 40.0, ("python",)),
        Process(13, 1, 9.0, 70.0, ("java", "--executor-id", "2", "--app-id", "app-8")),
    ]
    assert measure_executors(table, "app-7") == {"2": TreeUse(8.5, 390.0)}


def test_this_machine_tells_of_real_processes():
    busy = "import sys\nx = 0\nfor i in range(4_000_000): x += i\nprint(x, flush=True)\nsys.stdin.read()"
    words = [sys.executable, "-c", busy, "--executor-id", "5", "--app-id", "made-up"]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline()
        found = measure_executors(list_processes(), "made-up")["5"]
        assert (
            found.cpu_seconds > 0
            and found.resident_bytes > 1e6
            and any(p.pid == os.getpid() for p in list_processes())
        )
    finally:
        child.communicate(timeout=30)
    wait_for("its end", lambda: measure_executors(list_processes(), "made-up") == {})


def test_a_process_of_another_user_is_no_executor():
    """Anybody can start a process that calls itself an executor, and let it eat memory."""
    words = [sys.executable, "-c", "input()", "--app-id", "forged", "--executor-id", "5"]
    forged = subprocess.Popen(words, stdin=subprocess.PIPE)
    try:
        wait_for("its command line", lambda: measure_executors(list_processes(), "forged"))
        others = frozenset({os.getuid() + 1})
        assert measure_executors(list_processes(others), "forged") == {}
    finally:
        forged.communicate(b"\n")


def lost_executor(name, at, reason="Command exited with code 137"):
    return {"id": name, "hostPort": "10.0.0.7:4040", "removeTime": at * 1000, "removeReason": reason}


def test_recent_losses_are_asked_for_after_executors_have_gone_and_told_for_three_minutes():
    losses = RecentLosses()
    assert not losses.should_ask(["1", "2"], 10.0)
    assert not losses.should_ask(["1", "2", "3"], 20.0)
    assert losses.should_ask(["1", "3"], 30.0)
    losses.add([], 30.0)
    assert losses.list_recent(30.0) == ()
    # Spark lists it late
    assert losses.should_ask(["1", "3", "4"], 40.0)
    losses.add([lost_executor("2", 27.0), lost_executor("0", 5.0, "Executor killed by driver")], 40.0)
    losses.add([lost_executor("2", 27.0)], 50.0)
    assert losses.list_recent(50.0) == (MemoryLoss("2", "10.0.0.7", 27.0, False),)
    assert len(losses.list_recent(200.0)) == 1
    assert losses.list_recent(210.0) == ()
    assert not losses.should_ask(["1", "3", "4"], 210.0)


def test_an_executor_that_died_before_anybody_looked_is_not_told():
    losses = RecentLosses()
    assert not losses.should_ask(["7", "8"], 100.0)
    assert losses.should_ask(["7"], 110.0)
    losses.add([lost_executor("6", 80.0), lost_executor("8", 105.0)], 110.0)
    assert [one.executor for one in losses.list_recent(110.0)] == ["8"]


def test_a_clock_that_goes_back_tells_no_loss_twice():
    losses = RecentLosses()
    losses.add([lost_executor("2", 1000.0)], 1000.0)
    losses.add([lost_executor("2", 1000.0)], 400.0)
    assert len(losses.list_recent(400.0)) == 1
