"""What executors send, taken apart: the newest values, totals as rates, and nothing of strangers."""

from __future__ import annotations

import math
import re
import socket
import sys
import threading
import time

import pytest

from penstock.errors import ActionFailed
from penstock.observe.executors.metrics import (
    MOST_EXECUTORS,
    MOST_METRICS,
    WANTED,
    ExecutorBoard,
    Sink,
    address_for,
    find_sink,
    listener_on,
    metrics_conf,
    name_namespace,
    secret_conf,
)
from tests.waiting import wait_for

APP = "app-20261116070000-0001"
MIB = 1024 * 1024


def report(board: ExecutorBoard, now: float, executor: str = "1", app: str = APP, **metrics: float) -> None:
    names = {
        "used": "jvm.heap.used",
        "committed": "jvm.heap.committed",
        "copies": "jvm.Copy.count",
        "copy_time": "jvm.Copy.time",
        "sweeps": "jvm.MarkSweepCompact.count",
        "sweep_time": "jvm.MarkSweepCompact.time",
        "buffers": "jvm.direct.count",
        "cpu": "JVMCPU.jvmCpuTime",
        "java": "ExecutorMetrics.ProcessTreeJVMRSSMemory",
        "python": "ExecutorMetrics.ProcessTreePythonRSSMemory",
        "other": "ExecutorMetrics.ProcessTreeOtherRSSMemory",
        "spilled": "executor.diskBytesSpilled",
    }
    for name, value in metrics.items():
        kind = "c" if name == "spilled" else "g"
        assert board.take_in(now, f"{app}.{executor}.{names[name]}:{value:.0f}|{kind}".encode())


def test_gauges_are_the_newest_and_totals_become_rates():
    board = ExecutorBoard()
    report(board, 3.0, used=100 * MIB, committed=200 * MIB, cpu=5e9, java=300 * MIB, python=0, other=0)
    report(board, 4.0, copies=10, copy_time=100, sweeps=1, sweep_time=50, buffers=7, spilled=0)
    first = board.use("1", 0.0, 10.0)
    assert first is not None and first.heap_committed_bytes == 200 * MIB
    assert first.resident_bytes == 300 * MIB and math.isnan(first.cpu_cores), "one total tells no rate"
    report(board, 13.0, used=80 * MIB, cpu=20e9, java=310 * MIB, python=0, other=0)
    report(board, 14.0, copies=30, copy_time=600, sweeps=2, sweep_time=150, buffers=9, spilled=10 * MIB)
    second = board.use("1", 10.0, 20.0)
    assert second is not None and second.heap_used_bytes == 80 * MIB
    assert math.isnan(second.heap_committed_bytes), "not said in this window"
    assert second.cpu_cores == pytest.approx(1.5)
    assert second.gc_count == pytest.approx(21), "buffer pools are no collectors"
    assert second.gc_seconds == pytest.approx(0.6)
    assert second.spilled_bytes == pytest.approx(10 * MIB)


def test_python_workers_are_resident_and_hide_the_cpu():
    board = ExecutorBoard()
    report(board, 1.0, java=300 * MIB, python=150 * MIB, other=5 * MIB, cpu=0)
    board.use("1", 0.0, 2.0)
    report(board, 3.0, java=300 * MIB, python=150 * MIB, other=5 * MIB, cpu=1e9)
    use = board.use("1", 2.0, 4.0)
    assert use is not None and use.resident_bytes == 455 * MIB and math.isnan(use.cpu_cores)


def test_zero_resident_means_that_the_system_tells_nothing():
    board = ExecutorBoard()
    report(board, 1.0, java=0, python=0, other=0)
    use = board.use("1", 0.0, 2.0)
    assert use is not None and math.isnan(use.resident_bytes)


def test_totals_that_begin_anew_are_not_believed():
    board = ExecutorBoard()
    report(board, 1.0, spilled=500)
    board.use("1", 0.0, 2.0)
    report(board, 3.0, spilled=10)
    use = board.use("1", 2.0, 4.0)
    assert use is not None and math.isnan(use.spilled_bytes)


def test_silence_strangers_and_nonsense_say_nothing():
    board = ExecutorBoard()
    board.namespace = APP
    assert board.prefix == ""
    report(board, 1.0, used=1)
    assert board.use("1", 5.0, 10.0) is None and board.use("2", 0.0, 2.0) is None
    for line in (b"other.1.jvm.heap.used:5|g", b"", b"\xff\xfe", f"{APP}.1.jvm.heap.used:NaN|g".encode()):
        assert not board.take_in(1.0, line)
    assert not board.take_in(1.0, f"{APP}.1.jvm.heap.used:1.2.3|g".encode())
    board.forget_others(frozenset({"7"}))
    assert board.use("1", 0.0, 2.0) is None


def test_spark_is_told_to_send_what_is_understood():
    conf = metrics_conf("127.0.0.1", 18125, 0.2)
    assert conf["spark.metrics.conf.*.sink.penstock_secret.period"] == "1"
    wanted = re.compile(WANTED)
    assert wanted.search(f"{APP}.3.jvm.G1-Young-Generation.time") and wanted.search(f"{APP}.3.jvm.heap.used")
    assert not wanted.search(f"{APP}.3.jvm.heap.max") and not wanted.search(f"{APP}.3.HiveExternalCatalog.x")


