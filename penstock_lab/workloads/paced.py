"""Paced operators: an instance sleeps for its records' service time, so that many slots fit on few cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.errors import BadInput
from penstock_lab.workloads.records import Load, is_hot
from penstock_lab.workloads.source import read_load

SHORTEST_SLEEP = 0.001
"""Shorter sleeps are put off: below a millisecond the timer is late by as much as it sleeps."""


@dataclass(slots=True)
class Pacer:
    """Turns records served into time slept; time overslept is taken off the next sleep."""

    seconds_per_record: float
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    debt_seconds: float = field(default=0.0, init=False)

    def serve(self, records: int) -> None:
        """Account for these records, sleeping once the debt is worth it."""
        self.owe(records * self.seconds_per_record)

    def owe(self, seconds: float) -> None:
        """Account for a service time, sleeping once the debt is worth it."""
        self.debt_seconds += seconds
        if self.debt_seconds >= SHORTEST_SLEEP:
            self.settle()

    def settle(self) -> None:
        """Sleep off what is owed."""
        if self.debt_seconds > 0:
            before = self.clock()
            self.sleep(self.debt_seconds)
            self.debt_seconds -= self.clock() - before


ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def pace_batches(
    seconds_per_record: float, transform: Callable[[Any], Any], pacer: Pacer | None = None
) -> ArrowFunction:
    """Make a function that transforms Arrow batches one by one, each after its service time."""

    def serve(batches: Iterator[Any]) -> Iterator[Any]:
        own = pacer or Pacer(seconds_per_record)
        for batch in batches:
            own.serve(len(batch))
            yield transform(batch)
        own.settle()

    return serve


@dataclass(frozen=True, slots=True)
class PacedOperator(Load):
    """The load, the service time, and how records are spread over instances."""

    service: ServiceTime
    instances: int = 4
    skew: float = 0.0
    """Share of the records that all go to one instance; the others are spread over all."""

    def __post_init__(self) -> None:
        if self.instances < 1 or not 0 <= self.skew <= 1:
            raise BadInput("a paced operator needs an instance or more, and a skew between 0 and 1")

    def list_options(self) -> dict[str, str]:
        """Return the options of the load source."""
        return {**Load.list_options(self), "content": "numbers"}


def build_paced(spark: SparkSession, workload: PacedOperator) -> DataFrame:
    """Return the streaming DataFrame (instance, served), a row for each call of the operator."""
    number = sf.col("number")
    instance = sf.when(is_hot(number, workload.skew), 0).otherwise(number % workload.instances).cast("int")
    numbers = read_load(spark, workload).withColumn("instance", instance)
    spread = numbers.repartitionById(workload.instances, sf.col("instance"))
    return spread.mapInArrow(make_operator(workload), "instance int, served bigint")


def make_operator(workload: PacedOperator) -> ArrowFunction:
    """Make the operator itself: each instance sleeps for the records that it is given."""

    def serve(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pacer = Pacer(1.0)
        for batch in batches:
            instance = batch.column("instance")
            random = np.random.default_rng([workload.seed, *batch.column("number")[:1].to_numpy()])
            pacer.owe(workload.service.draw_seconds(len(batch), workload.instances, random))
            counts = [instance[:1], pa.array([len(batch)], pa.int64())[: len(batch)]]
            yield pa.RecordBatch.from_arrays(counts, names=["instance", "served"])
        pacer.settle()

    return serve


@dataclass(frozen=True, slots=True)
class ServiceTime:
    """Service time of one record on one of several instances.

    Single times are gamma-distributed around the mean: with a variation of 0 all are equal, with 1 they
    are exponential. Contention and coherence are those of the universal scalability law: n instances
    together are as fast as n / (1 + contention·(n-1) + coherence·n·(n-1)) would be alone.
    """

    seconds: float
    variation: float = 0.0
    contention: float = 0.0
    coherence: float = 0.0

    def __post_init__(self) -> None:
        if not (self.seconds >= 0 and self.variation >= 0):
            raise BadInput("a service time and its variation are 0 or more")
        if not (0 <= self.contention <= 1 and 0 <= self.coherence <= 1):
            raise BadInput("contention and coherence of a service time lie between 0 and 1")

    def find_slowdown(self, instances: int) -> float:
        """Return how much longer a record takes than on a single instance."""
        others = instances - 1
        return 1 + self.contention * others + self.coherence * instances * others

    def draw_seconds(self, records: int, instances: int, random: np.random.Generator) -> float:
        """Draw one instance's seconds for so many records: a sum of gamma times is a gamma time."""
        mean = records * self.seconds * self.find_slowdown(instances)
        if not (mean and self.variation):
            return mean
        shape = records / self.variation**2
        return float(random.gamma(shape, mean / shape))
