"""One paced operator behind a shuffle: known capacity, varied service times, capacity curve and skew.

Its instances sleep instead of working, so an experiment may have many more slots than the machine has
cores, and what the operator needs is known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.errors import BadInput
from penstock.workloads.paced import Pacer
from penstock.workloads.service_time import ServiceTime
from penstock.workloads.source import FORMAT, LoadSource

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_PERMILLE = 1000


@dataclass(frozen=True, slots=True)
class PacedOperator:
    """The load, the service time, and how records are spread over instances."""

    profile: str
    service: ServiceTime
    instances: int = 4
    skew: float = 0.0
    """Share of the records that all go to one instance; the others are spread over all."""
    source_partitions: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.instances < 1 or not 0 <= self.skew <= 1:
            raise BadInput("a paced operator needs an instance or more, and a skew between 0 and 1")

    def busiest_share(self) -> float:
        """Share of the records that the busiest instance gets."""
        return self.skew + (1 - self.skew) / self.instances

    def sustainable_rate(self) -> float:
        """Records a second at which the busiest instance is busy all the time."""
        alone = self.service.capacity(self.instances) / self.instances
        return alone / self.busiest_share()

    def instance_of(self, number: int) -> int:
        """Where a record goes: hot ones to instance 0."""
        return 0 if number * 7919 % _PERMILLE < round(self.skew * _PERMILLE) else number % self.instances

    def source_options(self) -> dict[str, str]:
        """Options of the load source."""
        return {"content": "numbers", "profile": self.profile, "partitions": str(self.source_partitions)}


def served_by(
    spark: SparkSession, workload: PacedOperator, load: Mapping[str, str] | None = None
) -> DataFrame:
    """The streaming DataFrame (instance, served): how many records each call of the operator served.

    `load` adds options of the load source, such as its start.
    """
    spark.dataSource.register(LoadSource)
    options = {**workload.source_options(), **(load or {})}
    numbers = spark.readStream.format(FORMAT).options(**options).load()
    hot = sf.col("number") * 7919 % _PERMILLE < round(workload.skew * _PERMILLE)
    instance = sf.when(hot, 0).otherwise(sf.col("number") % workload.instances).cast("int")
    spread = numbers.withColumn("instance", instance).repartitionById(workload.instances, sf.col("instance"))
    return spread.mapInArrow(serve(workload), "instance int, served bigint")


def serve(workload: PacedOperator) -> ArrowFunction:
    """The operator itself: each instance sleeps for the records that it is given."""

    def served(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pacer = Pacer(1.0)
        for batch in batches:
            instance = batch.column("instance")
            random = np.random.default_rng([workload.seed, *batch.column("number")[:1].to_numpy()])
            pacer.owe(workload.service.total(len(batch), workload.instances, random))
            counts = [instance[:1], pa.array([len(batch)], pa.int64())[: len(batch)]]
            yield pa.RecordBatch.from_arrays(counts, names=["instance", "served"])
        pacer.settle()

    return served
