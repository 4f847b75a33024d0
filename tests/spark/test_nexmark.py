"""Nexmark's queries on a real cluster against a plain reference, late and out-of-order events included."""

import os

import pandas as pd
import pytest

from penstock_lab.workloads.nexmark.events import COLUMNS, Nexmark
from penstock_lab.workloads.nexmark.queries import QUERIES, STATELESS, Windows, query_of
from penstock_lab.workloads.nexmark.streams import FileStreams, write_files
from penstock_lab.workloads.outlets import write_batch
from penstock_lab.workloads.state_stores import HDFS_STATE, ROCKSDB_STATE
from tests.lab.workloads.nexmark_reference import Reference
from tests.waiting import wait_for

pytestmark = pytest.mark.spark
HELD = 2

EVENTS, FILES = 50_000, 3
STREAM = Nexmark(
    seed=3,
    events_per_second=1000,
    out_of_order_share=0.1,
    out_of_order_seconds=3,
    late_share=0.02,
    late_seconds=60,
    active_persons=300,
)
WINDOWS = Windows(session_gap=4.0, watermark=4.0, longest_auction=STREAM.longest_auction_seconds)
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # one more batch after the last file closes what its watermark allows
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
}
PROCESSOR = 6
"""The query that keeps its state in a processor written in Python."""
SHORT = (1, 5, PROCESSOR, 8)
"""A map, sliding windows, the processor and a windowed join; the others take their time in `make soak`."""
FAR_ON = 10_000_000
"""Events hours later, which close every window and auction before them."""


@pytest.fixture(scope="module")
def spark(local_cluster):
    session = local_cluster(held=HELD)
    for key, value in CONF.items():
        session.conf.set(key, value)
    return session


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("nexmark")
    write_files(STREAM, directory, EVENTS, FILES)
    for kind in COLUMNS:
        path = directory / kind / "part-99999.parquet"
        write_batch(Nexmark(seed=3, events_per_second=1000).batch(kind, FAR_ON, 50), path)
        os.utime(path, (STREAM.first_time + 99, STREAM.first_time + 99))
    return directory


@pytest.fixture(scope="module")
def reference(directory):
    paths = {kind: sorted((directory / kind).glob("*.parquet")) for kind in COLUMNS}
    batches = {kind: [pd.read_parquet(path) for path in found] for kind, found in paths.items()}
    return Reference(batches, WINDOWS)


@pytest.fixture(scope="module")
def answers(spark, directory, tmp_path_factory, request):
    """All queries that are asked for at once; each reads one file of each kind a batch."""
    checkpoints, running = tmp_path_factory.mktemp("checkpoints"), {}
    for number in sorted(list_asked(request.session.items), key=lambda number: number != PROCESSOR):
        running[number] = query = start(spark, directory, number, checkpoints)
        if number == PROCESSOR:
            # alone: Spark gives the Python process that describes its state ten seconds to start
            wait_for("its first batch", lambda query=query: query.lastProgress or not query.isActive)
    for query in running.values():
        query.awaitTermination(240)
    failures = {number: query.exception() for number, query in running.items() if query.exception()}
    assert not failures
    return {number: spark.table(query.name).toPandas() for number, query in running.items()}


def list_asked(items):
    return {
        item.callspec.params["number"]
        for item in items
        if item.module.__name__ == __name__ and hasattr(item, "callspec")
    }


def start(spark, directory, number, checkpoints):
    # RocksDB costs every small batch more, and only the processor asks for it
    provider = ROCKSDB_STATE if number == PROCESSOR else HDFS_STATE
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    streams = FileStreams(spark, directory, files_per_batch=None if number in STATELESS else 1)
    writer = query_of(number)(streams, WINDOWS).writeStream.queryName(f"nexmark_{number}").format("memory")
    return (
        writer.option("checkpointLocation", str(checkpoints / str(number))).trigger(availableNow=True).start()
    )


def canonical(frame):
    """Rows in one order, times without zone, numbers with the digits that both sides must agree on."""
    plain = frame.copy()
    for column in plain:
        if pd.api.types.is_datetime64_any_dtype(plain[column]):
            plain[column] = (
                pd.to_datetime(plain[column], utc=True).dt.tz_localize(None).astype("datetime64[us]")
            )
        if pd.api.types.is_float_dtype(plain[column]):
            plain[column] = plain[column].round(6)
    return plain.sort_values(list(plain.columns)).reset_index(drop=True)


def closed(frame):
    """Without what belongs to the last, far-on events: those stay open."""
    if "auction" in frame:
        return frame[frame["auction"] < FAR_ON // 50 * 3]
    if "start" in frame:
        end = pd.Timestamp(STREAM.first_time + FAR_ON / 1000 - 3600, unit="s", tz="UTC")
        return frame[pd.to_datetime(frame["start"], utc=True) < end]
    return frame


@pytest.mark.parametrize(
    "number", [pytest.param(one, marks=[] if one in SHORT else [pytest.mark.soak]) for one in QUERIES]
)
def test_the_answer_equals_the_reference(number, answers, reference):
    expected = canonical(closed(getattr(reference, f"query_{number}")()))
    assert len(expected) > (5 if number in (4, 7) else 20)
    found = canonical(closed(answers[number]))[list(expected.columns)]
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_late_events_were_among_them(reference):
    bids = reference.all_of("bids")
    assert len(reference.on_time("bids", ("bids",), reference.window_end)) < len(bids)
