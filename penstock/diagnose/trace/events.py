"""The trace: events of workers as columns, from which the activity graph is built (sections 3.3 and 3.4).

One row is one event. `COLUMNS` is its Arrow and Parquet form, in which other engines can bring their traces:

    time_us      int64   microseconds since the epoch; rows in time order, within an instant in causal order
    worker       string  who did it (a thread, a slot, a driver): does one thing at a time
    kind         string  start, end (of an activity); send, receive (of a message)
    activity     string  one of `Activity`, in lower case with spaces
    correlation  int64   ties a send to its receive, unique for a pair of workers; 0 for activities
    remote       string  the other worker of a message; null for activities
    operator     string  the part of the dataflow it was done for; may be null
    phase        string  the step of the work, where the activity type is too coarse; may be null
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.diagnose.trace.merge import MOST_RUNS, Columns, find_runs, merge_runs
from penstock.errors import BadInput

Times = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
_LARGE_BYTES = 200_000_000
_FEW_KEYS = 1 << 16


class _Labelled(IntEnum):
    """A code with a name for people and files."""

    @property
    def label(self) -> str:
        """The name in lower case, with spaces."""
        return self.name.lower().replace("_", " ")


class Activity(_Labelled):
    """The activity types of section 3.3.1."""

    PROCESSING = 0
    SCHEDULING = 1
    BARRIER = 2
    BUFFER = 3
    SERIALIZATION = 4
    WAITING = 5
    IO = 6
    UNKNOWN = 7
    DATA_MESSAGE = 8
    CONTROL_MESSAGE = 9


class Kind(_Labelled):
    """The kind of an event on its worker's timeline."""

    START = 0
    END = 1
    SEND = 2
    RECEIVE = 3


@dataclass(frozen=True, slots=True, order=True)
class Work:
    """The operator that an activity worked for, and the phase of that work."""

    operator: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """Events in time order as columns; `worker`, `remote` and `work` index the tables of names."""

    time_us: Times
    worker: Indices
    kind: Codes
    activity: Codes
    correlation: Times
    remote: Indices
    work: Indices
    workers: tuple[str, ...]
    works: tuple[Work, ...]

    def __len__(self) -> int:
        return len(self.time_us)

    def rows(self, low: int, high: int) -> Trace:
        """Return the events from `low` up to `high`, sharing memory."""
        return self.take(slice(low, high))

    def take(self, places: slice | npt.NDArray[np.int64]) -> Trace:
        """Return the events at these places, in this order."""
        return replace(self, **{name: getattr(self, name)[places] for name in EVENT_COLUMNS})

    def in_time_order(self) -> Trace:
        """Return the events sorted by time; events of one instant keep their order.

        Runs that are in order already, such as one for each worker, are merged: that is faster than a sort.
        """
        bounds = find_runs(self.time_us)
        if len(bounds) == 2:
            return self
        span = float(self.time_us.max()) - float(self.time_us.min())
        if len(bounds) > MOST_RUNS or span >= 2**62:
            return self.take(np.argsort(self.time_us, kind="stable"))
        merged = merge_runs(Columns._make(getattr(self, name) for name in EVENT_COLUMNS), bounds)
        return Trace(*merged, self.workers, self.works)


EVENT_COLUMNS = ("time_us", "worker", "kind", "activity", "correlation", "remote", "work")
_NAMES = pa.dictionary(pa.int32(), pa.string())
COLUMNS = pa.schema(
    [
        ("time_us", pa.int64()),
        ("worker", _NAMES),
        ("kind", _NAMES),
        ("activity", _NAMES),
        ("correlation", pa.int64()),
        ("remote", _NAMES),
        ("operator", _NAMES),
        ("phase", _NAMES),
    ]
)