def test_reports_that_come_in_while_it_is_asked_break_nothing():
    """A new executor's first reports come all at once, from the thread that listens."""
    board, done, executors = ExecutorBoard(), threading.Event(), frozenset(str(n) for n in range(25))
    interval = sys.getswitchinterval()
    taken, failed = [], []

    def listen() -> None:
        number = 0
        try:
            while not done.is_set():
                number += 1
                board.take_in(1.0, f"{APP}.{number % 50}.jvm.c{number % 997}.count:1|g".encode())
        except Exception as problem:
            failed.append(problem)
        taken.append(number)

    listening = threading.Thread(target=listen)
    sys.setswitchinterval(1e-6)
    try:
        listening.start()
        for _ in range(100):
            board.forget_others(executors)
            for executor in executors:
                board.use(executor, 0.0, 10.0)
    finally:
        done.set()
        listening.join()
        sys.setswitchinterval(interval)
    assert not failed and taken[0] > 0
    board.take_in(2.0, f"{APP}.7.jvm.heap.used:77|g".encode())
    assert board.use("7", 0.0, 10.0).heap_used_bytes == 77, "and it still listens"


def test_datagrams_arrive_by_a_real_port():
    listener = listener_on("127.0.0.1", 0)
    try:
        assert listener_on("127.0.0.1", listener.port) is listener
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for sent in (f"{APP}.4.jvm.heap.used:66|g", f"{listener.secret}.{APP}.4.jvm.heap.used:77|g"):
                sender.sendto(sent.encode(), ("127.0.0.1", listener.port))
        use = wait_for("the datagram", lambda: listener.board.use("4", 0.0, time.time() + 1), every=0.01)
        assert use.heap_used_bytes == 77
    finally:
        listener.close()


def test_a_port_that_is_taken_is_an_error_with_its_name():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        with pytest.raises(ActionFailed, match=f"UDP 127.0.0.1:{port}"):
            listener_on("127.0.0.1", port)


def test_executors_on_this_machine_are_told_loopback():
    assert address_for("local-cluster[2,1,1024]", None) == "127.0.0.1"
    assert address_for("spark://host:7077", "10.0.0.5") == "10.0.0.5"


SECRET = "5f2d" * 8


def test_reports_without_the_secret_are_not_believed():
    board = ExecutorBoard(SECRET)
    known = f"{SECRET}.{APP}"
    report(board, 1.0, app=known, used=100)
    for app in (APP, f"x.{APP}", f"{SECRET}x.{APP}", f".{SECRET}.{APP}", f"{SECRET[:-1]}.{APP}", SECRET[1:]):
        assert not board.take_in(2.0, f"{app}.1.jvm.heap.used:1|g".encode())
    use = board.use("1", 0.0, 3.0)
    assert use is not None and use.heap_used_bytes == 100


def test_a_flood_of_names_is_kept_within_bounds():
    """Names of collectors are Java's and end; those of a forger do not."""
    board = ExecutorBoard(SECRET)
    report(board, 1.0, app=f"{SECRET}.{APP}", used=100)
    taken = sum(
        board.take_in(2.0, f"{SECRET}.{APP}.1.jvm.c{number}.count:1|g".encode()) for number in range(10_000)
    )
    assert 0 < taken <= MOST_METRICS
    assert not board.take_in(2.0, f"{SECRET}.{APP}.2.jvm.{'c' * 5000}.count:1|g".encode())
    assert board.take_in(3.0, f"{SECRET}.{APP}.1.jvm.heap.used:77|g".encode()), "what is known goes on"


def test_a_flood_of_executors_is_kept_within_bounds():
    board = ExecutorBoard(SECRET)
    for number in range(2 * MOST_EXECUTORS):
        board.take_in(2.0, f"{SECRET}.{APP}.{number}.jvm.heap.used:1|g".encode())
    assert len(board) == MOST_EXECUTORS
    assert not board.take_in(2.0, f"{SECRET}.{APP}.{'9' * 300}.jvm.heap.used:1|g".encode())


@pytest.mark.parametrize("value", ["9" * 400, "-" + "9" * 400, "1" * 5000])
def test_numbers_without_end_are_none(value: str):
    board = ExecutorBoard(SECRET)
    assert not board.take_in(1.0, f"{SECRET}.{APP}.1.jvm.heap.used:{value}|g".encode())


def test_every_listener_has_a_secret_of_its_own_that_spark_does_not_show():
    first, second = listener_on("127.0.0.1", 0), listener_on("127.0.0.1", 0)
    try:
        assert first.secret != second.secret and len(first.secret) >= 32
        told = metrics_conf(first.host, first.port), secret_conf(first.secret)
        assert not any(first.secret in value for value in told[0].values())
        ((key, value),) = told[1].items()
        assert value == first.secret
        # what Spark hides in its pages and event logs unless told otherwise: spark.redaction.regex
        assert re.search("(?i)secret|password|token|access[.]?key", key)
        assert find_sink({**told[0], **told[1]}, first.port) == Sink("127.0.0.1", first.secret)
    finally:
        first.close()
        second.close()


def test_a_sink_of_the_users_own_is_left_alone():
    theirs = {
        "spark.metrics.conf.*.sink.statsd.class": "org.apache.spark.metrics.sink.StatsdSink",
        "spark.metrics.conf.*.sink.statsd.host": "graphite",
        "spark.metrics.conf.*.sink.statsd.port": "8125",
    }
    ours = metrics_conf("127.0.0.1", 18125)
    assert not set(theirs) & set(ours)
    assert find_sink({**theirs, **ours}, 18125) == Sink("127.0.0.1", "")
    assert find_sink(theirs, 18125) is None


def test_the_namespace_that_spark_will_write_is_known():
    assert name_namespace({}, APP) == APP
    assert name_namespace({"spark.metrics.namespace": "shop"}, APP) == "shop"
    conf = {"spark.metrics.namespace": "${spark.app.name}-x", "spark.app.name": "words"}
    assert name_namespace(conf, APP) == "words-x"
