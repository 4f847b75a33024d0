"""The trace: raw events of workers as columns, from which the activity graph is made (sections 3.3 and 3.4).

One row is one event. `COLUMNS` is the Parquet and Arrow form, so that other engines can bring their traces:

    time_us      int64   microseconds since the epoch; rows in time order, within an instant in causal order
    worker       string  who did it (a thread, a slot, a driver): does one thing at a time
    kind         string  start, end (of an activity); send, receive (of a message)
    activity     string  one of `Activity`, in lower case with spaces
    correlation  int64   ties a send to its receive, unique for a pair of workers; 0 for activities
    remote       string  the other worker of a message; null for activities
    operator     string  the part of the dataflow it was done for; may be null
    phase        string  what exactly was done, where the activity type is too coarse; may be null
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import BadInput

Times = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class Activity(IntEnum):
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

    @property
    def label(self) -> str:
        """The name that people and files see."""
        return self.name.lower().replace("_", " ")


class Kind(IntEnum):
    """What an event marks on its worker's timeline."""

    START = 0
    END = 1
    SEND = 2
    RECEIVE = 3

    @property
    def label(self) -> str:
        """The name that people and files see."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, order=True)
class Work:
    """What an activity was done for: an operator, and the phase of its work."""

    operator: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    """Events in time order as columns; `worker`, `remote` and `work` index the name tables."""

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
        """The events from `low` up to `high`, sharing memory."""
        columns = {name: getattr(self, name)[low:high] for name in EVENT_COLUMNS}
        return replace(self, **columns)

    def taken(self, order: npt.NDArray[np.int64]) -> Trace:
        """The events at these places, in this order."""
        columns = {name: getattr(self, name)[order] for name in EVENT_COLUMNS}
        return replace(self, **columns)

    def in_time_order(self) -> Trace:
        """The same events sorted by time; events of one instant keep their order."""
        if len(self) < 2 or bool(np.all(self.time_us[1:] >= self.time_us[:-1])):
            return self
        return self.taken(np.argsort(self.time_us, kind="stable"))


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
    """The trace as an Arrow table of `COLUMNS`."""
    operators = _coded([work.operator for work in trace.works])
    phases = _coded([work.phase for work in trace.works])
    columns = [
        pa.array(trace.time_us),
        _dictionary(trace.worker, trace.workers),
        _dictionary(trace.kind, [kind.label for kind in Kind]),
        _dictionary(trace.activity, [activity.label for activity in Activity]),
        pa.array(trace.correlation),
        _dictionary(trace.remote, trace.workers),
        _dictionary(operators[0][trace.work], operators[1]),
        _dictionary(phases[0][trace.work], phases[1]),
    ]
    return pa.table(columns, schema=COLUMNS)


def from_table(table: pa.Table) -> Trace:
    """A trace from an Arrow table of `COLUMNS`; says which column or name cannot be used."""
    missing = [name for name in ("time_us", "worker", "kind", "activity") if name not in table.column_names]
    if missing:
        raise BadInput(f"a trace needs the column {missing[0]}; this one has {', '.join(table.column_names)}")
    worker, workers = _decoded(table, "worker")
    if len(worker) and int(worker.min()) < 0:
        # the compiled passes index by it, and do not look whether it is there
        raise BadInput("the trace column worker has a null; every event needs a worker")
    remote, remotes = _decoded(table, "remote")
    names = list(dict.fromkeys([*workers, *remotes]))
    place = {name: index for index, name in enumerate(names)}
    work, works = _works(table)
    return Trace(
        time_us=_integers(table, "time_us"),
        worker=worker,
        kind=_enumerated(table, "kind", [kind.label for kind in Kind]),
        activity=_enumerated(table, "activity", [activity.label for activity in Activity]),
        correlation=_integers(table, "correlation"),
        remote=_translated(remote, [place[name] for name in remotes]),
        work=work,
        workers=tuple(names),
        works=works,
    ).in_time_order()


def _coded(names: Sequence[str]) -> tuple[Indices, list[str]]:
    distinct = list(dict.fromkeys(names))
    place = {name: index for index, name in enumerate(distinct)}
    return np.array([place[name] for name in names], dtype=np.int32), distinct


def _dictionary(codes: npt.NDArray[np.integer], names: Sequence[str]) -> pa.Array:
    mask = codes < 0 if np.issubdtype(codes.dtype, np.signedinteger) else None
    indices = pa.array(codes.astype(np.int32, copy=False), mask=mask)
    return pa.DictionaryArray.from_arrays(indices, pa.array(list(names), pa.string()))


def _integers(table: pa.Table, name: str) -> Times:
    if name not in table.column_names:
        return np.zeros(table.num_rows, dtype=np.int64)
    return whole_numbers(table.column(name), name)


def whole_numbers(column: pa.ChunkedArray | pa.Array, name: str) -> Times:
    """The numbers of a column; one that holds anything else is named."""
    if column.null_count or not pa.types.is_integer(column.type):
        raise BadInput(f"the trace column {name} must hold whole numbers and no nulls")
    whole = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    return np.asarray(whole.to_numpy(), dtype=np.int64)


def _decoded(table: pa.Table, name: str) -> tuple[Indices, list[str]]:
    if name not in table.column_names:
        return np.full(table.num_rows, -1, dtype=np.int32), []
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.cast(pa.string()).dictionary_encode()
    merged = column.unify_dictionaries().combine_chunks()
    if isinstance(merged, pa.ChunkedArray):
        if merged.num_chunks == 0:
            return np.empty(0, dtype=np.int32), []
        merged = merged.chunk(0)
    codes = merged.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(codes, dtype=np.int32), [str(value) for value in merged.dictionary.to_pylist()]


def _translated(codes: Indices, places: Sequence[int]) -> Indices:
    return np.asarray(np.array([*places, -1], dtype=np.int32)[codes], dtype=np.int32)


def _enumerated(table: pa.Table, name: str, known: Sequence[str]) -> Codes:
    codes, names = _decoded(table, name)
    unknown = [value for value in names if value not in known]
    if unknown or (len(codes) and int(codes.min()) < 0):
        raise BadInput(f"the trace column {name} has {unknown[:1] or 'a null'}; known are {', '.join(known)}")
    return _translated(codes, [known.index(value) for value in names]).astype(np.uint8)


def _works(table: pa.Table) -> tuple[Indices, tuple[Work, ...]]:
    operator, operators = _decoded(table, "operator")
    phase, phases = _decoded(table, "phase")
    keys = (operator.astype(np.int64) + 1) * (len(phases) + 1) + phase + 1
    distinct, codes = np.unique(keys, return_inverse=True)
    names, labels = ["", *operators], ["", *phases]
    works = tuple(Work(names[int(key) // len(labels)], labels[int(key) % len(labels)]) for key in distinct)
    return codes.astype(np.int32), works or (Work(),)
