"""The Nexmark generator: persons who register, auctions that they open, and bids, 1 : 3 : 46.

Event n is a person if n mod 50 is 0, an auction if it is 1 to 3, else a bid. Everything about an event
follows from its number and the seed, so any range of events can be made anywhere and in any order.
Half the bids go to a hot auction and three quarters of bids and auctions come from hot persons; a hot one
stays so for a hundred auctions or persons. Other bids go to one of the newest 100 auctions, other persons
are one of the newest 1000. All made with numpy, a column at a time, and only the columns asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import BadInput
from penstock.workloads.draws import Draws, below, bits, chosen, draws, uniform
from penstock.workloads.nexmark_text import CHANNELS, CITIES, STATES, emails, names, paddings, titles

EVENTS_A_ROUND = 50
PERSONS_A_ROUND, AUCTIONS_A_ROUND = 1, 3
"""All other events of a round are bids."""
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
HOT_FOR = 100
"""So many ids share their hot one: the next hundred have another."""

FIELDS = 4
"""Draws an event may take."""

TIMESTAMP = pa.timestamp("us", tz="UTC")
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Nexmark:
    """A stream of events: its seed, the pace of its event time, its disorder and its hot keys."""

    seed: int = 0
    events_per_second: float = 10_000.0
    """Of event time: how far apart two events are, however fast they are made."""
    first_time: float = 1_600_000_000.0
    """Event time of event 0, in seconds since the epoch."""
    out_of_order_share: float = 0.0
    out_of_order_seconds: float = 2.0
    """An out-of-order event has an event time up to so much earlier than its place in the stream."""
    late_share: float = 0.0
    late_seconds: float = 60.0
    """Late events are earlier by more than `out_of_order_seconds`, and up to so much."""
    hot_auctions: float = 0.5
    hot_persons: float = 0.75
    auctions_in_flight: int = 100
    active_persons: int = 1000

    def __post_init__(self) -> None:
        shares = (self.out_of_order_share, self.late_share, self.hot_auctions, self.hot_persons)
        if not all(0 <= share <= 1 for share in shares) or self.out_of_order_share + self.late_share > 1:
            raise BadInput("nexmark: shares lie between 0 and 1, out-of-order and late ones together too")
        if not self.events_per_second > 0:
            raise BadInput(f"nexmark: events_per_second is {self.events_per_second:g}, not above 0")
        if not 0 <= self.out_of_order_seconds <= self.late_seconds:
            raise BadInput("nexmark: needs 0 <= out_of_order_seconds <= late_seconds")
        if self.auctions_in_flight < 1 or self.active_persons < 1 or self.seed < 0:
            raise BadInput("nexmark: needs an auction in flight, an active person and a seed of 0 or more")

    @property
    def longest_auction_seconds(self) -> float:
        """An auction lasts up to twice the event time in which all auctions in flight are opened."""
        return 2 * self.auctions_in_flight * EVENTS_A_ROUND / AUCTIONS_A_ROUND / self.events_per_second

    def batch(self, kind: str, first: int, count: int, columns: Sequence[str] = ()) -> pa.RecordBatch:
        """The events of one kind among events first … first+count-1; `columns` defaults to all."""
        made = KINDS[kind](self, _numbers(kind, first, count))
        wanted = columns or COLUMNS[kind]
        arrays = [getattr(made, f"{name}_column")() for name in wanted]
        return pa.RecordBatch.from_arrays(arrays, names=list(wanted))


def _numbers(kind: str, first: int, count: int) -> Whole:
    """Event numbers of one kind within a range of events."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    place = numbers % EVENTS_A_ROUND
    if kind == "persons":
        return numbers[place < PERSONS_A_ROUND]
    bid_places = PERSONS_A_ROUND + AUCTIONS_A_ROUND
    if kind == "bids":
        return numbers[place >= bid_places]
    return numbers[(place >= PERSONS_A_ROUND) & (place < bid_places)]


def _whole(numbers: NDArray[np.floating[Any]]) -> Whole:
    rounded: Whole = np.rint(numbers).astype(np.int64)
    return rounded


