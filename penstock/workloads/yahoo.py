"""The Yahoo streaming benchmark: views of ads, joined with their campaigns, counted in windows of 10 s.

Counts go to Redis as they change, with the moment of the change. The benchmark's latency of a window is
the moment of its last change less the window's end: how long after the last event that belongs to it the
result was final.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.workloads.ad_events import AD_FORMAT, ADS_A_CAMPAIGN, CAMPAIGNS, AdSource, campaign_of
from penstock.workloads.redis_client import Command, Redis

WINDOW_SECONDS = 10
WATERMARK_SECONDS = 10
ADS_KEY = "ads"


@dataclass(frozen=True, slots=True)
class WindowResult:
    """One campaign's count of one window, as Redis holds it; times in seconds since the epoch."""

    campaign: int
    start: float
    count: int
    updated: float

    @property
    def latency(self) -> float:
        """Final event latency: last update less the end of the window."""
        return self.updated - self.start - WINDOW_SECONDS


def load_campaigns(address: str) -> None:
    """Write the benchmark's table of ads and campaigns into Redis, and forget earlier results."""
    with Redis(address) as redis:
        keys = redis.ask("KEYS", "campaign:*")
        forget: list[Command] = [("DEL", key) for key in [ADS_KEY, *keys]]
        ads = range(CAMPAIGNS * ADS_A_CAMPAIGN)
        redis.pipeline([*forget, *(("HSET", ADS_KEY, ad, campaign_of(ad)) for ad in ads)])


def campaign_counts(spark: SparkSession, options: Mapping[str, str], address: str) -> DataFrame:
    """The streaming DataFrame (campaign, start, count), for update mode; campaigns come from Redis."""
    spark.dataSource.register(AdSource)
    with Redis(address) as redis:
        found = redis.ask("HGETALL", ADS_KEY)
    pairs = [(int(ad), int(campaign)) for ad, campaign in zip(found[::2], found[1::2], strict=True)]
    campaigns = sf.broadcast(spark.createDataFrame(pairs, "ad bigint, campaign bigint"))
    events = spark.readStream.format(AD_FORMAT).options(**options).load()
    views = events.where(sf.col("event_type") == "view").select("ad", "event_time")
    joined = views.join(campaigns, "ad").withWatermark("event_time", f"{WATERMARK_SECONDS} seconds")
    window = sf.window("event_time", f"{WINDOW_SECONDS} seconds").alias("window")
    counted = joined.groupBy("campaign", window).count()
    return counted.select("campaign", sf.col("window.start").alias("start"), "count")


def into_redis(address: str, clock: Callable[[], float] = time.time) -> Callable[[DataFrame, int], None]:
    """A sink for `foreachBatch`: at most campaigns times open windows rows come, so the driver writes them.

    Writing a batch again writes the same counts.
    """

    def write(rows: DataFrame, _batch: int) -> None:
        counted = [(row["campaign"], round(row["start"].timestamp()), row["count"]) for row in rows.collect()]
        if not counted:
            return
        now = clock()
        with Redis(address) as redis:
            redis.pipeline([_update(campaign, start, count, now) for campaign, start, count in counted])

    return write


def _update(campaign: int, start: int, count: int, now: float) -> Command:
    return ("HSET", f"campaign:{campaign}:{start}", "count", count, "updated", f"{now:.6f}")


def results(address: str) -> list[WindowResult]:
    """All that is in Redis, by campaign and window."""
    with Redis(address) as redis:
        keys = sorted(redis.ask("KEYS", "campaign:*"))
        replies = redis.pipeline([("HMGET", key, "count", "updated") for key in keys])
    return [_result(key, count, updated) for key, (count, updated) in zip(keys, replies, strict=True)]


def final_latencies(found: Sequence[WindowResult], warm_up_seconds: float = 0.0) -> list[float]:
    """Latencies of windows that began after the warm-up and get no more events.

    A batch that has all events of a window also has some of the next one: only the newest may still change.
    """
    starts = [result.start for result in found]
    if not starts:
        return []
    first, newest = min(starts) + warm_up_seconds, max(starts)
    return [result.latency for result in found if first <= result.start < newest]


def _result(key: str, count: str, updated: str) -> WindowResult:
    _, campaign, start = key.split(":")
    return WindowResult(int(campaign), float(start), int(count), float(updated))
