"""P5 to P8 for one row of many, compiled; the comments of `decide/sage_rules.py` say why."""

from __future__ import annotations

import math

import numba
import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.decide.sage_metrics import Parameter, Rule, Symptom
from penstock.fleet.sage_columns import (
    AFTER,
    BOUND,
    COLUMN,
    CORES,
    FORCED_RULE,
    HEAP,
    LOWERED_HEAP,
    OVERHEAD,
    PARALLELISM,
    SMALL_CPUS,
    SMALL_HEAP,
    SMALL_OVERHEAD,
    TASK_CPUS,
)
from penstock.fleet.sage_kernel_up import DECIDED, NOTHING, allowed, settle
from penstock.fleet.sage_windows import came_up, ceiling, lasting, measured, most, total, whole_mebibytes

_HEAP_USED, _COMMITTED, _RESIDENT = (
    COLUMN[name] for name in ("heap_used_bytes", "heap_committed_bytes", "memory_used_bytes")
)
_CPU, _BACKLOG, _NEEDED = (COLUMN[n] for n in ("cpu_used_cores", "backlog_records", "needed_parallelism"))
_OFFERED, _SPILLED = COLUMN["offered_per_second"], COLUMN["spilled_bytes"]
_FAILURES, _KILLS = COLUMN["out_of_memory_count"], COLUMN["memory_kill_count"]
_P5, _P6, _P7, _P8 = (
    int(rule) for rule in (Rule.PARALLELISM_DOWN, Rule.HEAP_DOWN, Rule.MEMORY_DOWN, Rule.CPU_DOWN)
)
_PIN_HEAP, _PIN_OVERHEAD, _PIN_CPU, _PIN_PARALLELISM = (
    1 << int(pin) for pin in (Parameter.HEAP, Parameter.OVERHEAD, Parameter.CPU, Parameter.PARALLELISM)
)
_UNUSED, _FORCED = int(Symptom.UNUSED), int(Symptom.FORCED)


_GAIN, _DRAINED, _HEAP_HIGH = (BOUND[name] for name in ("least_gain", "drained_seconds", "heap_used_high"))
_LEAST_HEAP, _GC_HIGH, _LEAST_UP, _LEAST_DOWN = (
    BOUND[name] for name in ("least_heap_bytes", "gc_time_high", "least_up_samples", "least_down_samples")
)
_GC_SECONDS, _SECONDS = COLUMN["gc_seconds"], COLUMN["seconds"]
_OVERHEAD_TARGET, _LEAST_OVERHEAD, _CPU_TARGET = (
    BOUND[name] for name in ("overhead_target", "least_overhead_bytes", "cpu_target")
)


@numba.njit(cache=True)
def _worth_it(held: float, wanted: float, too_small: float, orders: Integers, bounds: Floats) -> bool:
    gain = 0.0 if orders[FORCED_RULE] else bounds[_GAIN]
    return wanted < held and wanted <= held * (1.0 - gain) and wanted > too_small


@numba.njit(cache=True)
def _symptom(orders: Integers) -> int:
    return _FORCED if orders[FORCED_RULE] else _UNUSED


@numba.njit(cache=True)
def _drained(long: Floats, bounds: Floats) -> bool:
    for place in range(len(long)):
        backlog, offered = np.float64(long[place, _BACKLOG]), np.float64(long[place, _OFFERED])
        if not backlog <= offered * bounds[_DRAINED]:
            return False
    return True


@numba.njit(cache=True)
def parallelism_down(
    long: Floats, held: Floats, known: Floats, orders: Integers, bounds: Floats, told: Floats
) -> int:
    """P5."""
    long = measured(long, _NEEDED)
    if len(long) < bounds[_LEAST_DOWN]:
        return NOTHING
    needed = most(long, _NEEDED)
    if not (needed >= 1 and (orders[FORCED_RULE] or _drained(long, bounds))):
        return NOTHING
    if not _worth_it(held[PARALLELISM], needed, 0.0, orders, bounds):
        return NOTHING
    answer = allowed(orders, _P5, _PIN_PARALLELISM)
    if answer != DECIDED:
        return answer
    return settle(told, _symptom(orders), needed, held[PARALLELISM], PARALLELISM, np.floor(needed))


