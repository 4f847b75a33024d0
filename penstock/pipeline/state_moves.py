"""State follows the instances of its function: planned here, carried out by the mover a bin a batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from penstock.dataflow.window import ApplicationWindow
from penstock.decide.outcome import Status
from penstock.decide.policy import MoveState
from penstock.errors import PenstockError
from penstock.migrate.bins import StateView
from penstock.migrate.plan import Plan, Strategy
from penstock.migrate.planner import Assignment
from penstock.migrate.proposal import move_state
from penstock.migrate.strategies import schedule
from penstock.pipeline.actuator import MovesEnded
from penstock.pipeline.board import Board
from penstock.pipeline.spread import executors_for, hosts, spread_over

log = logging.getLogger(__name__)

REST_SECONDS = 60.0
"""After moves that did not all succeed, or whose reason may pass by itself."""
REASON = "state follows the instances of its function"


class Mover(Protocol):
    """What looks at state and moves it; `penstock.migrate.spark_mover` for Spark. Raises PenstockError."""

    def views(self) -> tuple[StateView, ...]:
        """Where the state of each query lies."""

    def begin(self, plans: Sequence[Mapping[str, Any]]) -> None:
        """Carry out these plain plans."""

    def moving(self) -> bool:
        """Whether state moves."""

    def ended(self) -> MovesEnded | None:
        """How it ended; None while it moves."""

    def stop(self, reason: str) -> bool:
        """Ask it to stop; whether it moved."""


class StateSpreader:
    """Sees over how many executors each keyed function lies, and brings it to what its size asks for."""

    def __init__(
        self,
        mover: Mover,
        board: Board,
        functions: Callable[[], Mapping[str, str]],
        slots_per_executor: int,
        is_busy: Callable[[str], bool] = lambda _function: True,
        strategy: Strategy = Strategy.FLUID,
    ) -> None:
        """`functions`: query id → keyed function; `is_busy`: a query without batches cannot move state."""
        self._mover, self._board, self._functions = mover, board, functions
        self._slots, self._is_busy, self._strategy = slots_per_executor, is_busy, strategy
        self._rest_until = float("-inf")
        self._looked: tuple[StateView, ...] = ()

    def begin(self) -> bool:
        """Begin to move what lies wrong; whether anything does."""
        planned = self.planned()
        if planned:
            self._mover.begin([plan.plain() for _, plan in planned])
        return bool(planned)

    def carry_out(self, action: MoveState) -> None:
        """Begin these moves."""
        self._mover.begin(action.plans)

    def ended(self) -> MovesEnded | None:
        """None while state moves; afterwards the board knows how it lies."""
        ended = self._mover.ended()
        if ended is not None:
            for _ in self._seen():
                pass
        return ended

    def stop(self, reason: str) -> bool:
        """Stop at the next batch boundary; whether anything moved."""
        return self._mover.stop(reason)

    def propose(self, now: float, window: ApplicationWindow) -> MoveState | None:
        """The moves that are owed without a change of size: after a start, a pin, or an executor's death."""
        if self._mover.moving() or now < self._rest_until:
            return None
        ended = self._mover.ended()
        if ended is not None and ended[0] is not Status.DONE and self._rest_until == float("-inf"):
            self._rest_until = now + REST_SECONDS
            return None
        self._rest_until = float("-inf")
        try:
            planned = self.planned()
        except PenstockError as problem:
            log.info("whether state lies as it should is not known now: %s", problem)
            return None
        return move_state(planned, REASON) if planned else None

    def planned(self) -> list[tuple[StateView, Plan]]:
        """Plans for the functions whose state lies wrong and which have batches to move it in."""
        found = []
        for view, moves in self._seen():
            if moves:
                found.append((view, schedule(view, moves, self._strategy, None, REASON)))
        return found

    def bins(self) -> dict[str, int]:
        """Executor → bins of any query when state was last looked at: what losing it would cost."""
        counted: dict[str, int] = {}
        for view in self._looked or self._look():
            for worker in view.placement().values():
                counted[worker] = counted.get(worker, 0) + 1
        return counted

    def _look(self) -> tuple[StateView, ...]:
        self._looked = self._mover.views()
        return self._looked

    def _seen(self) -> Iterator[tuple[StateView, tuple[Assignment, ...]]]:
        """Where the state of keyed functions lies, and the moves it needs; the board is told their sizes.

        A function without batches works nowhere: where its state lies says nothing of its size.
        """
        functions, wanted = self._functions(), self._board.wanted()
        for view in self._look():
            function = functions.get(view.query)
            if function is None:
                continue
            executors = executors_for(wanted[function], self._slots, len(view.workers))
            moves = spread_over(view, executors) if self._is_busy(function) else ()
            real = max(1, len(hosts(view))) * self._slots
            self._board.settle(function, real if moves else wanted[function])
            yield view, moves
