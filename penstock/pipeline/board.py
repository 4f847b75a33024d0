"""The parallelism of every function: set by the controller or by hand, within limits, kept across runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.decide.limits import UnitLimits
from penstock.errors import BadInput, JournalUnavailable, NotFound
from penstock.journal.notebook import Notebook
from penstock.journal.ports import Memories
from penstock.pipeline.fusing import FusePlan


class Board:
    """Read and written by any thread; a batch says when it begins and ends, and with what.

    A function with state has another size only when its state has moved, which `settle` says.
    """

    def __init__(
        self,
        limits: UnitLimits,
        start: Mapping[str, int],
        fixed: frozenset[str] = frozenset(),
        plan: FusePlan | None = None,
    ) -> None:
        self.limits, self._fixed = dict(limits), fixed
        self.plan = plan or FusePlan((), "never", 0.0)
        """Which functions share their instances, since they run as one query."""
        self._lock = threading.Lock()
        self._wanted = {name: self._bound(name, start.get(name, 1)) for name in limits}
        self._pinned: dict[str, int] = {}
        self._running: dict[str, int] = {}
        self._settled: dict[str, int] = {}

    @property
    def wanted(self) -> dict[str, int]:
        """Function → the parallelism that it is to have."""
        with self._lock:
            return dict(self._wanted)

    @property
    def sizes(self) -> dict[str, int]:
        """Function → the parallelism of its next batch."""
        with self._lock:
            return {**self._wanted, **self._settled}

    def settle(self, function: str, size: int) -> None:
        """Note that the state of a function lies as this size needs it."""
        with self._lock:
            self._settled[function] = self._bound(function, size)

    @property
    def pinned(self) -> dict[str, int]:
        """Functions whose parallelism was set by hand."""
        with self._lock:
            return dict(self._pinned)

    def change(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Set what is not pinned, within limits; what is wanted afterwards."""
        with self._lock:
            for name, size in sizes.items():
                if name in self._wanted and name not in self._pinned and name not in self._fixed:
                    self._wanted[name] = self._bound(name, size)
            return dict(self._wanted)

    def pin(self, function: str, size: int | None) -> int:
        """Set a function by hand, and keep it there; None gives it back to the policy."""
        if function not in self._wanted:
            raise NotFound(f"no function {function!r}; there are {', '.join(self._wanted)}")
        least, most = self.limits[function]
        with self._lock:
            if size is None:
                self._pinned.pop(function, None)
                return self._wanted[function]
            if function in self._fixed and size != self._wanted[function]:
                raise BadInput(f"{function!r} is not scaled: it has {self._wanted[function]}, and keeps that")
            if isinstance(size, bool) or not isinstance(size, int) or not least <= size <= most:
                raise BadInput(f"{function!r} may have {least} to {most} instances, not {size}")
            self._pinned[function] = self._wanted[function] = size
            return size

    @property
    def unsettled(self) -> frozenset[str]:
        """Functions whose state does not lie as they are wanted: only another move changes that."""
        with self._lock:
            return frozenset(name for name, size in self._settled.items() if size != self._wanted[name])

    def restore(self, pinned: Mapping[str, int]) -> None:
        """Take up what was set by hand in the run before, as far as it is still allowed."""
        for function, size in pinned.items():
            least, most = self.limits.get(function, (1, 0))
            if least <= size <= most and function not in self._fixed:
                self.pin(function, size)

    def tell_groups(self, functions: Collection[str]) -> list[str]:
        """Say of which instances these functions have a share only, since they are fused with others."""
        wanted = self.wanted
        groups = [group for group in self.plan.groups if set(group) & set(functions)]
        sums = {group: " + ".join(f"{name} {wanted[name]}" for name in group) for group in groups}
        return [
            f"one query with {sum(wanted[name] for name in group)} instances: {sums[group]}"
            for group in groups
        ]

    def begin_batch(self, function: str) -> int:
        """Return the parallelism that this batch is to run with."""
        with self._lock:
            self._running[function] = self._settled.get(function, self._wanted[function])
            return self._running[function]

    def end_batch(self, function: str) -> None:
        """Note that the batch is over."""
        with self._lock:
            self._running.pop(function, None)

    @property
    def in_effect(self) -> dict[str, int]:
        """Function → what it works with now; between batches that is what the next one will have."""
        with self._lock:
            return {**self._wanted, **self._settled, **self._running}

    def _bound(self, function: str, size: int) -> int:
        least, most = self.limits[function]
        return min(max(size, least), most)


log = logging.getLogger(__name__)

KIND = "pipeline sizes"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Function → instances, and those among them that were set by hand."""

    wanted: Mapping[str, int] = field(default_factory=dict)
    pinned: Mapping[str, int] = field(default_factory=dict)


class SizeMemory:
    """Keeps what changes; a journal that fails costs the memory, never the pipeline."""

    def __init__(self, memories: Memories, owner: str) -> None:
        self._notebook = Notebook(memories, owner, KIND)

    def recall(self) -> Sizes:
        """Return what the run before had at its end."""
        try:
            found = self._notebook.read()
        except JournalUnavailable as error:
            log.warning("%s: the sizes of the last run are not known: %s", self._notebook.owner, error)
            return Sizes()
        known = {name: body.get("instances") for name, body in found.items()}
        # True is an int in Python
        sizes = {name: n for name, n in known.items() if type(n) is int and n >= 1}
        return Sizes(sizes, {name: size for name, size in sizes.items() if found[name].get("pinned") is True})

    def keep(self, now: float, board: Board) -> None:
        """Write down what differs from the last time."""
        pinned = board.pinned
        sizes = {name: {"instances": n, "pinned": name in pinned} for name, n in board.wanted.items()}
        # the loop says so if the journal is away, and the next call tries again
        with suppress(JournalUnavailable):
            self._notebook.write(now, sizes)
