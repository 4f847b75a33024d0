"""The Yahoo streaming benchmark: views of ads, joined with their campaigns, counted in windows of 10 s.

Counts go to Redis as they change, with the moment of the change. The benchmark's latency of a window is
the moment of its last change less the window's end: how long after the last event that belongs to it the
result was final.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.errors import ActionFailed, BadInput
from penstock.simulate.profiles import Profile
from penstock_lab.workloads.records import draw_below, draw_bits, find_arrivals, take_bits
from penstock_lab.workloads.source import Content, LoadOptions, LoadSource

if TYPE_CHECKING:
    from redis import Redis

WINDOW_SECONDS = 10
WATERMARK_SECONDS = 10
ADS_KEY = "ads"
NEEDED = "install and start redis-server, or name one that runs with --redis HOST:PORT"


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


@contextmanager
def connect_redis(address: str, timeout_seconds: float = 10.0) -> Iterator[Redis]:
    """Connect for the length of a `with`; BadInput where no Redis answers, ActionFailed later on."""
    # here: half a second of every Python that an executor starts went into it
    from redis import Redis, RedisError
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    host, separator, port = address.rpartition(":")
    if not (separator and host and port.isdecimal()):
        raise BadInput(f"the Redis address {address!r} is not HOST:PORT")
    client = Redis(
        host, int(port), decode_responses=True, socket_timeout=timeout_seconds, retry=Retry(NoBackoff(), 0)
    )
    try:
        client.ping()
    except (RedisError, OSError, OverflowError) as error:
        client.close()
        raise BadInput(f"no Redis answers at {address} ({error}): {NEEDED}") from error
    try:
        yield client
    except RedisError as error:
        raise ActionFailed(f"Redis at {address} failed: {error}") from error
    finally:
        client.close()


def load_campaigns(address: str) -> None:
    """Write the benchmark's table of ads and campaigns into Redis, and forget earlier results."""
    with connect_redis(address) as redis, redis.pipeline() as commands:
        commands.delete(ADS_KEY, *redis.keys("campaign:*"))
        ads = range(CAMPAIGNS * ADS_A_CAMPAIGN)
        commands.hset(ADS_KEY, mapping={str(ad): find_campaign(ad) for ad in ads})
        commands.execute()


def build_campaign_counts(spark: SparkSession, options: Mapping[str, str], address: str) -> DataFrame:
    """Return the streaming DataFrame (campaign, start, count), for update mode; campaigns come from Redis."""
    spark.dataSource.register(AdSource)
    with connect_redis(address) as redis:
        pairs = [(int(ad), int(campaign)) for ad, campaign in redis.hgetall(ADS_KEY).items()]
    campaigns = sf.broadcast(spark.createDataFrame(pairs, "ad bigint, campaign bigint"))
    events = spark.readStream.format(AD_FORMAT).options(**options).load()
    views = events.where(sf.col("event_type") == "view").select("ad", "event_time")
    joined = views.join(campaigns, "ad").withWatermark("event_time", f"{WATERMARK_SECONDS} seconds")
    window = sf.window("event_time", f"{WINDOW_SECONDS} seconds").alias("window")
    counted = joined.groupBy("campaign", window).count()
    return counted.select("campaign", sf.col("window.start").alias("start"), "count")


def make_redis_sink(address: str, clock: Callable[[], float] = time.time) -> Callable[[DataFrame, int], None]:
    """Make a sink for `foreachBatch`; so few rows come that the driver writes them.

    Writing a batch again writes the same counts.
    """

    def write(rows: DataFrame, _batch: int) -> None:
        counted = [(row["campaign"], round(row["start"].timestamp()), row["count"]) for row in rows.collect()]
        if not counted:
            return
        now = clock()
        with connect_redis(address) as redis, redis.pipeline() as commands:
            for campaign, start, count in counted:
                changed: dict[Any, Any] = {"count": count, "updated": f"{now:.6f}"}
                commands.hset(f"campaign:{campaign}:{start}", mapping=changed)
            commands.execute()

    return write


def read_results(address: str) -> list[WindowResult]:
    """Return all results in Redis, by campaign and window."""
    with connect_redis(address) as redis, redis.pipeline() as commands:
        keys: list[Any] = sorted(redis.keys("campaign:*"))
        for key in keys:
            commands.hmget(key, "count", "updated")
        replies = commands.execute()
    found = []
    for key, (count, updated) in zip(keys, replies, strict=True):
        _, campaign, start = key.split(":")
        found.append(WindowResult(int(campaign), float(start), int(count), float(updated)))
    return found


def list_final_latencies(found: Sequence[WindowResult], warm_up_seconds: float = 0.0) -> list[float]:
    """Return the latencies of windows that began after the warm-up and get no more events.

    A batch that has all events of a window also has some of the next one: only the newest may still change.
    """
    starts = [result.start for result in found]
    if not starts:
        return []
    first, newest = min(starts) + warm_up_seconds, max(starts)
    return [result.latency for result in found if first <= result.start < newest]


AD_FORMAT = "penstock-ad-events"
CAMPAIGNS, ADS_A_CAMPAIGN = 100, 10
USERS = PAGES = 100
EVENT_TYPES = pa.array(["view", "click", "purchase"])
AD_TYPES = pa.array(["banner", "modal", "sponsored-search", "mail", "mobile"])


@dataclass(frozen=True, slots=True)
class AdEvents:
    """Events by number; a third of them are views."""

    profile: Profile
    start: float
    """When the profile begins, in seconds since the epoch."""
    seed: int = 0
    schema: str = (
        "user bigint, page bigint, ad bigint, ad_type string, event_type string, event_time timestamp"
    )
    rows_per_batch: int = 20_000

    def batch(self, first: int, count: int) -> pa.RecordBatch:
        """Return the events first … first+count-1."""
        position = 2 * np.arange(first, first + count, dtype=np.uint64)
        drawn, again = draw_bits(position, self.seed), draw_bits(position + np.uint64(1), self.seed)
        times = np.rint((self.start + find_arrivals(self.profile, first, count)) * 1e6).astype(np.int64)
        columns = {
            "user": pa.array((take_bits(again, 0, 16) % USERS).astype(np.int64)),
            "page": pa.array((take_bits(again, 16, 16) % PAGES).astype(np.int64)),
            "ad": pa.array(draw_below(drawn, 0, CAMPAIGNS * ADS_A_CAMPAIGN)),
            "ad_type": AD_TYPES.take(pa.array((take_bits(again, 32, 16) % len(AD_TYPES)).astype(np.int64))),
            "event_type": EVENT_TYPES.take(pa.array(draw_below(drawn, 32, len(EVENT_TYPES)))),
            "event_time": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
        }
        return pa.RecordBatch.from_pydict(columns)


class AdSource(LoadSource):
    """The data source to register; its option `start` is needed, since event times follow from it."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return AD_FORMAT

    def make_content(self) -> Content:
        """Return ad events at the pace of the profile."""
        options = LoadOptions.parse(self.options)
        if options.start_ms is None:
            raise BadInput("ad events need the option start: their event time is when they are offered")
        return AdEvents(options.profile, options.start_ms / 1000, options.seed)


def find_campaign(ad: int) -> int:
    """Return the campaign of an ad; each has ten."""
    return ad // ADS_A_CAMPAIGN
