"""Find the visits of each customer: page views with less than five seconds between them.

Views of blocked customers are left out.
"""

import argparse
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

VIEW = "number bigint, event_time timestamp, customer bigint, page bigint"
OPEN = "began bigint, ended bigint, views bigint"
SESSION = f"customer bigint, {OPEN}"
GAP_MS = 5000
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
BLOCKED = ("0" * 64,)
"""Fingerprints of customers whose views are left out."""


class Sessions(StatefulProcessor):
    """The open session of a customer; it is given out once no view came for the length of the gap."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._handle = handle
        self._open = handle.getValueState("open", OPEN)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Extend the open session, or close it and open another."""
        began, ended, views = self._open.get() or (0, 0, 0)
        closed = []
        for at in sorted(at for frame in rows for at in frame["at"]):
            if views and at - ended > GAP_MS:
                closed.append((key[0], began, ended, views))
                views = 0
            began, ended, views = (began if views else at), at, views + 1
        self._open.update((began, ended, views))
        for timer in self._handle.listTimers():
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(ended + GAP_MS)
        yield as_frame(closed)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Close the session."""
        session = self._open.get()
        self._open.clear()
        yield as_frame([(key[0], *session)] if session else [])

    def close(self) -> None:
        """Nothing is held beside the state."""


def as_frame(sessions: list[tuple[int, int, int, int]]) -> pd.DataFrame:
    """Return the sessions as rows of the output."""
    return pd.DataFrame(sessions, columns=["customer", "began", "ended", "views"], dtype="int64")


def main() -> None:
    """Run the job."""
    args = parse_arguments()
    spark = (
        SparkSession.builder.appName("sessions")
        .config("spark.sql.shuffle.partitions", args.partitions)
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .getOrCreate()
    )
    views = spark.readStream.schema(VIEW).json(args.input).withWatermark("event_time", "10 seconds")
    sessions = (
        views.where(~make_fingerprint("customer", args.rounds).isin(*BLOCKED))
        .withColumn("at", sf.unix_millis("event_time"))
        .groupBy("customer")
        .transformWithStateInPandas(Sessions(), SESSION, "Append", "EventTime")
    )
    query = (
        sessions.writeStream.format("parquet")
        .option("path", args.output)
        .option("checkpointLocation", args.checkpoint)
        .outputMode("append")
        .trigger(processingTime=args.trigger)
        .start()
    )
    run_until_stopped(query, args.stop_file)


def make_fingerprint(column: str, rounds: int) -> Column:
    """Return a hash that is slow to guess, by Spark's own functions."""
    first = sf.sha2(sf.col(column).cast("string"), 256)
    return sf.aggregate(sf.sequence(sf.lit(1), sf.lit(rounds)), first, lambda seen, _: sf.sha2(seen, 256))


def run_until_stopped(query: StreamingQuery, stop_file: Path) -> None:
    """Run until SIGTERM or the stop file comes, then finish what has arrived."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    while query.isActive and not stopping.is_set() and not stop_file.exists():
        query.awaitTermination(1)
    query.processAllAvailable()
    query.stop()


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--rounds", type=int, default=200, help="of the hash by which customers are blocked")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--stop-file", type=Path, required=True)
    parser.add_argument("--trigger", default="5 seconds")
    parser.add_argument("--partitions", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
