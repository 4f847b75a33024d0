"""Many seeds in parallel: each task of a Spark job runs some of them, with the code of the serial run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pyspark.sql import SparkSession

from penstock.simulate.comparison import Figures, Seeded, here
from penstock.simulate.experiment import Experiment

WAVES = 8
"""Tasks for each slot: few enough that starting them costs nothing, enough that none is waited for long."""


def on_spark(spark: SparkSession) -> Callable[[Experiment, Sequence[Seeded]], Iterable[Figures]]:
    """Return a runner of pairs of policy and seed on executors; the answers keep their order."""

    def run(experiment: Experiment, pairs: Sequence[Seeded]) -> Iterable[Figures]:
        context = spark.sparkContext
        shared = context.broadcast(experiment)

        def run_some(some: Iterable[tuple[int, Seeded]]) -> Iterator[tuple[int, Figures]]:
            numbered = list(some)
            found = here(shared.value, [pair for _, pair in numbered])
            return ((number, figures) for (number, _), figures in zip(numbered, found, strict=True))

        # neighbours in the list cost alike, so every task gets some from all over it
        parts = min(len(pairs), WAVES * context.defaultParallelism)
        places = [place for part in range(parts) for place in range(part, len(pairs), parts)]
        dealt = [(place, pairs[place]) for place in places]
        found = dict(context.parallelize(dealt, parts).mapPartitions(run_some).collect())
        return [found[number] for number in range(len(pairs))]

    return run
