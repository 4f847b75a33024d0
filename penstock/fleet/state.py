"""The controller's memory of many applications between rounds, in columns (pure)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats, Integers
from penstock.decide.sage.columns import CORRELATION, SIZE
from penstock.decide.sage.metrics import METRICS

SAMPLES = 32
"""Samples kept of each application: the long window of five minutes at one sample in ten seconds."""
_VERSION = b"penstock-fleet-2"
_SAMPLES_FIRST = b"penstock-fleet-1"
"""Its histories are (application, sample, metric)."""


@dataclass(frozen=True, slots=True)
class FleetState:
    """One row an application; arrays are changed in place by a round and never shared between states."""

    names: pa.StringArray
    at: Floats
    history: NDArray[np.float32]
    held: Floats
    too_small: Floats
    fresh_after: Floats
    in_flight: Integers
    """The decision that was sent and not yet acknowledged; 0 is none."""
    in_flight_until: Floats
    forced: Integers
    """The last force that was obeyed, so that it is obeyed once."""
    correlation: Floats
    acknowledged: Integers

    @property
    def newest(self) -> Floats:
        """When the newest sample of each application ended."""
        return self.at[:, -1]


def empty_state() -> FleetState:
    """Return the state before the first window: no application is known."""
    return _blank(pa.array([], pa.string()))


def _blank(names: pa.StringArray) -> FleetState:
    count = len(names)

    def integers() -> Integers:
        return np.zeros(count, dtype=np.int64)

    return FleetState(
        names,
        at=np.full((count, SAMPLES), -np.inf),
        history=np.full((count, len(METRICS), SAMPLES), np.nan, dtype=np.float32),
        held=np.full((count, len(SIZE)), np.nan),
        too_small=np.zeros((count, CORRELATION)),
        fresh_after=np.full(count, -np.inf),
        in_flight=integers(),
        in_flight_until=np.full(count, -np.inf),
        forced=integers(),
        correlation=np.full(count, np.nan),
        acknowledged=integers(),
    )


def add_applications(state: FleetState, names: pa.StringArray) -> tuple[FleetState, Integers]:
    """Return the state with all these applications in it, and the row of each."""
    known = pc.index_in(names, value_set=state.names)
    if known.null_count:
        new = pc.unique(names.filter(pc.is_null(known)))
        state = _join(state, _blank(new))
        known = pc.index_in(names, value_set=state.names)
    return state, np.asarray(known, dtype=np.int64)


def _join(one: FleetState, other: FleetState) -> FleetState:
    columns = {
        name: np.concatenate([getattr(one, name), getattr(other, name)])
        for name in FleetState.__slots__
        if name != "names"
    }
    return FleetState(pa.concat_arrays([one.names, other.names]), **columns)


def push_samples(
    state: FleetState, rows: Integers, at: Floats, samples: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Add one sample to each of these rows; one that is not newer than what is there changes nothing.

    A row may come several times, oldest first. Says which samples were taken.
    """
    taken = np.zeros(len(rows), dtype=np.bool_)
    turn = _turns(rows)
    for number in range(int(turn.max(initial=-1)) + 1):
        now = np.flatnonzero(turn == number)
        now = now[at[now] > state.at[rows[now], -1]]
        _append(state, rows[now], at[now], samples[now])
        taken[now] = True
    return taken


def _turns(rows: Integers) -> Integers:
    """Return for each entry how often its row came before."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    turns = np.empty(len(rows), dtype=np.int64)
    turns[order] = np.arange(len(rows)) - np.repeat(begins, np.diff(np.append(begins, len(rows))))
    return turns


def _append(state: FleetState, rows: Integers, at: Floats, samples: NDArray[np.float32]) -> None:
    """Add one sample to each of these rows, which come once each; the oldest sample is dropped."""
    everyone = len(rows) == len(state.at)
    chosen: slice | Integers = slice(None) if everyone else rows
    state.at[chosen, :-1] = state.at[chosen, 1:]
    state.history[chosen, :, :-1] = state.history[chosen, :, 1:]
    state.at[rows, -1] = at
    state.history[rows, :, -1] = samples


def to_bytes(state: FleetState) -> bytes:
    """Return the state as one value for Spark's state store."""
    arrays = [state.names]
    names = ["names"]
    for name in FleetState.__slots__:
        column = getattr(state, name)
        if name != "names":
            flat = pa.array(np.ascontiguousarray(column).reshape(-1))
            width = column[0].size if len(column) else 1
            arrays.append(flat if column.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, width))
            names.append(name)
    batch = pa.RecordBatch.from_arrays(arrays, names=names).replace_schema_metadata({b"v": _VERSION})
    sink = pa.BufferOutputStream()
    # a fleet's metrics repeat from window to window; what is smaller costs less on its way through Spark
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    stored: bytes = sink.getvalue().to_pybytes()
    return stored


def from_bytes(stored: bytes) -> FleetState:
    """Return the state as it was stored; the arrays can be changed."""
    batch = pa.ipc.open_stream(stored).read_next_batch()
    earlier = (batch.schema.metadata or {}).get(b"v") == _SAMPLES_FIRST
    state = _blank(batch["names"])
    columns = {}
    for name in FleetState.__slots__:
        if name != "names":
            column, like = batch[name], getattr(state, name)
            values = np.array(column.flatten() if like.ndim > 1 else column, dtype=like.dtype)
            if name == "history":
                columns[name] = _fill_history(like, values, earlier)
            else:
                columns[name] = _fill(like, values)
    return replace(state, **columns)


def _fill_history(blank: NDArray[np.float32], values: NDArray[np.float32], earlier: bool) -> NDArray[Any]:
    """Return the stored histories in their shape; metrics that were not stored stay blank."""
    count, _, samples = blank.shape
    stored = values.reshape(count, samples, -1).transpose(0, 2, 1) if earlier else values
    stored = stored.reshape(count, -1, samples) if count else blank
    if stored.shape == blank.shape:
        return np.ascontiguousarray(stored)
    blank[:, : stored.shape[1]] = stored
    return blank


def _fill(blank: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """Return the stored values in their shape; what an earlier version did not store stays blank."""
    if values.size == blank.size:
        return values.reshape(blank.shape)
    stored = values.reshape(*blank.shape[:-1], -1)
    blank[..., : stored.shape[-1]] = stored
    return blank
