"""The resizer between Sage's decision and the action: what hosts and quotas let through of it (section 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from penstock.decide.resizer import Allocation, Amount, Limits, allocate
from penstock.decide.sage_metrics import HeldSize, Sizing
from penstock.decide.sage_rules import whole_mebibytes
from penstock.decide.sage_settings import MEBIBYTE


@dataclass(frozen=True, slots=True)
class Fitted:
    """What is left of a decision; None where nothing is, and the notes say what stood in the way."""

    decision: Sizing | None
    notes: tuple[str, ...] = ()


def fit(held: HeldSize, decision: Sizing, limits: Limits) -> Fitted:
    """The decision cut down to what may be had: whole executors, never fewer of them for larger ones.

    A larger executor takes its share of the quota only as far as the executors that are held still fit.
    """
    after = decision.after
    if after.parallelism != held.parallelism:
        return _executors(held, decision, limits)
    if not _asks_for_more(held, after):
        return Fitted(decision)
    given = allocate(_amount(after), _for_each(limits, after.parallelism))
    if given.executors < after.parallelism:
        return Fitted(None, given.shortfalls)
    return _cut(held, decision, given)


def _executors(held: HeldSize, decision: Sizing, limits: Limits) -> Fitted:
    """More executors of the shape that they have; giving some back needs no leave."""
    if decision.after.parallelism < held.parallelism:
        return Fitted(decision)
    given = allocate(_amount(decision.after), limits)
    if not _has_shape(given, decision.after) or given.executors <= held.parallelism:
        return Fitted(None, given.shortfalls)
    if given.executors >= decision.after.parallelism:
        return Fitted(decision)
    after = replace(decision.after, parallelism=given.executors)
    return Fitted(replace(decision, after=after), given.shortfalls)


def _cut(held: HeldSize, decision: Sizing, given: Allocation) -> Fitted:
    """Memory that does not fit is taken off what was to grow, the heap first."""
    after = decision.after
    missing = after.heap_bytes + after.overhead_bytes - given.executor_bytes
    if missing > 0:
        # down to a whole mebibyte: rounded up it would not fit
        missing = whole_mebibytes(missing)
        off_heap = min(missing, max(0.0, after.heap_bytes - held.heap_bytes))
        least = min(held.overhead_bytes, after.overhead_bytes)
        overhead = max(least, after.overhead_bytes - (missing - off_heap))
        after = replace(after, heap_bytes=after.heap_bytes - off_heap, overhead_bytes=overhead)
    if not _has_shape(given, after) or not _asks_for_more(held, after):
        return Fitted(None, given.shortfalls)
    return Fitted(replace(decision, after=after), given.shortfalls)


def _has_shape(given: Allocation, size: HeldSize) -> bool:
    """Whether executors of this size may be had at all."""
    memory = size.heap_bytes + size.overhead_bytes
    return given.cores >= size.cores and given.executor_bytes >= memory


def _amount(size: HeldSize) -> Amount:
    return Amount(
        slots=size.parallelism * size.slots,
        slots_per_executor=size.slots,
        cores_per_slot=size.task_cpus,
        executor_bytes=size.heap_bytes + size.overhead_bytes,
    )


def _for_each(limits: Limits, executors: int) -> Limits:
    """The limits with a share of the quota for each executor as the most that one may have."""
    share = math.floor(limits.quota_bytes / executors / MEBIBYTE) * MEBIBYTE
    return replace(limits, host_bytes=max(MEBIBYTE, min(limits.host_bytes, share)))


def _asks_for_more(held: HeldSize, after: HeldSize) -> bool:
    """Whether the executors as a whole become larger; a driver's heap or a share of the heap do not count."""
    pairs = (
        (after.heap_bytes, held.heap_bytes),
        (after.overhead_bytes, held.overhead_bytes),
        (float(after.cores), float(held.cores)),
    )
    return any(new > old for new, old in pairs)
