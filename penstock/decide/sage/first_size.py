"""The first size of a new application: from its first minutes, and from similar ones that have found theirs.

One step for memory and cores together, since each needs the same restart. A few minutes show less than a day
will, so what they show gets a margin, unless a similar application tells what it came to need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.dataflow.window import ApplicationWindow
from penstock.decide.sage.columns import lasting
from penstock.decide.sage.metrics import HeldSize, Parameter, Rule, SizingHistory, SizingInput
from penstock.decide.sage.rules import find_cores_per_task, likely_beside_heap, whole_mebibytes
from penstock.decide.sage.settings import SageSettings

MARGIN = 1.1
"""On what the first minutes show: as much as the rules on shrinking leave alone, so that none follows."""
LEAST_GAIN = 0.3
"""A restart for less is left to the rules, which know more later."""
LEAST_ALIKE = 0.6
"""Share of operators that two similar applications have in common."""
MOST_APART = 4.0
"""Factor between the rates offered to an executor of each."""


@dataclass(frozen=True, slots=True)
class KnownSize:
    """An application that has found its size: what it does, and what an executor of it came to need."""

    name: str
    operators: tuple[str, ...]
    offered_per_executor: float
    heap_bytes: float
    overhead_bytes: float
    task_cpus: int


@dataclass(frozen=True, slots=True)
class FirstSize:
    """A first size, and the words for it."""

    after: HeldSize
    reason: str


def list_operators(window: ApplicationWindow) -> tuple[str, ...]:
    """Return the names of the application's operators: what it does."""
    return tuple(sorted({operator.name for query in window.queries for operator in query.graph.operators}))


def describe_size(held: HeldSize, window: ApplicationWindow) -> dict[str, Any]:
    """Return what others like it may learn of an application whose size no rule wants to change."""
    offered = sum(s.offered_per_second for query in window.queries for s in query.sources.values())
    return {
        "operators": list(list_operators(window)),
        "offered_per_executor": float(f"{offered / held.parallelism:.2g}") if math.isfinite(offered) else 0.0,
        "heap_bytes": held.heap_bytes,
        "overhead_bytes": held.overhead_bytes,
        "task_cpus": held.task_cpus,
    }


def read_sizes(found: Mapping[str, Mapping[str, Any]]) -> tuple[KnownSize, ...]:
    """Read application → what was kept of it; leave out what cannot be read."""
    sizes = []
    for name, body in found.items():
        try:
            operators = tuple(str(operator) for operator in body["operators"])
            offered, heap = float(body["offered_per_executor"]), float(body["heap_bytes"])
            overhead, cpus = float(body["overhead_bytes"]), int(body["task_cpus"])
            sizes.append(KnownSize(name, operators, offered, heap, overhead, cpus))
        except (KeyError, TypeError, ValueError):
            continue
    return tuple(sizes)


def find_most_similar(
    operators: Sequence[str], offered_per_executor: float, known: Iterable[KnownSize]
) -> KnownSize | None:
    """Find the application that does most of the same at a comparable rate; None if none is alike."""
    alike = [(_compare_operators(operators, one.operators), one) for one in known]
    close = [
        (share, one)
        for share, one in alike
        if share >= LEAST_ALIKE
        and _compare_rates(offered_per_executor, one.offered_per_executor) <= MOST_APART
    ]
    return max(close, key=lambda pair: pair[0])[1] if close else None


def find_first_size(
    given: SizingInput, history: SizingHistory, settings: SageSettings, similar: KnownSize | None
) -> FirstSize | None:
    """Return the size that follows from these samples; None where it is not worth a restart."""
    held, factor = given.held, 1.0 if similar else MARGIN
    heap = _own_heap(history, settings) * factor
    overhead = _own_overhead(history, settings) * factor
    cpus = _own_cpus(history, held, settings)
    if similar is not None:
        heap, overhead = max(heap, similar.heap_bytes), max(overhead, similar.overhead_bytes)
        cpus = max(cpus, float(similar.task_cpus))
    heap, overhead = float(whole_mebibytes(heap)), float(whole_mebibytes(overhead))
    task_cpus = int(_choose(given, Parameter.CPU, held.task_cpus, cpus))
    after = replace(
        held,
        heap_bytes=_choose(given, Parameter.HEAP, held.heap_bytes, heap),
        overhead_bytes=_choose(given, Parameter.OVERHEAD, held.overhead_bytes, overhead),
        task_cpus=task_cpus,
        cores=held.slots * task_cpus,
    )
    return FirstSize(after, _explain(history, similar)) if after != held else None


def _choose(given: SizingInput, parameter: Parameter, held: float, wanted: float) -> float:
    """Return the wanted value where it is known, worth a restart and not forbidden; else what is held."""
    up, down, small = {
        Parameter.HEAP: (Rule.HEAP_UP, Rule.HEAP_DOWN, given.too_small.heap_bytes),
        Parameter.OVERHEAD: (Rule.MEMORY_UP, Rule.MEMORY_DOWN, given.too_small.overhead_bytes),
        Parameter.CPU: (Rule.CPU_UP, Rule.CPU_DOWN, float(given.too_small.task_cpus)),
    }[parameter]
    rule = up if wanted > held else down
    if math.isnan(wanted) or parameter in given.overrides.pinned or rule in given.overrides.vetoed:
        return held
    worth_it = wanted >= held * (1 + LEAST_GAIN) or small < wanted <= held * (1 - LEAST_GAIN)
    return wanted if worth_it else held


def _own_heap(history: SizingHistory, settings: SageSettings) -> float:
    """Return what is committed, or what P1's bound on use needs; NaN where heap was short or spilled."""
    if _any(history.spilled_bytes) or _any(history.out_of_memory_count):
        return math.nan
    committed = float(np.max(history.heap_committed_bytes))
    used = float(lasting(history.heap_used_bytes[None], settings.least_up_samples)[0])
    if math.isnan(committed + used):
        return math.nan
    return max(committed, used / settings.heap_used_high, settings.least_heap_bytes / MARGIN)


def _own_overhead(history: SizingHistory, settings: SageSettings) -> float:
    if _any(history.memory_kill_count):
        return math.nan
    resident, committed = history.memory_used_bytes, history.heap_committed_bytes
    beside = likely_beside_heap(resident, committed, history.heap_used_bytes)
    likely = float(np.max(beside)) / settings.overhead_target
    return max(likely, settings.least_overhead_bytes) if not math.isnan(likely) else math.nan


def _own_cpus(history: SizingHistory, held: HeldSize, settings: SageSettings) -> float:
    used = np.array([np.max(history.cpu_used_cores)])
    return float(find_cores_per_task(used, np.array([float(held.slots)]), settings)[0])


def _any(counts: Any) -> bool:
    return bool(np.nansum(counts) > 0)


def _compare_operators(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the share of all their operators that both have."""
    one, other = set(first), set(second)
    return len(one & other) / len(one | other) if one | other else 0.0


def _compare_rates(first: float, second: float) -> float:
    if not (first > 0 and second > 0):
        return 1.0 if first == second else math.inf
    return max(first / second, second / first)


def _explain(history: SizingHistory, similar: KnownSize | None) -> str:
    seconds = float(history.at[-1] - history.at[0] + history.seconds[0])
    own = f"first sizing, from {seconds:.0f} s of samples"
    if similar is None:
        return f"{own} with {MARGIN - 1:.0%} on top"
    return f"{own} and from {similar.name}, which does the same and has found its size"
