"""One function as one streaming query, whose parallelism each batch reads anew.

The batch is repartitioned to the present parallelism inside `foreachBatch`: nothing restarts when it
changes, and no other query takes notice. Instances report what they did through an accumulator.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JNetworkError
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from penstock.errors import ActionFailed, BadInput
from penstock.pipeline.batches import sum_up_batch
from penstock.pipeline.board import Board
from penstock.pipeline.definition import Function, Pipeline, Takes
from penstock.pipeline.mending import Mending
from penstock.pipeline.monitor import Monitor
from penstock.pipeline.serving import DEAD, ERROR, OUTCOME, RECORD, SERVED, KeyedServer, Server
from penstock.pipeline.spark_schemas import check_result
from penstock.pipeline.spark_topics import Written, publish, read_topic
from penstock.pipeline.spark_worker import Work, WorkParam, make_batch_call, make_keyed_call
from penstock.pipeline.timestamps import ARRIVED, ENTERED
from penstock.pipeline.topics import Location

log = logging.getLogger(__name__)

_STOP_SECONDS = 15.0
_IDLE_CHECKS = 3

_OUTCOME_DDL = f"{OUTCOME} string, {RECORD} string, {ERROR} string, {ENTERED} double"
_OBSERVED_SECONDS = 2.0
_SIGNS_OF_TROUBLE = (
    "cancelled", "ExecutorLostFailure", "FetchFailed", "InterruptedException", "SparkContext was shut down",
    "org.apache.kafka.",
)  # fmt: skip
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
        self, spark: SparkSession, pipeline: Pipeline, function: Function, board: Board, monitor: Monitor
    ) -> None:
        self.function = function
        self.error: str | None = None
        """A fault that no second try would mend."""
        self.mending = Mending()
        self._spark, self._pipeline, self._board, self._monitor = spark, pipeline, board, monitor
        self._work: Accumulator[Work] = spark.sparkContext.accumulator({}, WorkParam())
        self._query: StreamingQuery | None = None
        self._place: tuple[str, float] = ("", 0.0)
        self._trouble: str | None = None
        """What broke the query off, for as long as no batch has ended since."""
        self._batch_since: float | None = None
        self._started = threading.Event()
        self._stopping = False
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
        if self._query is None or self._query.isActive or self._stopping:
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
        if self._query is None or self._stopping or self.error is not None:
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
        streams = [read_topic(self._spark, topics[name], _there(places[name])) for name in function.reads]
        joined = reduce(DataFrame.unionByName, streams)
        return self._apply_by_key(joined) if function.takes is Takes.KEYED else joined

    def _apply_by_key(self, stream: DataFrame) -> DataFrame:
        function = self.function
        assert function.state is not None
        server = KeyedServer(function.name, function.call, self._arrow(), function.timeout)
        call = make_keyed_call(server, self._work, function.order)
        shape = self._outcome_ddl()
        return stream.groupBy(*function.key).applyInPandasWithState(
            call, shape, function.state, "append", "NoTimeout"
        )

    @property
    def _ddl(self) -> str | None:
        return self._pipeline.topics[self.function.writes].schema if self.function.writes else None

    def _schema(self) -> StructType | None:
        return None if self._ddl is None else self._spark.createDataFrame([], self._ddl).schema

    def _arrow(self) -> pa.Schema | None:
        schema = self._schema()
        return to_arrow_schema(schema) if schema is not None else None

    def _outcome_ddl(self) -> str:
        return _OUTCOME_DDL if self._ddl is None else f"{self._ddl}, {_OUTCOME_DDL}"

    def _step(self, batch: DataFrame, batch_id: int) -> None:
        self._started.wait()
        if self._stopping:
            self._at_boundary.set()
            self._await_stop()
            raise ActionFailed(_ORDERLY_END)  # the batch is for the next run
        parallelism, start = self._board.begin_batch(self.function.name), time.time()
        self._batch_since = start
        try:
            self._work.value = {}
            self._perform(batch, batch_id, parallelism)
            self._monitor.take_in(
                sum_up_batch(self.function.name, batch_id, start, time.time(), parallelism, self._work.value)
            )
            self.mending.note_batch()
            self._trouble = None
        except Exception as problem:
            if self._stopping:  # broken off, and run again at the next start
                raise ActionFailed(_ORDERLY_END) from None
            self._blame(problem)
            raise
        finally:
            self._batch_since = None
            self._board.end_batch(self.function.name)

    def _blame(self, problem: Exception) -> None:
        """Note why a batch failed; only a wrong schema is the function's own fault, all else may pass."""
        found = _WRONG_SCHEMA.search(str(problem))
        self._trouble = found.group(1).strip() if found else f"{type(problem).__name__}: {problem}"[:500]
        if found:
            self.error = self._trouble
        log.error("%s.%s has stopped: %s", self._pipeline.name, self.function.name, self._trouble)

    def _perform(self, batch: DataFrame, batch_id: int, parallelism: int) -> None:
        takes, target = self.function.takes, self._target(batch_id)
        if takes is Takes.KEYED:
            publish(self._spark, batch, target)
        elif takes is Takes.DATAFRAME:
            self._transform(batch, replace(target, observed=True), parallelism)
        else:
            schema = self._arrow()
            server = Server(
                self.function.name, self.function.call, takes is Takes.ARROW, schema, self.function.timeout
            )
            call = make_batch_call(server, schema if schema is not None else pa.schema([]), self._work)
            publish(
                self._spark, self._spread(batch, parallelism).mapInArrow(call, self._outcome_ddl()), target
            )

    def _target(self, batch_id: int) -> Written:
        """Name the batch with the query's id too: a new checkpoint counts batches from 0 again."""
        function, topics = self.function, self._pipeline.topics
        name = function.writes or function.reads[0]
        place = topics[name].at if function.writes else None
        batch = f"{function.name}-{str(self.query.id)[:8]}-{batch_id:09d}"
        place = _there(place or self._pipeline.location)
        return Written(function.name, function.writes, place, batch, function.key, str(self.query.runId)[:8])

    def _spread(self, batch: DataFrame, parallelism: int) -> DataFrame:
        function = self.function
        if not function.key:
            return batch.repartition(parallelism)
        spread = batch.repartition(parallelism, *function.key)
        return spread.sortWithinPartitions(function.order) if function.order else spread

    def _transform(self, batch: DataFrame, target: Written, parallelism: int) -> None:
        """Call a DataFrame function, which knows no single records: where it fails, its batch is dead.

        Its results go on with the moment at which the mean record of the batch entered the pipeline.
        """
        sums = [sf.sum(sf.col(name)).alias(name) for name in (ENTERED, ARRIVED)]
        (told,) = batch.agg(sf.count(sf.lit(1)).alias("records"), *sums).collect()
        start, written = time.time(), Observation()
        read, moments = float(told["records"]), [told[ENTERED] or 0.0, told[ARRIVED] or 0.0]
        records = self._spread(batch, parallelism).drop(ENTERED, ARRIVED)
        try:
            result = self.function.call(records)
            figures = read, 0.0, 0.0
            if result is not None or self.function.writes is not None:
                declared = self._as_declared(result, moments[0] / read if read else None)
                publish(self._spark, declared.observe(written, sf.count(sf.lit(1)).alias("records")), target)
                figures = read, _await_count(written), 0.0
        except BadInput as problem:
            raise ActionFailed(f"WrongSchema: {problem}") from problem
        except Exception as problem:
            if self._stopping or not blames_records(problem):
                raise
            log.warning("%s: a batch of %s is dead: %s", self._pipeline.name, self.function.name, problem)
            publish(self._spark, self._all_dead(records, problem), target)
            figures = read, 0.0, read
        took = time.time() - start
        share = [figure / parallelism for figure in (*figures, took * parallelism, *moments)]
        self._work.value = dict.fromkeys(range(parallelism), share)

    def _as_declared(self, result: Any, entered: float | None) -> DataFrame:
        """Return the columns of the topic, in its types; BadInput names the function and the column."""
        schema, name = self._schema(), self.function.name
        if not isinstance(result, DataFrame):
            raise BadInput(f"function {name!r} returned {type(result).__name__}, not a DataFrame")
        marks = [
            sf.lit(SERVED).alias(OUTCOME), *(sf.lit(None).cast("string").alias(n) for n in (RECORD, ERROR)),
            sf.lit(entered).cast("double").alias(ENTERED),
        ]  # fmt: skip
        if schema is None:
            return result.select(*marks)
        check_result(name, result.schema, schema)
        return result.select(*schema.names, *marks)

    def _all_dead(self, batch: DataFrame, problem: Exception) -> DataFrame:
        schema = self._schema()
        nothing = [sf.lit(None).cast(f.dataType).alias(f.name) for f in (schema.fields if schema else [])]
        error = f"{type(problem).__name__}: {problem}"[:2000]
        record = sf.to_json(sf.struct("*")).alias(RECORD)
        moment = sf.lit(None).cast("double").alias(ENTERED)
        return batch.select(*nothing, sf.lit(DEAD).alias(OUTCOME), record, sf.lit(error).alias(ERROR), moment)


def _await_count(observation: Observation) -> float:
    """Return records counted on the way to their topic; none where nothing was written."""
    told: Any = observation._jo
    deadline = time.monotonic() + _OBSERVED_SECONDS
    while not told.future().isCompleted():
        if time.monotonic() > deadline:
            return 0.0
        time.sleep(0.01)
    return float(observation.get["records"])


def blames_records(problem: Exception) -> bool:
    """Tell whether a batch failed by what is in it, and not because Spark, the cluster or a broker gave way.

    A batch that was cancelled or lost its executors has to be run again: its records are not dead.
    """
    if isinstance(problem, Py4JNetworkError | OSError):
        return False
    return not any(sign in str(problem) for sign in _SIGNS_OF_TROUBLE)


def _first_line(problem: Exception | None) -> str:
    return str(problem).partition("\n")[0][:500] if problem is not None else "the query has ended"


def _there(place: Location | None) -> Location:
    assert place is not None
    return place