def to_table(trace: Trace) -> pa.Table:
    """Return the trace as an Arrow table of `COLUMNS`."""
    operators = _encode_names([work.operator for work in trace.works])
    phases = _encode_names([work.phase for work in trace.works])
    columns = [
        pa.array(trace.time_us),
        _to_dictionary(trace.worker, trace.workers),
        _to_dictionary(trace.kind, [kind.label for kind in Kind]),
        _to_dictionary(trace.activity, [activity.label for activity in Activity]),
        pa.array(trace.correlation),
        _to_dictionary(trace.remote, trace.workers),
        _to_dictionary(operators[0][trace.work], operators[1]),
        _to_dictionary(phases[0][trace.work], phases[1]),
    ]
    return pa.table(columns, schema=COLUMNS)


def from_table(table: pa.Table) -> Trace:
    """Return the trace in an Arrow table of `COLUMNS`; a refusal names the column or value."""
    missing = [name for name in ("time_us", "worker", "kind", "activity") if name not in table.column_names]
    if missing:
        raise BadInput(f"a trace needs the column {missing[0]}; this one has {', '.join(table.column_names)}")
    worker, remote = _read_names(table, "worker"), _read_names(table, "remote")
    if worker.has_nulls:
        # the compiled passes index by worker without a check
        raise BadInput("the trace column worker has a null; every event needs a worker")
    names = list(dict.fromkeys([*worker.names, *remote.names]))
    place = {name: index for index, name in enumerate(names)}
    work, works = _decode_works(table)
    return Trace(
        time_us=_read_integers(table, "time_us"),
        worker=worker.translate([place[name] for name in worker.names], np.int32),
        kind=_decode_enumeration(table, "kind", [kind.label for kind in Kind]),
        activity=_decode_enumeration(table, "activity", [activity.label for activity in Activity]),
        correlation=_read_integers(table, "correlation"),
        remote=remote.translate([place[name] for name in remote.names], np.int32),
        work=work,
        workers=tuple(names),
        works=works,
    ).in_time_order()


def _encode_names(names: Sequence[str]) -> tuple[Indices, list[str]]:
    distinct = list(dict.fromkeys(names))
    place = {name: index for index, name in enumerate(distinct)}
    return np.array([place[name] for name in names], dtype=np.int32), distinct


def _to_dictionary(codes: npt.NDArray[np.integer], names: Sequence[str]) -> pa.Array:
    mask = codes < 0 if np.issubdtype(codes.dtype, np.signedinteger) else None
    indices = pa.array(codes.astype(np.int32, copy=False), mask=mask)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(names), pa.string()))


def _read_integers(table: pa.Table, name: str) -> Times:
    if name not in table.column_names:
        return np.zeros(table.num_rows, dtype=np.int64)
    return read_whole_numbers(table.column(name), name)


def read_whole_numbers(column: pa.ChunkedArray | pa.Array, name: str) -> Times:
    """Return the numbers of a column; refuse one that holds anything else."""
    if column.null_count or not pa.types.is_integer(column.type):
        raise BadInput(f"the trace column {name} must hold whole numbers and no nulls")
    whole = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    return np.asarray(whole.to_numpy(), dtype=np.int64)


class _Names(NamedTuple):
    """A column of names: their codes, a bit for each that is not null (or nothing), and the names."""

    codes: Indices
    valid: Codes
    first_bit: int
    names: list[str]
    has_nulls: bool

    def translate(self, places: Sequence[int], kind: npt.DTypeLike, null: int = -1) -> npt.NDArray[Any]:
        """Return for each row what stands in `places` for its name."""
        found = np.empty(len(self.codes), dtype=kind)
        table = np.array([*places, null]).astype(kind)
        _translate_codes(self.codes, self.valid, self.first_bit, table, found)
        return found


@numba.njit(cache=True)
def _translate_codes(
    codes: Indices, valid: Codes, first_bit: int, table: npt.NDArray[Any], found: npt.NDArray[Any]
) -> None:
    """Fill in the value of each code, and the last one where its bit is not set."""
    null, has_bits = table[len(table) - 1], len(valid) > 0
    for i in range(len(codes)):
        bit = np.uint64(i + first_bit)
        if has_bits and not valid[bit >> np.uint64(3)] >> (bit & np.uint64(7)) & 1:
            found[i] = null
        else:
            found[i] = table[np.uint32(codes[i])]


