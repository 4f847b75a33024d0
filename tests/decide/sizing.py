"""Histories of one application for the tests of Sage's rules, with a stepped clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from penstock.decide.sage.metrics import HeldSize, Rule, Sizing, SizingHistory, SizingInput
from penstock.decide.sage.rounds import decide
from penstock.decide.sage.settings import SageSettings

GIB = 1024.0**3
MIB = 1024.0**2
INTERVAL = 10.0

CALM: dict[str, float] = {
    "seconds": INTERVAL,
    "heap_used_bytes": 3.6 * GIB,
    "heap_committed_bytes": 5.8 * GIB,
    "gc_seconds": 0.1,
    "gc_count": 3.0,
    "memory_used_bytes": 6.6 * GIB,
    "cpu_used_cores": 2.4,
    "backlog_records": 100.0,
    "offered_per_second": 1000.0,
    "needed_parallelism": 4.0,
    "spilled_bytes": 0.0,
    "driver_heap_used_bytes": 1.0 * GIB,
    "out_of_memory_count": 0.0,
    "memory_kill_count": 0.0,
}
"""An application of the size `A_SIZE` that needs no change."""

A_SIZE = HeldSize(4, 6 * GIB, 1.1 * GIB, 0.6, cores=4, task_cpus=1, driver_heap_bytes=2 * GIB)


class Recorder:
    """Samples every ten seconds; `run` lets time pass with what it is told, the rest stays calm."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rows: list[dict[str, float]] = []

    def run(self, samples: int, **metrics: float | Sequence[float]) -> float:
        for number in range(samples):
            self.now += INTERVAL
            given = {k: v if isinstance(v, float | int) else v[number] for k, v in metrics.items()}
            row = {**CALM, **given, "at": self.now}
            surely = max(row["memory_used_bytes"] - row["heap_committed_bytes"], 0.0)
            self.rows.append({"beside_heap_bytes": surely, **row})
        return self.now

    @property
    def history(self) -> SizingHistory:
        names = [column.name for column in fields(SizingHistory)]
        return SizingHistory(**{name: np.array([row[name] for row in self.rows]) for name in names})


def decision_on(held: HeldSize = A_SIZE, **metrics: float | Sequence[float]) -> Sizing:
    """Return what is decided after forty samples; something must be."""
    clock = Recorder()
    decision = decide(SizingInput(clock.run(40, **metrics), clock.history, held), SageSettings()).decision
    assert decision is not None
    return decision


def fires_on(held: HeldSize = A_SIZE, **metrics: float | Sequence[float]) -> Rule:
    """Return the rule that decides after forty samples."""
    clock = Recorder()
    return fired(SizingInput(clock.run(40, **metrics), clock.history, held))


def fired(given: SizingInput) -> Rule:
    decision = decide(given, SageSettings()).decision
    return decision.rule if decision else Rule.NONE
