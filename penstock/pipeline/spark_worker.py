"""Functions on executors, at their records, with an account of what each instance did.

Python workers import this module, so it imports little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from penstock.pipeline.serving import KeyedServer, Server, mark_outcomes, with_outcome

Work = dict[int, list[float]]
"""Instance → records in, records out, dead letters, useful seconds."""


class WorkParam(AccumulatorParam[Work]):
    """Adds up what instances did."""

    def zero(self, value: Work) -> Work:
        """Return that nothing is done."""
        return {}

    def addInPlace(self, value1: Work, value2: Work) -> Work:  # noqa: N802
        """Add up by instance."""
        for instance, figures in value2.items():
            own = value1.setdefault(instance, [0.0, 0.0, 0.0, 0.0])
            value1[instance] = [a + b for a, b in zip(own, figures, strict=True)]
        return value1


def make_batch_call(
    server: Server, schema: pa.Schema, work: Accumulator[Work]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function as `mapInArrow` calls it: one instance, one partition."""

    def serve(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun, read, written, dead = time.monotonic(), 0, 0, 0
        for batch in batches:
            served = server.serve(batch)
            read += len(batch)
            written += sum(len(table) for table in served.tables)
            dead += len(served.dead)
            yield from mark_outcomes(served, schema)
        work.add({_instance(): [read, written, dead, time.monotonic() - begun]})

    return serve


def make_keyed_call(
    server: KeyedServer, work: Accumulator[Work], order: str | None = None
) -> Callable[..., Iterator[Any]]:
    """Make the function as `applyInPandasWithState` calls it: one key, its records by the column `order`."""
    schema = server.schema if server.schema is not None else pa.schema([])

    def serve(key: tuple[Any, ...], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        begun = time.monotonic()
        frame = pd.concat(list(frames), ignore_index=True)
        frame = frame.sort_values(order, kind="stable", ignore_index=True) if order else frame
        served, after = server.serve(key, frame, tuple(state.get) if state.exists else None)
        if after is not None:
            state.update(after)
        elif state.exists:
            state.remove()
        empty = pa.Table.from_batches([], schema=with_outcome(schema))
        tables = [pa.Table.from_batches([one]) for one in mark_outcomes(served, schema)]
        yield pa.concat_tables([empty, *tables]).to_pandas()
        written = sum(len(table) for table in served.tables)
        work.add({_instance(): [len(frame), written, len(served.dead), time.monotonic() - begun]})

    return serve


def _instance() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
