"""Functions at work on a worker: batch by batch, key by key, and record by record around failures.

A record that makes the function raise, exit, or run longer than its timeout, becomes a dead letter; all
others are served. Such a record is found by halving the batch, so a function may be called again with records
that it has seen. What it returns must have the topic's columns: a wrong schema is the function's mistake, not
the record's, and is raised.
"""

from __future__ import annotations

import base64
import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import BadInput
from penstock.pipeline.timestamps import ENTERED

LONGEST_ERROR = 2000
"""Characters kept of an exception's text."""

OUTCOME, RECORD, ERROR = "penstock_outcome", "penstock_record", "penstock_error"
SERVED, DEAD = "served", "dead.{}"
"""Outcomes: a dead record's has the name of the function that it made fail."""


class WrongSchema(BadInput):
    """A function returned something else than the columns of the topic that it writes."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be served, as JSON, and why."""

    record: str
    error: str
    function: str


@dataclass(slots=True)
class Served:
    """The result of one batch: tables for the topic, and dead letters."""

    tables: list[pa.Table] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Server:
    """Calls one function; `schema` is that of the topic it writes, None if it writes none."""

    function: str
    call: Callable[[Any], Any]
    arrow: bool
    schema: pa.Schema | None
    timeout: float | None = None

    def serve(self, batch: pa.RecordBatch) -> Served:
        """Return all records of a batch, each once among the results or the dead letters."""
        served = Served()
        self._serve(batch, served)
        return served

    def _serve(self, batch: pa.RecordBatch, served: Served) -> None:
        try:
            with time_limit(self.timeout):
                result = self.call(batch if self.arrow else batch.to_pandas())
        except (Exception, SystemExit) as problem:
            if len(batch) > 1:
                half = len(batch) // 2
                self._serve(batch.slice(0, half), served)
                self._serve(batch.slice(half), served)
            else:
                served.dead.append(write_letter(self.function, batch, problem))
            return
        if self.schema is not None:
            served.tables.append(conform(self.function, result, self.schema))


def conform(function: str, result: Any, schema: pa.Schema) -> pa.Table:
    """Cast the result to the schema's columns and types; WrongSchema names function and column."""
    table = as_table(function, result)
    unknown = [name for name in table.column_names if name not in schema.names]
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise WrongSchema(f"function {function!r} returned no column {missing[0]!r}")
    if unknown:
        raise WrongSchema(f"function {function!r} returned the column {unknown[0]!r}, which its topic lacks")
    return pa.Table.from_arrays([_column(function, table, wanted) for wanted in schema], schema=schema)


def _column(function: str, table: pa.Table, wanted: pa.Field) -> pa.ChunkedArray:
    column = table.column(wanted.name)
    try:
        # pandas counts nanoseconds and Spark microseconds: what is finer is cut off, and no mistake
        return column.cast(wanted.type, safe=not pa.types.is_timestamp(wanted.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise WrongSchema(
            f"function {function!r} returned {column.type} in column {wanted.name!r}, not {wanted.type}"
        ) from None


def as_table(function: str, result: Any) -> pa.Table:
    """Return what a function returned, as Arrow; WrongSchema if it is no batch of records."""
    if isinstance(result, pa.Table):
        return result
    if isinstance(result, pa.RecordBatch):
        return pa.Table.from_batches([result])
    import pandas as pd

    if isinstance(result, pd.DataFrame):
        try:
            return pa.Table.from_pandas(result, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise WrongSchema(f"function {function!r} returned a mixed column: {error}") from None
    raise WrongSchema(f"function {function!r} returned {type(result).__name__}, not a batch of records")


def write_letter(function: str, record: pa.RecordBatch, problem: BaseException) -> DeadLetter:
    """Write the dead letter of the only record of a batch."""
    text = json.dumps(record.to_pylist()[0], default=_write_value)
    return DeadLetter(text, f"{type(problem).__name__}: {problem}"[:LONGEST_ERROR], function)


def _write_value(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def mark_outcomes(
    served: Served, schema: pa.Schema, entered: float | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield results and dead letters in one shape, told apart by the column of the outcome.

    Results go on with the moment at which the records that they were made of had entered the pipeline.
    """
    shape = with_outcome(schema)
    for table in served.tables:
        nothing = pa.nulls(len(table), pa.string())
        columns = [table.column(name) for name in schema.names]
        columns += [pa.array([SERVED] * len(table), pa.string()), nothing, nothing]
        columns.append(pa.array([entered] * len(table), pa.float64()))
        yield from pa.Table.from_arrays(columns, schema=shape).combine_chunks().to_batches()
    if served.dead:
        told = [(DEAD.format(one.function), one.record, one.error) for one in served.dead]
        columns = [pa.nulls(len(told), one.type) for one in schema]
        columns += [pa.array(column, pa.string()) for column in zip(*told, strict=True)]
        columns.append(pa.nulls(len(told), pa.float64()))
        yield pa.RecordBatch.from_arrays(columns, schema=shape)


def with_outcome(schema: pa.Schema) -> pa.Schema:
    """Return the schema of results and dead letters together; results may be null where a record has died."""
    fields = [pa.field(one.name, one.type) for one in schema]
    texts = (pa.field(name, pa.string()) for name in (OUTCOME, RECORD, ERROR))
    return pa.schema([*fields, *texts, pa.field(ENTERED, pa.float64())])


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeoutError in the block after so long; only the main thread of a process can be interrupted."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"the call took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


State = tuple[Any, ...]
KeyedCall = Callable[[tuple[Any, ...], Any, State | None], tuple[Any, State | None]]
"""(key, pandas DataFrame, state or None) in, (pandas DataFrame, new state or None to forget the key) out."""


@dataclass(frozen=True, slots=True)
class KeyedServer:
    """Calls one keyed function; a record that fails leaves the state as it was."""

    function: str
    call: KeyedCall
    schema: pa.Schema | None
    timeout: float | None = None

    def serve(self, key: tuple[Any, ...], frame: Any, state: State | None) -> tuple[Served, State | None]:
        """Return all records of a key; where they fail together, one after the other."""
        served = Served()
        state, failed = self._try(key, frame, state, served)
        for number in range(len(frame)) if failed is not None else ():
            single, problem = frame.iloc[number : number + 1], failed
            if len(frame) > 1:
                state, problem = self._try(key, single, state, served)
            if problem is not None:
                record = pa.RecordBatch.from_pandas(single, preserve_index=False)
                served.dead.append(write_letter(self.function, record, problem))
        return served, state

    def _try(
        self, key: tuple[Any, ...], frame: Any, state: State | None, served: Served
    ) -> tuple[State | None, BaseException | None]:
        try:
            with time_limit(self.timeout):
                result, after = self.call(key, frame, state)
        except (Exception, SystemExit) as problem:
            return state, problem
        if self.schema is not None and result is not None:
            served.tables.append(conform(self.function, result, self.schema))
        return after, None
