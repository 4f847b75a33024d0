"""State that follows the instances of its function: planned here, carried out by the mover."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.dataflow.moves import Plan, Strategy
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.outcome import Status
from penstock.decide.policy import MoveState
from penstock.errors import PenstockError
from penstock.migrate.bins import StateView
from penstock.migrate.mover import Mover, MovesEnded
from penstock.migrate.plan import propose_moves, schedule
from penstock.migrate.planner import Assignment, balance, drain
from penstock.pipeline.board import Board

log = logging.getLogger(__name__)

REST_SECONDS = 60.0
"""The rest after moves that did not all succeed: the reason may pass by itself."""
REASON = "state follows the instances of its function"


class StateSpreader:
    """Spreads the state of each keyed function over as many executors as its size asks for."""

    def __init__(
        self,
        mover: Mover,
        board: Board,
        functions: Callable[[], Mapping[str, str]],
        slots_per_executor: int,
        is_busy: Callable[[str], bool] = lambda _function: True,
        strategy: Strategy = Strategy.OPTIMIZED,
    ) -> None:
        """`functions`: query id → keyed function; `is_busy`: a query without batches cannot move state."""
        self._mover, self._board, self._functions = mover, board, functions
        self._slots, self._is_busy, self._strategy = slots_per_executor, is_busy, strategy
        self._rest_until = float("-inf")
        self._looked: tuple[StateView, ...] = ()

    def begin(self) -> bool:
        """Begin to move what lies wrong; tell whether anything does."""
        planned = self._plan_moves()
        if planned:
            self._mover.begin([plan for _, plan in planned])
        return bool(planned)

    def carry_out(self, action: MoveState) -> None:
        """Begin these moves."""
        self._mover.begin(action.plans)

    def poll(self) -> MovesEnded | None:
        """Tell how the moves ended and let the board know how state lies; None while it moves."""
        ended = self._mover.ended()
        if ended is not None:
            self._settle_board()
        return ended

    def stop(self, reason: str) -> bool:
        """Stop at the next batch boundary; tell whether anything moved."""
        return self._mover.stop(reason)

    def moving(self) -> bool:
        """Tell whether state moves."""
        return self._mover.moving()

    def propose(self, now: float, window: ApplicationWindow) -> MoveState | None:
        """Propose moves without a change of size, as after a start, a pin, or an executor's death."""
        if self._mover.moving() or now < self._rest_until:
            return None
        ended = self._mover.ended()
        if ended is not None and ended.status is not Status.DONE and self._rest_until == float("-inf"):
            self._rest_until = now + REST_SECONDS
            return None
        self._rest_until = float("-inf")
        try:
            planned = self._plan_moves()
        except PenstockError as problem:
            log.info("whether state lies as it should is not known now: %s", problem)
            return None
        return propose_moves(planned, REASON) if planned else None

    def bins(self) -> dict[str, int]:
        """Count the bins of each executor when state was last looked at: what losing it would cost."""
        views = self._looked or self._look()
        return Counter(worker for view in views for worker in view.placement().values())

    def _plan_moves(self) -> list[tuple[StateView, Plan]]:
        """Plan for the functions whose state lies wrong and which have batches to move it in."""
        return [
            (view, schedule(view, moves, self._strategy, None, REASON))
            for view, moves in self._settle_board()
            if moves
        ]

    def _look(self) -> tuple[StateView, ...]:
        self._looked = self._mover.views()
        return self._looked

    def _settle_board(self) -> list[tuple[StateView, tuple[Assignment, ...]]]:
        """Tell the board the real size of each keyed function, and return the moves that its state needs.

        A function without batches works nowhere: where its state lies says nothing of its size.
        """
        functions, wanted = self._functions(), self._board.wanted
        found = []
        for view in self._look():
            function = functions.get(view.query)
            if function is None:
                continue
            executors = count_executors(wanted[function], self._slots, len(view.workers))
            moves = plan_spread(view, executors) if self._is_busy(function) else ()
            real = max(1, len(find_hosts(view))) * self._slots
            self._board.settle(function, real if moves else wanted[function])
            found.append((view, moves))
        return found


def count_executors(instances: int, slots_per_executor: int, here: int) -> int:
    """Count the executors with room for so many instances: no more than there are, and at least one."""
    return max(1, min(here, -(-instances // max(1, slots_per_executor))))


def find_hosts(view: StateView) -> frozenset[str]:
    """Find the executors that are there and have bins of this function."""
    here = {worker.worker for worker in view.workers}
    return frozenset(state.worker for state in view.bins if state.worker in here and state.worker)


def plan_spread(view: StateView, executors: int) -> tuple[Assignment, ...]:
    """Find the moves after which so many executors have the bins evenly; those that have most keep theirs."""
    chosen = _find_fullest(view, executors)
    leaving = {worker.worker for worker in view.workers} - chosen
    after = _apply(view, drain(view, leaving)) if leaving & find_hosts(view) else view
    within = replace(after, workers=tuple(one for one in view.workers if one.worker in chosen))
    target = _apply(after, balance(within)).placement()
    # one move for each bin that ends elsewhere, however often it was planned
    return tuple(
        Assignment(state.bin, state.worker, target[state.bin])
        for state in view.bins
        if state.worker is not None and target[state.bin] != state.worker
    )


def _find_fullest(view: StateView, executors: int) -> frozenset[str]:
    """Find the executors with most bins, of equals the oldest: Spark numbers them as they come."""
    held = Counter(state.worker for state in view.bins)
    age = {one.worker: int(one.worker) if one.worker.isdecimal() else 0 for one in view.workers}
    return frozenset(sorted(age, key=lambda worker: (-held[worker], age[worker], worker))[:executors])


def _apply(view: StateView, moves: tuple[Assignment, ...]) -> StateView:
    return view.place({move.bin: move.target for move in moves})