class _Events:
    """Columns that every kind of event has; draws are made when a column first needs them."""

    def __init__(self, stream: Nexmark, numbers: Whole) -> None:
        self.stream = stream
        self.numbers = numbers
        self.rounds = numbers // EVENTS_A_ROUND

    def drawn(self, field: int) -> Draws:
        position = self.numbers.astype(np.uint64) * np.uint64(FIELDS) + np.uint64(field)
        return draws(position, self.stream.seed)

    @cached_property
    def first(self) -> Draws:
        return self.drawn(0)

    @cached_property
    def second(self) -> Draws:
        return self.drawn(1)

    @cached_property
    def times(self) -> Whole:
        """Event times in microseconds."""
        stream = self.stream
        even = _whole(self.numbers * (1e6 / stream.events_per_second))
        times: Whole = even + round(stream.first_time * 1e6)
        return times - self._delays() if stream.out_of_order_share or stream.late_share else times

    def _delays(self) -> Whole:
        stream, drawn = self.stream, self.drawn(2)
        place, how_much = uniform(drawn, 0, 24), uniform(drawn, 24, 32)
        least, most = stream.out_of_order_seconds, stream.late_seconds
        late = place >= 1 - stream.late_share
        delays = np.where(late, least + how_much * (most - least), how_much * least)
        delays[~late & (place >= stream.out_of_order_share)] = 0.0
        return _whole(delays * 1e6)

    def date_time_column(self) -> pa.Array:
        return pa.array(self.times).cast(TIMESTAMP)

    def persons(self, drawn: Draws, pick: int, hot: int, hot_offset: int) -> Whole:
        """A person for each event: a hot one, or any of the newest."""
        newest = self.rounds
        oldest = np.maximum(newest - self.stream.active_persons + 1, 0)
        anyone = oldest + below(drawn, pick, newest - oldest + 1)
        favourite = np.minimum(newest // HOT_FOR * HOT_FOR + hot_offset, newest)
        return np.where(chosen(drawn, hot, 16, self.stream.hot_persons), favourite, anyone) + FIRST_ID

    def prices(self, drawn: Draws, shift: int) -> Whole:
        """From 100 to 100 million cents, as often below 10,000 as a third."""
        return _whole(np.exp(uniform(drawn, shift, 24) * (6 * np.log(10))) * 100)


class _Persons(_Events):
    def id_column(self) -> pa.Array:
        return pa.array(self.rounds + FIRST_ID)

    def name_column(self) -> pa.Array:
        return names().take(pa.array(below(self.first, 0, len(names()))))

    def email_column(self) -> pa.Array:
        return emails(self.rounds + FIRST_ID)

    def city_column(self) -> pa.Array:
        return CITIES.take(pa.array(below(self.first, 32, len(CITIES))))

    def state_column(self) -> pa.Array:
        return STATES.take(pa.array(below(self.second, 0, len(STATES))))

    def extra_column(self) -> pa.Array:
        return paddings(100).take(pa.array(bits(self.second, 32, 6).astype(np.int64)))


class _Auctions(_Events):
    def id_column(self) -> pa.Array:
        place = self.numbers % EVENTS_A_ROUND - PERSONS_A_ROUND
        return pa.array(self.rounds * AUCTIONS_A_ROUND + place + FIRST_ID)

    def item_column(self) -> pa.Array:
        return titles().take(pa.array(below(self.drawn(3), 0, len(titles()))))

    @cached_property
    def initial_prices(self) -> Whole:
        return self.prices(self.second, 0)

    def initial_bid_column(self) -> pa.Array:
        return pa.array(self.initial_prices)

    def reserve_column(self) -> pa.Array:
        return pa.array(self.initial_prices + self.prices(self.second, 24))

    def expires_column(self) -> pa.Array:
        longest = self.stream.longest_auction_seconds * 1e6
        lasts = _whole(uniform(self.drawn(3), 32, 32) * longest)
        return pa.array(self.times + lasts).cast(TIMESTAMP)

    def seller_column(self) -> pa.Array:
        return pa.array(self.persons(self.first, 0, 32, hot_offset=0))

    def category_column(self) -> pa.Array:
        return pa.array(FIRST_CATEGORY + (bits(self.first, 48, 16) % CATEGORIES).astype(np.int64))

    def extra_column(self) -> pa.Array:
        return paddings(300).take(pa.array(bits(self.second, 48, 6).astype(np.int64)))


class _Bids(_Events):
    def auction_column(self) -> pa.Array:
        newest = self.rounds * AUCTIONS_A_ROUND + AUCTIONS_A_ROUND - 1
        oldest = np.maximum(newest - self.stream.auctions_in_flight + 1, 0)
        any_one = oldest + below(self.first, 0, newest - oldest + 1)
        hot = chosen(self.first, 32, 16, self.stream.hot_auctions)
        return pa.array(np.where(hot, newest // HOT_FOR * HOT_FOR, any_one) + FIRST_ID)

    def bidder_column(self) -> pa.Array:
        return pa.array(self.persons(self.second, 0, 32, hot_offset=1))

    def price_column(self) -> pa.Array:
        return pa.array(self.prices(self.drawn(3), 0))

    def channel_column(self) -> pa.Array:
        return CHANNELS.take(pa.array(bits(self.first, 48, 2).astype(np.int64)))

    def extra_column(self) -> pa.Array:
        return paddings(50).take(pa.array(bits(self.first, 50, 6).astype(np.int64)))


KINDS: Mapping[str, Callable[[Nexmark, Whole], _Events]] = {
    "persons": _Persons,
    "auctions": _Auctions,
    "bids": _Bids,
}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "persons": {
        "id": "bigint",
        "name": "string",
        "email": "string",
        "city": "string",
        "state": "string",
        "date_time": "timestamp",
        "extra": "string",
    },
    "auctions": {
        "id": "bigint",
        "item": "string",
        "initial_bid": "bigint",
        "reserve": "bigint",
        "date_time": "timestamp",
        "expires": "timestamp",
        "seller": "bigint",
        "category": "bigint",
        "extra": "string",
    },
    "bids": {
        "auction": "bigint",
        "bidder": "bigint",
        "price": "bigint",
        "channel": "string",
        "date_time": "timestamp",
        "extra": "string",
    },
}
"""Kind of event → its columns and their Spark types."""


def schema_of(kind: str, columns: Sequence[str] = ()) -> str:
    """The schema of a kind of event, as Spark writes it."""
    return ", ".join(f"{name} {COLUMNS[kind][name]}" for name in columns or COLUMNS[kind])
