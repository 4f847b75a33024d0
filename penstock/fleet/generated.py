"""Seeded windows of a made-up fleet, for measurements: most applications are sized well, some are not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.fleet.records import OPERATOR, WINDOW

GIB = 1024.0**3
SEED = 11
INSTANCES = 20


def generated_windows(count: int, operators: int, number: int, interval: float) -> pa.Table:
    """Window `number` of each application: a chain of operators, one in ten of them short of something."""
    random = np.random.default_rng(SEED)
    kind = random.integers(0, 40, count)
    offered = random.uniform(1e3, 1e5, count)
    noise = np.random.default_rng(SEED + 1 + number).uniform(0.98, 1.02, count)
    heap, overhead = random.choice([2.0, 4.0, 8.0], count) * GIB, random.choice([0.5, 1.0], count) * GIB
    committed = heap * np.where(kind == 5, 0.4, 0.95)
    full = np.full(count, float(operators * INSTANCES))
    columns: dict[str, object] = {
        "application": pa.array([f"application-{row}" for row in range(count)]),
        "start": np.full(count, number * interval),
        "end": np.full(count, (number + 1) * interval),
        "held_parallelism": full,
        "held_heap_bytes": heap,
        "held_overhead_bytes": overhead,
        "held_memory_fraction": np.full(count, 0.6),
        "held_cores": np.full(count, 4.0),
        "held_task_cpus": np.ones(count),
        "heap_used_bytes": committed * np.where(kind == 0, 0.97, 0.6) * np.minimum(noise, 1.0),
        "heap_committed_bytes": committed,
        "gc_seconds": np.where(kind == 1, 2.0, 0.1),
        "gc_count": 3.0 * noise,
        "memory_used_bytes": committed + overhead * np.where(kind == 2, 0.96, 0.72),
        "cpu_used_cores": np.where(kind == 3, 3.95, 2.4) * np.ones(count),
        "backlog_records": np.where(kind == 4, offered * (number + 1), 10.0 * noise),
        "offered_per_second": offered,
        "spilled_bytes": np.zeros(count),
        "out_of_memory_count": np.zeros(count),
        "memory_kill_count": np.zeros(count),
        "operators": _chains(count, operators, offered, noise, kind == 4),
    }
    filled = [columns.get(field.name) for field in WINDOW]
    arrays = [
        pa.nulls(count, field.type) if column is None else pa.array(column, field.type)
        for field, column in zip(WINDOW, filled, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=WINDOW)


def _chains(
    count: int, operators: int, offered: np.ndarray, noise: np.ndarray, short: np.ndarray
) -> pa.ListArray:
    """A chain of operators each; the true rates of a short one reach for half of what is offered."""
    total = count * operators
    place = np.tile(np.arange(operators), count)
    capacity = np.repeat(offered * noise * np.where(short, 0.5, 1.3), operators)
    source = place == 0
    feeds = pa.ListArray.from_arrays(
        pa.array(np.concatenate([[0], np.cumsum(~source)]).astype(np.int32)), pa.array(place[~source] - 1)
    )
    given = np.where(source, np.repeat(offered, operators), np.nan)
    fields = {
        "true_processing": capacity,
        "true_output": capacity,
        "instances": np.full(total, INSTANCES),
        "scalable": np.ones(total, dtype=np.bool_),
        "offered": given,
        "observed": given,
        "backlog": np.where(source, 0.0, np.nan),
        "upstream": feeds,
    }
    arrays = [
        pa.nulls(total, field.type)
        if field.name not in fields
        else _array(fields[field.name]).cast(field.type)
        for field in OPERATOR
    ]
    values = pa.StructArray.from_arrays(arrays, fields=list(OPERATOR))
    offsets = pa.array((np.arange(count + 1) * operators).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values)


def _array(values: object) -> pa.Array:
    """What is NaN was not measured."""
    return values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
