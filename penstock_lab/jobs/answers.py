"""The right answers: what each job must have written, computed from all of its input at once.

Nothing here is shared with the jobs' scripts, and nothing depends on how records fall into batches. Windows,
sessions and joins are those that the watermark has closed once all input is read: it ends at the latest
event time less the delay, and Spark runs a batch without data for it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from penstock_lab.jobs.contents import ORDERS, PAYMENTS, VISITS, Fed, JobContent
from penstock_lab.jobs.tables import credit_limit, make_model, watch_list

WINDOW_MS = 10_000
DELAY_MS = 10_000
REGIONS = 5
SALT = b"the shop"
PSEUDONYM_LETTERS = 16
DISTANCE = 2
PAID_WITHIN_MS = 20_000
GAP_MS = 5_000

Rows = Counter[tuple[Any, ...]]
"""Rows of an output and how often each is there."""


def read_stream(content: JobContent, fed: Fed, stream: str = ORDERS) -> pd.DataFrame:
    """Return all records of a stream; times are milliseconds since the epoch."""
    records = content.batch(fed, stream, 0, fed.records).to_pandas()
    for column in records.columns[[kind.kind == "M" for kind in records.dtypes]]:
        records[column] = records[column].dt.tz_localize(None).astype("datetime64[ms]").astype("int64")
    return records


def as_rows(frame: pd.DataFrame) -> Rows:
    """Return the rows of a frame as tuples of plain values."""
    return Counter(zip(*(frame[column].tolist() for column in frame.columns), strict=True))


def closed_windows(content: JobContent, fed: Fed) -> Rows:
    """Windows that the watermark has closed: (start, product, orders, amount)."""
    orders = read_stream(content, fed)
    return as_rows(_total(orders, "product", _watermark(orders["event_time"])))


def closed_spending(content: JobContent, fed: Fed, iterations: int) -> Rows:
    """Windows that the watermark has closed: (start, pseudonym, orders, amount)."""
    orders = read_stream(content, fed)
    totals = _total(orders, "name", _watermark(orders["event_time"]))
    return as_rows(totals.assign(name=_pseudonyms(totals["name"], iterations)))


def totals_by_region(content: JobContent, fed: Fed) -> Rows:
    """All windows: (start, region, orders, amount)."""
    orders = read_stream(content, fed)
    return as_rows(_total(orders.assign(region=orders["customer"] % REGIONS), "region"))


def charges(content: JobContent, fed: Fed) -> Rows:
    """Each order once: (order, amount, receipt)."""
    orders = read_stream(content, fed).drop_duplicates("order_id")
    receipts = 7 * orders["order_id"] + orders["amount"]
    return as_rows(orders[["order_id", "amount"]].assign(receipt=receipts))


def copies(content: JobContent, fed: Fed, iterations: int) -> Rows:
    """All orders: (order, pseudonym, product, amount)."""
    return as_rows(
        _hidden(read_stream(content, fed), iterations)[["order_id", "customer", "product", "amount"]]
    )


def orders_once(content: JobContent, fed: Fed, iterations: int) -> Rows:
    """Each order once: (order, pseudonym, amount)."""
    orders = read_stream(content, fed).drop_duplicates("order_id")
    return as_rows(_hidden(orders, iterations)[["order_id", "customer", "amount"]])


def watched_orders(content: JobContent, fed: Fed) -> Rows:
    """All windows: (start, watched name, orders, amount)."""
    orders = read_stream(content, fed)
    near = similar_names(sorted(set(orders["name"])), watch_list())
    return as_rows(_total(orders.merge(near, on="name"), "watched"))


def similar_names(names: list[str], watched: list[str]) -> pd.DataFrame:
    """Return the pairs (name, watched) whose edit distance is small."""
    near_lengths = ((a, b) for a in names for b in watched if abs(len(a) - len(b)) <= DISTANCE)
    pairs = [(a, b) for a, b in near_lengths if edit_distance(a, b) <= DISTANCE]
    return pd.DataFrame(pairs, columns=["name", "watched"])


@cache
def edit_distance(one: str, other: str) -> int:
    """Return the Levenshtein distance, by the textbook's table."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, start=1):
        before, row[0] = row[0], number
        for place, theirs in enumerate(other, start=1):
            changed = before + (letter != theirs)
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, changed)
    return row[-1]


def payments_in_time(content: JobContent, fed: Fed) -> Rows:
    """Payments with their orders: (order, amount, time of the payment, paid)."""
    orders, payments = (read_stream(content, fed, stream) for stream in (ORDERS, PAYMENTS))
    pairs = orders.merge(payments, left_on="order_id", right_on="paid_order")
    after = pairs["payment_time"] - pairs["event_time"]
    kept = pairs[(after >= 0) & (after <= PAID_WITHIN_MS)]
    return as_rows(kept[["order_id", "amount", "payment_time", "paid"]])


