"""Bins, the workers that host them, and one query's state as it lies on its workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.errors import BadInput


@dataclass(frozen=True, slots=True, order=True)
class Bin:
    """One state partition of one stage with all its stores; operators that share a stage share their bins."""

    query: str
    operator: int
    partition: int

    def __str__(self) -> str:
        return f"{self.query}/{self.operator}/{self.partition}"

    @staticmethod
    def parse(text: str) -> Bin:
        """The bin written as query/operator/partition."""
        parts = text.rsplit("/", 2)
        if len(parts) != 3 or not (parts[0] and parts[1].isdecimal() and parts[2].isdecimal()):
            raise BadInput(f"{text!r} is no bin: query/operator/partition is expected")
        return Bin(parts[0], int(parts[1]), int(parts[2]))


@dataclass(frozen=True, slots=True)
class BinState:
    """A bin where it lies; load is measured in slot-seconds per batch, 0 while it is not known."""

    bin: Bin
    worker: str | None
    rows: int = 0
    bytes: int = 0
    load_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Worker:
    """An executor that can host bins."""

    worker: str
    host: str
    slots: int


@dataclass(frozen=True, slots=True)
class StateView:
    """The state of one query after its last committed batch."""

    query: str
    name: str
    batch: int
    bins: tuple[BinState, ...]
    workers: tuple[Worker, ...]

    def loads(self) -> dict[Bin, float]:
        """Slot-seconds per batch of each bin.

        A bin not measured yet counts as the mean of those that were; where none was, each counts 1.
        """
        known = [state.load_seconds for state in self.bins if state.load_seconds > 0]
        usual = sum(known) / len(known) if known else 1.0
        return {state.bin: state.load_seconds or usual for state in self.bins}

    def placement(self) -> dict[Bin, str]:
        """Where each bin lies, for those whose place is known."""
        return {state.bin: state.worker for state in self.bins if state.worker is not None}

    def load_of(self, worker: str) -> float:
        """Slot-seconds per batch of all bins at this worker."""
        loads = self.loads()
        return sum(loads[state.bin] for state in self.bins if state.worker == worker)

    def imbalance(self) -> float:
        """By how much the slowest worker's load per slot exceeds the mean, as a fraction."""
        return imbalance(self.loads(), self.placement(), self.workers)

    def placed(self, placement: Mapping[Bin, str]) -> StateView:
        """The same state with these bins at these workers."""
        bins = tuple(replace(state, worker=placement.get(state.bin, state.worker)) for state in self.bins)
        return replace(self, bins=bins)


def imbalance(loads: Mapping[Bin, float], placement: Mapping[Bin, str], workers: Iterable[Worker]) -> float:
    """Load per slot at the fullest worker over the mean, minus one.

    The stages of a batch run one after the other, so each operator waits for its own fullest worker: the
    maxima are summed over operators, and so are the means. Bins whose worker is not there count for nobody.
    """
    slots = {worker.worker: max(1, worker.slots) for worker in workers}
    held: dict[int, dict[str, float]] = {}
    for bin_, worker in placement.items():
        if worker in slots:
            of_operator = held.setdefault(bin_.operator, {})
            of_operator[worker] = of_operator.get(worker, 0.0) + loads[bin_]
    fullest = sum(max(load / slots[worker] for worker, load in at.items()) for at in held.values())
    even = sum(sum(at.values()) for at in held.values()) / max(1, sum(slots.values()))
    return max(0.0, fullest / even - 1) if even > 0 else 0.0
