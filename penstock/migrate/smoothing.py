"""A greedy balance for states too large for the exact one: from the fullest worker to the emptiest."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.migrate.bins import Bin, StateView


@dataclass(slots=True)
class _Operator:
    """The bins of one operator by worker, while they are being shifted."""

    slots: dict[str, int]
    at: dict[str, set[Bin]] = field(default_factory=dict)
    load: dict[str, float] = field(default_factory=dict)

    def put(self, bin_: Bin, worker: str, load: float) -> None:
        self.at.setdefault(worker, set()).add(bin_)
        self.load[worker] = self.load.get(worker, 0.0) + load

    def shift(self, bin_: Bin, source: str, target: str, load: float) -> None:
        self.at[source].discard(bin_)
        self.load[source] -= load
        self.put(bin_, target, load)

    def per_slot(self, worker: str) -> float:
        return self.load.get(worker, 0.0) / self.slots[worker]

    def fullest(self) -> str:
        return max(self.slots, key=lambda worker: (self.per_slot(worker), worker))

    def emptiest(self) -> str:
        return min(self.slots, key=lambda worker: (self.per_slot(worker), worker))

    def even(self) -> float:
        return sum(self.load.values()) / sum(self.slots.values())


def smoothed(view: StateView, target: float, staying: Collection[str] | None = None) -> dict[Bin, str]:
    """A placement that is within the target imbalance where single moves lead there, and never worse.

    Bins of workers that do not stay are placed first, the heaviest at the emptiest; nothing else moves then.
    """
    loads = view.loads()
    slots = {
        one.worker: max(1, one.slots) for one in view.workers if staying is None or one.worker in staying
    }
    operators = {state.bin.operator: _Operator(slots) for state in view.bins}
    homeless: list[Bin] = []
    alive = {worker.worker for worker in view.workers}
    for state in view.bins:
        if state.worker in slots:
            operators[state.bin.operator].put(state.bin, state.worker, loads[state.bin])
        elif state.worker in alive:
            homeless.append(state.bin)
    for bin_ in sorted(homeless, key=lambda one: (-loads[one], one)):
        operators[bin_.operator].put(bin_, operators[bin_.operator].emptiest(), loads[bin_])
    if not homeless:
        sizes = {state.bin: max(1, state.bytes) for state in view.bins}
        for operator in operators.values():
            _level(operator, target, loads, sizes)
    return {bin_: worker for one in operators.values() for worker, bins in one.at.items() for bin_ in bins}


def _level(operator: _Operator, target: float, loads: dict[Bin, float], sizes: dict[Bin, int]) -> None:
    """Shift bins until the fullest worker is within the target, or no single move makes it lighter."""
    limit = (1 + target) * operator.even()
    while operator.load and operator.per_slot(operator.fullest()) > limit:
        source, target_worker = operator.fullest(), operator.emptiest()
        room = operator.per_slot(source) * operator.slots[target_worker] - operator.load.get(
            target_worker, 0.0
        )
        wanted = operator.load[source] - limit * operator.slots[source]
        fitting = [one for one in operator.at[source] if loads[one] < room * (1 - 1e-9)]
        if not fitting:
            return
        # bytes for each second of load that is really wanted gone: more than that is no gain
        chosen = min(fitting, key=lambda one: (sizes[one] / min(loads[one], wanted), one))
        operator.shift(chosen, source, target_worker, loads[chosen])
