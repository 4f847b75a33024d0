"""One function as one streaming query, whose parallelism each batch reads anew.

The batch is repartitioned to the present parallelism inside `foreachBatch`: nothing restarts when it
changes, and no other query takes notice. There, too, it is decided whether the batch is passed straight on
to the functions behind this one; their own queries then have nothing to read, and rest.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import ActionFailed
from penstock.pipeline.batches import sum_up_group
from penstock.pipeline.board import Board
from penstock.pipeline.definition import Function, Pipeline, Takes
from penstock.pipeline.fusing import BatchModes, Group
from penstock.pipeline.mending import Mending
from penstock.pipeline.monitor import Monitor
from penstock.pipeline.serving import KeyedServer
from penstock.pipeline.spark_batch import BatchServer, blames_records, find_place
from penstock.pipeline.spark_topics import read_topic
from penstock.pipeline.spark_worker import make_keyed_call

log = logging.getLogger(__name__)

_STOP_SECONDS = 15.0
_IDLE_CHECKS = 3
_REST_SECONDS = 2.0
"""A query rests after so long, and two triggers, without anything to read."""
_LOOKING = ("Waiting for", "Getting offsets")
"""Spark's message for a query that has begun, and looks for records."""
_WRONG_SCHEMA = re.compile(r"WrongSchema: (.+)")
_ORDERLY_END = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling a batch: java.lang.InterruptedException"
)
"""By such words alone Spark tells that a batch ended because the query is being stopped, not by a failure.

It looks for them with a pattern that takes a stack frame a character: the Java trace which belongs to a real
interruption can overflow the stack of the query's thread.
"""


