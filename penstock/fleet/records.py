"""Windows that agents publish: how they are read, what may be wrong with them, and how they are packed.

What travels between Spark's tasks is a few large byte strings, not rows.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats
from penstock.dataflow.propagation import MOST_INSTANCES
from penstock.decide.sage.columns import SIZE
from penstock.decide.sage.metrics import METRICS
from penstock.errors import BadInput
from penstock.fleet.keys import FleetKey
from penstock.fleet.overrides import ORDERED_BY, ORDERS, Orders
from penstock.fleet.places import LONGEST_LINE
from penstock.units.texts import show_value

MEASURED = tuple(name for name in METRICS if name != "seconds")
"""Metrics that an agent reports; the length of a window follows from its ends."""
WINDOW = pa.schema(
    [
        ("application", pa.string()),
        ("start", pa.float64()),
        ("end", pa.float64()),
        *((f"held_{name}", pa.float64()) for name in SIZE),
        *((name, pa.float64()) for name in MEASURED),
        ("service_correlation", pa.float64()),
        ("acknowledged", pa.float64()),
    ]
)
"""One window of one application; what was not measured is NaN."""
DEAD = pa.schema([("reason", pa.string()), ("origin", pa.string()), ("record", pa.string())])
LONGEST_RECORD = 4_000
"""Characters of a bad record that are kept."""


@dataclass(frozen=True, slots=True)
class Read:
    """Good windows, and the bad records with the reason."""

    windows: pa.Table
    dead: pa.Table


def read_lines(
    lines: Sequence[bytes], origins: Sequence[str], latest: float = math.inf, key: FleetKey | None = None
) -> Read:
    """Read windows from JSON lines, each with its origin; one bad line costs no more than itself.

    A window that ends after `latest` is bad: it would make all later ones of its application look late.
    With a key only lines that are signed by the application that they name are parsed.
    """
    reasons: dict[int, str] = {}
    places: list[int] = []
    rows: list[tuple[Any, ...]] = []
    for place, line in enumerate(lines):
        if not line or line.isspace():
            continue
        try:
            # while the row is in the processor's cache
            rows.append(tuple(map(_parse_line(line, key).get, _NAMES)))
            places.append(place)
        except BadInput as error:
            reasons[place] = str(error)
    table, wrong = _tabulate(rows)
    fault = find_faults(table, latest)
    wrong = {row: FAULTS[fault[row]] for row in np.flatnonzero(fault >= 0).tolist()} | wrong
    if wrong:
        good = np.ones(len(rows), dtype=np.bool_)
        good[list(wrong)] = False
        table = table.filter(pa.array(good))
    reasons |= {places[row]: reason for row, reason in wrong.items()}
    bad = sorted(reasons)
    told = [reasons[place] for place in bad]
    return Read(table, dead(told, [origins[place] for place in bad], [lines[place] for place in bad]))


def _parse_line(line: bytes, key: FleetKey | None) -> dict[str, Any]:
    """Parse one line by itself: two objects in it, or half of one, are no window."""
    if len(line) > LONGEST_LINE:
        raise BadInput(f"a line of {len(line)} bytes is longer than {LONGEST_LINE}")
    text = line.strip()
    signer = key.find_signer(text) if key is not None else None
    try:
        row = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"not a window in JSON: {error}") from None
    if not isinstance(row, dict):
        raise BadInput("not a JSON object")
    if signer is not None and row.get("application") != signer:
        raise BadInput("the application is named twice, and differently")
    return row


def _tabulate(rows: Sequence[tuple[Any, ...]]) -> tuple[pa.Table, dict[int, str]]:
    """Return the rows as columns, and the rows of which a value is not of its column's type."""
    wrong: dict[int, str] = {}
    arrays = []
    for column, given in zip(WINDOW, zip(*rows, strict=True) if rows else [()] * len(WINDOW), strict=True):
        values = list(given)
        allowed = _TEXT if column.type == pa.string() else _NUMBER
        if not set(map(type, values)) <= allowed or not _are_in_range(values, allowed):
            found = [place for place, one in enumerate(values) if not _is_allowed(one, allowed)]
            for place in found:
                wrong[place] = (
                    f"not a window: {column.name} is {show_value(values[place])}, which is no {column.type}"
                )
                values[place] = None
        # numbers by way of numpy, which takes a fifth of the time
        numbers = allowed is _NUMBER
        arrays.append(pa.array(np.array(values, np.float64) if numbers else values, column.type))
    return pa.Table.from_arrays(arrays, schema=WINDOW), wrong


_NAMES = WINDOW.names
_TEXT: frozenset[type] = frozenset({str, type(None)})
_NUMBER: frozenset[type] = frozenset({int, float, type(None)})
_MOST_WHOLE = 2**53
"""Floats can count to here."""


def _are_in_range(values: Sequence[Any], allowed: frozenset[type]) -> bool:
    if allowed is _TEXT:
        return True
    whole = [one for one in values if type(one) is int]
    return not whole or (max(whole) <= _MOST_WHOLE and min(whole) >= -_MOST_WHOLE)


def _is_allowed(value: object, allowed: frozenset[type]) -> bool:
    return type(value) in allowed and (not isinstance(value, int) or abs(value) <= _MOST_WHOLE)


def refuse(reason: str, origin: str) -> Read:
    """Return no window, and one bad record that stands for a whole file."""
    return Read(WINDOW.empty_table(), dead([reason], [origin], [""]))


FAULTS = (
    "the application has no name, or one with a NUL in it",
    "the window does not end after its start",
    "a held size is one that no application can have",
    "a metric is negative or infinite, or larger than it can be",
    "the window ends in the future",
)


