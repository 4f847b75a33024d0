"""Windows that agents publish: their columns, how they are read, and what may be wrong with them."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json
import pyarrow.parquet as pq
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats
from penstock.dataflow.propagation import MOST_INSTANCES
from penstock.decide.sage_metrics import METRICS
from penstock.fleet.operators import OperatorColumns
from penstock.fleet.sage_columns import SIZE

OPERATOR = pa.struct(
    [
        ("name", pa.string()),
        ("true_processing", pa.float64()),
        ("true_output", pa.float64()),
        ("instances", pa.int64()),
        ("scalable", pa.bool_()),
        ("offered", pa.float64()),
        ("observed", pa.float64()),
        ("backlog", pa.float64()),
        ("upstream", pa.list_(pa.int64())),
    ]
)
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
        ("slots_per_executor", pa.int64()),
        ("acknowledged", pa.int64()),
        ("operators", pa.list_(OPERATOR)),
    ]
)
"""One window of one application; what was not measured is null."""
DEAD = pa.schema([("reason", pa.string()), ("origin", pa.string()), ("record", pa.string())])
LONGEST_RECORD = 4_000
"""Characters of a bad record that are kept."""


@dataclass(frozen=True, slots=True)
class Read:
    """What could be read: good windows, and the bad records with the reason."""

    windows: pa.Table
    dead: pa.Table


def read_lines(lines: Sequence[bytes], origins: Sequence[str], latest: float = math.inf) -> Read:
    """Windows from JSON lines, each with its origin; one bad line costs no more than itself.

    A window that ends after `latest` is bad: it would make all later ones of its application look late.
    """
    kept = [(line, origin) for line, origin in zip(lines, origins, strict=True) if line.strip()]
    # Arrow takes whatever JSON there is for a row, and a block of nothing but nulls kills the process
    strange = [one for one in kept if not one[0].lstrip().startswith(b"{")]
    objects = [one for one in kept if one[0].lstrip().startswith(b"{")] if strange else kept
    others = [origin for _, origin in strange], [line for line, _ in strange]
    read = Read(WINDOW.empty_table(), dead(["not a JSON object"] * len(strange), *others))
    if not objects:
        return read
    found = _halved([line for line, _ in objects], [origin for _, origin in objects], latest)
    return Read(found.windows, pa.concat_tables([found.dead, read.dead]))


def read_parquet(content: bytes, origin: str, latest: float = math.inf) -> Read:
    """Windows from one Parquet file; one that cannot be read is one bad record."""
    try:
        found = pq.read_table(io.BytesIO(content))
        columns = [_column(found, field) for field in WINDOW]
        table = _sound(pa.Table.from_arrays(columns, schema=WINDOW))
    except (pa.ArrowException, OSError, ValueError) as error:
        return Read(WINDOW.empty_table(), dead([f"not a Parquet file of windows: {error}"], [origin], [""]))
    return checked(table, [origin] * table.num_rows, latest=latest)


def checked(
    table: pa.Table, origins: Sequence[str], texts: Sequence[bytes] | None = None, latest: float = math.inf
) -> Read:
    """Set aside the windows that make no sense, each with its first fault."""
    fault = faults(table, latest)
    bad = np.flatnonzero(fault >= 0).tolist()
    if not bad:
        return Read(table, DEAD.empty_table())
    reasons = [FAULTS[fault[row]] for row in bad]
    said = [texts[row] if texts is not None else _as_text(table, row) for row in bad]
    return Read(table.filter(pa.array(fault < 0)), dead(reasons, [origins[row] for row in bad], said))


FAULTS = (
    "the application has no name, or one with a NUL in it",
    "the window does not end after its start",
    "a held size is one that no application can have",
    "a metric is negative or infinite, or larger than it can be",
    "the operators are not in topological order",
    "the window ends in the future",
)


def faults(table: pa.Table, latest: float = math.inf) -> NDArray[np.int64]:
    """For each window the number of its first fault, or -1."""
    start, end = floats(table, "start"), floats(table, "end")
    signs = (
        _nameless(table["application"]),
        # the rules divide by the length, which is kept in 32 bits
        ~(((end - start).astype(np.float32) > 0) & np.isfinite(end) & np.isfinite(start)),
        _bad_sizes(sizes(table)),
        _bad_metrics(table),
        _bad_operators(table),
        end > latest,
    )
    found = np.full(table.num_rows, -1, dtype=np.int64)
    for number in reversed(range(len(signs))):
        found[signs[number]] = number
    return found


def floats(table: pa.Table, name: str) -> Floats:
    """A column as floats; null is NaN."""
    values: Floats = table[name].to_numpy().astype(np.float64, copy=False)
    return values


def sizes(table: pa.Table) -> Floats:
    """What is held, one row a window."""
    return np.column_stack([floats(table, f"held_{name}") for name in SIZE])


def operator_columns(table: pa.Table) -> OperatorColumns:
    """The operators of all windows in flat columns, without a copy where Arrow allows it."""
    lists = _chunk(table["operators"])
    first = np.asarray(lists.offsets, dtype=np.int64)
    values = lists.values.slice(first[0], first[-1] - first[0])
    columns = dict(zip((field.name for field in OPERATOR), values.flatten(), strict=True))
    feeds = columns["upstream"]
    feeds = pc.fill_null(feeds, pa.scalar([], pa.list_(pa.int64())))
    feeds_first = np.asarray(feeds.offsets, dtype=np.int64)
    upstream = np.asarray(feeds.values.slice(feeds_first[0], feeds_first[-1] - feeds_first[0]))

    def numbers(name: str) -> Floats:
        return np.asarray(columns[name].to_numpy(zero_copy_only=False), dtype=np.float64)

    return OperatorColumns(
        first - first[0],
        numbers("true_processing"),
        numbers("true_output"),
        np.asarray(pc.fill_null(columns["instances"], 0), dtype=np.int64),
        np.asarray(pc.fill_null(columns["scalable"], True), dtype=np.bool_),
        numbers("offered"),
        numbers("observed"),
        numbers("backlog"),
        feeds_first - feeds_first[0],
        upstream.astype(np.int64, copy=False),
    )


def dead(reasons: Sequence[str], origins: Sequence[str], records: Sequence[bytes | str]) -> pa.Table:
    """Bad records with their reasons."""
    texts = [text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in records]
    shown = [text[:LONGEST_RECORD] for text in texts]
    return pa.table([list(reasons), list(origins), shown], schema=DEAD)


def _parsed(lines: Sequence[bytes]) -> pa.Table:
    options = pa_json.ParseOptions(explicit_schema=WINDOW, unexpected_field_behavior="ignore")
    block = pa_json.ReadOptions(use_threads=False, block_size=max(1 << 20, sum(map(len, lines)) + len(lines)))
    table = pa_json.read_json(io.BytesIO(b"\n".join(lines)), read_options=block, parse_options=options)
    return _sound(table.select(WINDOW.names).cast(WINDOW))


def _sound(table: pa.Table) -> pa.Table:
    """The table, if its texts are ones: Arrow reads bytes that are no UTF-8, and fails when they are used."""
    table.validate(full=True)
    return table


def _halved(lines: Sequence[bytes], origins: Sequence[str], latest: float) -> Read:
    """All lines at once; where that fails each half by itself, so that good ones are still read together."""
    try:
        table = _parsed(lines)
        # a record with a line break inside would shift all that follow it
        if table.num_rows == len(lines):
            return checked(table, origins, lines, latest)
        fault = "not a single JSON object"
    except pa.ArrowException as error:
        fault = str(error)
    if len(lines) == 1:
        return Read(WINDOW.empty_table(), dead([f"not a window in JSON: {fault}"], origins, lines))
    middle = len(lines) // 2
    first = _halved(lines[:middle], origins[:middle], latest)
    second = _halved(lines[middle:], origins[middle:], latest)
    windows = pa.concat_tables([first.windows, second.windows])
    return Read(windows, pa.concat_tables([first.dead, second.dead]))


def _column(found: pa.Table, field: pa.Field) -> Any:
    if field.name in found.column_names:
        return found[field.name].cast(field.type)
    return pa.nulls(found.num_rows, field.type)


def _as_text(table: pa.Table, row: int) -> bytes:
    return orjson.dumps(table.slice(row, 1).to_pylist()[0])


def _chunk(column: pa.ChunkedArray) -> pa.ListArray:
    """One array; a window without operators has an empty list of them."""
    whole = column.combine_chunks()
    whole = whole.chunk(0) if isinstance(whole, pa.ChunkedArray) and whole.num_chunks else whole
    if isinstance(whole, pa.ChunkedArray):
        return pa.array([], type=column.type)
    return pc.fill_null(whole, pa.scalar([], column.type)) if whole.null_count else whole


def _nameless(names: pa.ChunkedArray) -> NDArray[np.bool_]:
    """PostgreSQL takes no NUL in a text: the journal would stand still before such a decision for good."""
    bad = pc.or_(pc.equal(pc.utf8_length(names), 0), pc.match_substring(names, "\0"))
    nameless: NDArray[np.bool_] = pc.fill_null(bad, True).to_numpy()
    return nameless


def _bad_sizes(held: Floats) -> NDArray[np.bool_]:
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


def _bad_metrics(table: pa.Table) -> NDArray[np.bool_]:
    bad = np.zeros(table.num_rows, dtype=np.bool_)
    for name in MEASURED:
        values = floats(table, name)
        # 32-bit floats keep the history; what they cannot hold cannot be right either
        bad |= (values < 0) | (values > 3e38)
    return bad | (floats(table, "needed_parallelism") > MOST_INSTANCES)


def _bad_operators(table: pa.Table) -> NDArray[np.bool_]:
    columns = operator_columns(table)
    sizes_of = np.diff(columns.first)
    place = np.arange(len(columns.instances)) - np.repeat(columns.first[:-1], sizes_of)
    target = np.repeat(place, np.diff(columns.upstream_first))
    wrong = (columns.upstream < 0) | (columns.upstream >= target)
    begins = np.zeros(len(columns.upstream) + 1, dtype=np.bool_)
    begins[columns.upstream_first] = True
    wrong[1:] |= (np.diff(columns.upstream) <= 0) & ~begins[1:-1]
    owner = np.repeat(np.repeat(np.arange(table.num_rows), sizes_of), np.diff(columns.upstream_first))
    bad = np.zeros(table.num_rows, dtype=np.bool_)
    bad[owner[wrong]] = True
    return bad
