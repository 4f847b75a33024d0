"""The records that jobs read: orders, payments and visits of a shop. A record follows from its number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import BadInput
from penstock.simulate.profiles import parse_profile, records_offered
from penstock_lab.workloads.records import choose_share, draw_below, draw_bits, find_arrivals, list_vocabulary

FIRST_TIME_MS = 1_767_225_600_000
"""Event time at the start of a feed: 2026-01-01, midnight UTC. It does not depend on when the feed runs."""
PRODUCTS = 50
MOST_PIECES = 5

Numbers = NDArray[np.int64]

ORDERS = "orders"
PAYMENTS = "payments"
VISITS = "visits"


@dataclass(frozen=True, slots=True)
class Fed:
    """The content of a feed: the records that a rate profile offers in so many seconds, drawn from a seed."""

    profile: str
    seconds: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.seconds < 1e7:
            raise BadInput(f"a feed lasts more than 0 s and less than 1e7 s, not {self.seconds:g} s")
        if self.seed < 0:
            raise BadInput(f"the seed of a feed is 0 or more, not {self.seed}")

    @property
    def records(self) -> int:
        """Records in all."""
        return records_offered(parse_profile(self.profile), self.seconds)

    def event_times(self, first: int, count: int) -> Numbers:
        """Return when these records happen, in milliseconds since the epoch: when the profile offers them."""
        if not count:
            return np.zeros(0, dtype=np.int64)
        seconds = find_arrivals(parse_profile(self.profile), first, count)
        return FIRST_TIME_MS + np.floor(seconds * 1000).astype(np.int64)


class JobContent(Protocol):
    """The records of one job's input, in one stream or several."""

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams; each is a directory or a topic."""

    def batch(self, fed: Fed, stream: str, first: int, count: int) -> pa.RecordBatch:
        """Return those of the records first … first+count-1 that belong to a stream."""


def name_of(customer: Numbers) -> list[str]:
    """Return a first and a last name for each customer."""
    words = list_vocabulary()
    firsts, lasts = (customer * 37 + 11) % len(words), (customer * 101 + 7) % len(words)
    return [f"{words[a]} {words[b]}" for a, b in zip(firsts.tolist(), lasts.tolist(), strict=True)]


def price_of(product: Numbers) -> Numbers:
    """Return the price of one piece, in cents."""
    return 150 + 37 * product


@dataclass(frozen=True, slots=True)
class OrderStream:
    """Orders of customers. Some come a little late, some twice, and one customer may send most of them."""

    customers: int = 500
    late_share: float = 0.1
    most_late_ms: int = 2000
    duplicates: float = 0.0
    """Share of records that repeat one of the records shortly before them."""
    hot_share: float = 0.0
    """Share of records that are of customer 0."""
    repeat_within: int = 50
    repeat_within_ms: int = 5000
    """A record repeats one of this many before it, and none that is so old that a watermark drops it."""

    streams: tuple[str, ...] = (ORDERS,)

    def batch(self, fed: Fed, stream: str, first: int, count: int) -> pa.RecordBatch:
        """Return these orders; a repeated one has a number of its own and is otherwise the same."""
        assert stream == ORDERS
        before = min(first, self.repeat_within)
        offered = fed.event_times(first - before, count + before)
        number = np.arange(first, first + count, dtype=np.int64)
        order = self._origin(fed, number, offered, first - before)
        drawn = draw_bits(order.astype(np.uint64), fed.seed)
        product, pieces = draw_below(drawn, 0, PRODUCTS), 1 + draw_below(drawn, 24, MOST_PIECES)
        times = offered[order - (first - before)] - self._lateness(fed, order)
        customer = self._customers(fed, order)
        return pa.RecordBatch.from_pydict(
            {
                "number": number,
                "order_id": order,
                "event_time": pa.array(times, pa.timestamp("ms", "UTC")),
                "customer": customer,
                "name": name_of(customer),
                "product": product,
                "pieces": pieces,
                "amount": pieces * price_of(product),
            }
        )

    def _origin(self, fed: Fed, number: Numbers, offered: Numbers, base: int) -> Numbers:
        """Return the record that each one repeats, itself for most of them."""
        drawn = draw_bits(number.astype(np.uint64), fed.seed + 1)
        repeated = np.maximum(number - 1 - draw_below(drawn, 0, self.repeat_within), 0)
        recent = offered[number - base] - offered[repeated - base] <= self.repeat_within_ms
        return np.where(choose_share(drawn, 40, 24, self.duplicates) & recent, repeated, number)

    def _lateness(self, fed: Fed, order: Numbers) -> Numbers:
        drawn = draw_bits(order.astype(np.uint64), fed.seed + 2)
        late = choose_share(drawn, 40, 24, self.late_share)
        return np.where(late, draw_below(drawn, 0, self.most_late_ms + 1), 0)

    def _customers(self, fed: Fed, order: Numbers) -> Numbers:
        drawn = draw_bits(order.astype(np.uint64), fed.seed + 3)
        return np.where(choose_share(drawn, 40, 24, self.hot_share), 0, draw_below(drawn, 0, self.customers))


@dataclass(frozen=True, slots=True)
class OrdersAndPayments:
    """Orders, and as many payments for orders shortly before: some orders are paid in parts, some never."""

    orders: OrderStream = OrderStream(late_share=0.0)
    paid_within: int = 100
    """A payment is for one of this many orders before it."""

    streams: tuple[str, ...] = (ORDERS, PAYMENTS)

    def batch(self, fed: Fed, stream: str, first: int, count: int) -> pa.RecordBatch:
        """Even numbers are orders, odd ones payments."""
        if stream == ORDERS:
            whole = self.orders.batch(fed, ORDERS, first, count)
            return whole.filter(pa.array(np.arange(first, first + count) % 2 == 0))
        number = np.arange(first + (first + 1) % 2, first + count, 2, dtype=np.int64)
        drawn = draw_bits(number.astype(np.uint64), fed.seed)
        times = fed.event_times(first, count)[number - first]
        return pa.RecordBatch.from_pydict(
            {
                "number": number,
                "payment_time": pa.array(times, pa.timestamp("ms", "UTC")),
                "paid_order": np.maximum(number - 1 - 2 * draw_below(drawn, 0, self.paid_within), 0),
                "paid": 100 + draw_below(drawn, 24, 1000),
            }
        )


@dataclass(frozen=True, slots=True)
class Visits:
    """Page views. Customers come in groups that take turns, so that visits end and begin again."""

    groups: int = 5
    group_size: int = 20
    turn_ms: int = 8000
    pages: int = 30

    streams: tuple[str, ...] = (VISITS,)

    def batch(self, fed: Fed, stream: str, first: int, count: int) -> pa.RecordBatch:
        """Return these views, in the order of their times."""
        assert stream == VISITS
        number, times = np.arange(first, first + count, dtype=np.int64), fed.event_times(first, count)
        drawn = draw_bits(number.astype(np.uint64), fed.seed)
        turn = (times - FIRST_TIME_MS) // self.turn_ms
        return pa.RecordBatch.from_pydict(
            {
                "number": number,
                "event_time": pa.array(times, pa.timestamp("ms", "UTC")),
                "customer": turn % self.groups * self.group_size + draw_below(drawn, 0, self.group_size),
                "page": draw_below(drawn, 24, self.pages),
            }
        )
