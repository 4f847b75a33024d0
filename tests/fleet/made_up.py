"""Random fleets: sizes, histories and operators near the bounds of the rules."""

from __future__ import annotations

import numpy as np

from penstock.decide.sage_metrics import METRICS
from penstock.fleet.operators import OperatorColumns
from penstock.fleet.sage_columns import COLUMN, SIZE, Applications

GIB = 1024.0**3


def random_applications(random: np.random.Generator, count: int, samples: int = 32) -> Applications:
    """Every rule's symptom comes up, often several at once; some values were not measured."""

    def pick(*values: float) -> np.ndarray:
        return random.choice(np.array(values), count)

    heap, overhead = pick(2, 4, 6.5) * GIB, pick(0.0, 0.4, 1, 4) * GIB
    slots, task_cpus = pick(1, 2, 4), pick(1, 2, 3)
    held = np.zeros((count, len(SIZE)))
    columns = (pick(1, 4, 9), heap, overhead, pick(0.5, 0.6, 0.75, 0.8), slots * task_cpus, task_cpus)
    for place, column in enumerate((*columns, pick(1 * GIB, 2 * GIB, np.nan))):
        held[:, place] = column
    history = np.empty((count, samples, len(METRICS)), dtype=np.float32)
    wobble = random.uniform(0.98, 1.02, (count, samples))
    committed = heap * pick(0.3, 0.8, 1.0)
    levels = {
        "seconds": np.full(count, 10.0),
        "heap_used_bytes": committed * pick(0.3, 0.7, 0.9, 1.0),
        "heap_committed_bytes": committed,
        "gc_seconds": pick(0.05, 0.4, 1.2),
        "gc_count": pick(1.0, 10.0, 30.0),
        "memory_used_bytes": committed * pick(0.7, 1.0) + overhead * pick(0.1, 0.5, 0.95),
        "cpu_used_cores": held[:, 4] * pick(0.1, 0.4, 0.8, 1.1),
        "backlog_records": pick(0.0, 100.0, 5000.0, 1e6),
        "offered_per_second": pick(100.0, 5000.0),
        "needed_parallelism": pick(1.0, 3.0, 4.0, 8.0, 12.0),
        "spilled_bytes": pick(0.0, 0.0, 1e8),
        "driver_heap_used_bytes": pick(0.5, 0.95, 1.8) * GIB,
        "out_of_memory_count": pick(0.0, 0.0, 0.0, 1.0),
        "memory_kill_count": pick(0.0, 0.0, 0.0, 1.0),
        "beside_heap_bytes": overhead * pick(0.1, 0.5, 0.95, 1.4),
    }
    for name, place in COLUMN.items():
        rising = np.arange(samples) if name == "backlog_records" else np.zeros(samples)
        history[:, :, place] = levels[name][:, None] * (wobble + random.integers(0, 2, (count, 1)) * rising)
    for name in ("seconds", "needed_parallelism", "out_of_memory_count", "memory_kill_count"):
        history[:, :, COLUMN[name]] = levels[name][:, None]
    history[random.random(history.shape) < random.choice([0.0, 0.002])] = np.nan
    history[:, :, COLUMN["seconds"]] = 10.0
    at = np.tile(10.0 * np.arange(1, samples + 1), (count, 1))
    missing = random.integers(0, samples, count) * (random.random(count) < 0.3)
    at[np.arange(samples) < missing[:, None]] = -np.inf
    return Applications(
        now=np.full(count, at[:, -1].max()) + pick(0.0, 0.0, 35.0),
        at=at,
        history=history,
        held=held,
        known=np.column_stack(
            [
                pick(0, 3 * GIB),
                pick(0, 0.6 * GIB),
                pick(0, 1),
                pick(0, 2 * GIB, 6 * GIB),
                pick(np.nan, 0.2, 0.8),
            ]
        ),
        fresh_after=pick(-np.inf, 55.0, 250.0, 300.0),
        in_flight=random.random(count) < 0.05,
        orders=np.column_stack(
            [
                np.where(random.random(count) < 0.3, random.integers(0, 64, count), 0),
                np.where(random.random(count) < 0.2, random.integers(0, 512, count), 0),
                np.where(random.random(count) < 0.15, random.integers(1, 9, count), 0),
            ]
        ),
    )


def random_operators(random: np.random.Generator, count: int, largest: int = 12) -> OperatorColumns:
    """Random acyclic graphs, some with operators that cannot be scaled, idle ones and bad readings."""
    sizes = random.integers(0, largest + 1, count)
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    total = int(first[-1])
    upstream, upstream_first = [], [0]
    for size in sizes.tolist():
        for number in range(size):
            feeds = random.choice(number, min(number, int(random.integers(0, 3))), replace=False)
            upstream.extend(sorted(feeds.tolist()))
            upstream_first.append(len(upstream))
    processing = random.uniform(10, 1e4, total)
    processing[random.random(total) < 0.01] = random.choice([0.0, 1e308])
    backlog = random.choice([0.0, 1e3, 1e6], total)
    backlog[random.random(total) < 0.01] = np.nan
    return OperatorColumns(
        first=first,
        true_processing=processing,
        true_output=np.minimum(processing, 1e300) * random.choice([0.0, 0.3, 1.0, 7.0], total),
        instances=random.integers(1, 30, total),
        scalable=random.random(total) > 0.15,
        offered=random.uniform(0, 1e5, total),
        observed=random.uniform(0, 1e5, total) * (random.random(total) > 0.1),
        backlog=backlog,
        upstream_first=np.array(upstream_first, dtype=np.int64),
        upstream=np.array(upstream, dtype=np.int64),
    )
