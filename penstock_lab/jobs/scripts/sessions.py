"""Find the visits of each customer: page views with less than five seconds between them.

Views of blocked customers are left out.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from streaming_app import (
    ROUNDS,
    append_files,
    leave_out_blocked,
    parse_options,
    run_until_stopped,
    start_session,
)

VIEW = "number bigint, event_time timestamp, customer bigint, page bigint"
OPEN = "began bigint, ended bigint, views bigint"
SESSION = f"customer bigint, {OPEN}"
GAP_MS = 5000
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


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
    settings = {"spark.sql.streaming.stateStore.providerClass": ROCKSDB}
    spark = start_session("sessions", args.partitions, settings)
    views = leave_out_blocked(spark.readStream.schema(VIEW).json(args.input), "customer", args.rounds)
    sessions = (
        views.withWatermark("event_time", "10 seconds")
        .withColumn("at", sf.unix_millis("event_time"))
        .groupBy("customer")
        .transformWithStateInPandas(Sessions(), SESSION, "Append", "EventTime")
    )
    query = append_files(sessions, args.output, args.checkpoint).trigger(processingTime=args.trigger).start()
    run_until_stopped(args.stop_file, query)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    return parse_options(__doc__, "input", "output", "stop-file", rounds=ROUNDS, trigger="5 seconds")


if __name__ == "__main__":
    main()
