"""What Sage's rules look at: an application's metrics over time in columns, and the size that it holds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats
from penstock.errors import BadMetrics


class Rule(IntEnum):
    """The policies of Table 1 in the paper, in the order of their priority."""

    NONE = 0
    HEAP_UP = 1
    MEMORY_UP = 2
    CPU_UP = 3
    PARALLELISM_UP = 4
    PARALLELISM_DOWN = 5
    HEAP_DOWN = 6
    MEMORY_DOWN = 7
    CPU_DOWN = 8


class Parameter(IntEnum):
    """What a rule changes, and what an operator can pin."""

    PARALLELISM = 0
    HEAP = 1
    OVERHEAD = 2
    MEMORY_FRACTION = 3
    CPU = 4
    DRIVER_HEAP = 5


class Symptom(IntEnum):
    """What a rule saw."""

    NONE = 0
    OUT_OF_MEMORY = 1
    HEAP_USED = 2
    GC_TIME = 3
    GC_COUNT = 4
    SPILL = 5
    DRIVER_HEAP_USED = 6
    MEMORY_KILL = 7
    OVERHEAD_USED = 8
    CPU_USED = 9
    BACKLOG_GROWS = 10
    UNUSED = 11
    FORCED = 12


@dataclass(frozen=True, slots=True)
class SizingHistory:
    """Samples of one application, oldest first; NaN is what was not measured.

    `at` is the end of a sample and `seconds` its length; GC, spill and failures are counted within it. Heap,
    memory and CPU are those of the executor that has most; memory is the likely resident size of the JVM and
    of its Python workers together, for which committed heap counts as resident. `beside_heap_bytes` is what
    is resident beyond the committed heap, which is surely not of the heap. `needed_parallelism` is what the
    DS2 calculation asks for.
    """

    at: Floats
    seconds: Floats
    heap_used_bytes: Floats
    heap_committed_bytes: Floats
    gc_seconds: Floats
    gc_count: Floats
    memory_used_bytes: Floats
    cpu_used_cores: Floats
    backlog_records: Floats
    offered_per_second: Floats
    needed_parallelism: Floats
    spilled_bytes: Floats
    driver_heap_used_bytes: Floats
    out_of_memory_count: Floats
    memory_kill_count: Floats
    beside_heap_bytes: Floats

    def __post_init__(self) -> None:
        for column in fields(self):
            if len(getattr(self, column.name)) != len(self.at):
                raise BadMetrics(f"{column.name} has another length than the times of the samples")
        if not bool(np.all(np.diff(self.at) > 0)):
            raise BadMetrics("the samples are not in the order of their times")

    def within(self, after: float, until: float) -> SizingHistory:
        """The samples that ended in (after, until]."""
        return self.where((self.at > after) & (self.at <= until))

    def where(self, kept: NDArray[np.bool_]) -> SizingHistory:
        """The samples for which it is true."""
        return SizingHistory(**{column.name: getattr(self, column.name)[kept] for column in fields(self)})


METRICS: tuple[str, ...] = tuple(
    column.name for column in fields(SizingHistory) if column.name not in ("at",)
)
"""The columns of a history beside its times, in the order in which columnar code keeps them."""


@dataclass(frozen=True, slots=True)
class HeldSize:
    """What one application holds; bytes and cores are those of one executor."""

    parallelism: int
    heap_bytes: float
    overhead_bytes: float
    memory_fraction: float = 0.6
    cores: int = 1
    task_cpus: int = 1
    driver_heap_bytes: float = float("nan")

    def __post_init__(self) -> None:
        if self.parallelism < 1 or self.task_cpus < 1 or self.cores < self.task_cpus:
            raise BadMetrics(f"a size that no application can have: {self}")
        if not (self.heap_bytes > 0 and self.overhead_bytes >= 0 and 0 < self.memory_fraction < 1):
            raise BadMetrics(f"a size that no application can have: {self}")

    @property
    def slots(self) -> int:
        """Tasks that one executor runs at once."""
        return self.cores // self.task_cpus


@dataclass(frozen=True, slots=True)
class TooSmall:
    """Sizes that a rule has found too small before: no decrease goes down to them again.

    A heap that was lowered once is not lowered further: what a JVM commits follows what it may have, so that
    it is always less under a smaller limit.
    """

    heap_bytes: float = 0.0
    overhead_bytes: float = 0.0
    task_cpus: int = 0
    lowered_heap_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Overrides:
    """What operators have said: a pinned parameter stays, a vetoed rule is silent, a forced one decides."""

    pinned: frozenset[Parameter] = frozenset()
    vetoed: frozenset[Rule] = frozenset()
    forced: Rule = Rule.NONE
    by: str = ""


@dataclass(frozen=True, slots=True)
class SizingInput:
    """One application in one round.

    Samples that ended before `fresh_after` (the end of the last action) are not believed.
    `service_correlation` is how closely the backlog follows a remote service, NaN where there is none.
    """

    now: float
    history: SizingHistory
    held: HeldSize
    fresh_after: float = float("-inf")
    action_in_flight: bool = False
    service_correlation: float = float("nan")
    too_small: TooSmall = TooSmall()
    overrides: Overrides = Overrides()


@dataclass(frozen=True, slots=True)
class Sizing:
    """The decision of one rule: what it measured against which bound, and the size that follows."""

    rule: Rule
    symptom: Symptom
    measured: float
    bound: float
    after: HeldSize
