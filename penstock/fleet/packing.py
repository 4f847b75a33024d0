"""Many windows in one value: what travels between Spark's tasks is a few large byte strings, not rows."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.decide.sage_metrics import Overrides
from penstock.fleet.records import Read
from penstock.fleet.round import ORDERED_BY, ORDERS

BUCKETS = 16
"""Rows of columnar state; an application's bucket follows from its name alone and never changes."""
DEAD_BUCKET = -1
PACKED = pa.schema([("bucket", pa.int32()), ("payload", pa.binary())])


def bucket_of(application: str) -> int:
    """The bucket that an application's state is in."""
    return zlib.crc32(application.encode()) % BUCKETS


def pack(read: Read, overrides: Mapping[str, tuple[Overrides, int]]) -> Iterator[tuple[int, bytes]]:
    """Bad records in a bucket of their own, windows by application, with what operators said of it."""
    if read.dead.num_rows:
        yield DEAD_BUCKET, encode(read.dead)
    if not read.windows.num_rows:
        return
    names = read.windows["application"].to_pylist()
    windows = with_orders(read.windows, names, overrides)
    buckets = np.fromiter((bucket_of(name) for name in names), np.int64, len(names))
    order = np.argsort(buckets, kind="stable")
    windows, buckets = windows.take(pa.array(order)), buckets[order]
    begins = np.flatnonzero(np.diff(buckets, prepend=-1))
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(buckets)], strict=True):
        yield int(buckets[begin]), encode(windows.slice(begin, end - begin))


def with_orders(
    windows: pa.Table, names: Sequence[str], overrides: Mapping[str, tuple[Overrides, int]]
) -> pa.Table:
    """The windows with pins and vetoes as bits, the forced rule with its number, and who said it."""
    columns = np.zeros((len(ORDERS), len(names)), dtype=np.int64)
    by = pa.nulls(len(names), pa.string())
    if overrides:
        by = pa.array([overrides[name][0].by if name in overrides else None for name in names], pa.string())
        for place, name in enumerate(names):
            if name in overrides:
                said, force_id = overrides[name]
                columns[:, place] = (
                    sum(1 << int(parameter) for parameter in said.pinned),
                    sum(1 << int(rule) for rule in said.vetoed),
                    int(said.forced),
                    force_id,
                )
    for name, column in zip(ORDERS, columns, strict=True):
        windows = windows.append_column(name, pa.array(column))
    return windows.append_column(ORDERED_BY, by)


def encode(table: pa.Table) -> bytes:
    """A table as one byte string."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table.combine_chunks())
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def decode(payloads: Sequence[bytes]) -> pa.Table:
    """The tables of several byte strings, one after the other."""
    return pa.concat_tables(pa.ipc.open_stream(payload).read_all() for payload in payloads)
