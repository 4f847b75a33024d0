"""Every workload by name, built from the same few settings: what `penstock workload` can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInput
from penstock.units.fields import suggest_name
from penstock_lab.workloads.records import Load
from penstock_lab.workloads.state_stores import ROCKSDB_STATE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Ask(Load):
    """The settings of a workload; each uses what concerns it."""

    start: float
    shuffle_partitions: int = 2
    skew: float = 0.0
    keys: int = 100_000
    service_seconds: float = 0.001
    events_per_second: float = 10_000.0
    """Pace of event time in Nexmark."""
    redis: str = "127.0.0.1:6379"


Sink = Callable[["DataFrame", int], None]


@dataclass(frozen=True, slots=True)
class Workload:
    """One entry: `build` makes the streaming DataFrame."""

    name: str
    summary: str
    build: Callable[[SparkSession, Ask], DataFrame]
    output_mode: str = "append"
    state_store: str | None = None
    """The state store that it needs; None for the session's own."""
    sink: Callable[[Ask], Sink] | None = None
    """Receives each batch; without it, results are computed and thrown away."""
    rate: float = 10_000.0
    """Records a second, by default: two cores sustain it with ease."""
    minds: tuple[str, ...] = ()
    """Which of skew, keys, service_seconds and redis it uses."""
    prepare: Callable[[Ask], None] | None = None
    """Checks what must be there before a cluster is started; its error says what is missing."""


def find_workload(name: str) -> Workload:
    """Return the workload of this name."""
    if name not in WORKLOADS:
        raise BadInput(f"there is no workload {name!r}{suggest_name(name, WORKLOADS)}")
    return WORKLOADS[name]


def _build_word_count(spark: SparkSession, ask: Ask) -> DataFrame:
    from penstock_lab.workloads.word_count import WordCount, build_word_count

    tasks: dict[str, Any] = {"count_partitions": ask.source_partitions, "skew": ask.skew}
    shape = replace(WordCount.make_for(ask.service_seconds, 1.0), **ask.pick_load(), **tasks)
    return build_word_count(spark, replace(shape, state_partitions=ask.shuffle_partitions))


def _build_key_count(spark: SparkSession, ask: Ask) -> DataFrame:
    from penstock_lab.workloads.key_count import KeyCount, build_key_count

    state: dict[str, Any] = {"keys": ask.keys, "bins": ask.shuffle_partitions, "preload": False}
    return build_key_count(spark, KeyCount(**ask.pick_load(), **state, hot_share=ask.skew))


def _build_paced(spark: SparkSession, ask: Ask) -> DataFrame:
    from penstock_lab.workloads.paced import PacedOperator, ServiceTime, build_paced

    service, instances = ServiceTime(ask.service_seconds, variation=1.0), ask.shuffle_partitions
    shape = PacedOperator(**ask.pick_load(), service=service, instances=instances, skew=ask.skew)
    return build_paced(spark, shape)


def _build_nexmark(number: int, spark: SparkSession, ask: Ask) -> DataFrame:
    from penstock_lab.workloads.nexmark.events import Nexmark
    from penstock_lab.workloads.nexmark.queries import Windows, query_of
    from penstock_lab.workloads.nexmark.streams import GeneratedStreams

    spark.conf.set("spark.sql.shuffle.partitions", ask.shuffle_partitions)
    stream = Nexmark(
        seed=ask.seed,
        events_per_second=ask.events_per_second,
        first_time=ask.start,
        out_of_order_share=0.05,
        out_of_order_seconds=1.0,
    )
    windows = Windows(watermark=2.0, longest_auction=stream.longest_auction_seconds)
    return query_of(number)(GeneratedStreams(spark, stream, ask.list_options()), windows)


def _build_yahoo(spark: SparkSession, ask: Ask) -> DataFrame:
    from penstock_lab.workloads.yahoo import build_campaign_counts, load_campaigns

    spark.conf.set("spark.sql.shuffle.partitions", ask.shuffle_partitions)
    load_campaigns(ask.redis)
    return build_campaign_counts(spark, ask.list_options(), ask.redis)


def require_package(module: str, package: str, _ask: Ask) -> None:
    """Reject a missing package before a cluster is started in vain."""
    try:
        import_module(module)
    except ImportError:
        raise BadInput(f"this workload needs the package {package}: pip install {package}") from None


def _load_campaigns(ask: Ask) -> None:
    from penstock_lab.workloads.yahoo import load_campaigns

    load_campaigns(ask.redis)


def _make_sink(ask: Ask) -> Sink:
    from penstock_lab.workloads.yahoo import make_redis_sink

    return make_redis_sink(ask.redis)


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
"""Queries that join before they aggregate take several seconds for a batch of 10,000 events."""
_LISTED = (
    Workload(
        name="word-count",
        summary="paced word count, with skew",
        build=_build_word_count,
        output_mode="update",
        rate=200.0,
        minds=("skew", "service_seconds"),
    ),
    Workload(
        name="key-count",
        summary="counts of many keys, kept in RocksDB",
        build=_build_key_count,
        output_mode="update",
        minds=("skew", "keys"),
    ),
    Workload(
        name="paced",
        summary="one paced operator behind a shuffle, with skew",
        build=_build_paced,
        rate=500.0,
        minds=("skew", "service_seconds"),
    ),
    *(
        Workload(
            f"nexmark-q{number}",
            f"Nexmark query {number}, {summary}",
            partial(_build_nexmark, number),
            state_store=ROCKSDB_STATE if number == 6 else None,
            rate=_SLOWER.get(number, 10_000.0),
            # Spark speaks with the processor of query 6 in protocol buffers, and does not bring them
            prepare=partial(require_package, "google.protobuf", "protobuf") if number == 6 else None,
        )
        for number, summary in _NEXMARK.items()
    ),
    Workload(
        name="yahoo",
        summary="Yahoo streaming benchmark: campaign counts into Redis",
        build=_build_yahoo,
        output_mode="update",
        sink=_make_sink,
        rate=5_000.0,
        minds=("redis",),
        prepare=_load_campaigns,
    ),
)
WORKLOADS: Mapping[str, Workload] = {entry.name: entry for entry in _LISTED}