class FunctionQuery:
    """A function at work: its query, and what went wrong with it."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        function: Function,
        board: Board,
        monitor: Monitor,
        modes: BatchModes,
    ) -> None:
        """`modes` says with which functions each batch was fused."""
        self.function = function
        self.error: str | None = None
        """A fault that no second try would mend."""
        self.mending = Mending()
        self._spark, self._pipeline, self._board, self._monitor = spark, pipeline, board, monitor
        self._modes = modes
        names = board.plan.list_behind(function.name)
        self._server = BatchServer(spark, pipeline, names, lambda: self._stopping)
        self._query: StreamingQuery | None = None
        self._place: tuple[str, float] = ("", 0.0)
        self._trouble: str | None = None
        """The error that broke the query off, for as long as no batch has ended since."""
        self._batch_since: float | None = None
        self._started = threading.Event()
        self._stopping = False
        self._rests = False
        self._idle_since: float | None = None
        self._at_boundary = threading.Event()

    @property
    def query(self) -> StreamingQuery:
        """The streaming query; only after `start`."""
        assert self._query is not None
        return self._query

    def start(self, checkpoint: str, trigger_seconds: float) -> None:
        """Begin to read, in a scheduler pool of its own; goes on where the checkpoint says."""
        self._place = (checkpoint, trigger_seconds)
        function, context = self.function, self._spark.sparkContext
        context.setLocalProperty("spark.scheduler.pool", f"{self._pipeline.name}.{function.name}")
        partitions = self._spark.conf.get("spark.sql.shuffle.partitions")
        try:
            if function.takes is Takes.KEYED:
                self._spark.conf.set("spark.sql.shuffle.partitions", function.most)
            writer = self._stream().writeStream.foreachBatch(self._step)
            writer = writer.queryName(f"{self._pipeline.name}.{function.name}").outputMode("append")
            timed = writer.trigger(processingTime=f"{round(trigger_seconds * 1000)} milliseconds")
            self._query = timed.option("checkpointLocation", checkpoint).start()
        finally:
            context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
            self._spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
            self._started.set()

    def stop(self) -> None:
        """Stop the query between two batches; a long one is broken off, and run again at the next start."""
        self._stopping = True
        if self._query is not None:
            self._await_boundary(self._query)
            self._query.stop()

    def rest(self, now: float) -> None:
        """End a query that has had nothing to read for a while, because the one before passes it by."""
        if self._query is None or self._rests or self._stopping or not self._query.isActive:
            return
        status = self._query.status
        at_work = self._batch_since is not None or status["isDataAvailable"]
        if at_work or not status["message"].startswith(_LOOKING):
            self._idle_since = None
            return
        self._idle_since = self._idle_since or now
        if now - self._idle_since >= _REST_SECONDS + 2 * self._place[1]:
            self._rests = True
            self._query.stop()

    def wake(self) -> None:
        """Start a query again that rests; it goes on from its checkpoint."""
        self._idle_since = None
        if self._rests and not self._stopping:
            self.start(*self._place)
            self._rests = False

    def _await_boundary(self, query: StreamingQuery) -> None:
        """Wait until no log is being written: Spark cannot go on from a half-written offset log.

        That is at the beginning of a batch, inside a long one, or after a while with nothing to do.
        """
        idle, deadline = 0, time.monotonic() + _STOP_SECONDS
        while query.isActive and idle < _IDLE_CHECKS and time.monotonic() < deadline:
            if self._at_boundary.wait(0.05):
                return
            status = query.status
            at_work = status["isTriggerActive"] or status["isDataAvailable"]
            idle = 0 if at_work else idle + 1

    def _await_stop(self) -> None:
        """Wait: a batch that ends before Spark was told to stop would count as a failure."""
        deadline = time.monotonic() + _STOP_SECONDS
        while self.query.isActive and time.monotonic() < deadline:
            time.sleep(0.02)

    def failure(self) -> str | None:
        """Return why the function no longer runs; None while it does, or is about to be started again."""
        if self._query is None or self._query.isActive or self._stopping or self._rests:
            return None
        return self.error or (self._trouble if self.mending.given_up else None)

    def spark_is_gone(self) -> bool:
        """Tell whether the session was stopped: there is nothing left that could be started again."""
        context: Any = self._spark.sparkContext
        return context._jsc is None

    def describe(self, now: float) -> dict[str, Any]:
        """Return how it stands: restarts, what broke it off, and how long the batch under way has been."""
        since = self._batch_since
        at_batch = None if since is None else max(0.0, now - since)
        return {"restarts": self.mending.restarts, "trouble": self._trouble, "at_batch_seconds": at_batch}

    def mend(self, now: float) -> None:
        """Start a query again that Spark or a broker has broken off, from its checkpoint."""
        if self._query is None or self._stopping or self._rests or self.error is not None:
            return
        if self._query.isActive:
            self.mending.note_running(now)
            return
        self._trouble = self._trouble or _first_line(self._query.exception())
        if self.mending.is_due(now):
            log.warning("%s.%s is started again: %s", self._pipeline.name, self.function.name, self._trouble)
            try:
                self.start(*self._place)
            except Exception as problem:
                self._trouble = _first_line(problem)

    def _stream(self) -> DataFrame:
        topics, function = self._pipeline.topics, self.function
        places = {name: topics[name].at or self._pipeline.location for name in function.reads}
        streams = [read_topic(self._spark, topics[name], find_place(places[name])) for name in function.reads]
        joined = reduce(DataFrame.unionByName, streams)
        return self._apply_by_key(joined) if function.takes is Takes.KEYED else joined

    def _apply_by_key(self, stream: DataFrame) -> DataFrame:
        function = self.function
        assert function.state is not None
        server = KeyedServer(function.name, function.call, self._server.arrow(function), function.timeout)
        call = make_keyed_call(server, self._server.account(function), function.order)
        shape = self._server.outcome_ddl(function)
        return stream.groupBy(*function.key).applyInPandasWithState(
            call, shape, function.state, "append", "NoTimeout"
        )

    def _step(self, batch: DataFrame, batch_id: int) -> None:
        self._started.wait()
        if self._stopping:
            self._at_boundary.set()
            self._await_stop()
            raise ActionFailed(_ORDERLY_END)  # the batch is for the next run
        self._batch_since = time.time()
        try:
            self._serve(batch, batch_id)
            self.mending.note_batch()
            self._trouble = None
        except Exception as problem:
            if self._stopping:  # broken off, and run again at the next start
                raise ActionFailed(_ORDERLY_END) from None
            self._blame(problem)
            raise
        finally:
            self._batch_since = None

    def _serve(self, batch: DataFrame, batch_id: int) -> None:
        """Serve a batch as it is to run; functions that fail together are tried apart, to see which fails."""
        group = self._modes.choose(batch_id, self._board.plan.choose_batch(self.function.name))
        try:
            self._serve_as(batch, batch_id, group)
        except Exception as problem:
            if len(group) == 1 or self._stopping or not blames_records(problem):
                raise
            names, alone = " and ".join(group), group[:1]
            log.warning("%s: %s part, since a batch failed: %s", self._pipeline.name, names, problem)
            self._board.plan.part(group, time.time())
            self._modes.change(batch_id, alone)
            self._serve_as(batch, batch_id, alone)

    def _serve_as(self, batch: DataFrame, batch_id: int, group: Group) -> None:
        sizes, start = {name: self._board.begin_batch(name) for name in group}, time.time()
        functions = [self._pipeline.functions[name] for name in group]
        # with the query's id in the name, since a new checkpoint counts batches from 0 again
        name, run = f"{group[0]}-{str(self.query.id)[:8]}-{batch_id:09d}", str(self.query.runId)[:8]
        try:
            accounts = self._server.serve(batch, functions, sum(sizes.values()), name, run)
            for one in sum_up_group(batch_id, start, time.time(), sizes, accounts):
                self._monitor.take_in(one)
            self._board.plan.note_batch(group)
        finally:
            for name in group:
                self._board.end_batch(name)

    def _blame(self, problem: Exception) -> None:
        """Note why a batch failed; only a wrong schema is the function's own fault, all else may pass."""
        found = _WRONG_SCHEMA.search(str(problem))
        self._trouble = found.group(1).strip() if found else f"{type(problem).__name__}: {problem}"[:500]
        if found:
            self.error = self._trouble
        log.error("%s.%s has stopped: %s", self._pipeline.name, self.function.name, self._trouble)


def _first_line(problem: Exception | None) -> str:
    return str(problem).partition("\n")[0][:500] if problem is not None else "the query has ended"
