"""The resizer between Sage's decision and the action: what hosts and quotas let through of it (section 4)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.decide.goals import SizeBounds
from penstock.decide.sage.metrics import HeldSize, Sizing
from penstock.decide.sage.rules import whole_mebibytes
from penstock.decide.sage.settings import MEBIBYTE, ClusterLimits


@dataclass(frozen=True, slots=True)
class Host:
    """The cores and memory of one host that are free for an application, its own executors included."""

    free_cores: int
    free_bytes: float


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that an application may have; `hosts` is empty where the cluster is not known."""

    host_cores: int
    host_bytes: float
    quota_cores: int
    quota_bytes: float
    most_executors: int = 100_000
    hosts: tuple[Host, ...] = ()

    @classmethod
    def of(cls, cluster: ClusterLimits, bounds: SizeBounds) -> Limits:
        """Return the limits as far as settings tell them."""
        quota_cores, quota_bytes = cluster.quota_cores or 10_000_000, cluster.quota_memory or 1e18
        return cls(
            host_cores=cluster.host_cores or quota_cores,
            host_bytes=cluster.host_memory or quota_bytes,
            quota_cores=quota_cores,
            quota_bytes=quota_bytes,
            most_executors=bounds.most,
        )


@dataclass(frozen=True, slots=True)
class Allocation:
    """The action: so many executors of a shape; `shortfalls` say what could not be met and what was done."""

    executors: int
    cores: int
    slots_per_executor: int
    executor_bytes: float
    shortfalls: tuple[str, ...] = ()


def allocate(size: HeldSize, limits: Limits) -> Allocation:
    """Return the least whole executors with the slots of this size; where it does not fit, the most that do.

    An allocation of zero executors says that not even one fits.
    """
    shape, notes = _cut_to_host(size, limits)
    if shape is None:
        return Allocation(0, 0, 0, 0.0, tuple(notes))
    wanted = math.ceil(size.parallelism * size.slots / shape.slots_per_executor)
    bounds = _list_bounds(shape, limits)
    given = min([wanted, *(bound for bound, _ in bounds)])
    if given < wanted:
        what = "; ".join(text for bound, text in bounds if bound == given)
        notes.append(f"{wanted} executors are needed and {given} fit: {what}")
    return Allocation(given, shape.cores, shape.slots_per_executor, shape.executor_bytes, tuple(notes))


def _cut_to_host(size: HeldSize, limits: Limits) -> tuple[Allocation | None, list[str]]:
    """Return the shape of one executor, cut down to what one host gives."""
    notes: list[str] = []
    slots, memory, cores = size.slots, size.heap_bytes + size.overhead_bytes, size.task_cpus
    most_cores = min(limits.host_cores, limits.quota_cores)
    most_slots = most_cores // cores
    if most_slots < 1:
        return None, [f"a slot needs {cores} cores, and {most_cores} is the most one executor may have"]
    if slots > most_slots:
        notes.append(
            f"executors of {slots} slots do not fit a host or the quota: {most_slots} slots each instead"
        )
        slots = most_slots
    most_bytes = min(limits.host_bytes, limits.quota_bytes)
    if memory > most_bytes:
        notes.append(f"{_gib(memory)} for one executor exceed what it may have: {_gib(most_bytes)} instead")
        memory = most_bytes
    return Allocation(1, slots * cores, slots, memory), notes