def closed_sessions(content: JobContent, fed: Fed) -> Rows:
    """Sessions that have ended by the watermark or by a later view: (customer, began, ended, views)."""
    views = read_stream(content, fed, VISITS).sort_values(["customer", "event_time"], kind="stable")
    gaps = views.groupby("customer")["event_time"].diff()
    session = (gaps.isna() | (gaps > GAP_MS)).cumsum().rename("session")
    found = views.groupby(["customer", session])["event_time"].agg(["min", "max", "size"]).reset_index()
    last = ~found.duplicated("customer", keep="last")
    still_open = last & (found["max"] + GAP_MS > _watermark(views["event_time"]))
    return as_rows(found.loc[~still_open, ["customer", "min", "max", "size"]])


def three_places(content: JobContent, fed: Fed, iterations: int) -> Rows:
    """Rows of the customers' table, counts by product, and all orders, each with its place's name first."""
    orders = _hidden(read_stream(content, fed), iterations)
    newest = orders.drop_duplicates("customer", keep="last")[["customer", "number", "amount"]]
    counts = orders.groupby("product").size().rename("orders").reset_index()
    kept = orders[["order_id", "customer", "product", "amount"]]
    return name_rows("customers", newest) + name_rows("counts", counts) + name_rows("orders", kept)


def totals_and_archive(content: JobContent, fed: Fed, iterations: int) -> Rows:
    """Totals of all windows by product, and all orders, each with its place's name first."""
    orders = read_stream(content, fed)
    archive = _hidden(orders, iterations)[["order_id", "customer", "amount"]]
    return name_rows("totals", _total(orders, "product")) + name_rows("archive", archive)


def scores(content: JobContent, fed: Fed) -> Rows:
    """All orders: (order, customer, score)."""
    orders = _score(read_stream(content, fed))
    return as_rows(orders[["order_id", "customer", "score"]])


def credit_limits(content: JobContent, fed: Fed) -> Rows:
    """All orders: (order, amount, credit)."""
    orders = read_stream(content, fed)
    limits = orders["customer"].map(credit_limit)
    return as_rows(orders[["order_id", "amount"]].assign(credit=limits))


def risks(content: JobContent, fed: Fed) -> Rows:
    """Customers: (customer, orders, sum of scores)."""
    orders = _score(read_stream(content, fed))
    return as_rows(orders.groupby("customer")["score"].agg(["size", "sum"]).reset_index())


def name_rows(name: str, frame: pd.DataFrame) -> Rows:
    """Return the rows of one output of several, with its name in front."""
    return Counter({(name, *row): count for row, count in as_rows(frame).items()})


def _watermark(times: pd.Series) -> int:
    return int(times.max()) - DELAY_MS if len(times) else 0


def _total(orders: pd.DataFrame, key: str, watermark: int | None = None) -> pd.DataFrame:
    """Count and add up orders by window and key; with a watermark, only windows that it has closed."""
    start = (orders["event_time"] // WINDOW_MS * WINDOW_MS).rename("window_start")
    totals = orders.groupby([start, key])["amount"].agg(["size", "sum"]).reset_index()
    return totals if watermark is None else totals[totals["window_start"] + WINDOW_MS <= watermark]


def _hidden(orders: pd.DataFrame, iterations: int) -> pd.DataFrame:
    return orders.assign(customer=_pseudonyms(orders["name"], iterations))


def _pseudonyms(names: pd.Series, iterations: int) -> pd.Series:
    return names.map({name: pseudonym(name, iterations) for name in set(names)})


@cache
def pseudonym(name: str, iterations: int) -> str:
    """Return the hash that stands for a name."""
    return hashlib.pbkdf2_hmac("sha256", name.encode(), SALT, iterations).hex()[:PSEUDONYM_LETTERS]


def _score(orders: pd.DataFrame) -> pd.DataFrame:
    found = {pair: score_order(*pair) for pair in set(zip(orders["product"], orders["pieces"], strict=True))}
    pairs = zip(orders["product"], orders["pieces"], strict=True)
    return orders.assign(score=[found[pair] for pair in pairs])


@cache
def score_order(product: int, pieces: int) -> int:
    """Return the ensemble's score of one order, in whole numbers."""
    model = {name: weights.astype(np.int64) for name, weights in make_model().items()}
    features = model["embedding"][product] * pieces
    hidden = np.maximum(np.einsum("f,mfh->mh", features, model["hidden"]), 0)
    return int((hidden * model["output"]).sum())
