"""P1 to P4 for one row of many, compiled; the comments of `decide/sage_rules.py` say why.

What numba's cache does not see is told in `sage_kernel.py`.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from penstock.dataflow.metrics import Floats, Integers
from penstock.decide import sage
from penstock.decide.sage_metrics import Parameter, Rule, Symptom
from penstock.fleet.sage_columns import (
    AFTER,
    BOUND,
    COLUMN,
    CORES,
    CORRELATION,
    DRIVER_HEAP,
    FORCED_RULE,
    FRACTION,
    HEAP,
    LIMIT,
    MEASURED,
    OVERHEAD,
    PARALLELISM,
    PINNED_BITS,
    SYMPTOM,
    TASK_CPUS,
    VETOED_BITS,
)
from penstock.fleet.sage_windows import growth, least, measured, most, total, whole_mebibytes

NOTHING, DECIDED = 0, -1
"""What a rule answers; a positive number says why it was held back."""
_PINNED, _VETOED, _SERVICE, _NO_NEED = sage.PINNED, sage.VETOED, sage.SERVICE, sage.NO_NEED

_SECONDS, _HEAP_USED, _COMMITTED = (
    COLUMN[f"{n}"] for n in ("seconds", "heap_used_bytes", "heap_committed_bytes")
)
_GC_SECONDS, _GC_COUNT, _RESIDENT = (COLUMN[n] for n in ("gc_seconds", "gc_count", "memory_used_bytes"))
_CPU, _BACKLOG, _NEEDED = (COLUMN[n] for n in ("cpu_used_cores", "backlog_records", "needed_parallelism"))
_SPILLED, _DRIVER = COLUMN["spilled_bytes"], COLUMN["driver_heap_used_bytes"]
_FAILURES, _KILLS = COLUMN["out_of_memory_count"], COLUMN["memory_kill_count"]
_SURELY_BESIDE = COLUMN["beside_heap_bytes"]

_P1, _P2, _P3, _P4 = (int(rule) for rule in (Rule.HEAP_UP, Rule.MEMORY_UP, Rule.CPU_UP, Rule.PARALLELISM_UP))
_PIN_HEAP, _PIN_FRACTION, _PIN_DRIVER = (
    1 << int(pin) for pin in (Parameter.HEAP, Parameter.MEMORY_FRACTION, Parameter.DRIVER_HEAP)
)
_PIN_OVERHEAD, _PIN_CPU, _PIN_PARALLELISM = (
    1 << int(pin) for pin in (Parameter.OVERHEAD, Parameter.CPU, Parameter.PARALLELISM)
)
_OUT_OF_MEMORY, _HEAP_FULL, _GC_TIME, _GC_OFTEN, _SPILL, _DRIVER_FULL = (
    int(Symptom(number)) for number in range(int(Symptom.OUT_OF_MEMORY), int(Symptom.DRIVER_HEAP_USED) + 1)
)
_KILLED, _OVERHEAD_FULL = int(Symptom.MEMORY_KILL), int(Symptom.OVERHEAD_USED)
_CPU_FULL, _GROWS, _FORCED = int(Symptom.CPU_USED), int(Symptom.BACKLOG_GROWS), int(Symptom.FORCED)


_HEAP_HIGH, _GC_HIGH, _GC_OFTEN_HIGH, _HEAP_FACTOR = (
    BOUND[name] for name in ("heap_used_high", "gc_time_high", "gc_per_minute_high", "heap_factor")
)
_FRACTION_STEP, _MOST_FRACTION = BOUND["memory_fraction_step"], BOUND["most_memory_fraction"]
_OVERHEAD_HIGH, _LEAST_OVERHEAD, _OVERHEAD_FACTOR, _OVERHEAD_TARGET = (
    BOUND[name] for name in ("overhead_high", "least_overhead_bytes", "overhead_factor", "overhead_target")
)
_CPU_HIGH, _CPU_FACTOR = BOUND["cpu_high"], BOUND["cpu_factor"]
_LEAST_GROWTH, _CORRELATED, _LEAST_UP = (
    BOUND[name] for name in ("least_backlog_growth", "correlation_threshold", "least_up_samples")
)


@numba.njit(cache=True)
def allowed(orders: Integers, rule: int, pin: int) -> int:
    """Whether operators let a rule change its parameter; a force outranks a veto."""
    if not orders[FORCED_RULE] and orders[VETOED_BITS] >> rule & 1:
        return _VETOED
    return _PINNED if orders[PINNED_BITS] & pin else DECIDED


@numba.njit(cache=True)
def settle(told: Floats, symptom: int, measured: float, limit: float, column: int, value: float) -> int:
    """Write a decision down."""
    told[SYMPTOM], told[MEASURED], told[LIMIT] = symptom, measured, limit
    told[AFTER + column] = value
    return DECIDED


@numba.njit(cache=True)
def _heap_sign(recent: Floats, held: Floats, bounds: Floats) -> tuple[int, float, float]:
    """The first sign that asks for more heap: symptom, measured, bound; symptom 0 for none."""
    failures = total(recent, _FAILURES)
    if failures > 0:
        return _OUT_OF_MEMORY, failures, 0.0
    used = least(recent, _HEAP_USED) / held[HEAP]
    if used > bounds[_HEAP_HIGH]:
        return _HEAP_FULL, used, bounds[_HEAP_HIGH]
    if most(recent, _COMMITTED) < bounds[_HEAP_HIGH] * held[HEAP]:
        return 0, np.nan, np.nan
    seconds = total(recent, _SECONDS)
    share = total(recent, _GC_SECONDS) / seconds
    if share > bounds[_GC_HIGH]:
        return _GC_TIME, share, bounds[_GC_HIGH]
    per_minute = total(recent, _GC_COUNT) / seconds * 60.0
    if per_minute > bounds[_GC_OFTEN_HIGH]:
        return _GC_OFTEN, per_minute, bounds[_GC_OFTEN_HIGH]
    return 0, np.nan, np.nan


@numba.njit(cache=True)
def heap_up(
    recent: Floats, held: Floats, known: Floats, orders: Integers, bounds: Floats, told: Floats
) -> int:
    """P1: signs in their order; where the parameter of one is pinned, the next is looked for."""
    larger = whole_mebibytes(held[HEAP] * bounds[_HEAP_FACTOR])
    answer = NOTHING
    if len(recent):
        symptom, measured, limit = _heap_sign(recent, held, bounds)
        if symptom:
            answer = allowed(orders, _P1, _PIN_HEAP)
            if answer == DECIDED:
                return settle(told, symptom, measured, limit, HEAP, larger)
        following = _spill(recent, held, orders, bounds, told)
        if following != DECIDED:
            answer = following if following != NOTHING else answer
            following = _driver(recent, held, orders, bounds, told)
        if following == DECIDED:
            return DECIDED
        answer = following if following != NOTHING else answer
    if orders[FORCED_RULE] and answer == NOTHING:
        answer = allowed(orders, _P1, _PIN_HEAP)
        if answer == DECIDED:
            return settle(told, _FORCED, np.nan, np.nan, HEAP, larger)
    return answer


@numba.njit(cache=True)
def _spill(recent: Floats, held: Floats, orders: Integers, bounds: Floats, told: Floats) -> int:
    share = total(recent, _GC_SECONDS) / total(recent, _SECONDS)
    spilled = least(recent, _SPILLED)
    if not (share <= bounds[_GC_HIGH] / 2 and spilled > 0):
        return NOTHING
    fraction = held[FRACTION] + bounds[_FRACTION_STEP]
    fits = fraction <= bounds[_MOST_FRACTION] + 1e-9
    answer = allowed(orders, _P1, _PIN_FRACTION if fits else _PIN_HEAP)
    if answer != DECIDED:
        return answer
    if fits:
        return settle(told, _SPILL, spilled, 0.0, FRACTION, fraction)
    return settle(told, _SPILL, spilled, 0.0, HEAP, whole_mebibytes(held[HEAP] * bounds[_HEAP_FACTOR]))


@numba.njit(cache=True)
def _driver(recent: Floats, held: Floats, orders: Integers, bounds: Floats, told: Floats) -> int:
    used = least(recent, _DRIVER) / held[DRIVER_HEAP]
    if not used > bounds[_HEAP_HIGH]:
        return NOTHING
    answer = allowed(orders, _P1, _PIN_DRIVER)
    if answer != DECIDED:
        return answer
    larger = whole_mebibytes(held[DRIVER_HEAP] * bounds[_HEAP_FACTOR])
    return settle(told, _DRIVER_FULL, used, bounds[_HEAP_HIGH], DRIVER_HEAP, larger)


@numba.njit(cache=True)
def _likely_beside(recent: Floats, place: int) -> float:
    likely = np.float64(recent[place, _RESIDENT]) - np.float64(recent[place, _COMMITTED])
    surely = np.float64(recent[place, _SURELY_BESIDE])
    return np.nan if math.isnan(likely) or math.isnan(surely) else max(likely, surely)


@numba.njit(cache=True)
def _more_overhead(recent: Floats, held: Floats, bounds: Floats, symptom: int) -> float:
    grown = whole_mebibytes(max(held[OVERHEAD], bounds[_LEAST_OVERHEAD]) * bounds[_OVERHEAD_FACTOR])
    if not len(recent):
        return grown
    largest = -np.inf
    for place in range(len(recent)):
        value = _likely_beside(recent, place)
        if math.isnan(value):
            return grown
        largest = max(largest, value)
    growth = _likely_beside(recent, len(recent) - 1) - _likely_beside(recent, 0)
    wanted = whole_mebibytes(max(largest / bounds[_OVERHEAD_TARGET], bounds[_LEAST_OVERHEAD]))
    steady = largest + growth <= bounds[_OVERHEAD_HIGH] * wanted
    return wanted if wanted > grown or (steady and symptom == _OVERHEAD_FULL) else grown


@numba.njit(cache=True)
def _memory_sign(recent: Floats, held: Floats, bounds: Floats) -> tuple[int, float, float]:
    killed = total(recent, _KILLS)
    if killed > 0:
        return _KILLED, killed, 0.0
    beside, overhead = most(recent, _SURELY_BESIDE), held[OVERHEAD]
    used = beside / overhead if overhead > 0 else np.inf if beside > 0 else 0.0
    return (_OVERHEAD_FULL if used > bounds[_OVERHEAD_HIGH] else 0), used, bounds[_OVERHEAD_HIGH]


@numba.njit(cache=True)
def memory_up(
    recent: Floats, held: Floats, known: Floats, orders: Integers, bounds: Floats, told: Floats
) -> int:
    """P2."""
    symptom, measured, limit = 0, np.nan, np.nan
    if len(recent):
        symptom, measured, limit = _memory_sign(recent, held, bounds)
    if not (symptom or orders[FORCED_RULE]):
        return NOTHING
    if not symptom:
        symptom, measured, limit = _FORCED, np.nan, np.nan
    answer = allowed(orders, _P2, _PIN_OVERHEAD)
    if answer != DECIDED:
        return answer
    more = _more_overhead(recent, held, bounds, symptom)
    return settle(told, symptom, measured, limit, OVERHEAD, more)


@numba.njit(cache=True)
def cpu_up(
    recent: Floats, held: Floats, known: Floats, orders: Integers, bounds: Floats, told: Floats
) -> int:
    """P3."""
    used = least(recent, _CPU) / held[CORES] if len(recent) else np.nan
    full = used > bounds[_CPU_HIGH]
    if not (full or orders[FORCED_RULE]):
        return NOTHING
    answer = allowed(orders, _P3, _PIN_CPU)
    if answer != DECIDED:
        return answer
    per_task = max(held[TASK_CPUS] + 1, np.ceil(held[TASK_CPUS] * bounds[_CPU_FACTOR]))
    told[AFTER + CORES] = held[CORES] // held[TASK_CPUS] * per_task
    return settle(told, _CPU_FULL if full else _FORCED, used, bounds[_CPU_HIGH], TASK_CPUS, per_task)


@numba.njit(cache=True)
def parallelism_up(
    recent: Floats, held: Floats, known: Floats, orders: Integers, bounds: Floats, told: Floats
) -> int:
    """P4."""
    recent = measured(recent, _NEEDED)
    if len(recent) < bounds[_LEAST_UP]:
        return NOTHING
    forced, grown = orders[FORCED_RULE] > 0, growth(recent, _BACKLOG)
    growing = grown >= bounds[_LEAST_GROWTH]
    if not forced and not growing:
        return NOTHING
    if not forced and known[CORRELATION] >= bounds[_CORRELATED]:
        return _SERVICE
    needed = np.float64(recent[len(recent) - 1, _NEEDED])
    if not needed > held[PARALLELISM]:
        return NOTHING if forced else _NO_NEED
    answer = allowed(orders, _P4, _PIN_PARALLELISM)
    if answer != DECIDED:
        return answer
    symptom = _GROWS if growing else _FORCED
    return settle(told, symptom, grown, bounds[_LEAST_GROWTH], PARALLELISM, np.floor(needed))
