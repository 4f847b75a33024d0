"""Functions on executors, at their records, with an account of what each instance did.

Python workers import this module, so it imports little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from penstock.pipeline.serving import KeyedServer, Served, Server, mark_outcomes, with_outcome
from penstock.pipeline.timestamps import Moments, split_batch, split_frame

Work = dict[int, list[float]]
"""Instance → records in, records out, dead letters, useful seconds, sums of moments entered and arrived."""
NOTHING = (0.0,) * 6
Clock = Callable[[], float]


class WorkParam(AccumulatorParam[Work]):
    """Adds up what instances did."""

    def zero(self, value: Work) -> Work:
        """Return that nothing is done."""
        return {}

    def addInPlace(self, value1: Work, value2: Work) -> Work:  # noqa: N802
        """Add up by instance."""
        for instance, figures in value2.items():
            own = value1.setdefault(instance, list(NOTHING))
            value1[instance] = [a + b for a, b in zip(own, figures, strict=True)]
        return value1


@dataclass(frozen=True, slots=True)
class Link:
    """A function in a batch, and the account of its work."""

    server: Server
    work: Accumulator[Work]


def make_batch_call(
    links: Sequence[Link], clock: Clock = time.monotonic, calendar: Clock = time.time
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make functions as `mapInArrow` calls them, each with what the one before returned.

    One instance, one partition. Time counts as useful from the moment at which some records are there until
    their results are ready: neither the wait for the next records nor that for the reader of the results.
    """
    last = links[-1].server.schema
    schema = last if last is not None else pa.schema([])

    def serve(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        totals: list[Work] = [{_instance(): list(NOTHING)} for _ in links]
        for batch in batches:
            records, moments = split_batch(batch)
            parts: list[pa.RecordBatch] = [records]
            results: list[pa.RecordBatch] = []
            for number, (link, total) in enumerate(zip(links, totals, strict=True)):
                begun = clock()
                served = _serve_parts(link.server, parts)
                is_last = number == len(links) - 1
                told = served if is_last else Served(dead=served.dead)
                results += mark_outcomes(told, schema, moments.entered)
                parts = [] if is_last else _list_parts(served)
                WorkParam().addInPlace(total, _account(moments, served, clock() - begun))
                moments = _hand_on(moments, sum(map(len, parts)), calendar())
            yield from results
        for link, total in zip(links, totals, strict=True):
            link.work.add(total)

    return serve


def _serve_parts(server: Server, parts: Sequence[pa.RecordBatch]) -> Served:
    served = Served()
    for part in parts:
        one = server.serve(part)
        served.tables += one.tables
        served.dead += one.dead
    return served


def _list_parts(served: Served) -> list[pa.RecordBatch]:
    """List results as the next function is called with them: one call a table, and none without records."""
    return [table.combine_chunks().to_batches()[0] for table in served.tables if len(table)]


def _hand_on(moments: Moments, records: int, now: float) -> Moments:
    """Return the moments of what a function passes on: it entered with its records, and arrives now."""
    return Moments(records, (moments.entered or 0.0) * records, now * records)


def make_keyed_call(
    server: KeyedServer, work: Accumulator[Work], order: str | None = None, clock: Clock = time.monotonic
) -> Callable[..., Iterator[Any]]:
    """Make the function as `applyInPandasWithState` calls it: one key, its records by the column `order`."""
    schema = server.schema if server.schema is not None else pa.schema([])

    def serve(key: tuple[Any, ...], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        read = list(frames)
        begun = clock()
        frame, moments = split_frame(pd.concat(read, ignore_index=True))
        frame = frame.sort_values(order, kind="stable", ignore_index=True) if order else frame
        served, after = server.serve(key, frame, tuple(state.get) if state.exists else None)
        if after is not None:
            state.update(after)
        elif state.exists:
            state.remove()
        empty = pa.Table.from_batches([], schema=with_outcome(schema))
        tables = [pa.Table.from_batches([one]) for one in mark_outcomes(served, schema, moments.entered)]
        results = pa.concat_tables([empty, *tables]).to_pandas()
        work.add(_account(moments, served, clock() - begun))
        yield results

    return serve


def _account(moments: Moments, served: Served, useful_seconds: float) -> Work:
    written = sum(len(table) for table in served.tables)
    figures = [moments.records, written, len(served.dead), useful_seconds]
    return {_instance(): [*figures, moments.entered_sum, moments.arrived_sum]}


def _instance() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
