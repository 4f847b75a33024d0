"""Nexmark queries 1 to 8 and 11 as Structured Streaming queries, with the state of query 6."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from penstock.errors import BadInput
from penstock_lab.workloads.nexmark.streams import Streams

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
    """Bids later than this after the auction's opening do not count, which bounds the state of 4 and 6."""


Query = Callable[[Streams, Windows], DataFrame]


def map_prices(streams: Streams, _windows: Windows) -> DataFrame:
    """Build query 1: prices in euros."""
    bids = streams.read("bids", "auction", "bidder", "price", "date_time")
    return bids.withColumn("price", sf.col("price") * EUROS_A_DOLLAR)


def filter_bids(streams: Streams, _windows: Windows) -> DataFrame:
    """Build query 2: bids on some auctions."""
    return streams.read("bids", "auction", "price").where(sf.col("auction") % EVERY_AUCTION == 0)


def join_local_sellers(streams: Streams, _windows: Windows) -> DataFrame:
    """Build query 3: auctions joined with their sellers, whichever comes first."""
    auctions = streams.read("auctions", "id", "seller", "category").where(sf.col("category") == CATEGORY)
    persons = streams.read("persons", "id", "name", "city", "state")
    nearby = persons.where(sf.col("state").isin(*NEARBY_STATES)).withColumnRenamed("id", "person")
    joined = auctions.join(nearby, sf.col("seller") == sf.col("person"))
    return joined.select("name", "city", "state", sf.col("id").alias("auction"))


def list_closing_prices(streams: Streams, windows: Windows) -> DataFrame:
    """Return a row an auction once no more bids can come: (auction, seller, category, opened, price)."""
    opened = streams.read("auctions", "id", "seller", "category", "date_time", "expires")
    opened = _add_watermark(opened.withColumnRenamed("date_time", "opened"), "opened", windows)
    bids = streams.read("bids", "auction", "price", "date_time")
    bids = _add_watermark(bids.withColumnRenamed("date_time", "placed"), "placed", windows)
    longest = sf.expr(f"opened + interval {_to_micros(windows.longest_auction)} microseconds")
    in_time = sf.col("placed").between(sf.col("opened"), sf.col("expires")) & (sf.col("placed") <= longest)
    valid = opened.join(bids, (sf.col("id") == sf.col("auction")) & in_time)
    return valid.groupBy("auction", "seller", "category", "opened").agg(sf.max("price").alias("price"))


def average_by_category(streams: Streams, windows: Windows) -> DataFrame:
    """Build query 4: closing prices by category."""
    closed = list_closing_prices(streams, windows)
    averaged = closed.groupBy(_make_window("opened", windows), "category").agg(
        sf.avg("price").alias("average")
    )
    return averaged.select(_take_start(), "category", "average")


def find_hot_items(streams: Streams, windows: Windows) -> DataFrame:
    """Build query 5: the auction with the most bids in each sliding window; of several the newest."""
    bids = _add_watermark(streams.read("bids", "auction", "date_time"), "date_time", windows)
    sliding = sf.window("date_time", _write_duration(windows.window), _write_duration(windows.slide))
    counted = bids.groupBy(sliding.alias("window"), "auction").count()
    hottest = sf.max(sf.struct("count", "auction")).alias("most")
    return counted.groupBy("window").agg(hottest).select(_take_start(), "most.auction", "most.count")


def average_last_ten(streams: Streams, windows: Windows) -> DataFrame:
    """Build query 6: the average of the last ten closing prices by seller."""
    closed = list_closing_prices(streams, windows).select("seller", "auction", "opened", "price")
    return closed.groupBy("seller").transformWithStateInPandas(
        statefulProcessor=LastTen(), outputStructType=RESULT, outputMode="append", timeMode="none"
    )


def find_highest_bid(streams: Streams, windows: Windows) -> DataFrame:
    """Build query 7: the highest bid of each window; of several the one on the newest auction."""
    columns = ("price", "auction", "bidder", "date_time")
    bids = _add_watermark(streams.read("bids", *columns), "date_time", windows)
    highest = bids.groupBy(_make_window("date_time", windows)).agg(sf.max(sf.struct(*columns)).alias("bid"))
    return highest.select(_take_start(), "bid.*")


def join_new_sellers(streams: Streams, windows: Windows) -> DataFrame:
    """Build query 8: persons and auctions joined within the same window, each seller once."""
    persons = _add_watermark(streams.read("persons", "id", "name", "date_time"), "date_time", windows)
    auctions = _add_watermark(streams.read("auctions", "seller", "date_time"), "date_time", windows)
    registered = persons.select("id", "name", _make_window("date_time", windows).alias("registered"))
    sold = auctions.select("seller", _make_window("date_time", windows))
    once = sold.dropDuplicates(["seller", "window"])
    joined = registered.join(
        once, (sf.col("id") == sf.col("seller")) & (sf.col("registered") == sf.col("window"))
    )
    return joined.select("id", "name", _take_start())


def count_sessions(streams: Streams, windows: Windows) -> DataFrame:
    """Build query 11: bids a person makes before pausing."""
    bids = _add_watermark(streams.read("bids", "bidder", "date_time"), "date_time", windows)
    session = sf.session_window("date_time", _write_duration(windows.session_gap)).alias("window")
    counted = bids.groupBy(session, "bidder").count()
    return counted.select("bidder", "count", _take_start(), sf.col("window.end").alias("end"))


QUERIES: Mapping[int, Query] = {
    1: map_prices,
    2: filter_bids,
    3: join_local_sellers,
    4: average_by_category,
    5: find_hot_items,
    6: average_last_ten,
    7: find_highest_bid,
    8: join_new_sellers,
    11: count_sessions,
}
"""Number of the query → what builds it; all of them write in append mode."""
STATELESS = (1, 2)


def query_of(number: int) -> Query:
    """Return the query with this number."""
    if number not in QUERIES:
        raise BadInput(f"nexmark has queries {', '.join(map(str, QUERIES))} here, not {number}")
    return QUERIES[number]


def _add_watermark(stream: DataFrame, column: str, windows: Windows) -> DataFrame:
    return stream.withWatermark(column, _write_duration(windows.watermark))


def _make_window(column: str, windows: Windows) -> Column:
    return sf.window(column, _write_duration(windows.window)).alias("window")


def _take_start() -> Column:
    return sf.col("window.start").alias("start")


def _write_duration(seconds: float) -> str:
    return f"{_to_micros(seconds)} microseconds"


def _to_micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


KEPT = 10
RESULT = "seller bigint, auction bigint, average double"


class LastTen(StatefulProcessor):
    """Auctions of one seller in the order of their opening; each closing gives a new average."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: prices, oldest first."""
        self._prices = handle.getValueState("prices", "prices array<bigint>")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Yield all closings of one batch."""
        closed = pd.concat(list(rows)).sort_values(["opened", "auction"])
        before = self._prices.get()
        kept = [int(price) for price in before[0]] if before else []
        averages = []
        for price in closed["price"]:
            kept = [*kept, int(price)][-KEPT:]
            averages.append(sum(kept) / len(kept))
        self._prices.update((kept,))
        yield pd.DataFrame({"seller": key[0], "auction": closed["auction"].to_numpy(), "average": averages})

    def close(self) -> None:
        """Do nothing: there is only the state."""