def _list_bounds(shape: Allocation, limits: Limits) -> list[tuple[int, str]]:
    """Return how many executors of this shape each limit lets through, with its words."""
    found = [
        (limits.most_executors, f"at most {limits.most_executors} executors are allowed"),
        (limits.quota_cores // shape.cores, f"the quota is {limits.quota_cores} cores"),
        (_count_whole(limits.quota_bytes, shape.executor_bytes), f"the quota is {_gib(limits.quota_bytes)}"),
    ]
    if limits.hosts:
        room = [_fits(host, shape) for host in limits.hosts]
        found.append((sum(room), _describe_room(limits.hosts, shape, sum(room))))
    return found


def _fits(host: Host, shape: Allocation) -> int:
    return max(0, min(host.free_cores // shape.cores, _count_whole(host.free_bytes, shape.executor_bytes)))


def _describe_room(hosts: Sequence[Host], shape: Allocation, room: int) -> str:
    """Say what is free, and whether it is of no use since no host has enough of both."""
    cores = sum(host.free_cores for host in hosts)
    memory = sum(host.free_bytes for host in hosts)
    together = min(cores // shape.cores, _count_whole(memory, shape.executor_bytes))
    if together > room:
        return f"the free {cores} cores and {_gib(memory)} are scattered over {len(hosts)} hosts"
    return f"{cores} cores and {_gib(memory)} are free on {len(hosts)} hosts"


def _count_whole(total: float, each: float) -> int:
    """Count whole parts of a total, never one too many because a quotient was rounded up."""
    count = int(total // each)
    return count if count * each <= total else count - 1


def _gib(size: float) -> str:
    return f"{size / 1024**3:.3g} GiB"


@dataclass(frozen=True, slots=True)
class Fitted:
    """A decision cut to what fits; None where nothing is left, and the notes say what stood in the way."""

    decision: Sizing | None
    notes: tuple[str, ...] = ()


def fit(held: HeldSize, decision: Sizing, limits: Limits) -> Fitted:
    """Cut a decision down to what may be had: whole executors, never fewer of them for larger ones.

    A larger executor takes its share of the quota only as far as the executors that are held still fit.
    """
    after = decision.after
    if after.parallelism != held.parallelism:
        return _fit_executors(held, decision, limits)
    if not _asks_for_more(held, after):
        return Fitted(decision)
    given = allocate(after, _for_each(limits, after.parallelism))
    if given.executors < after.parallelism:
        return Fitted(None, given.shortfalls)
    return _cut(held, decision, given)


def _fit_executors(held: HeldSize, decision: Sizing, limits: Limits) -> Fitted:
    """Fit more executors of the shape that they have; giving some back needs no leave."""
    if decision.after.parallelism < held.parallelism:
        return Fitted(decision)
    given = allocate(decision.after, limits)
    if not _has_shape(given, decision.after) or given.executors <= held.parallelism:
        return Fitted(None, given.shortfalls)
    if given.executors >= decision.after.parallelism:
        return Fitted(decision)
    after = replace(decision.after, parallelism=given.executors)
    return Fitted(replace(decision, after=after), given.shortfalls)


def _cut(held: HeldSize, decision: Sizing, given: Allocation) -> Fitted:
    """Take memory that does not fit off what was to grow, the heap first."""
    after = decision.after
    missing = after.heap_bytes + after.overhead_bytes - given.executor_bytes
    if missing > 0:
        # down to a whole mebibyte: rounded up it would not fit
        missing = float(whole_mebibytes(missing))
        off_heap = min(missing, max(0.0, after.heap_bytes - held.heap_bytes))
        least = min(held.overhead_bytes, after.overhead_bytes)
        overhead = max(least, after.overhead_bytes - (missing - off_heap))
        after = replace(after, heap_bytes=after.heap_bytes - off_heap, overhead_bytes=overhead)
    if not _has_shape(given, after) or not _asks_for_more(held, after):
        return Fitted(None, given.shortfalls)
    return Fitted(replace(decision, after=after), given.shortfalls)


def _has_shape(given: Allocation, size: HeldSize) -> bool:
    """Return whether executors of this size may be had at all."""
    memory = size.heap_bytes + size.overhead_bytes
    return given.cores >= size.cores and given.executor_bytes >= memory


def _for_each(limits: Limits, executors: int) -> Limits:
    """Return the limits with a share of the quota for each executor as the most that one may have."""
    share = math.floor(limits.quota_bytes / executors / MEBIBYTE) * MEBIBYTE
    return replace(limits, host_bytes=max(MEBIBYTE, min(limits.host_bytes, share)))


def _asks_for_more(held: HeldSize, after: HeldSize) -> bool:
    """Return whether executors become larger; a driver's heap or a share of the heap do not count."""
    pairs = (
        (after.heap_bytes, held.heap_bytes),
        (after.overhead_bytes, held.overhead_bytes),
        (float(after.cores), float(held.cores)),
    )
    return any(new > old for new, old in pairs)
