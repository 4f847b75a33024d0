"""The parallelism of every function: set by the controller or by hand, read anew by each batch."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import Action, Scale
from penstock.errors import ActionFailed, BadInput, NotFound
from penstock.pipeline.limits import Limits
from penstock.ports import Actuator

PATIENCE_SECONDS = 120.0
"""A batch that runs at the old parallelism may take so long before the change counts as partial."""


class Board:
    """Read and written by any thread; a batch says when it begins and ends, and with what."""

    def __init__(self, limits: Limits, start: Mapping[str, int], fixed: frozenset[str] = frozenset()) -> None:
        self.limits, self._fixed = dict(limits), fixed
        self._lock = threading.Lock()
        self._wanted = {name: min(max(start.get(name, least), least), most)
                        for name, (least, most) in limits.items()}  # fmt: skip
        self._pinned: dict[str, int] = {}
        self._running: dict[str, int] = {}

    def wanted(self) -> dict[str, int]:
        """Function → the parallelism of its next batch."""
        with self._lock:
            return dict(self._wanted)

    def pinned(self) -> dict[str, int]:
        """Functions whose parallelism was set by hand."""
        with self._lock:
            return dict(self._pinned)

    def change(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Set what is not pinned, within limits; what is wanted afterwards."""
        with self._lock:
            for name, size in sizes.items():
                if name in self._wanted and name not in self._pinned and name not in self._fixed:
                    least, most = self.limits[name]
                    self._wanted[name] = min(max(size, least), most)
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
            if not least <= size <= most:
                raise BadInput(f"{function!r} may have {least} to {most} instances, not {size}")
            self._pinned[function] = self._wanted[function] = size
            return size

    def begin_batch(self, function: str) -> int:
        """The parallelism that this batch is to run with."""
        with self._lock:
            self._running[function] = self._wanted[function]
            return self._wanted[function]

    def end_batch(self, function: str) -> None:
        """The batch is over."""
        with self._lock:
            self._running.pop(function, None)

    def in_effect(self) -> dict[str, int]:
        """Function → what it works with now; between batches that is what the next one will have."""
        with self._lock:
            return {**self._wanted, **self._running}


class BoardActuator:
    """Changes parallelism for the next batches; with `executors`, these follow the sum."""

    def __init__(self, board: Board, executors: Actuator | None = None, slots_per_executor: int = 1) -> None:
        self._board, self._executors, self._slots = board, executors, max(1, slots_per_executor)
        self._begun_at = 0.0
        self._planned: Mapping[str, int] = {}
        self._waiting_for_executors = False
        self._detail = ""

    def begin(self, now: float, action: Action) -> None:
        """Set the new sizes; each function takes its own up with its next batch."""
        if not isinstance(action, Scale):
            raise ActionFailed("a pipeline changes the parallelism of its functions and nothing else")
        self._begun_at, self._detail = now, ""
        wanted = self._board.change(action.parallelism)
        self._planned = {name: wanted[name] for name in action.parallelism if name in wanted}
        self._follow(now, wanted, action)

    def _follow(self, now: float, wanted: Mapping[str, int], action: Scale) -> None:
        if self._executors is None:
            return
        from penstock.dataflow.window import EXECUTORS

        needed = -(-sum(wanted.values()) // self._slots)
        if self._executors.held().get(EXECUTORS) != needed:
            self._executors.begin(now, Scale({EXECUTORS: needed}, action.reason, action.expected))
            self._waiting_for_executors = True

    def poll(self, now: float) -> Outcome | None:
        """Done when no batch runs at an old size and the executors are there."""
        if self._waiting_for_executors and self._executors is not None:
            followed = self._executors.poll(now)
            if followed is None:
                return None
            self._waiting_for_executors, self._detail = False, followed.detail
        held, late = self._board.in_effect(), now - self._begun_at > PATIENCE_SECONDS
        there = all(held[name] == size for name, size in self._planned.items())
        if not there and not late:
            return None
        status = Status.DONE if there else Status.PARTIAL
        return Outcome(status, self._planned, self._planned, self.held(), now - self._begun_at, self._detail)

    def abandon(self) -> None:
        """Sizes that were set stay; executors under way are given up."""
        if self._waiting_for_executors and self._executors is not None:
            self._executors.abandon()
        self._waiting_for_executors = False

    def held(self) -> Mapping[str, int]:
        """What functions work with now."""
        return self._board.in_effect()
