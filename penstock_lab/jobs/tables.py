"""Tables that jobs read beside streams: a watch list of names, a model that scores orders, credit limits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from penstock_lab.jobs.contents import PRODUCTS, name_of
from penstock_lab.workloads.records import draw_below, draw_bits, list_vocabulary

WATCHED = 300
"""Names on the list: each order's name is compared with all of them."""
WATCHED_CUSTOMERS_EVERY = 10
"""Every tenth name on the list is that of a customer, misspelt."""
FEATURES = 16
HIDDEN = 64
MEMBERS = 400
"""Networks in the ensemble: the work of scoring an order grows with them."""

Weights = NDArray[np.float64]


def watch_list() -> list[str]:
    """Return the watched names: customers' with a letter replaced, and longer ones that are of nobody."""
    numbers = np.arange(WATCHED, dtype=np.int64)
    customers = name_of(numbers // WATCHED_CUSTOMERS_EVERY * 7)
    strangers = name_of(numbers + 1)
    return [
        f"{strangers[number]} {list_vocabulary()[number]}"
        if number % WATCHED_CUSTOMERS_EVERY
        else f"{name[:-1]}z"
        for number, name in enumerate(customers)
    ]


def make_model() -> dict[str, Weights]:
    """Return an ensemble of small networks with whole weights.

    Sums of whole numbers are exact in any order, so scores do not depend on how rows are batched.
    """
    return {
        "embedding": _weights(1, PRODUCTS, FEATURES),
        "hidden": _weights(2, MEMBERS, FEATURES, HIDDEN),
        "output": _weights(3, MEMBERS, HIDDEN),
    }


def _weights(seed: int, *shape: int) -> Weights:
    drawn = draw_bits(np.arange(np.prod(shape), dtype=np.uint64), seed)
    return (draw_below(drawn, 0, 9) - 4).astype(np.float64).reshape(shape)


def credit_limit(customer: int) -> int:
    """Return what the lookup service says of a customer, in cents."""
    return 10_000 + 1_000 * (customer % 97)


def write_watch_list(directory: Path) -> None:
    """Write the list as Parquet."""
    names = watch_list()
    pq.write_table(pa.table({"watched": names}), directory / "watch-list.parquet")


def write_model(directory: Path) -> None:
    """Write the model as numpy saves it."""
    np.savez(directory / "model.npz", **make_model())  # type: ignore[arg-type]
