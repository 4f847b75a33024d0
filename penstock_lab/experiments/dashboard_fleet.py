"""Pages of a fleet of 100,000 applications: searched, sorted and turned by the server, also after a round."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

import numpy as np
import pyarrow as pa

from penstock.fleet.listing import NUMBERS, TEXTS
from penstock.fleet.places import STATUS, FleetDirectory
from penstock.fleet.records import BUCKETS
from penstock_lab.experiments.measurement import Row

APPLICATIONS = 100_000
TEAMS = 40
ROUNDS = 5
TIMES = 5
GIB = 1024.0**3


def write_round(directory: Path, now: float, seed: int) -> None:
    """Write how all applications stand, as the fleet's controller does after each of its rounds."""
    place, each = FleetDirectory(directory), APPLICATIONS // BUCKETS
    for bucket in range(BUCKETS):
        chance = np.random.default_rng([seed, bucket])
        names = [f"team{one % TEAMS}.job-{bucket * each + one:06}" for one in range(each)]
        held = chance.integers(1, 30, each)
        needed = np.maximum(1, held + chance.integers(-9, 4, each)).astype(float)
        columns = [
            names, now - 100 * chance.random(each), held, needed, 4.0 * held, 4 * np.minimum(needed, held),
            7 * GIB * held, 6 * GIB * needed, np.zeros(each), chance.random(each) > 0.99,
            np.zeros(each, dtype=np.int64),
        ]  # fmt: skip
        table = pa.Table.from_arrays([pa.array(column) for column in columns], schema=STATUS)
        place.write_status(bucket, table)


def time_pages(address: str, directory: Path) -> list[Row]:
    """Return for each kind of question the milliseconds of its page, the median and the longest."""
    asked = {
        "fleet: first page after a round": [_ask_after_round(address, directory, n) for n in range(ROUNDS)],
        "fleet: a name searched": [_ask(address, search=f"job-0{n}") for n in range(TIMES)],
        "fleet: another page": [_ask(address, page=1 + 300 * n) for n in range(TIMES)],
        "fleet: sorted by each column": [_ask(address, sort=sort) for sort in (*TEXTS, *NUMBERS)],
    }
    return [
        {"case": case, "median_ms": median(times), "longest_ms": max(times)} for case, times in asked.items()
    ]


def _ask_after_round(address: str, directory: Path, number: int) -> float:
    write_round(directory, time.time(), number)
    return _ask(address)


def _ask(address: str, **question: object) -> float:
    """Return the milliseconds until a page of the list is there."""
    begun = time.perf_counter()
    with build_opener(ProxyHandler({})).open(
        f"{address}fleet/rows?{urlencode(question)}", timeout=60
    ) as page:
        page.read()
    return 1000 * (time.perf_counter() - begun)