@numba.njit(cache=True)
def heap_down(
    long: Floats, held: Floats, known: Floats, orders: Integers, bounds: Floats, told: Floats
) -> int:
    """P6."""
    if came_up(long, _FAILURES) or came_up(long, _SPILLED):
        return NOTHING
    # one copy for all three: what is not a number in one of them is none in their sum
    long = long[~np.isnan(long[:, _COMMITTED] + long[:, _HEAP_USED] + long[:, _GC_SECONDS])]
    if len(long) < bounds[_LEAST_DOWN]:
        return NOTHING
    share = total(long, _GC_SECONDS) / total(long, _SECONDS)
    if share > bounds[_GC_HIGH] / 2 or held[HEAP] <= known[LOWERED_HEAP]:
        return NOTHING
    committed = most(long, _COMMITTED)
    wanted = whole_mebibytes(committed)
    lasts = lasting(long, _HEAP_USED, int(bounds[_LEAST_UP]))
    room = whole_mebibytes(lasts / bounds[_HEAP_HIGH])
    wanted = room if room > wanted else wanted
    floor = whole_mebibytes(bounds[_LEAST_HEAP])
    wanted = floor if floor > wanted else wanted
    if not _worth_it(held[HEAP], wanted, known[SMALL_HEAP], orders, bounds):
        return NOTHING
    answer = allowed(orders, _P6, _PIN_HEAP)
    if answer != DECIDED:
        return answer
    return settle(told, _symptom(orders), committed, held[HEAP], HEAP, wanted)


@numba.njit(cache=True)
def _likely_beside_heap(long: Floats) -> float:
    found = -np.inf
    for place in range(len(long)):
        resident, committed = np.float64(long[place, _RESIDENT]), np.float64(long[place, _COMMITTED])
        heap = np.float64(long[place, _HEAP_USED]) if resident < committed else committed
        beside = resident - heap
        if math.isnan(beside):
            return np.nan
        found = max(found, beside, 0.0)
    return found


@numba.njit(cache=True)
def memory_down(
    long: Floats, held: Floats, known: Floats, orders: Integers, bounds: Floats, told: Floats
) -> int:
    """P7."""
    killed = came_up(long, _KILLS)
    long = measured(long, _RESIDENT)
    if len(long) < bounds[_LEAST_DOWN] or killed:
        return NOTHING
    likely = _likely_beside_heap(long)
    wanted = whole_mebibytes(likely / bounds[_OVERHEAD_TARGET])
    floor = whole_mebibytes(bounds[_LEAST_OVERHEAD])
    wanted = floor if floor > wanted else wanted
    if not _worth_it(held[OVERHEAD], wanted, known[SMALL_OVERHEAD], orders, bounds):
        return NOTHING
    answer = allowed(orders, _P7, _PIN_OVERHEAD)
    if answer != DECIDED:
        return answer
    return settle(told, _symptom(orders), likely, held[OVERHEAD], OVERHEAD, wanted)


@numba.njit(cache=True)
def cpu_down(
    long: Floats, held: Floats, known: Floats, orders: Integers, bounds: Floats, told: Floats
) -> int:
    """P8."""
    long = measured(long, _CPU)
    if len(long) < bounds[_LEAST_DOWN]:
        return NOTHING
    slots = held[CORES] // held[TASK_CPUS]
    used = most(long, _CPU)
    needed = ceiling(used / bounds[_CPU_TARGET] / slots)
    needed = 1.0 if needed < 1 else needed
    if not _worth_it(held[TASK_CPUS], needed, known[SMALL_CPUS], orders, bounds):
        return NOTHING
    answer = allowed(orders, _P8, _PIN_CPU)
    if answer != DECIDED:
        return answer
    told[AFTER + CORES] = slots * needed
    return settle(told, _symptom(orders), used, held[CORES], TASK_CPUS, needed)
