"""Applications in columns: what a round of Sage's rules takes and gives, one row an application (pure).

One application is a table of one row, a fleet one of many: the same rules judge both.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.dataflow.metrics import Floats, Integers
from penstock.decide.sage.metrics import (
    METRICS,
    HeldSize,
    Overrides,
    Parameter,
    Rule,
    Sizing,
    SizingInput,
    Symptom,
)

Bools = NDArray[np.bool_]
COLUMN = {name: place for place, name in enumerate(METRICS)}
SIZE = tuple(column.name for column in fields(HeldSize))
"""The columns of a held size."""
PARALLELISM, HEAP, OVERHEAD, FRACTION, CORES, TASK_CPUS, DRIVER_HEAP = range(len(SIZE))
CHANGED = {
    Parameter.PARALLELISM: PARALLELISM,
    Parameter.HEAP: HEAP,
    Parameter.OVERHEAD: OVERHEAD,
    Parameter.MEMORY_FRACTION: FRACTION,
    Parameter.CPU: TASK_CPUS,
    Parameter.DRIVER_HEAP: DRIVER_HEAP,
}
"""The column of each parameter; where task CPUs change, the cores change with them."""
SMALL_HEAP, SMALL_OVERHEAD, SMALL_CPUS, LOWERED_HEAP, CORRELATION = range(5)
"""The columns of what is known beside the metrics."""
PINNED_BITS, VETOED_BITS, FORCED_RULE = range(3)
"""The columns of what operators said."""
SYMPTOM, MEASURED, LIMIT, AFTER = range(4)
"""The columns of a decision; the size after it follows from AFTER on."""
BITS = 3
"""Why a rule was held back takes three bits a rule."""
AWAITING = ("", "the end of the action in flight", "enough samples since the last change")
IN_FLIGHT, TOO_FEW = 1, 2


class Applications(NamedTuple):
    """The input of a round, one row an application.

    `history` is (application, metric, sample) with the newest sample last; `at` is -inf where there is none.
    `known` holds heap, overhead and task CPUs that were too small, the heap that was lowered, and the
    correlation with a service; `orders` what operators said: the pinned parameters and the vetoed rules as
    bits, and the forced rule.
    """

    now: Floats
    at: Floats
    history: NDArray[np.floating]
    held: Floats
    known: Floats
    fresh_after: Floats
    in_flight: Bools
    orders: Integers

    def take(self, rows: slice | Integers) -> Applications:
        """Return some of the applications."""
        return Applications._make(column[rows] for column in self)


class Decisions(NamedTuple):
    """The decisions of a round, one row an application; rule 0 is no decision."""

    rule: Integers
    told: Floats
    """Symptom, measured, limit, and the size after the decision."""
    held_back: Integers
    awaiting: Integers

    @property
    def after(self) -> Floats:
        """The sizes after the round; what was not changed is what is held."""
        return self.told[:, AFTER:]


def no_decisions(held: Floats) -> Decisions:
    """Return a round before it begins: everything stays."""
    count = len(held)
    told = np.full((count, AFTER + len(SIZE)), np.nan)
    told[:, SYMPTOM] = 0.0
    told[:, AFTER:] = held
    rule, held_back, awaiting = (np.zeros(count, dtype=np.int64) for _ in range(3))
    return Decisions(rule, told, held_back, awaiting)


def tabulate_input(given: SizingInput) -> Applications:
    """Return one application as a table of one row."""
    history, held, small, said = given.history, given.held, given.too_small, given.overrides
    return Applications(
        now=np.array([given.now]),
        at=history.at[None],
        history=np.array([[getattr(history, name) for name in METRICS]]),
        held=size_row(held),
        known=np.array([[*astuple(small), given.service_correlation]]),
        fresh_after=np.array([given.fresh_after]),
        in_flight=np.array([given.action_in_flight]),
        orders=np.array([pack_overrides(said)], dtype=np.int64),
    )


def size_row(held: HeldSize) -> Floats:
    """Return a size as a table of one row."""
    return np.array([[float(getattr(held, name)) for name in SIZE]])


def pack_overrides(said: Overrides) -> tuple[int, int, int]:
    """Return pinned parameters and vetoed rules as bits, and the forced rule."""
    pinned = sum(1 << int(parameter) for parameter in said.pinned)
    return pinned, sum(1 << int(rule) for rule in said.vetoed), int(said.forced)


def held_of(row: Floats) -> HeldSize:
    """Return a row of sizes as a value."""
    parallelism, heap, overhead, fraction, cores, task_cpus, driver = row.tolist()
    return HeldSize(int(parallelism), heap, overhead, fraction, int(cores), int(task_cpus), driver)


def sizing_of(decisions: Decisions, row: int) -> Sizing | None:
    """Return one application's decision as a value."""
    rule = Rule(int(decisions.rule[row]))
    if rule is Rule.NONE:
        return None
    symptom, measured, limit = decisions.told[row, :AFTER].tolist()
    return Sizing(rule, Symptom(int(symptom)), measured, limit, held_of(decisions.after[row]))


def held_back_of(packed: int) -> tuple[tuple[Rule, int], ...]:
    """Return the rules that were held back, in their order, and why."""
    codes = ((rule, (packed >> (BITS * int(rule))) & (2**BITS - 1)) for rule in Rule)
    return tuple((rule, why) for rule, why in codes if why)


