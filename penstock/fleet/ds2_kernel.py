"""DS2 over the operators of many applications at once, compiled (equations 7 and 8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats, Integers
from penstock.dataflow.propagation import MOST_INSTANCES, ROUNDING_TOLERANCE
from penstock.decide.ds2_settings import Ds2Settings
from penstock.fleet.operators import OperatorColumns


class Ds2Bounds(NamedTuple):
    """The settings that the kernel needs."""

    utilisation: float
    catch_up_seconds: float
    target_rate_ratio: float


class _Operators(NamedTuple):
    """The columns of `OperatorColumns`, in the same order."""

    first: Integers
    processing: Floats
    output: Floats
    instances: Integers
    scalable: NDArray[np.bool_]
    offered: Floats
    observed: Floats
    backlog: Floats
    upstream_first: Integers
    upstream: Integers


@dataclass(frozen=True, slots=True)
class Needs:
    """Per operator what it needs; per application whether that could be computed, and the sums."""

    exact: Floats
    wanted: Integers
    ready: NDArray[np.bool_]
    instances: Floats
    """Wanted instances of all operators that are not sources."""
    held: Floats
    """Held instances of the same."""
    slots: Floats
    """Exact need of the same: what operators need that share slots."""


def evaluate_ds2(columns: OperatorColumns, settings: Ds2Settings) -> Needs:
    """What every operator of every application needs."""
    bounds = Ds2Bounds(settings.utilisation, settings.catch_up_seconds, settings.target_rate_ratio)
    operators = _Operators(*columns.arrays())
    count, applications = len(columns.true_processing), columns.applications
    exact, wanted = np.zeros(count), np.zeros(count, dtype=np.int64)
    ready = np.zeros(applications, dtype=np.bool_)
    work = np.zeros((3, count))
    _evaluate_all(operators, bounds, work, exact, wanted, ready)
    inner = np.diff(columns.upstream_first) > 0
    return Needs(
        exact,
        wanted,
        ready,
        _summed(np.where(inner, wanted, 0.0), columns.first),
        _summed(np.where(inner, columns.instances, 0.0), columns.first),
        _summed(np.where(inner, exact, 0.0), columns.first),
    )


def _summed(values: Floats, first: Integers) -> Floats:
    """Sums over each application's operators; one without operators has none."""
    total = np.add.reduceat(np.append(values, 0.0), np.minimum(first[:-1], len(values)))
    return np.where(first[1:] > first[:-1], total, 0.0)


@numba.njit(cache=True)
def _evaluate_all(
    operators: _Operators,
    bounds: Ds2Bounds,
    work: Floats,
    exact: Floats,
    wanted: Integers,
    ready: NDArray[np.bool_],
) -> None:
    targets, flows, shares = work[0], work[1], work[2]
    for application in range(len(operators.first) - 1):
        begin, end = operators.first[application], operators.first[application + 1]
        if begin == end or not _usable(operators, begin, end):
            continue
        overloaded = _propagate(operators, bounds, begin, end, targets, flows, shares)
        if overloaded:
            _admit(operators, begin, end, targets, flows, shares)
        if _size(operators, bounds, begin, end, targets, exact, wanted):
            ready[application] = True
            _correct(operators, bounds, begin, end, wanted)


@numba.njit(cache=True)
def _is_source(operators: _Operators, place: int) -> bool:
    return bool(operators.upstream_first[place + 1] == operators.upstream_first[place])


@numba.njit(cache=True)
def _usable(operators: _Operators, begin: int, end: int) -> bool:
    for place in range(begin, end):
        processing, output = operators.processing[place], operators.output[place]
        if operators.instances[place] < 1 or not (np.isfinite(processing) and np.isfinite(output)):
            return False
        if _is_source(operators, place):
            offered, backlog = operators.offered[place], operators.backlog[place]
            if not (np.isfinite(offered) and np.isfinite(backlog) and offered >= 0 and backlog >= 0):
                return False
        elif not processing > 0:
            return False
    return True


@numba.njit(cache=True)
def _propagate(
    operators: _Operators,
    bounds: Ds2Bounds,
    begin: int,
    end: int,
    targets: Floats,
    flows: Floats,
    shares: Floats,
) -> bool:
    """Equation 8; an operator that cannot be scaled passes on no more than its capacity."""
    overloaded = False
    for place in range(begin, end):
        shares[place] = np.nan
        if _is_source(operators, place):
            targets[place] = operators.offered[place] + operators.backlog[place] / bounds.catch_up_seconds
            flows[place] = targets[place]
            continue
        target, processing = 0.0, operators.processing[place]
        for edge in range(operators.upstream_first[place], operators.upstream_first[place + 1]):
            target += flows[begin + operators.upstream[edge]]
        taken = target
        if not operators.scalable[place]:
            taken = min(target, processing)
            if processing < target * (1 - ROUNDING_TOLERANCE):
                shares[place] = processing / target
                overloaded = True
        targets[place] = target
        flows[place] = taken * (operators.output[place] / processing)
    return overloaded


@numba.njit(cache=True)
def _admit(
    operators: _Operators, begin: int, end: int, targets: Floats, taken: Floats, shares: Floats
) -> None:
    """Operators that feed nothing but overloaded ones need only what those can take."""
    taken[begin:end] = 0.0
    for place in range(end - 1, begin - 1, -1):
        share = taken[place] if taken[place] != 0.0 else 1.0
        own = share
        if np.isnan(shares[place]):
            targets[place] *= share
        else:
            own = share * shares[place]
        for edge in range(operators.upstream_first[place], operators.upstream_first[place + 1]):
            feed = begin + operators.upstream[edge]
            taken[feed] = max(taken[feed], own)


@numba.njit(cache=True)
def _whole(exact: float) -> int:
    return int(max(np.ceil(min(exact, MOST_INSTANCES) * (1 - ROUNDING_TOLERANCE)), 1.0))


@numba.njit(cache=True)
def _size(
    operators: _Operators,
    bounds: Ds2Bounds,
    begin: int,
    end: int,
    targets: Floats,
    exact: Floats,
    wanted: Integers,
) -> bool:
    """Equation 7; false where a target is too large to compute with."""
    for place in range(begin, end):
        held = float(operators.instances[place])
        need = held
        if not _is_source(operators, place):
            need = targets[place] * held / operators.processing[place]
        if not np.isfinite(need):
            return False
        exact[place] = need if _is_source(operators, place) else need / bounds.utilisation
        fixed = _is_source(operators, place) or not operators.scalable[place]
        wanted[place] = operators.instances[place] if fixed else _whole(exact[place])
    return True


@numba.njit(cache=True)
def _correct(operators: _Operators, bounds: Ds2Bounds, begin: int, end: int, wanted: Integers) -> None:
    """Where the model sees no need and sources fall short, scale by the shortfall (section 4.2.1)."""
    ratio = 0.0
    for place in range(begin, end):
        if wanted[place] > operators.instances[place] or bounds.target_rate_ratio <= 1:
            return
        if _is_source(operators, place) and operators.observed[place] > 0:
            ratio = max(ratio, operators.offered[place] / operators.observed[place])
    if ratio > bounds.target_rate_ratio:
        for place in range(begin, end):
            if operators.scalable[place] and not _is_source(operators, place):
                wanted[place] = _whole(wanted[place] * ratio)
