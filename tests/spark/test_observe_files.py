"""Files that come and are read: rate, backlog and idleness by Spark's own log, on a real cluster."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from penstock.dataflow.window import SlotQuery, SlotWindow
from penstock.observe.sources.file_watch import LogReader
from penstock.observe.sources.listing import ListingRule
from penstock.observe.sources.spark_files import HadoopListing, HadoopPlace
from penstock.observe.spark_source import SparkSource
from penstock.observe.spark_status import java_context
from tests.spark.watching import query_of
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 2

RECORDS = 25
LINES = "".join(json.dumps({"a": number}) + "\n" for number in range(RECORDS))


@pytest.fixture(scope="module")
def spark(local_cluster):
    session = local_cluster(held=HELD)
    session.conf.set("spark.sql.shuffle.partitions", 2)
    session.conf.set("spark.sql.streaming.fileSource.log.compactInterval", 3)
    return session


def write(folder: Path, name: str) -> float:
    """Write a file as careful writers do, and return when it was written."""
    hidden = folder / f".{name}"
    hidden.write_text(LINES)
    written = hidden.stat().st_mtime
    hidden.rename(folder / f"{name}.json")
    return written


class Writer:
    """Writes files until it is told to stop, and remembers when each was written."""

    def __init__(self, folder: Path, every: float) -> None:
        self.written: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(folder, every), daemon=True)
        self._thread.start()

    def _write(self, folder: Path, every: float) -> None:
        while not self._stop.wait(every):
            self.written.append(write(folder, f"new{len(self.written):04}"))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def records_between(self, start: float, end: float) -> float:
        return float(RECORDS * sum(start <= at < end for at in self.written))


def start_counting(spark, folder: Path, checkpoint: Path, name: str):
    stream = spark.readStream.schema("a int").option("cleanSource", "delete").json(str(folder))
    return (
        stream.writeStream.format("noop")
        .queryName(name)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1 second")
        .start()
    )


def test_files_that_come_are_counted_though_spark_removes_them_and_their_end_is_idleness(spark, tmp_path):
    folder = tmp_path / "in dir"
    folder.mkdir()
    write(folder, "first")
    source = SparkSource(spark)
    query = start_counting(spark, folder, tmp_path / "checkpoint", "counted")
    writer = Writer(folder, every=0.1)
    windows: list[tuple[float, float, float]] = []
    taken: list[tuple[int | None, float]] = []

    def enough() -> bool:
        window = source.observe(time.time())
        seen = query_of(window, "counted")
        if seen is None or not isinstance(window, SlotWindow) or window.start < writer.written[0]:
            return False
        taken.extend((batch.files, batch.input_records) for batch in seen.batches)
        windows.append((window.start, window.end, seen.sources["Scan json"].offered_per_second))
        return len(windows) >= 5 and len(taken) >= 4

    wait_for("windows with files", enough, every=2)
    writer.stop()
    counted = sum((end - start) * offered for start, end, offered in windows)
    assert counted == pytest.approx(writer.records_between(windows[0][0], windows[-1][1]), rel=0.1)
    assert all(files and records == RECORDS * files for files, records in taken)

    def idle() -> SlotQuery | None:
        seen = query_of(source.observe(time.time()), "counted")
        return seen if seen is not None and seen.idle_seconds > 3 and not seen.batches else None

    seen = wait_for("idleness", idle, every=1)
    assert [operator.name for operator in seen.graph.operators] == ["Scan json"]
    rate = seen.sources["Scan json"]
    assert (rate.offered_per_second, rate.observed_per_second, rate.backlog_records) == (0, 0, 0)
    assert seen.latency_seconds is None
    query.stop()


def test_hadoop_reads_the_same_log_and_lists_the_same_files(spark, tmp_path):
    place = HadoopPlace(spark._jvm, java_context(spark))
    log, folder = tmp_path / "log", tmp_path / "in dir"
    log.mkdir()
    (folder / "day=1").mkdir(parents=True)
    entry = '{"path":"file:///in/%s","timestamp":1500,"batchId":%d}'
    (log / "0").write_text("\n".join(["v1", entry % ("a", 0), entry % ("b", 0)]))
    files = LogReader(place, str(log)).read_new()[0]
    assert [(file.path, file.modified) for file in files] == [("/in/a", 1.5), ("/in/b", 1.5)]
    assert place.read_end(str(log / "0"), 10) == ((log / "0").read_bytes()[-10:], True)
    with pytest.raises(FileNotFoundError):
        place.names(str(tmp_path / "gone"))
    at = write(folder / "day=1", "a; b")
    (folder / "_SUCCESS").touch()
    written = folder / "day=1" / "a; b.json"
    for rule in (ListingRule(str(folder)), ListingRule(str(tmp_path / "in*"))):
        ((path, found),) = HadoopListing(place, rule).list_files(at).items()
        assert path == f"file:{written}"
        assert found == (pytest.approx(at, abs=0.01), written.stat().st_size)