def find_faults(table: pa.Table, latest: float = math.inf) -> NDArray[np.int64]:
    """Return for each window the number of its first fault, or -1."""
    start, end = floats(table, "start"), floats(table, "end")
    signs = (
        _find_nameless(table["application"]),
        # the rules divide by the length, which is kept in 32 bits
        ~(((end - start).astype(np.float32) > 0) & np.isfinite(end) & np.isfinite(start)),
        _find_bad_sizes(sizes(table)),
        _find_bad_metrics(table),
        end > latest,
    )
    found = np.full(table.num_rows, -1, dtype=np.int64)
    for number in reversed(range(len(signs))):
        found[signs[number]] = number
    return found


def move_back(windows: pa.Table, now: float) -> pa.Table:
    """Move the windows of an application whose clock is ahead back as a whole, so that they end by now.

    Otherwise one that is a few seconds ahead would make the real ones after it look late.
    """
    ahead = floats(windows, "end") - now
    if not (ahead > 0).any():
        return windows
    names = pc.dictionary_encode(windows["application"].combine_chunks())
    names = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
    owner = np.asarray(names.indices, dtype=np.int64)
    most = np.zeros(len(names.dictionary))
    np.maximum.at(most, owner, ahead)
    for name in ("start", "end"):
        place = windows.schema.get_field_index(name)
        moved = pa.array(floats(windows, name) - most[owner])
        windows = windows.set_column(place, windows.schema.field(place), moved)
    return windows


def floats(table: pa.Table, name: str) -> Floats:
    """Return a column as floats; null is NaN."""
    values: Floats = table[name].to_numpy().astype(np.float64, copy=False)
    return values


def sizes(table: pa.Table) -> Floats:
    """Return what is held, one row a window."""
    return np.column_stack([floats(table, f"held_{name}") for name in SIZE])


def dead(reasons: Sequence[str], origins: Sequence[str], records: Sequence[bytes | str]) -> pa.Table:
    """Return bad records with their reasons."""
    # a character has up to four bytes
    begins = [text[: 4 * LONGEST_RECORD] for text in records]
    texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in begins]
    shown = [text[:LONGEST_RECORD] for text in texts]
    return pa.table([list(reasons), list(origins), shown], schema=DEAD)


def _find_nameless(names: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Find texts that are empty or have a NUL: PostgreSQL takes none, and the journal would stand still."""
    bad = pc.or_(pc.equal(pc.utf8_length(names), 0), pc.match_substring(names, "\0"))
    nameless: NDArray[np.bool_] = pc.fill_null(bad, True).to_numpy()
    return nameless


def _find_bad_sizes(held: Floats) -> NDArray[np.bool_]:
    parallelism, heap, overhead, fraction, cores, task_cpus, driver = held.T
    good: NDArray[np.bool_] = (
        (parallelism >= 1) & (heap > 0) & (overhead >= 0) & (fraction > 0) & (fraction < 1)
    )
    good &= (task_cpus >= 1) & (cores >= task_cpus) & ((driver > 0) | np.isnan(driver))
    # more than floats can count is none either, and what follows from it could not be written down
    good &= (held[:, :-1] <= MOST_INSTANCES).all(axis=1) & ~(driver > MOST_INSTANCES)
    for whole in (parallelism, cores, task_cpus):
        good &= whole == np.floor(whole)
    return np.logical_not(good)


def _find_bad_metrics(table: pa.Table) -> NDArray[np.bool_]:
    bad = np.zeros(table.num_rows, dtype=np.bool_)
    for name in MEASURED:
        values = floats(table, name)
        # 32-bit floats keep the history; what they cannot hold cannot be right either
        bad |= (values < 0) | (values > 3e38)
    return bad | (floats(table, "needed_parallelism") > MOST_INSTANCES)


BUCKETS = 16
"""Rows of columnar state; an application's bucket follows from its name alone and never changes."""
DEAD_BUCKET = -1
PACKED = pa.schema([("bucket", pa.int32()), ("payload", pa.binary())])


def find_bucket(application: str) -> int:
    """Return the bucket that an application's state is in."""
    return zlib.crc32(application.encode()) % BUCKETS


def pack(read: Read, orders: Orders) -> Iterator[tuple[int, bytes]]:
    """Yield bad records in a bucket of their own, and windows by application with its orders."""
    if read.dead.num_rows:
        yield DEAD_BUCKET, encode(read.dead)
    if not read.windows.num_rows:
        return
    names = read.windows["application"].to_pylist()
    windows = with_orders(read.windows, names, orders)
    buckets = np.fromiter((find_bucket(name) for name in names), np.int64, len(names))
    order = np.argsort(buckets, kind="stable")
    windows, buckets = windows.take(pa.array(order)), buckets[order]
    begins = np.flatnonzero(np.diff(buckets, prepend=-1))
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(buckets)], strict=True):
        yield int(buckets[begin]), encode(windows.slice(begin, end - begin))


def with_orders(windows: pa.Table, names: Sequence[str], orders: Orders) -> pa.Table:
    """Return the windows with pins and vetoes as bits, the forced rule with its number, and who said it."""
    columns = np.zeros((len(ORDERS), len(names)), dtype=np.int64)
    by: list[str | None] = [None] * len(names)
    for place, name in enumerate(names if orders else ()):
        if name in orders:
            *numbers, by[place] = orders[name]
            columns[:, place] = numbers
    for name, column in zip(ORDERS, columns, strict=True):
        windows = windows.append_column(name, pa.array(column))
    return windows.append_column(ORDERED_BY, pa.array(by, pa.string()))


def encode(table: pa.Table) -> bytes:
    """Return a table as one byte string."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table.combine_chunks())
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def decode(payloads: Sequence[bytes]) -> pa.Table:
    """Return the tables of several byte strings, one after the other."""
    return pa.concat_tables(pa.ipc.open_stream(payload).read_all() for payload in payloads)
