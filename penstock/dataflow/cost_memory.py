"""What recent batches have shown about a query's costs, slot count by slot count.

Slots that share cores disturb each other, so what a task costs on five slots it may not cost on ten. Each
slot count is fitted for itself, and costs on others follow from the ones seen (`costs_by_slots.py`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence

from penstock.dataflow.batches import BatchExecution, StageExecution
from penstock.dataflow.costs import QueryCosts, fit_costs
from penstock.dataflow.costs_by_slots import CostsBySlots
from penstock.dataflow.readiness import NotReady

MOST_DISAGREEMENT = 1.5
"""Costs of an earlier run that are off by more than this on the same slots are of another machine or code."""

SOLID_BATCHES = 2
"""One batch on a new slot count is not believed where others have been seen: it warms executors up."""


log = logging.getLogger(__name__)


class CostMemory:
    """Keeps a bounded number of recent batches per slot count of one query, and fits them when asked.

    What an earlier run has shown fills in for slot counts that this run has not seen.
    """

    def __init__(
        self, batches_kept: int = 20, slot_counts_kept: int = 6, forget_after_seconds: float = 1800.0
    ) -> None:
        self._batches_kept = batches_kept
        self._slot_counts_kept = slot_counts_kept
        self._forget_after_seconds = forget_after_seconds
        self._batches: dict[int, tuple[BatchExecution, ...]] = {}
        self._fits: dict[int, QueryCosts] = {}
        self._earlier: dict[int, QueryCosts] = {}
        self._first_start: float | None = None
        self._alone = True

    def recall(self, earlier: Iterable[QueryCosts]) -> None:
        """Take in what an earlier run has fitted; it never decides without a batch of this run."""
        newest = list(earlier)[-self._slot_counts_kept :]
        self._earlier, self._fits = {costs.slots: costs for costs in newest}, {}

    def fitted(self) -> tuple[QueryCosts, ...]:
        """What a later run could use: fits over several batches, and those of earlier runs beside them."""
        if not self._alone:
            return tuple(self._earlier.values())
        solid = {s: fit for s, fit in self._fits.items() if len(self._batches[s]) >= SOLID_BATCHES}
        known = {**{s: fit for s, fit in self._earlier.items() if s not in solid}, **solid}
        return tuple(known.values())[-self._slot_counts_kept :]

    def remember(self, batches: Iterable[BatchExecution]) -> int:
        """Take in finished batches, one that is seen again only once; say how many could be used."""
        usable = {batch.batch_id: batch for batch in batches if _is_usable(batch)}
        if not usable:
            return 0
        known = (batch for seen in self._batches.values() for batch in seen if batch.batch_id not in usable)
        ordered = sorted([*known, *usable.values()], key=lambda batch: (batch.start, batch.batch_id))
        self._keep_recent(ordered)
        if self._first_start is None:
            self._first_start = ordered[0].start
        return len(usable)

    def costs(self, alone: bool = True) -> CostsBySlots | NotReady:
        """The fitted costs; `alone` says that no other query used the slots."""
        if alone != self._alone:
            self._alone, self._fits = alone, {}
        believed = self._believed()
        if not believed:
            return NotReady("no batch has finished", "a finished batch")
        refused: NotReady | None = None
        for slots in believed:
            refused = self._fit(slots) or refused
        fits = {slots: self._fits[slots] for slots in believed if slots in self._fits}
        if not fits:
            return refused or NotReady("no costs could be fitted")
        return CostsBySlots({**self._unseen(fits), **fits})

    def _unseen(self, fits: Mapping[int, QueryCosts]) -> dict[int, QueryCosts]:
        """Earlier costs on slot counts that this run has not seen, while they can still be believed."""
        against = self._against_earlier(fits)
        if against:
            log.info("costs that were learned in an earlier run are dropped: %s", against)
            self._earlier = {}
        # beside other queries a query's own slots are another measure
        return {s: costs for s, costs in self._earlier.items() if s not in fits} if self._alone else {}

    def _against_earlier(self, fits: Mapping[int, QueryCosts]) -> str | None:
        """What speaks against earlier costs; they are forgotten when this run would forget its own, too."""
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
        """Fit one slot count, unless nothing has changed there; others may tell its tasks from records."""
        if slots in self._fits:
            return None
        fitted = fit_costs(self._batches[slots], slots, self._known_slopes(slots), self._alone)
        if isinstance(fitted, NotReady):
            return fitted
        self._fits[slots] = fitted
        return None

    def _known_slopes(self, slots: int) -> dict[str, float]:
        """Seconds per record from the nearest slot counts that could tell them."""
        known: dict[str, float] = {}
        fits = {**self._earlier, **self._fits}
        for seen in sorted(fits, key=lambda other: abs(other - slots), reverse=True):
            known |= {s.operator: s.per_record_seconds for s in fits[seen].stages if s.identified}
        return known

    def _believed(self) -> list[int]:
        """Slot counts with enough batches, the one seen longest ago first."""
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
        unchanged = {slots for slots, seen in self._batches.items() if _same(seen, before.get(slots, ()))}
        self._fits = {slots: fit for slots, fit in self._fits.items() if slots in unchanged}


def _operators(costs: QueryCosts) -> set[str]:
    return {stage.operator for stage in costs.stages}


def _agree(fit: QueryCosts, earlier: QueryCosts, batch: BatchExecution) -> bool:
    """Whether both say about the same of the work in one batch."""
    records = {stage.operator: float(stage.records_in.sum()) for stage in batch.stages}
    now, then = (
        costs.per_batch_seconds + sum(s.slot_seconds_at(records.get(s.operator, 0.0)) for s in costs.stages)
        for costs in (fit, earlier)
    )
    return now <= MOST_DISAGREEMENT * then and then <= MOST_DISAGREEMENT * now


def _same(left: Sequence[BatchExecution], right: Sequence[BatchExecution]) -> bool:
    # by identity: comparing the columns of equal batches would cost more than fitting them again
    return len(left) == len(right) and all(one is other for one, other in zip(left, right, strict=True))


def _is_usable(batch: BatchExecution) -> bool:
    """Whether the batch tells about its slots: broken counters and changing executors stay out of the fit."""
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
