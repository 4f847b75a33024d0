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
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.errors import BadInput
from penstock_lab.workloads.records import Draws, choose_share, draw_below, draw_bits, draw_uniform, take_bits

EVENTS_A_ROUND = 50
PERSONS_A_ROUND, AUCTIONS_A_ROUND = 1, 3
"""All other events of a round are bids."""
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
HOT_FOR = 100
"""One id in each hundred is hot."""
FIELDS = 4
"""Draws an event may take."""
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Nexmark:
    """A stream of events: its seed, the pace of its event time, its disorder and its hot keys."""

    seed: int = 0
    events_per_second: float = 10_000.0
    """In event time, however fast events are made."""
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
        """Return the events of one kind among events first … first+count-1; `columns` defaults to all."""
        events, makers = _Range(self, _find_numbers(kind, first, count)), _COLUMNS[kind]
        wanted = columns or list(makers)
        return pa.RecordBatch.from_arrays(
            [pa.array(makers[name][1](events)) for name in wanted], list(wanted)
        )


def _find_numbers(kind: str, first: int, count: int) -> Whole:
    """Return the event numbers of one kind within a range of events."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    place = numbers % EVENTS_A_ROUND
    if kind == "persons":
        return numbers[place < PERSONS_A_ROUND]
    bid_places = PERSONS_A_ROUND + AUCTIONS_A_ROUND
    if kind == "bids":
        return numbers[place >= bid_places]
    return numbers[(place >= PERSONS_A_ROUND) & (place < bid_places)]


def _round_whole(numbers: NDArray[np.floating[Any]]) -> Whole:
    rounded: Whole = np.rint(numbers).astype(np.int64)
    return rounded


class _Range:
    """A range of events of one kind; draws are made when a column first needs them."""

    def __init__(self, stream: Nexmark, numbers: Whole) -> None:
        self.stream = stream
        self.numbers = numbers
        self.rounds = numbers // EVENTS_A_ROUND
        self.places = numbers % EVENTS_A_ROUND - PERSONS_A_ROUND

    def draw_field(self, field: int) -> Draws:
        position = self.numbers.astype(np.uint64) * np.uint64(FIELDS) + np.uint64(field)
        return draw_bits(position, self.stream.seed)

    @cached_property
    def first(self) -> Draws:
        return self.draw_field(0)

    @cached_property
    def second(self) -> Draws:
        return self.draw_field(1)

    @cached_property
    def fourth(self) -> Draws:
        return self.draw_field(3)

    @cached_property
    def times(self) -> Whole:
        """Event times in microseconds."""
        stream = self.stream
        even = _round_whole(self.numbers * (1e6 / stream.events_per_second))
        times: Whole = even + round(stream.first_time * 1e6)
        return times - self._draw_delays() if stream.out_of_order_share or stream.late_share else times

    def _draw_delays(self) -> Whole:
        stream, drawn = self.stream, self.draw_field(2)
        place, how_much = draw_uniform(drawn, 0, 24), draw_uniform(drawn, 24, 32)
        least, most = stream.out_of_order_seconds, stream.late_seconds
        late = place >= 1 - stream.late_share
        delays = np.where(late, least + how_much * (most - least), how_much * least)
        delays[~late & (place >= stream.out_of_order_share)] = 0.0
        return _round_whole(delays * 1e6)

    @cached_property
    def initial_prices(self) -> Whole:
        return _draw_prices(self.second, 0)

    def find_ends(self) -> Whole:
        """Return when auctions expire, in microseconds."""
        longest = self.stream.longest_auction_seconds * 1e6
        return self.times + _round_whole(draw_uniform(self.fourth, 32, 32) * longest)

    def choose_auctions(self) -> Whole:
        """Choose an auction for each bid: a hot one, or any of those in flight."""
        newest = self.rounds * AUCTIONS_A_ROUND + AUCTIONS_A_ROUND - 1
        hot = choose_share(self.first, 32, 16, self.stream.hot_auctions)
        anyone = _choose_newest(self.first, newest, self.stream.auctions_in_flight)
        return np.where(hot, newest // HOT_FOR * HOT_FOR, anyone) + FIRST_ID

    def choose_persons(self, drawn: Draws, hot_offset: int) -> Whole:
        """Choose a person for each event: a hot one, or any of the newest."""
        hot = choose_share(drawn, 32, 16, self.stream.hot_persons)
        favourite = np.minimum(self.rounds // HOT_FOR * HOT_FOR + hot_offset, self.rounds)
        anyone = _choose_newest(drawn, self.rounds, self.stream.active_persons)
        return np.where(hot, favourite, anyone) + FIRST_ID

    def name_persons(self) -> pa.Array:
        """Return one address a person."""
        ids = pa.array(self.rounds + FIRST_ID).cast(pa.string())
        return pc.binary_join_element_wise("person", ids, "@example.org", "")


def _choose_newest(drawn: Draws, newest: Whole, count: int) -> Whole:
    """Choose one of the newest so many, for each event."""
    oldest = np.maximum(newest - count + 1, 0)
    return oldest + draw_below(drawn, 0, newest - oldest + 1)


def _draw_prices(drawn: Draws, shift: int) -> Whole:
    """Draw from 100 to 100 million cents; a third of all are below 10,000."""
    return _round_whole(np.exp(draw_uniform(drawn, shift, 24) * (6 * np.log(10))) * 100)


def _stamp(micros: Whole) -> pa.Array:
    return pa.array(micros).cast(pa.timestamp("us", tz="UTC"))


def _pick(texts: pa.Array, places: NDArray[Any]) -> pa.Array:
    return texts.take(pa.array(places.astype(np.int64)))


def _pick_any(texts: pa.Array, drawn: Draws, shift: int) -> pa.Array:
    return _pick(texts, draw_below(drawn, shift, len(texts)))


STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_CALIFORNIA = ("Los Angeles", "San Francisco")
CITIES = pa.array(["Phoenix", *_CALIFORNIA, "Boise", "Portland", "Bend", "Redmond", "Seattle", "Cheyenne"])
CHANNELS = pa.array(["web", "phone", "app", "hall"])
_FIRST_NAMES = ("Ada", "Blaise", "Carl", "Emmy", "Grace", "Henri", "Ida", "Kurt", "Lise", "Niels", "Sofia")
_LAST_NAMES = ("Ampere", "Bohr", "Curie", "Dirac", "Euler", "Gauss", "Hertz", "Noether", "Turing")
NAMES = pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])
_ADJECTIVES = ("old", "new", "rare", "signed", "broken", "gilded", "plain", "heavy")
_NOUNS = ("clock", "chair", "map", "radio", "vase", "bicycle", "camera", "violin", "stamp", "lamp")
TITLES = pa.array([f"{adjective} {noun}" for adjective in _ADJECTIVES for noun in _NOUNS])
"""Names of items up for auction."""


@cache
def make_paddings(mean_length: int) -> pa.Array:
    """Make 64 texts of half to one and a half times this length: events then have their published size."""
    letters = np.random.default_rng(mean_length).integers(97, 123, size=(64, 2 * mean_length), dtype=np.uint8)
    lengths = np.linspace(mean_length / 2, mean_length * 1.5, 64).astype(int)
    return pa.array([row[:length].tobytes().decode() for row, length in zip(letters, lengths, strict=True)])


_DATE_TIME = ("timestamp", lambda made: _stamp(made.times))
_COLUMNS: Mapping[str, Mapping[str, tuple[str, Callable[[_Range], Any]]]] = {
    "persons": {
        "id": ("bigint", lambda made: made.rounds + FIRST_ID),
        "name": ("string", lambda made: _pick_any(NAMES, made.first, 0)),
        "email": ("string", _Range.name_persons),
        "city": ("string", lambda made: _pick_any(CITIES, made.first, 32)),
        "state": ("string", lambda made: _pick_any(STATES, made.second, 0)),
        "date_time": _DATE_TIME,
        "extra": ("string", lambda made: _pick(make_paddings(100), take_bits(made.second, 32, 6))),
    },
    "auctions": {
        "id": ("bigint", lambda made: made.rounds * AUCTIONS_A_ROUND + made.places + FIRST_ID),
        "item": ("string", lambda made: _pick_any(TITLES, made.fourth, 0)),
        "initial_bid": ("bigint", lambda made: made.initial_prices),
        "reserve": ("bigint", lambda made: made.initial_prices + _draw_prices(made.second, 24)),
        "date_time": _DATE_TIME,
        "expires": ("timestamp", lambda made: _stamp(made.find_ends())),
        "seller": ("bigint", lambda made: made.choose_persons(made.first, hot_offset=0)),
        "category": (
            "bigint",
            lambda made: FIRST_CATEGORY + (take_bits(made.first, 48, 16) % CATEGORIES).astype(np.int64),
        ),
        "extra": ("string", lambda made: _pick(make_paddings(300), take_bits(made.second, 48, 6))),
    },
    "bids": {
        "auction": ("bigint", _Range.choose_auctions),
        "bidder": ("bigint", lambda made: made.choose_persons(made.second, hot_offset=1)),
        "price": ("bigint", lambda made: _draw_prices(made.fourth, 0)),
        "channel": ("string", lambda made: _pick(CHANNELS, take_bits(made.first, 48, 2))),
        "date_time": _DATE_TIME,
        "extra": ("string", lambda made: _pick(make_paddings(50), take_bits(made.first, 50, 6))),
    },
}
"""Kind of event → its columns, each with its Spark type and what makes it."""
COLUMNS: Mapping[str, Mapping[str, str]] = {
    kind: {name: type_ for name, (type_, _) in makers.items()} for kind, makers in _COLUMNS.items()
}
"""Kind of event → its columns and their Spark types."""


def write_schema(kind: str, columns: Sequence[str] = ()) -> str:
    """Return the schema of a kind of event, as Spark writes it."""
    return ", ".join(f"{name} {COLUMNS[kind][name]}" for name in columns or COLUMNS[kind])
