"""Every workload by name, built from the same few settings: what `penstock workload` can run."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import BadInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked of a workload; each uses what concerns it."""

    profile: str
    start: float
    partitions: int = 2
    shuffle_partitions: int = 2
    seed: int = 0
    skew: float = 0.0
    keys: int = 100_000
    service_seconds: float = 0.001
    events_per_second: float = 10_000.0
    """Pace of event time in Nexmark."""
    redis: str = "127.0.0.1:6379"
    most_per_batch: int | None = None

    def load(self) -> dict[str, str]:
        """Options of a load source."""
        bound = {} if self.most_per_batch is None else {"maxRecordsPerBatch": str(self.most_per_batch)}
        given = {"profile": self.profile, "start": repr(self.start), "partitions": str(self.partitions)}
        return {**given, "seed": str(self.seed), **bound}


Sink = Callable[["DataFrame", int], None]


@dataclass(frozen=True, slots=True)
class Workload:
    """One entry: `build` makes the streaming DataFrame."""

    name: str
    summary: str
    build: Callable[[SparkSession, Ask], DataFrame]
    output_mode: str = "append"
    state_store: str | None = None
    """The state store that it needs, where the session's own will not do."""
    sink: Callable[[Ask], Sink] | None = None
    """What receives each batch; without one, results are computed and thrown away."""
    rate: float = 10_000.0
    """Records a second that two cores sustain with ease: what is offered unless another rate is asked for."""
    minds: tuple[str, ...] = ()
    """Which of skew, keys, service_seconds and redis it goes by; the others would change nothing."""
    prepare: Callable[[Ask], None] | None = None
    """What must be there before a cluster is started for it, with an error that says what is missing."""


def workload(name: str) -> Workload:
    """The workload of this name."""
    if name not in WORKLOADS:
        near = difflib.get_close_matches(name, WORKLOADS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(WORKLOADS)}"
        raise BadInput(f"there is no workload {name!r}; {hint}")
    return WORKLOADS[name]


def _word_count(spark: SparkSession, ask: Ask) -> DataFrame:
    from penstock.workloads.sentences import WORDS_PER_SENTENCE
    from penstock.workloads.word_count import SENTENCE_TO_WORD_COST, WordCount, word_counts_of

    per_sentence = ask.service_seconds / (1 + WORDS_PER_SENTENCE / SENTENCE_TO_WORD_COST)
    shape = WordCount(
        profile=ask.profile,
        seconds_per_sentence=per_sentence,
        seconds_per_word=per_sentence / SENTENCE_TO_WORD_COST,
        source_partitions=ask.partitions,
        count_partitions=ask.partitions,
        state_partitions=ask.shuffle_partitions,
        seed=ask.seed,
        skew=ask.skew,
        start=ask.start,
        max_records_per_batch=ask.most_per_batch,
    )
    return word_counts_of(spark, shape)


def _key_count(spark: SparkSession, ask: Ask) -> DataFrame:
    from penstock.workloads.key_count import KeyCount, key_counts_of

    shape = KeyCount(
        profile=ask.profile,
        keys=ask.keys,
        bins=ask.shuffle_partitions,
        preload=False,
        hot_share=ask.skew,
        source_partitions=ask.partitions,
        seed=ask.seed,
        start=ask.start,
        max_records_per_batch=ask.most_per_batch,
    )
    return key_counts_of(spark, shape)


def _paced(spark: SparkSession, ask: Ask) -> DataFrame:
    from penstock.workloads.paced_operator import PacedOperator, served_by
    from penstock.workloads.service_time import ServiceTime

    service = ServiceTime(ask.service_seconds, variation=1.0)
    shape = PacedOperator(ask.profile, service, ask.shuffle_partitions, ask.skew, ask.partitions, ask.seed)
    return served_by(spark, shape, ask.load())


def _nexmark(number: int, spark: SparkSession, ask: Ask) -> DataFrame:
    from penstock.workloads.nexmark import Nexmark
    from penstock.workloads.nexmark_queries import Windows, query_of
    from penstock.workloads.nexmark_streams import GeneratedStreams

    spark.conf.set("spark.sql.shuffle.partitions", ask.shuffle_partitions)
    stream = Nexmark(
        seed=ask.seed,
        events_per_second=ask.events_per_second,
        first_time=ask.start,
        out_of_order_share=0.05,
        out_of_order_seconds=1.0,
    )
    windows = Windows(watermark=2.0, longest_auction=stream.longest_auction_seconds)
    return query_of(number)(GeneratedStreams(spark, stream, ask.load()), windows)


def _yahoo(spark: SparkSession, ask: Ask) -> DataFrame:
    from penstock.workloads.yahoo import campaign_counts, load_campaigns

    spark.conf.set("spark.sql.shuffle.partitions", ask.shuffle_partitions)
    load_campaigns(ask.redis)
    return campaign_counts(spark, ask.load(), ask.redis)


def needs(module: str, package: str, _ask: Ask) -> None:
    """Say which package is missing before a cluster is started that would fail for want of it."""
    try:
        import_module(module)
    except ImportError:
        raise BadInput(f"this workload needs the package {package}: pip install {package}") from None


def _campaigns(ask: Ask) -> None:
    from penstock.workloads.yahoo import load_campaigns

    load_campaigns(ask.redis)


def _redis_sink(ask: Ask) -> Sink:
    from penstock.workloads.yahoo import into_redis

    return into_redis(ask.redis)


_NEXMARK: Mapping[int, str] = {
    1: "map: prices in euros",
    2: "filter: bids on some auctions",
    3: "incremental join: local sellers",
    4: "closing-price average by category",
    5: "sliding window: hot items",
    6: "last-ten average by seller",
    7: "highest bid of a window",
    8: "windowed join: new sellers",
    11: "session window: bids of a person",
}
_SLOWER: Mapping[int, float] = {4: 5_000.0, 6: 2_500.0}
"""Queries that join before they aggregate hold a batch of 10,000 events for several seconds."""
_LISTED = (
    Workload(
        name="word-count",
        summary="paced word count, with skew",
        build=_word_count,
        output_mode="update",
        rate=200.0,
        minds=("skew", "service_seconds"),
    ),
    Workload(
        name="key-count",
        summary="counts of many keys, kept in RocksDB",
        build=_key_count,
        output_mode="update",
        minds=("skew", "keys"),
    ),
    Workload(
        name="paced",
        summary="one paced operator behind a shuffle, with skew",
        build=_paced,
        rate=500.0,
        minds=("skew", "service_seconds"),
    ),
    *(
        Workload(
            f"nexmark-q{number}",
            f"Nexmark query {number}, {summary}",
            partial(_nexmark, number),
            state_store=ROCKSDB if number == 6 else None,
            rate=_SLOWER.get(number, 10_000.0),
            # Spark speaks with the processor of query 6 in protocol buffers, and does not bring them
            prepare=partial(needs, "google.protobuf", "protobuf") if number == 6 else None,
        )
        for number, summary in _NEXMARK.items()
    ),
    Workload(
        name="yahoo",
        summary="Yahoo streaming benchmark: campaign counts into Redis",
        build=_yahoo,
        output_mode="update",
        sink=_redis_sink,
        rate=5_000.0,
        minds=("redis",),
        prepare=_campaigns,
    ),
)
WORKLOADS: Mapping[str, Workload] = {entry.name: entry for entry in _LISTED}