def _read_names(table: pa.Table, name: str) -> _Names:
    none = np.empty(0, dtype=np.uint8)
    if name not in table.column_names:
        rows = table.num_rows
        return _Names(np.zeros(rows, np.int32), np.zeros(rows // 8 + 1, np.uint8), 0, [], rows > 0)
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    if not len(column):
        return _Names(np.empty(0, np.int32), none, 0, [], False)
    merged = column.unify_dictionaries().combine_chunks()
    if isinstance(merged, pa.ChunkedArray):
        merged = merged.chunk(0)
    indices, names = merged.indices.cast(pa.int32()), [str(value) for value in merged.dictionary.to_pylist()]
    bits, codes = indices.buffers()
    first, rows = indices.offset, len(indices)
    valid = np.frombuffer(bits, np.uint8) if bits is not None and indices.null_count else none
    return _Names(np.frombuffer(codes, np.int32)[first : first + rows], valid, first, names, len(valid) > 0)


def _decode_enumeration(table: pa.Table, name: str, known: Sequence[str]) -> Codes:
    found = _read_names(table, name)
    unknown = [value for value in found.names if value not in known]
    if unknown or found.has_nulls:
        raise BadInput(f"the trace column {name} has {unknown[:1] or 'a null'}; known are {', '.join(known)}")
    return found.translate([known.index(value) for value in found.names], np.uint8, null=0)


def _decode_works(table: pa.Table) -> tuple[Indices, tuple[Work, ...]]:
    operator, phase = _read_names(table, "operator"), _read_names(table, "phase")
    names, labels = ["", *operator.names], ["", *phase.names]
    keys = operator.translate([place * len(labels) for place in range(1, len(names))], np.int64, null=0)
    keys += phase.translate(range(1, len(labels)), np.int64, null=0)
    distinct, codes = number_keys(keys, len(names) * len(labels))
    works = tuple(Work(names[int(key) // len(labels)], labels[int(key) % len(labels)]) for key in distinct)
    return codes, works or (Work(),)


def number_keys(keys: Times, size: int) -> tuple[Times, Indices]:
    """Return the distinct keys, rising, and the place of each key among them; keys are 0 up to `size`."""
    if size > max(len(keys), _FEW_KEYS):
        distinct, codes = np.unique(keys, return_inverse=True)
        return distinct, codes.astype(np.int32)
    is_used = np.zeros(size, dtype=np.bool_)
    _mark_keys(keys, is_used)
    return np.nonzero(is_used)[0], _place_keys(keys, np.cumsum(is_used) - 1)


@numba.njit(cache=True)
def _mark_keys(keys: Times, is_used: npt.NDArray[np.bool_]) -> None:
    for i in range(len(keys)):
        is_used[np.uint64(keys[i])] = True


@numba.njit(cache=True)
def _place_keys(keys: Times, places: Times) -> Indices:
    found = np.empty(len(keys), dtype=np.int32)
    for i in range(len(keys)):
        found[i] = places[np.uint64(keys[i])]
    return found


@contextmanager
def refuse_unreadable(path: Path) -> Iterator[None]:
    """Name the file that cannot be read as Parquet."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowKeyError, OSError) as error:
        raise BadInput(f"{path}: is not a Parquet trace ({error})") from error


def is_trace(path: Path) -> bool:
    """Return whether this is a Parquet file or a directory with one."""
    return path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet")))


def find_trace_files(path: Path) -> list[Path]:
    """Return the file itself, or all Parquet files of a directory."""
    return sorted(path.glob("*.parquet")) if path.is_dir() else [path]


def read_trace(path: Path) -> Trace:
    """Return the trace in a Parquet file, or in all files of a directory."""
    with refuse_unreadable(path):
        table = pq.read_table(path)
    trace, size = from_table(table), table.nbytes
    del table
    # Arrow's pool keeps the memory for another table; to give back a small one costs more than it gains.
    if size > _LARGE_BYTES:
        pa.default_memory_pool().release_unused()
    return trace


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace to one Parquet file."""
    try:
        pq.write_table(to_table(trace), path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written ({error.strerror or error})") from error
