"""A batch at work: repartitioned, served by one function or by several that are fused, and published once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JNetworkError
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import ActionFailed, BadInput
from penstock.pipeline.definition import Function, Pipeline, Takes
from penstock.pipeline.serving import DEAD, ERROR, OUTCOME, RECORD, SERVED, Server
from penstock.pipeline.spark_schemas import check_result
from penstock.pipeline.spark_topics import Written, publish
from penstock.pipeline.spark_worker import Link, Work, WorkParam, make_batch_call
from penstock.pipeline.timestamps import ARRIVED, ENTERED
from penstock.pipeline.topics import Location

log = logging.getLogger(__name__)

_OUTCOME_DDL = f"{OUTCOME} string, {RECORD} string, {ERROR} string, {ENTERED} double"
_OBSERVED_SECONDS = 2.0
_SIGNS_OF_TROUBLE = (
    "cancelled", "ExecutorLostFailure", "FetchFailed", "InterruptedException", "SparkContext was shut down",
    "org.apache.kafka.",
)  # fmt: skip


class BatchServer:
    """Serves the batches of one query; instances report what they did through accumulators."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        functions: Iterable[str],
        is_stopping: Callable[[], bool],
    ) -> None:
        """Make the accounts of all functions that batches may have now, in one thread.

        Spark numbers accumulators without a lock: two that are made at once can have one number.
        """
        self._spark, self._pipeline, self._is_stopping = spark, pipeline, is_stopping
        self._accounts: dict[str, Accumulator[Work]] = {
            name: spark.sparkContext.accumulator({}, WorkParam()) for name in functions
        }
        self._schemas: dict[str, StructType] = {}

    def account(self, function: Function) -> Accumulator[Work]:
        """Return what the instances of a function report to."""
        return self._accounts[function.name]

    def serve(
        self, batch: DataFrame, group: Sequence[Function], parallelism: int, name: str, run: str
    ) -> Mapping[str, Work]:
        """Serve and publish a batch under its unmistakable name; return what each function did in it."""
        accounts = {one.name: self.account(one) for one in group}
        for account in accounts.values():
            account.value = {}
        target = self._target(group, name, run)
        if group[0].takes is Takes.KEYED:
            publish(self._spark, batch, target)
        elif group[0].takes is Takes.DATAFRAME:
            self._transform(batch, group, replace(target, observed=True), parallelism)
        else:
            links = [Link(self._server(one), accounts[one.name]) for one in group]
            spread = self._spread(batch, group[0], parallelism)
            publish(
                self._spark, spread.mapInArrow(make_batch_call(links), self.outcome_ddl(group[-1])), target
            )
        return {name: account.value for name, account in accounts.items()}

    def arrow(self, function: Function) -> pa.Schema | None:
        """Return the schema of what a function writes; None if it writes nothing."""
        schema = self._schema(function)
        return to_arrow_schema(schema) if schema is not None else None

    def outcome_ddl(self, function: Function) -> str:
        """Return the schema of results and dead letters together, in Spark's notation."""
        written = self._pipeline.topics[function.writes].schema if function.writes else None
        return _OUTCOME_DDL if written is None else f"{written}, {_OUTCOME_DDL}"

    def _server(self, one: Function) -> Server:
        return Server(one.name, one.call, one.takes is Takes.ARROW, self.arrow(one), one.timeout)

    def _schema(self, function: Function) -> StructType | None:
        written = self._pipeline.topics[function.writes].schema if function.writes else None
        if written is None:
            return None
        if function.name not in self._schemas:
            self._schemas[function.name] = self._spark.createDataFrame([], written).schema
        return self._schemas[function.name]

    def _target(self, group: Sequence[Function], name: str, run: str) -> Written:
        last, topics = group[-1], self._pipeline.topics
        place = find_place((topics[last.writes].at if last.writes else None) or self._pipeline.location)
        return Written(tuple(one.name for one in group), last.writes, place, name, last.key, run)

    def _spread(self, batch: DataFrame, function: Function, parallelism: int) -> DataFrame:
        if not function.key:
            return batch.repartition(parallelism)
        spread = batch.repartition(parallelism, *function.key)
        return spread.sortWithinPartitions(function.order) if function.order else spread

    def _transform(
        self, batch: DataFrame, group: Sequence[Function], target: Written, parallelism: int
    ) -> None:
        """Call DataFrame functions, which know no single records: where one fails alone, its batch is dead.

        Results go on with the moment at which the mean record of the batch entered the pipeline.
        """
        batch.persist()  # it is read twice, and reading may cost more than all else
        try:
            self._transform_kept(batch, group, target, parallelism)
        finally:
            batch.unpersist()

    def _transform_kept(
        self, batch: DataFrame, group: Sequence[Function], target: Written, parallelism: int
    ) -> None:
        sums = [sf.sum(sf.col(name)).alias(name) for name in (ENTERED, ARRIVED)]
        (told,) = batch.agg(sf.count(sf.lit(1)).alias("records"), *sums).collect()
        start, read = time.time(), float(told["records"])
        moments = [told[ENTERED] or 0.0, told[ARRIVED] or 0.0]
        records = self._spread(batch, group[0], parallelism).drop(ENTERED, ARRIVED)
        dead = 0.0
        try:
            written = self._apply(records, group, target, moments[0] / read if read else None)
        except BadInput as problem:
            raise ActionFailed(f"WrongSchema: {problem}") from problem
        except Exception as problem:
            if self._is_stopping() or len(group) > 1 or not blames_records(problem):
                raise
            log.warning("%s: a batch of %s is dead: %s", self._pipeline.name, group[0].name, problem)
            publish(self._spark, self._all_dead(records, group[0], problem), target)
            written, dead = [0.0], read
        self._share_out(group, (read, written, dead), time.time() - start, moments, parallelism)

    def _apply(
        self, records: DataFrame, group: Sequence[Function], target: Written, entered: float | None
    ) -> list[float]:
        """Call one function after the other, and return how many records came out of each."""
        frame: Any = records
        counted: list[Observation] = []
        for number, one in enumerate(group):
            frame, is_last = one.call(frame), number == len(group) - 1
            if is_last and frame is None and one.writes is None:
                return [*map(_await_count, counted), 0.0]
            frame = self._as_declared(one, frame)
            frame = frame.select("*", *_mark_served(entered)) if is_last else frame
            counted.append(Observation())
            frame = frame.observe(counted[-1], sf.count(sf.lit(1)).alias("records"))
        publish(self._spark, frame, target)
        return [_await_count(one) for one in counted]

    def _share_out(
        self,
        group: Sequence[Function],
        figures: tuple[float, list[float], float],
        took: float,
        moments: list[float],
        parallelism: int,
    ) -> None:
        """Account for a batch of DataFrame functions; Spark tells no more of its time than the whole.

        Functions that share it are taken to need it as they read records.
        """
        read, written, dead = figures
        reads, now = [read, *written[:-1]], time.time()
        total = sum(reads)
        for number, one in enumerate(group):
            share = reads[number] / total if total else 1 / len(group)
            entered = moments[0] * (reads[number] / read if read else 0.0)
            arrived = moments[1] if number == 0 else (now - took) * reads[number]
            row = [reads[number], written[number], dead, took * parallelism * share, entered, arrived]
            each = [figure / parallelism for figure in row]
            self.account(one).value = {instance: list(each) for instance in range(parallelism)}

    def _as_declared(self, function: Function, result: Any) -> DataFrame:
        """Return the columns of the topic, in its types; BadInput names the function and the column."""
        schema, name = self._schema(function), function.name
        if not isinstance(result, DataFrame):
            raise BadInput(f"function {name!r} returned {type(result).__name__}, not a DataFrame")
        if schema is None:
            return result.select()
        check_result(name, result.schema, schema)
        return result.select(*schema.names)

    def _all_dead(self, batch: DataFrame, function: Function, problem: Exception) -> DataFrame:
        schema = self._schema(function)
        nothing = [sf.lit(None).cast(f.dataType).alias(f.name) for f in (schema.fields if schema else [])]
        error = sf.lit(f"{type(problem).__name__}: {problem}"[:2000]).alias(ERROR)
        record, outcome = sf.to_json(sf.struct("*")).alias(RECORD), sf.lit(DEAD.format(function.name))
        moment = sf.lit(None).cast("double").alias(ENTERED)
        return batch.select(*nothing, outcome.alias(OUTCOME), record, error, moment)


def _mark_served(entered: float | None) -> list[Any]:
    return [
        sf.lit(SERVED).alias(OUTCOME),
        *(sf.lit(None).cast("string").alias(name) for name in (RECORD, ERROR)),
        sf.lit(entered).cast("double").alias(ENTERED),
    ]


def _await_count(observation: Observation) -> float:
    """Return records counted on the way to their topic; none where nothing was written."""
    told: Any = observation._jo
    deadline = time.monotonic() + _OBSERVED_SECONDS
    while told is None or not told.future().isCompleted():
        if told is None or time.monotonic() > deadline:
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


def find_place(place: Location | None) -> Location:
    """Return a place that was checked to be there."""
    assert place is not None
    return place
