"""Payments scored by a network of many layers: computing that is real, at thousands of records a second.

Two stages: a task makes payments from their numbers and scores them in numpy, and a small stage keeps in
state how many suspicious payments each shop had.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock_lab.workloads.records import Load, draw_bits, take_bits
from penstock_lab.workloads.source import read_load

WIDTH = 32
"""Features of a payment, and neurons of a layer."""
GAIN = 1.5
"""Above 1, so that the signal does not fade from layer to layer."""
SHOPS = 200
SUSPICIOUS = 0.5
ROWS_AT_ONCE = 1000
_TRIED_LAYERS = 20

Features = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scoring(Load):
    """Payments, and the layers of the network that scores them."""

    layers: int
    state_partitions: int = 2

    def list_options(self) -> dict[str, str]:
        """Return the options of the load source."""
        return {**Load.list_options(self), "content": "numbers"}


def choose_layers(seconds_per_record: float) -> int:
    """Return how many layers take so long for a record on one core of this machine, by trying."""
    numbers, best = np.arange(ROWS_AT_ONCE, dtype=np.uint64), np.inf
    for _ in range(5):
        begun = time.process_time()
        score_payments(numbers, _TRIED_LAYERS)
        best = min(best, time.process_time() - begun)
    return max(1, round(seconds_per_record * ROWS_AT_ONCE * _TRIED_LAYERS / best))


def score_payments(numbers: NDArray[np.uint64], layers: int) -> Features:
    """Score payments by number; the same number always has the same score."""
    drawn = draw_bits(numbers, seed=1)
    bits = np.stack([take_bits(drawn, shift, 32) for shift in range(WIDTH)], axis=1)
    signal: Features = bits / np.float64(2**31) - 1.0
    # no matrix product: its library would take more threads than a slot has
    for _ in range(layers):
        signal = np.tanh(GAIN * (np.roll(signal, 1, axis=1) - signal))
    total: Features = signal.sum(axis=1)
    return total


def build_scoring(spark: SparkSession, workload: Scoring) -> DataFrame:
    """Return the streaming DataFrame (shop, suspicious)."""
    spark.conf.set("spark.sql.shuffle.partitions", workload.state_partitions)
    scored = read_load(spark, workload).mapInArrow(
        make_step(workload.layers), "shop bigint, suspicious bigint"
    )
    return scored.groupBy("shop").agg(sf.sum("suspicious").alias("suspicious"))


def make_step(layers: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the step that scores each payment and names its shop."""

    def score(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_numpy().astype(np.uint64)
            for first in range(0, len(numbers), ROWS_AT_ONCE):
                part = numbers[first : first + ROWS_AT_ONCE]
                suspicious = (score_payments(part, layers) > SUSPICIOUS).astype(np.int64)
                shops = (part % SHOPS).astype(np.int64)
                yield pa.RecordBatch.from_arrays(
                    [pa.array(shops), pa.array(suspicious)], names=["shop", "suspicious"]
                )

    return score
