"""Sage's rules over many applications at once, compiled; `decide/sage.py` is what they must agree with.

Numba's cache of compiled code does not see changes of functions or constants in other files: remove
`__pycache__` after changing `sage_kernel_up.py`, `sage_kernel_down.py`, `sage_windows.py`, or the numbers of
columns in `sage_columns.py`. Stale code decides wrongly in silence; `tests/fleet/test_kernels.py` shows it.
"""

from __future__ import annotations

import numba

from penstock.dataflow.metrics import Floats, Integers
from penstock.decide.sage import PINNED
from penstock.decide.sage_metrics import Rule
from penstock.decide.sage_settings import SageSettings
from penstock.fleet.sage_columns import (
    BITS,
    BOUND,
    FORCED_RULE,
    Applications,
    Decisions,
    bounds_of,
    no_decisions,
)
from penstock.fleet.sage_kernel_down import cpu_down, heap_down, memory_down, parallelism_down
from penstock.fleet.sage_kernel_up import DECIDED, NOTHING, cpu_up, heap_up, memory_up, parallelism_up
from penstock.fleet.sage_windows import first_after

_P1, _P2, _P3, _P4, _P5, _P6, _P7, _P8 = (int(rule) for rule in Rule if rule is not Rule.NONE)
IN_FLIGHT, TOO_FEW = 1, 2
_UP_BITS = (1 << BITS * (_P4 + 1)) - 1
"""Where it is kept why a scale-up was held back."""
_UP_SECONDS, _DOWN_SECONDS = BOUND["up_window_seconds"], BOUND["down_window_seconds"]
_LEAST_UP, _LEAST_DOWN = BOUND["least_up_samples"], BOUND["least_down_samples"]


def evaluate_sage(applications: Applications, settings: SageSettings) -> Decisions:
    """One round over all applications."""
    decisions = no_decisions(applications)
    _evaluate_all(applications, bounds_of(settings), decisions)
    return decisions


@numba.njit(cache=True)
def _evaluate_all(apps: Applications, bounds: Floats, out: Decisions) -> None:
    for i in range(len(apps.now)):
        if apps.in_flight[i]:
            out.awaiting[i] = IN_FLIGHT
            continue
        up, down, end = _windows(apps.at[i], apps.now[i], apps.fresh_after[i], bounds)
        rows, held, orders, told = apps.history[i], apps.held[i], apps.orders[i], out.told[i]
        rule, forced_back = orders[FORCED_RULE], 0
        if rule:
            answer = _rule(rule, rows[up:end], rows[down:end], held, apps.known[i], orders, bounds, told)
            if answer == DECIDED:
                out.rule[i] = rule
                continue
            forced_back = PINNED << (BITS * rule) if answer == PINNED else 0
            orders = orders.copy()
            orders[FORCED_RULE] = 0
        if up < end or down < end:
            decided, back = _in_order(rows[up:end], rows[down:end], held, apps.known[i], orders, bounds, told)
            out.rule[i] = decided
            out.held_back[i] = back if back or decided else forced_back
        else:
            out.awaiting[i] = TOO_FEW


@numba.njit(cache=True)
def _windows(at: Floats, now: float, fresh: float, bounds: Floats) -> tuple[int, int, int]:
    """Where both sliding windows begin, and where they end; one with too few samples begins at its end."""
    end = first_after(at, now)
    up = min(first_after(at, max(now - bounds[_UP_SECONDS], fresh)), end)
    down = min(first_after(at, max(now - bounds[_DOWN_SECONDS], fresh)), end)
    return (
        up if end - up >= bounds[_LEAST_UP] else end,
        down if end - down >= bounds[_LEAST_DOWN] else end,
        end,
    )


@numba.njit(cache=True)
def _in_order(
    recent: Floats,
    long: Floats,
    held: Floats,
    known: Floats,
    orders: Integers,
    bounds: Floats,
    told: Floats,
) -> tuple[int, int]:
    """P1 to P8; a scale-up that was wanted and held back forbids every scale-down."""
    held_back = 0
    for rule in range(_P1, _P8 + 1):
        if rule > _P4 and held_back & _UP_BITS:
            break
        answer = _rule(rule, recent, long, held, known, orders, bounds, told)
        if answer == DECIDED:
            return rule, held_back
        if answer != NOTHING:
            held_back |= answer << (BITS * rule)
    return 0, held_back


@numba.njit(cache=True)
def _rule(
    rule: int,
    recent: Floats,
    long: Floats,
    held: Floats,
    known: Floats,
    orders: Integers,
    bounds: Floats,
    told: Floats,
) -> int:
    answer = NOTHING
    if rule == _P1:
        answer = heap_up(recent, held, known, orders, bounds, told)
    elif rule == _P2:
        answer = memory_up(recent, held, known, orders, bounds, told)
    elif rule == _P3:
        answer = cpu_up(recent, held, known, orders, bounds, told)
    elif rule == _P4:
        answer = parallelism_up(recent, held, known, orders, bounds, told)
    elif len(long) == 0:
        answer = NOTHING
    elif rule == _P5:
        answer = parallelism_down(long, held, known, orders, bounds, told)
    elif rule == _P6:
        answer = heap_down(long, held, known, orders, bounds, told)
    elif rule == _P7:
        answer = memory_down(long, held, known, orders, bounds, told)
    else:
        answer = cpu_down(long, held, known, orders, bounds, told)
    return answer
