"""Windows as agents publish them."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa

from penstock.fleet.records import read_lines

GIB = 1024.0**3


def a_record(application: str = "app-1", end: float = 10.0, **changes: Any) -> dict[str, Any]:
    """Ten calm seconds of an application that has the right size."""
    return {
        "application": application,
        "start": end - 10.0,
        "end": end,
        "held_parallelism": 4,
        "held_heap_bytes": 6 * GIB,
        "held_overhead_bytes": 1.0 * GIB,
        "held_memory_fraction": 0.6,
        "held_cores": 4,
        "held_task_cpus": 1,
        "heap_used_bytes": 3.0 * GIB,
        "heap_committed_bytes": 5.9 * GIB,
        "gc_seconds": 0.1,
        "gc_count": 3,
        "memory_used_bytes": 6.65 * GIB,
        "cpu_used_cores": 2.4,
        "backlog_records": 100.0,
        "offered_per_second": 1000.0,
        "needed_parallelism": 4,
        "spilled_bytes": 0,
        "out_of_memory_count": 0,
        "memory_kill_count": 0,
        **changes,
    }


def a_table(*records: dict[str, Any]) -> pa.Table:
    read = read_lines([orjson.dumps(record) for record in records], ["test"] * len(records))
    assert read.dead.num_rows == 0, read.dead.to_pylist()
    return read.windows
