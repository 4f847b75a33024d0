"""Nexmark queries 1 to 8 and 11 as Structured Streaming queries.

| query | what it shows | result |
| --- | --- | --- |
| 1 | map | bids with their price in euros |
| 2 | filter | bids on every 123rd auction |
| 3 | incremental join | who in Oregon, Idaho and California sells in category 10 |
| 4 | closing-price average | average closing price by category, over windows of the auctions' opening |
| 5 | sliding window | the auction with the most bids in each window |
| 6 | last-ten average | a seller's average closing price over the last ten auctions |
| 7 | highest bid | the highest bid in each window |
| 8 | windowed join | who registered and opened an auction in the same window |
| 11 | session window | bids of each person in a session of activity |

An auction closes when the watermark says that no bid on it can come any more. Its closing price is the
highest bid between its opening and its end; an auction without one has none. Queries 3 and 6 need no end:
their state grows with persons and sellers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from penstock.errors import BadInput
from penstock.workloads.nexmark_last_ten import average_of_last_ten
from penstock.workloads.nexmark_streams import Streams

EUROS_A_DOLLAR = 0.908
EVERY_AUCTION = 123
NEARBY_STATES = ("OR", "ID", "CA")
CATEGORY = 10


@dataclass(frozen=True, slots=True)
class Windows:
    """The lengths that queries work with, in seconds of event time."""

    window: float = 10.0
    slide: float = 2.0
    session_gap: float = 10.0
    watermark: float = 4.0
    longest_auction: float = 4.0
    """No bid counts that is later than this after the auction's opening: bounds the state of 4 and 6."""


Query = Callable[[Streams, Windows], DataFrame]


def map_prices(streams: Streams, _windows: Windows) -> DataFrame:
    """Query 1: prices in euros."""
    bids = streams.of("bids", "auction", "bidder", "price", "date_time")
    return bids.withColumn("price", sf.col("price") * EUROS_A_DOLLAR)


def filter_bids(streams: Streams, _windows: Windows) -> DataFrame:
    """Query 2: bids on some auctions."""
    return streams.of("bids", "auction", "price").where(sf.col("auction") % EVERY_AUCTION == 0)


def local_sellers(streams: Streams, _windows: Windows) -> DataFrame:
    """Query 3: auctions joined with their sellers, whichever comes first."""
    auctions = streams.of("auctions", "id", "seller", "category").where(sf.col("category") == CATEGORY)
    persons = streams.of("persons", "id", "name", "city", "state")
    nearby = persons.where(sf.col("state").isin(*NEARBY_STATES)).withColumnRenamed("id", "person")
    joined = auctions.join(nearby, sf.col("seller") == sf.col("person"))
    return joined.select("name", "city", "state", sf.col("id").alias("auction"))


def closing_prices(streams: Streams, windows: Windows) -> DataFrame:
    """One row an auction once no more bids can come: (auction, seller, category, opened, price)."""
    opened = streams.of("auctions", "id", "seller", "category", "date_time", "expires")
    opened = _watermarked(opened.withColumnRenamed("date_time", "opened"), "opened", windows)
    bids = streams.of("bids", "auction", "price", "date_time")
    bids = _watermarked(bids.withColumnRenamed("date_time", "placed"), "placed", windows)
    longest = sf.expr(f"opened + interval {_micros(windows.longest_auction)} microseconds")
    in_time = sf.col("placed").between(sf.col("opened"), sf.col("expires")) & (sf.col("placed") <= longest)
    valid = opened.join(bids, (sf.col("id") == sf.col("auction")) & in_time)
    return valid.groupBy("auction", "seller", "category", "opened").agg(sf.max("price").alias("price"))


def average_closing_price(streams: Streams, windows: Windows) -> DataFrame:
    """Query 4: closing prices by category."""
    closed = closing_prices(streams, windows)
    averaged = closed.groupBy(_window("opened", windows), "category").agg(sf.avg("price").alias("average"))
    return averaged.select(_start(), "category", "average")


def hot_items(streams: Streams, windows: Windows) -> DataFrame:
    """Query 5: the auction with the most bids in each sliding window; of several the newest."""
    bids = _watermarked(streams.of("bids", "auction", "date_time"), "date_time", windows)
    sliding = sf.window("date_time", _duration(windows.window), _duration(windows.slide))
    counted = bids.groupBy(sliding.alias("window"), "auction").count()
    hottest = sf.max(sf.struct("count", "auction")).alias("most")
    return counted.groupBy("window").agg(hottest).select(_start(), "most.auction", "most.count")


def last_ten_average(streams: Streams, windows: Windows) -> DataFrame:
    """Query 6: closing prices by seller."""
    return average_of_last_ten(closing_prices(streams, windows))


def highest_bid(streams: Streams, windows: Windows) -> DataFrame:
    """Query 7: the highest bid of each window; of several the one on the newest auction."""
    columns = ("price", "auction", "bidder", "date_time")
    bids = _watermarked(streams.of("bids", *columns), "date_time", windows)
    highest = bids.groupBy(_window("date_time", windows)).agg(sf.max(sf.struct(*columns)).alias("bid"))
    return highest.select(_start(), "bid.*")


def new_sellers(streams: Streams, windows: Windows) -> DataFrame:
    """Query 8: persons and auctions joined within the same window, each seller once."""
    persons = _watermarked(streams.of("persons", "id", "name", "date_time"), "date_time", windows)
    auctions = _watermarked(streams.of("auctions", "seller", "date_time"), "date_time", windows)
    registered = persons.select("id", "name", _window("date_time", windows).alias("registered"))
    sold = auctions.select("seller", _window("date_time", windows))
    once = sold.dropDuplicates(["seller", "window"])
    joined = registered.join(
        once, (sf.col("id") == sf.col("seller")) & (sf.col("registered") == sf.col("window"))
    )
    return joined.select("id", "name", _start())


def user_sessions(streams: Streams, windows: Windows) -> DataFrame:
    """Query 11: bids a person makes before pausing."""
    bids = _watermarked(streams.of("bids", "bidder", "date_time"), "date_time", windows)
    session = sf.session_window("date_time", _duration(windows.session_gap)).alias("window")
    counted = bids.groupBy(session, "bidder").count()
    return counted.select("bidder", "count", _start(), sf.col("window.end").alias("end"))


QUERIES: Mapping[int, Query] = {
    1: map_prices,
    2: filter_bids,
    3: local_sellers,
    4: average_closing_price,
    5: hot_items,
    6: last_ten_average,
    7: highest_bid,
    8: new_sellers,
    11: user_sessions,
}
"""Number of the query → what builds it; all of them write in append mode."""

STATELESS = (1, 2)


def query_of(number: int) -> Query:
    """The query with this number."""
    if number not in QUERIES:
        raise BadInput(f"nexmark has queries {', '.join(map(str, QUERIES))} here, not {number}")
    return QUERIES[number]


def _watermarked(stream: DataFrame, column: str, windows: Windows) -> DataFrame:
    return stream.withWatermark(column, _duration(windows.watermark))


def _window(column: str, windows: Windows) -> Column:
    return sf.window(column, _duration(windows.window)).alias("window")


def _start() -> Column:
    return sf.col("window.start").alias("start")


def _duration(seconds: float) -> str:
    return f"{_micros(seconds)} microseconds"


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)
