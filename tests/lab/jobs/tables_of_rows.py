"""A job's input written out by hand."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock_lab.jobs.contents import FIRST_TIME_MS, Fed


@dataclass(frozen=True)
class ByHand:
    """Content whose records are given; times are seconds after the feed's start."""

    tables: dict[str, list[dict]]
    streams: tuple[str, ...] = field(default=("orders",))

    def batch(self, fed, stream, first, count):
        rows = self.tables[stream][first : first + count]
        times = [name for name in rows[0] if name.endswith("time")]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        for name in times:
            at = FIRST_TIME_MS + np.round(1000 * np.array(columns[name])).astype(np.int64)
            columns[name] = pa.array(at, pa.timestamp("ms", "UTC"))
        return pa.RecordBatch.from_pydict(columns)

    def fed(self):
        """Return a feed of as many records as there are."""
        return Fed("constant:1", max(map(len, self.tables.values())))


def an_order(number, seconds, customer=0, product=0, amount=100, **given):
    """Return one order; its id is its number unless another is given."""
    plain = {"number": number, "order_id": number, "event_time": seconds, "customer": customer}
    return {**plain, "name": f"name {customer}", "product": product, "pieces": 1, "amount": amount, **given}


def at(seconds):
    """Return event time in milliseconds, so many seconds after the start."""
    return FIRST_TIME_MS + round(1000 * seconds)
