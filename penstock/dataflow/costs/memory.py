"""The costs that recent batches of a query have shown, slot count by slot count.

Slots that share cores disturb each other, so a task may cost more on ten slots than on five. Each slot count
is fitted for itself, and `CostsBySlots` derives the costs on other counts from those seen.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from penstock.dataflow.costs.disturbance import keep_undisturbed
from penstock.dataflow.costs.fit import CALIBRATION_BATCHES, fit_costs, fit_slopes
from penstock.dataflow.costs.model import QueryCosts
from penstock.dataflow.costs.slots import CostsBySlots
from penstock.dataflow.metrics import BatchExecution, StageExecution
from penstock.dataflow.readiness import NotReady

MOST_DISAGREEMENT = 1.5
"""Costs of an earlier run that are off by more on the same slots belong to another machine or other code."""

SOLID_BATCHES = 2
"""One batch on a new slot count is not believed beside others: executors are still warming up."""

SHIFTED = 1.3
"""The newest batches that take this many times the work of those before, or so much less, are another level:
code that has warmed up, another input, a service that got slower."""


SHORTER = 0.9
"""The share of the batch before it that a batch may take at most to count as shorter."""

NEARLY_IN_TIME = 1.5
"""Periods at which batches that get shorter by themselves may settle for growth to wait."""

FAR_LARGER = 2.0
"""Times the records of the newest batches from which an older one tells what they cannot."""


log = logging.getLogger(__name__)


class CostMemory:
    """A bounded number of recent batches per slot count of one query, fitted when asked.

    Costs of an earlier run fill in for slot counts that this run has not seen.
    """

    def __init__(
        self,
        sources: Iterable[str] = (),
        *,
        batches_kept: int = 20,
        slot_counts_kept: int = 6,
        forget_after_seconds: float = 1800.0,
    ) -> None:
        """`sources` are the operators that read from outside, and so may have a task a file."""
        self._sources = frozenset(sources)
        self._batches_kept = batches_kept
        self._slot_counts_kept = slot_counts_kept
        self._forget_after_seconds = forget_after_seconds
        self._batches: dict[int, tuple[BatchExecution, ...]] = {}
        self._larger: dict[int, tuple[BatchExecution, ...]] = {}
        self._fits: dict[int, QueryCosts] = {}
        self._earlier: dict[int, QueryCosts] = {}
        self._first_start: float | None = None
        self._alone = True

    def recall(self, earlier: Iterable[QueryCosts]) -> None:
        """Take in the fits of an earlier run; they never decide without a batch of this run."""
        newest = list(earlier)[-self._slot_counts_kept :]
        self._earlier, self._fits = {costs.slots: costs for costs in newest}, {}

    def find_relief(self, slots: int, offered_per_second: float, period: float) -> str | None:
        """Say that the newest batch on so many slots took far less work than those before it tell.

        Or that batches get shorter by themselves while they read more than is offered, as code warms up.
        """
        batches = self._batches.get(slots, ())
        if len(batches) < SOLID_BATCHES:
            return None
        if shorter := _tell_shorter(batches[-2], batches[-1], offered_per_second, period):
            return shorter
        before = self._fit_batches(slots, batches[:-1])
        if isinstance(before, NotReady) or (miss := _measure_miss(before, batches[-1])) >= 1 / SHIFTED:
            return None
        return f"batch {batches[-1].batch_id} took {miss:.2g} times the work that those before it tell"

    def list_fits(self) -> tuple[QueryCosts, ...]:
        """Return the fits that a later run can use: those over several batches, and those of earlier runs."""
        if not self._alone:
            return tuple(self._earlier.values())
        solid = {s: fit for s, fit in self._fits.items() if len(self._batches[s]) >= SOLID_BATCHES}
        known = {**{s: fit for s, fit in self._earlier.items() if s not in solid}, **solid}
        return tuple(known.values())[-self._slot_counts_kept :]

    def remember(self, batches: Iterable[BatchExecution]) -> int:
        """Take in finished batches, each once, and return how many can be used."""
        usable = {batch.batch_id: batch for batch in batches if _is_usable(batch)}
        if not usable:
            return 0
        seen = chain(*self._batches.values(), *self._larger.values())
        known = {batch.batch_id: batch for batch in seen}
        ordered = sorted({**known, **usable}.values(), key=lambda batch: (batch.start, batch.batch_id))
        self._keep_recent(ordered)
        if self._first_start is None:
            self._first_start = ordered[0].start
        return len(usable)

    def costs(self, alone: bool = True) -> CostsBySlots | NotReady:
        """Fit the costs; `alone` says that no other query used the slots."""
        if alone != self._alone:
            self._alone, self._fits = alone, {}
        believed = self._list_believed()
        if not believed:
            return NotReady("no batch has finished", "a finished batch")
        refused: NotReady | None = None
        for slots in believed:
            refused = self._fit(slots) or refused
        fits = {slots: self._fits[slots] for slots in believed if slots in self._fits}
        if not fits:
            return refused or NotReady("no costs could be fitted")
        return CostsBySlots(self._drop_contradicted({**self._unseen(fits), **fits}))

    def _drop_contradicted(self, fits: dict[int, QueryCosts]) -> dict[int, QueryCosts]:
        """Drop the costs of other slot counts that the newest ones contradict: they are out of date.

        Slots that share cores slow each other down, at the worst in proportion to their number, and never
        the other way round. What lies outside of that was measured when the work was another.
        """
        held, newest = list(fits.items())[-1]
        batch = self._batches[held][-1]
        return {
            slots: costs
            for slots, costs in fits.items()
            if slots == held or _is_plausible(slots / held, _compare_work(costs, newest, batch))
        }

    def _unseen(self, fits: Mapping[int, QueryCosts]) -> dict[int, QueryCosts]:
        """Return earlier costs on slot counts that this run has not seen, while they can be believed."""
        against = self._against_earlier(fits)
        if against:
            log.info("costs that were learned in an earlier run are dropped: %s", against)
            self._earlier = {}
        # beside other queries a query's own slots are another measure
        return {s: costs for s, costs in self._earlier.items() if s not in fits} if self._alone else {}

    def _against_earlier(self, fits: Mapping[int, QueryCosts]) -> str | None:
        """Say what speaks against earlier costs; they are forgotten when this run would forget its own."""
        operators = _operators(list(fits.values())[-1])
        if any(_operators(costs) != operators for costs in self._earlier.values()):
            return "the query has other stages now"
        for slots in self._earlier.keys() & fits.keys():
            if not _agree(fits[slots], self._earlier[slots], self._batches[slots][-1]):
                return f"they do not hold any more on {slots} slots"
        if self._earlier and self._seen_for() > self._forget_after_seconds:
            return "this run has been watched for long enough"
        return None

    def _seen_for(self) -> float:
        newest = max(seen[-1].start for seen in self._batches.values())
        return newest - (newest if self._first_start is None else self._first_start)

    def _fit(self, slots: int) -> NotReady | None:
        """Fit one slot count, unless nothing has changed there."""
        if slots in self._fits:
            return None
        batches = keep_undisturbed(self._batches[slots])
        fitted = self._fit_batches(slots, batches)
        if isinstance(fitted, QueryCosts) and (level := self._find_new_level(fitted, batches)):
            self._batches[slots] = level
            self._larger.pop(slots, None)
            fitted = self._fit_batches(slots, level)
        if isinstance(fitted, NotReady):
            return fitted
        self._fits[slots] = fitted
        return None

    def _fit_batches(self, slots: int, batches: Sequence[BatchExecution]) -> QueryCosts | NotReady:
        larger = self._larger.get(slots, ())
        return fit_costs(batches, slots, self._known_slopes(slots), self._alone, self._sources, larger)

    def _find_new_level(
        self, fit: QueryCosts, batches: tuple[BatchExecution, ...]
    ) -> tuple[BatchExecution, ...]:
        """Return the newest batches where all of them took far more or far less work than those before.

        Few batches are compared with those before them alone, and only for less: executors that warm up.
        """
        newest, older = batches[-SOLID_BATCHES:], batches[:-SOLID_BATCHES]
        if not older:
            return ()
        is_early = len(older) <= SOLID_BATCHES
        before = self._fit_batches(newest[0].slots, older) if is_early else fit
        if isinstance(before, NotReady):
            return ()
        ratios = [_measure_miss(before, batch) for batch in newest]
        if all(ratio < 1 / SHIFTED for ratio in ratios):
            return newest
        return newest if not is_early and all(ratio > SHIFTED for ratio in ratios) else ()

    def _known_slopes(self, slots: int) -> dict[str, float]:
        """Return seconds per record from the nearest slot counts that could tell them from those per task.

        Where batches are alike on each slot count, as without a trigger interval, all counts tell together.
        """
        batches = [batch for count in self._list_believed() for batch in self._batches[count]]
        known = fit_slopes(batches) if self._alone and len(self._batches) > 1 else {}
        fits = {**self._earlier, **self._fits}
        for seen in sorted(fits, key=lambda other: abs(other - slots), reverse=True):
            known |= {s.operator: s.per_record_seconds for s in fits[seen].stages if s.identified}
        return known

    def _list_believed(self) -> list[int]:
        """Return the slot counts with enough batches, the one seen longest ago first."""
        counts = sorted(self._batches, key=lambda slots: self._batches[slots][-1].start)
        return [slots for slots in counts if len(self._batches[slots]) >= SOLID_BATCHES] or counts

    def _keep_recent(self, ordered: Sequence[BatchExecution]) -> None:
        oldest = ordered[-1].start - self._forget_after_seconds
        kept: dict[int, list[BatchExecution]] = {}
        for batch in reversed(ordered):
            fresh = kept.get(batch.slots, [] if len(kept) < self._slot_counts_kept else None)
            if fresh is not None and len(fresh) < self._batches_kept and batch.start >= oldest:
                fresh.append(batch)
                kept[batch.slots] = fresh
        before, self._batches = self._batches, {slots: tuple(seen[::-1]) for slots, seen in kept.items()}
        old = [batch for batch in ordered if batch.start >= oldest and batch.slots in kept]
        self._larger = {slots: found for slots in kept if (found := _find_larger(old, self._batches[slots]))}
        unchanged = {slots for slots, seen in self._batches.items() if _same(seen, before.get(slots, ()))}
        self._fits = {slots: fit for slots, fit in self._fits.items() if slots in unchanged}


def _find_larger(
    ordered: Iterable[BatchExecution], recent: Sequence[BatchExecution]
) -> tuple[BatchExecution, ...]:
    """Return the newest batch of each size that has far more records than the newest on these slots.

    Sizes are powers of two. A batch that takes the place of an older one of its size also corrects it.
    """
    least = FAR_LARGER * max(batch.input_records for batch in recent[-CALIBRATION_BATCHES:])
    slots, newest = recent[-1].slots, dict[int, BatchExecution]()
    for batch in ordered:
        if batch.slots == slots and batch.input_records > least:
            newest[math.frexp(batch.input_records)[1]] = batch
    return tuple(newest.values())


def _tell_shorter(
    before: BatchExecution, newest: BatchExecution, offered_per_second: float, period: float
) -> str | None:
    reads_more = newest.input_records > offered_per_second * newest.seconds
    if not reads_more or newest.seconds > SHORTER * before.seconds:
        return None
    if _extrapolate(before, newest, offered_per_second) > NEARLY_IN_TIME * period:
        return None
    return f"batches get shorter by themselves: {before.seconds:.1f} s, then {newest.seconds:.1f} s"


def _extrapolate(before: BatchExecution, newest: BatchExecution, offered_per_second: float) -> float:
    """Return the seconds at which batches settle by a line through two; 0 where the second was just faster.

    A batch of a source without limit has what came during the one before. So over a backlog batches get
    shorter until they settle at a length, which may be too long by far.
    """
    fewer = before.input_records - newest.input_records
    slope = (before.seconds - newest.seconds) / fewer if fewer > 0 else math.inf
    if slope * offered_per_second >= 1:
        return 0.0
    return max(0.0, newest.seconds - slope * newest.input_records) / (1 - slope * offered_per_second)


def _operators(costs: QueryCosts) -> set[str]:
    return {stage.operator for stage in costs.stages}


def _agree(fit: QueryCosts, earlier: QueryCosts, batch: BatchExecution) -> bool:
    """Tell whether both predict about the same work for one batch."""
    return 1 / MOST_DISAGREEMENT <= _compare_work(fit, earlier, batch) <= MOST_DISAGREEMENT


def _compare_work(one: QueryCosts, other: QueryCosts, batch: BatchExecution) -> float:
    """Divide the work that one predicts for a batch by what the other does; 1 where both predict none."""
    records = {stage.operator: float(stage.records_in.sum()) for stage in batch.stages}
    first, second = (
        costs.per_batch_seconds
        + sum(s.slot_seconds_at(records.get(s.operator, 0.0), batch.slots) for s in costs.stages)
        for costs in (one, other)
    )
    return first / second if second > 0 else (math.inf if first > 0 else 1.0)


def _is_plausible(more_slots: float, more_work: float) -> bool:
    """Tell whether so many times the slots can make so many times the work, by sharing cores alone."""
    least, most = min(1.0, more_slots), max(1.0, more_slots)
    return least / MOST_DISAGREEMENT <= more_work <= most * MOST_DISAGREEMENT


def _measure_miss(fit: QueryCosts, batch: BatchExecution) -> float:
    """Divide the useful seconds of a batch's tasks by those that the fit predicts for the same tasks."""
    known = [(stage, cost) for stage in batch.stages if (cost := fit.stage(stage.operator)) is not None]
    spent = sum(float(stage.useful_seconds.sum()) for stage, _ in known)
    expected = sum(
        stage.tasks * cost.per_task_seconds + cost.per_record_seconds * float(stage.records_in.sum())
        for stage, cost in known
    )
    return spent / expected if expected > 0 else 1.0


def _same(left: Sequence[BatchExecution], right: Sequence[BatchExecution]) -> bool:
    # by identity: comparing the columns of equal batches would cost more than fitting them again
    return len(left) == len(right) and all(one is other for one, other in zip(left, right, strict=True))


def _is_usable(batch: BatchExecution) -> bool:
    """Reject batches with broken counters or changing executors: they say nothing about their slots."""
    if not batch.settled:
        return False
    times = (batch.start, batch.seconds, *(stage.wall_seconds for stage in batch.stages))
    sane = all(math.isfinite(value) for value in times) and batch.seconds >= 0 and batch.slots >= 1
    return sane and all(_is_sane(stage) for stage in batch.stages)


def _is_sane(stage: StageExecution) -> bool:
    columns = (stage.records_in, stage.records_out, stage.useful_seconds)
    if any(len(column) != stage.tasks for column in columns):
        return False
    # a NaN makes the minimum NaN, so the comparison catches NaN and negatives alike
    return all(not stage.tasks or (column.min() >= 0 and column.max() < math.inf) for column in columns)
