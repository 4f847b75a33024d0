"""From a decided amount to whole executors that fit hosts, quotas and what is free (section 4, resizer)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.decide.ranges import require
from penstock.errors import BadSettings


@dataclass(frozen=True, slots=True)
class Host:
    """What one host can give, and what of it is free for this application, its own executors included."""

    free_cores: int
    free_bytes: float


@dataclass(frozen=True, slots=True)
class Limits:
    """What an application may have at most; `hosts` is empty where the cluster is not known."""

    host_cores: int
    host_bytes: float
    quota_cores: int
    quota_bytes: float
    most_executors: int = 100_000
    hosts: tuple[Host, ...] = ()

    def __post_init__(self) -> None:
        for key in ("host_cores", "host_bytes", "quota_cores", "quota_bytes", "most_executors"):
            require(key, getattr(self, key))


@dataclass(frozen=True, slots=True)
class Amount:
    """What is asked for: slots in all, the cores of a slot, and the memory of one executor.

    `total_bytes` asks for memory in all instead, of which an executor is to have `executor_bytes`.
    """

    slots: int
    slots_per_executor: int
    cores_per_slot: int = 1
    executor_bytes: float = 0.0
    total_bytes: float = 0.0

    def __post_init__(self) -> None:
        for key in ("slots", "slots_per_executor", "cores_per_slot", "executor_bytes"):
            require(key, getattr(self, key))
        if not 0 <= self.total_bytes < math.inf:
            raise BadSettings(f"total_bytes is out of range: {self.total_bytes}")


@dataclass(frozen=True, slots=True)
class Allocation:
    """The action: so many executors of a shape; `shortfalls` say what could not be met and what was done."""

    executors: int
    cores: int
    slots_per_executor: int
    executor_bytes: float
    shortfalls: tuple[str, ...] = ()

    @property
    def slots(self) -> int:
        """Slots of all executors."""
        return self.executors * self.slots_per_executor

    @property
    def total_bytes(self) -> float:
        """Memory of all executors."""
        return self.executors * self.executor_bytes


def allocate(amount: Amount, limits: Limits) -> Allocation:
    """The least whole executors that give the amount; where it does not fit, the most that does.

    An allocation of zero executors says that not even one fits.
    """
    shape, notes = _shape(amount, limits)
    if shape is None:
        return Allocation(0, 0, 0, 0.0, tuple(notes))
    wanted = _executors(amount, shape)
    bounds = _bounds(shape, limits)
    given = min([wanted, *(bound for bound, _ in bounds)])
    if given < wanted:
        what = "; ".join(text for bound, text in bounds if bound == given)
        notes.append(f"{wanted} executors are needed and {given} fit: {what}")
    return Allocation(given, shape.cores, shape.slots_per_executor, shape.executor_bytes, tuple(notes))


def _shape(amount: Amount, limits: Limits) -> tuple[Allocation | None, list[str]]:
    """The shape of one executor, cut down to what one host gives."""
    notes: list[str] = []
    slots, memory = amount.slots_per_executor, amount.executor_bytes
    most_slots = min(limits.host_cores, limits.quota_cores) // amount.cores_per_slot
    if most_slots < 1:
        cores = min(limits.host_cores, limits.quota_cores)
        return None, [
            f"a slot needs {amount.cores_per_slot} cores, and {cores} is the most one executor may have"
        ]
    if slots > most_slots:
        notes.append(
            f"executors of {slots} slots do not fit a host or the quota: {most_slots} slots each instead"
        )
        slots = most_slots
    most_bytes = min(limits.host_bytes, limits.quota_bytes)
    if memory > most_bytes:
        notes.append(f"{_gib(memory)} for one executor exceed what it may have: {_gib(most_bytes)} instead")
        memory = most_bytes
    return Allocation(1, slots * amount.cores_per_slot, slots, memory), notes


def _executors(amount: Amount, shape: Allocation) -> int:
    """Enough for the slots, and for the memory in all where that is asked for."""
    by_slots = math.ceil(amount.slots / shape.slots_per_executor)
    by_memory = math.ceil(amount.total_bytes / shape.executor_bytes * (1 - 1e-12))
    return max(1, by_slots, by_memory)


def _bounds(shape: Allocation, limits: Limits) -> list[tuple[int, str]]:
    """How many executors of this shape each limit lets through, with its words."""
    found = [
        (limits.most_executors, f"at most {limits.most_executors} executors are allowed"),
        (limits.quota_cores // shape.cores, f"the quota is {limits.quota_cores} cores"),
        (_whole(limits.quota_bytes, shape.executor_bytes), f"the quota is {_gib(limits.quota_bytes)}"),
    ]
    if limits.hosts:
        room = [_fits(host, shape) for host in limits.hosts]
        found.append((sum(room), _fragmentation(limits.hosts, shape, sum(room))))
    return found


def _fits(host: Host, shape: Allocation) -> int:
    return max(0, min(host.free_cores // shape.cores, _whole(host.free_bytes, shape.executor_bytes)))


def _fragmentation(hosts: Sequence[Host], shape: Allocation, room: int) -> str:
    """Free cores and memory that no host has together are of no use."""
    cores = sum(host.free_cores for host in hosts)
    memory = sum(host.free_bytes for host in hosts)
    together = min(cores // shape.cores, _whole(memory, shape.executor_bytes))
    if together > room:
        return f"the free {cores} cores and {_gib(memory)} are scattered over {len(hosts)} hosts"
    return f"{cores} cores and {_gib(memory)} are free on {len(hosts)} hosts"


def _whole(total: float, each: float) -> int:
    """Whole parts of a total, never one too many because a quotient was rounded up."""
    count = int(total // each)
    return count if count * each <= total else count - 1


def _gib(size: float) -> str:
    return f"{size / 1024**3:.3g} GiB"
