"""The sizing state of many applications in columns: histories, held sizes, and what a round decides."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats, Integers
from penstock.decide.sage import SizingRound
from penstock.decide.sage_metrics import (
    METRICS,
    HeldSize,
    Overrides,
    Parameter,
    Rule,
    Sizing,
    SizingHistory,
    SizingInput,
    Symptom,
    TooSmall,
)
from penstock.decide.sage_settings import SageSettings

COLUMN = {name: place for place, name in enumerate(METRICS)}
SIZE = tuple(column.name for column in fields(HeldSize))
"""The columns of a held size."""
PARALLELISM, HEAP, OVERHEAD, FRACTION, CORES, TASK_CPUS, DRIVER_HEAP = range(len(SIZE))
AWAITING = ("", "the end of the action in flight", "enough samples since the last change")
BITS = 3
"""Why a rule was held back takes three bits a rule."""

BOUND = {column.name: place for place, column in enumerate(fields(SageSettings))}
"""Where each setting is in the array that the kernel takes."""
SMALL_HEAP, SMALL_OVERHEAD, SMALL_CPUS, LOWERED_HEAP, CORRELATION = range(5)
"""The columns of what is known beside the metrics."""
PINNED_BITS, VETOED_BITS, FORCED_RULE = range(3)
"""The columns of what operators said."""
SYMPTOM, MEASURED, LIMIT, AFTER = range(4)
"""The columns of a decision; the size after it follows from AFTER on."""


def bounds_of(settings: SageSettings) -> Floats:
    """All settings as floats, in the order of `BOUND`."""
    return np.array([float(getattr(settings, name)) for name in BOUND])


class Applications(NamedTuple):
    """What a round looks at, one row an application.

    `history` is (application, sample, metric) with the newest sample last; `at` is -inf where there is none.
    `known` holds heap, overhead and task CPUs that were too small, the heap that was lowered, and the
    correlation with a service;
    `orders` what operators said: the pinned parameters and the vetoed rules as bits, and the forced rule.
    """

    now: Floats
    at: Floats
    history: NDArray[np.floating]
    held: Floats
    known: Floats
    fresh_after: Floats
    in_flight: NDArray[np.bool_]
    orders: Integers


class Decisions(NamedTuple):
    """What a round decided, one row an application; rule 0 is no decision."""

    rule: Integers
    told: Floats
    """Symptom, measured, limit, and the size after the decision."""
    held_back: Integers
    awaiting: Integers

    @property
    def after(self) -> Floats:
        """The sizes after the round; what was not changed is what is held."""
        return self.told[:, AFTER:]


def no_decisions(applications: Applications) -> Decisions:
    """A round before it begins: everything stays."""
    count = len(applications.now)
    told = np.full((count, AFTER + len(SIZE)), np.nan)
    told[:, SYMPTOM] = 0.0
    told[:, AFTER:] = applications.held
    rule, held_back, awaiting = (np.zeros(count, dtype=np.int64) for _ in range(3))
    return Decisions(rule, told, held_back, awaiting)


def input_of(applications: Applications, row: int) -> SizingInput:
    """One application as the pure policy takes it."""
    there = np.isfinite(applications.at[row])
    samples = applications.history[row][there].astype(np.float64)
    columns = {name: samples[:, place] for name, place in COLUMN.items()}
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


def held_of(row: Floats) -> HeldSize:
    """A row of sizes as a value."""
    parallelism, heap, overhead, fraction, cores, task_cpus, driver = row.tolist()
    return HeldSize(int(parallelism), heap, overhead, fraction, int(cores), int(task_cpus), driver)


def round_of(decisions: Decisions, row: int) -> SizingRound:
    """One application's outcome as the pure policy states it."""
    rule = Rule(int(decisions.rule[row]))
    decision = None
    if rule is not Rule.NONE:
        symptom, measured, limit = decisions.told[row, :AFTER].tolist()
        decision = Sizing(rule, Symptom(int(symptom)), measured, limit, held_of(decisions.after[row]))
    return SizingRound(
        decision, held_back_of(int(decisions.held_back[row])), AWAITING[int(decisions.awaiting[row])]
    )


def held_back_of(packed: int) -> tuple[tuple[Rule, int], ...]:
    """Rules that were held back, in their order, and why."""
    codes = ((rule, (packed >> (BITS * int(rule))) & (2**BITS - 1)) for rule in Rule)
    return tuple((rule, why) for rule, why in codes if why)


def _overrides(pinned: int, vetoed: int, forced: int) -> Overrides:
    return Overrides(
        frozenset(parameter for parameter in Parameter if pinned >> int(parameter) & 1),
        frozenset(rule for rule in Rule if vetoed >> int(rule) & 1),
        Rule(forced),
    )
