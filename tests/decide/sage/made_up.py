"""Random fleets: sizes and histories near the bounds of the rules."""

from __future__ import annotations

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.decide.sage.columns import COLUMN, CORRELATION, SIZE, Applications, held_of
from penstock.decide.sage.metrics import (
    METRICS,
    Overrides,
    Parameter,
    Rule,
    SizingHistory,
    SizingInput,
    TooSmall,
)

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
    history = np.empty((count, len(METRICS), samples), dtype=np.float32)
    wobble = random.uniform(0.98, 1.02, (count, samples))
    committed = heap * pick(0.3, 0.8, 1.0)
    levels = {
        "seconds": np.full(count, 10.0),
        "heap_used_bytes": committed * pick(0.3, 0.7, 0.9, 1.0),
        "heap_committed_bytes": committed,
        "gc_seconds": pick(0.05, 0.4, 1.2),
        "gc_count": pick(1.0, 10.0, 30.0),
        "memory_used_bytes": committed * pick(0.7, 1.0) + overhead * pick(0.1, 0.5, 0.95),
        "cpu_used_cores": held[:, 4] * pick(0.1, 0.4, 0.8, 1.0, 1.3),
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
        history[:, place] = levels[name][:, None] * (wobble + random.integers(0, 2, (count, 1)) * rising)
    for name in ("seconds", "needed_parallelism", "out_of_memory_count", "memory_kill_count"):
        history[:, COLUMN[name]] = levels[name][:, None]
    history[random.random(history.shape) < random.choice([0.0, 0.002, 0.03])] = np.nan
    history[:, COLUMN["seconds"]] = 10.0
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


def input_of(applications: Applications, row: int) -> SizingInput:
    """One application as the pure policy takes it."""
    there = np.isfinite(applications.at[row])
    samples = applications.history[row][:, there].astype(np.float64)
    columns = {name: samples[place] for name, place in COLUMN.items()}
    known = applications.known[row]
    return SizingInput(
        now=float(applications.now[row]),
        history=SizingHistory(at=applications.at[row][there], **columns),
        held=held_of(applications.held[row]),
        fresh_after=float(applications.fresh_after[row]),
        action_in_flight=bool(applications.in_flight[row]),
        service_correlation=float(known[CORRELATION]),
        too_small=_too_small(known),
        overrides=_overrides(*applications.orders[row].tolist()),
    )


def _too_small(known: Floats) -> TooSmall:
    heap, overhead, cpus, lowered = known[:CORRELATION].tolist()
    return TooSmall(heap, overhead, int(cpus), lowered)


def _overrides(pinned: int, vetoed: int, forced: int) -> Overrides:
    return Overrides(
        frozenset(parameter for parameter in Parameter if pinned >> int(parameter) & 1),
        frozenset(rule for rule in Rule if vetoed >> int(rule) & 1),
        Rule(forced),
    )
