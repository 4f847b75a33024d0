"""One query's state as it lies on its workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.dataflow.moves import Bin, Plan


@dataclass(frozen=True, slots=True)
class Worker:
    """An executor that can host bins."""

    worker: str
    host: str
    slots: int


@dataclass(frozen=True, slots=True)
class BinState:
    """A bin where it lies; its load is in slot-seconds per batch, 0 while it is not known."""

    bin: Bin
    worker: str | None
    rows: int = 0
    bytes: int = 0
    load_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StateView:
    """The state of one query after its last committed batch."""

    query: str
    name: str
    batch: int
    bins: tuple[BinState, ...]
    workers: tuple[Worker, ...]

    def loads(self) -> dict[Bin, float]:
        """Return the slot-seconds per batch of each bin.

        A bin not measured yet counts as the mean of those that were; where none was, each counts 1.
        """
        known = [state.load_seconds for state in self.bins if state.load_seconds > 0]
        usual = sum(known) / len(known) if known else 1.0
        return {state.bin: state.load_seconds or usual for state in self.bins}

    def placement(self) -> dict[Bin, str]:
        """Return the worker of each bin, for those whose place is known."""
        return {state.bin: state.worker for state in self.bins if state.worker is not None}

    def imbalance(self) -> float:
        """Return by how much the slowest worker's load per slot exceeds the mean, as a fraction."""
        return measure_imbalance(self.loads(), self.placement(), self.workers)

    def place(self, placement: Mapping[Bin, str]) -> StateView:
        """Return the same state with these bins at these workers."""
        bins = tuple(replace(state, worker=placement.get(state.bin, state.worker)) for state in self.bins)
        return replace(self, bins=bins)

    def follow(self, plan: Plan) -> StateView:
        """Return the state once the plan is carried out, without the workers that it empties: they leave."""
        after = self.place({move.bin: move.target for move in plan.moves})
        before, held = set(self.placement().values()), set(after.placement().values())
        staying = tuple(one for one in self.workers if one.worker in held or one.worker not in before)
        return replace(after, workers=staying)

    def plain(self) -> dict[str, Any]:
        """Return this as plain data, for the control socket and for whoever prints it."""
        bins = [
            {
                "operator": state.bin.operator,
                "partition": state.bin.partition,
                "worker": state.worker,
                "rows": state.rows,
                "bytes": state.bytes,
                "load_seconds": state.load_seconds,
            }
            for state in self.bins
        ]
        about = {"query": self.query, "name": self.name, "batch": self.batch}
        return {**about, "imbalance": self.imbalance(), "bins": bins}


def measure_imbalance(
    loads: Mapping[Bin, float], placement: Mapping[Bin, str], workers: Iterable[Worker]
) -> float:
    """Return the load per slot at the fullest worker over the mean, minus one.

    The stages of a batch run one after the other, so each operator waits for its own fullest worker: the
    maxima are summed over operators, and so are the means. Bins whose worker is gone count for nobody.
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


def describe_state(views: Sequence[StateView], obstacle: str | None) -> dict[str, Any]:
    """Describe where the state of each query lies, as plain data."""
    workers = {worker.worker: worker for view in views for worker in view.workers}
    return {
        "obstacle": obstacle,
        "queries": [view.plain() for view in views],
        "workers": [asdict(worker) for worker in workers.values()],
    }
