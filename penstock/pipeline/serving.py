"""How a function is called on a worker: batch by batch, and record by record around those that fail.

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

LONGEST_ERROR = 2000
"""Characters kept of an exception's text."""

OUTCOME, RECORD, ERROR = "penstock_outcome", "penstock_record", "penstock_error"
SERVED, DEAD = "served", "dead"


class WrongSchema(BadInput):
    """A function returned something else than the columns of the topic that it writes."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be served, as JSON, and why."""

    record: str
    error: str


@dataclass(slots=True)
class Served:
    """What came of one batch: tables for the topic, and dead letters."""

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
        """All records of a batch, each once among the results or the dead letters."""
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
                served.dead.append(letter(batch, problem))
            return
        if self.schema is not None:
            served.tables.append(conformed(self.function, result, self.schema))


def conformed(function: str, result: Any, schema: pa.Schema) -> pa.Table:
    """The result with exactly the columns and types of the schema; WrongSchema names function and column."""
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
    """What a function returned, as Arrow; WrongSchema if it is no batch of records."""
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


def letter(record: pa.RecordBatch, problem: BaseException) -> DeadLetter:
    """The dead letter of the only record of a batch."""
    text = json.dumps(record.to_pylist()[0], default=_written)
    return DeadLetter(text, f"{type(problem).__name__}: {problem}"[:LONGEST_ERROR])


def _written(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def outcomes(served: Served, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Results and dead letters in one shape, told apart by the column of the outcome."""
    nothing = pa.nulls
    for table in served.tables:
        size = len(table)
        marks = [
            pa.array([SERVED] * size, pa.string()),
            nothing(size, pa.string()),
            nothing(size, pa.string()),
        ]
        columns = [*(table.column(name) for name in schema.names), *marks]
        yield from pa.Table.from_arrays(columns, schema=with_outcome(schema)).combine_chunks().to_batches()
    if served.dead:
        size = len(served.dead)
        columns = [nothing(size, one.type) for one in schema]
        columns.append(pa.array([DEAD] * size, pa.string()))
        columns.append(pa.array([one.record for one in served.dead], pa.string()))
        columns.append(pa.array([one.error for one in served.dead], pa.string()))
        yield pa.RecordBatch.from_arrays(columns, schema=with_outcome(schema))


def with_outcome(schema: pa.Schema) -> pa.Schema:
    """The schema of results and dead letters together; results may be null where a record has died."""
    fields = [pa.field(one.name, one.type) for one in schema]
    return pa.schema([*fields, *(pa.field(name, pa.string()) for name in (OUTCOME, RECORD, ERROR))])


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