@dataclass(frozen=True, slots=True)
class Window:
    """The samples of each application that a rule looks at.

    A reduction is NaN where a sample was not measured, and where there are too few samples: no comparison
    with it holds.
    """

    history: NDArray[np.floating]
    taken: Bools
    """Whether a sample counts; none does where there are too few."""
    there: Bools
    """Whether there are enough samples."""

    @staticmethod
    def since(apps: Applications, seconds: float, least: int) -> Window:
        """Take the samples of the last seconds that are newer than the last change of size."""
        after = np.maximum(apps.now - seconds, apps.fresh_after)
        taken = (apps.at > after[:, None]) & (apps.at <= apps.now[:, None])
        there = taken.sum(axis=1) >= least
        taken &= there[:, None]
        # samples that no application counts need not be looked at
        begin = int(np.argmax(taken.any(axis=0))) if there.any() else -1
        return Window(apps.history[:, :, begin:], taken[:, begin:], there)

    def take(self, rows: Integers) -> Window:
        """Return the samples of some of the applications."""
        return Window(self.history[rows], self.taken[rows], self.there[rows])

    def where_measured(self, least: int, *names: str) -> Window:
        """Take the samples in which all these were measured, if enough are left."""
        known = self.taken.copy()
        for name in names:
            known &= ~np.isnan(self.values(name))
        there = known.sum(axis=1) >= least
        known &= there[:, None]
        return Window(self.history, known, there)

    def values(self, name: str) -> Floats:
        """Return a metric of all samples, taken or not."""
        return self.history[:, COLUMN[name]].astype(np.float64, copy=False)

    def least(self, values: Floats) -> Floats:
        """Return the smallest value of each application."""
        found = np.where(self.taken, values, np.inf).min(axis=1)
        return np.where(self.there, found, np.nan)

    def most(self, values: Floats) -> Floats:
        """Return the largest value of each application."""
        found = np.where(self.taken, values, -np.inf).max(axis=1)
        return np.where(self.there, found, np.nan)

    def total(self, values: Floats) -> Floats:
        """Return the sum for each application, from the oldest sample to the newest."""
        found = np.cumsum(np.where(self.taken, values, 0.0), axis=1)[:, -1]
        return np.where(self.there, found, np.nan)

    def came_up(self, values: Floats) -> Bools:
        """Return whether a count was above zero in any sample; one that was not measured hides no other."""
        return np.asarray((self.taken & (values > 0)).any(axis=1))

    def first(self, values: Floats) -> Floats:
        """Return the value of the oldest sample."""
        return self._at(values, np.argmax(self.taken, axis=1))

    def last(self, values: Floats) -> Floats:
        """Return the value of the newest sample."""
        return self._at(values, self.taken.shape[1] - 1 - np.argmax(self.taken[:, ::-1], axis=1))

    def _at(self, values: Floats, place: Integers) -> Floats:
        found = np.take_along_axis(values, place[:, None], axis=1)[:, 0]
        return np.where(self.there, found, np.nan)

    def growth(self, values: Floats) -> Floats:
        """Return how much a value grew; NaN unless every sample has more than the one before."""
        kept = np.where(self.taken, values, -np.inf)
        # a value above all before it is above the one before it, and samples that are left out do no harm
        before = np.maximum.accumulate(kept, axis=1)
        rises = (~self.taken[:, 1:] | (kept[:, 1:] > before[:, :-1])).all(axis=1)
        return np.where(rises, self.last(values) - self.first(values), np.nan)

    def lasting(self, values: Floats, count: int) -> Floats:
        """Return the largest value that so many samples in a row did not fall below."""
        taken, kept = self._line_up(np.where(self.taken, values, np.inf))
        return np.where(self.there, lasting(kept, count, taken), np.nan)

    def busiest(self, values: Floats, count: int) -> Floats:
        """Return the largest amount a second over so many samples in a row."""
        taken, amounts = self._line_up(np.where(self.taken, values, 0.0))
        seconds = self._line_up(np.where(self.taken, self.values("seconds"), 0.0))[1]
        width = min(count, values.shape[1])
        places = values.shape[1] - width + 1
        parts = [(amounts[:, n : n + places], seconds[:, n : n + places]) for n in range(width)]
        rates = sum(amount for amount, _ in parts) / sum(length for _, length in parts)
        found = np.where(_find_whole_runs(taken, places), rates, -np.inf).max(axis=1)
        return np.where(self.there, found, np.nan)

    def _line_up(self, values: Floats) -> tuple[Bools, Floats]:
        """Return which samples are taken, and the values, with those that are taken last in each row."""
        if not bool((self.taken[:, :-1] & ~self.taken[:, 1:]).any()):
            return self.taken, values
        order = np.argsort(self.taken, axis=1, kind="stable")
        return np.take_along_axis(self.taken, order, axis=1), np.take_along_axis(values, order, axis=1)


def _find_whole_runs(taken: Bools, places: int) -> Bools:
    """Return the places where a run of samples begins that are all taken; too few are one run."""
    whole = taken[:, :places].copy()
    whole[:, -1] = True
    return whole


def lasting(values: Floats, count: int, taken: Bools | None = None) -> Floats:
    """Return for each row the largest value that `count` samples in a row did not fall below.

    Taken samples are the last ones of a row, all others are infinite; fewer than `count` are one row.
    """
    width = min(count, values.shape[1])
    places = values.shape[1] - width + 1
    lowest = values[:, :places]
    for shift in range(1, width):
        lowest = np.minimum(lowest, values[:, shift : shift + places])
    whole = True if taken is None else _find_whole_runs(taken, places)
    found: Floats = np.where(whole, lowest, -np.inf).max(axis=1)
    return found
