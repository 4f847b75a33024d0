"""The actuator of an application: one change of executors or one move of state at a time, a step a poll."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.act import scaling
from penstock.dataflow.window import EXECUTORS, ExecutorState
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import Action, MoveState
from penstock.errors import ActionFailed, PenstockError
from penstock.migrate.mover import Mover

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueryBatches:
    """How far a running query is: its newest reported batch, and whether one runs at this moment."""

    newest: int
    working: bool


class ExecutorPool(Protocol):
    """The executors of an application; raises SparkUnavailable where the cluster does not answer."""

    def executors(self, bins: Mapping[str, int]) -> tuple[ExecutorState, ...]:
        """List the executors that are there; `bins`: executor → state bins that it hosts."""

    def request_total(self, total: int) -> None:
        """Ask for so many executors in all; ActionFailed where that is refused."""

    def stop_using(self, executor_ids: Sequence[str]) -> None:
        """Give these executors no new tasks; it cannot be taken back."""

    def release(self, executor_ids: Sequence[str]) -> None:
        """End these executors."""

    def batches(self) -> Mapping[str, QueryBatches]:
        """Return run → how far it is, for all running queries."""


class ExecutorActuator:
    """Performs what `scaling.py` instructs, on any pool of executors."""

    def __init__(
        self,
        pool: ExecutorPool,
        settings: scaling.ScalingSettings,
        state_bins: Callable[[], Mapping[str, int]] = dict,
        mover: Mover | None = None,
    ) -> None:
        """`state_bins` tells what a release would cost: executor → state bins, as last observed.

        With a `mover` state leaves an executor before it is released.
        """
        self._pool, self._patience = pool, settings
        self._change: scaling.ExecutorChange | None = None
        self._wanted = 0
        self._stopped: tuple[str, ...] = ()
        self._batches_before: Mapping[str, QueryBatches] = {}
        self._state_bins, self._mover = state_bins, mover
        self._outcome: Outcome | None = None
        self._move: tuple[float, MoveState] | None = None
        self._stayed = ""

    def held(self) -> Mapping[str, int]:
        """Return the executors that are there now."""
        return {EXECUTORS: len(self._pool.executors({}))}

    def begin(self, now: float, action: Action) -> None:
        """Start the change; `poll` tells what it does from here on."""
        self._change, self._outcome, self._stopped, self._move = None, None, (), None
        self._stayed = ""
        if isinstance(action, MoveState):
            self._begin_move(now, action)
            return
        if set(action.parallelism) != {EXECUTORS}:
            raise ActionFailed(f"Spark scales executors, not {sorted(action.parallelism)}")
        self._wanted = action.parallelism[EXECUTORS]
        can_move = self._mover is not None and self._mover.obstacle() is None
        self._perform(scaling.begin_change(now, self._wanted, self._executors(), self._patience, can_move))

    def poll(self, now: float) -> Outcome | None:
        """Go one step on; return None while the change is under way."""
        if self._move is not None:
            return self._poll_move(now, *self._move)
        if self._change is not None and self._outcome is None:
            moving = self._mover is not None and self._mover.moving()
            stayed = "" if moving else self._why_state_stayed()
            boundary = self._no_batch_needs_them()
            self._perform(scaling.step_change(self._change, now, self._executors(), boundary, moving, stayed))
        return self._outcome

    def withdraw(self, why: str) -> bool:
        """Order no more executors than have come, so that `poll` ends; False where none are awaited."""
        if self._change is None or self._outcome is not None:
            return False
        progress = scaling.withdraw_order(self._change, self._executors(), why)
        if progress is not None:
            self._perform(progress)
        return progress is not None

    def abandon(self) -> None:
        """Give up the change under way; executors that were told to stop are released, if Spark answers."""
        stopped = self._stopped if self._outcome is None else ()
        self._change, self._stopped, self._move = None, (), None
        if self._mover is not None:
            self._mover.stop("the autopilot gave the action up")
        for instruction in scaling.abandon_change(self._wanted, stopped):
            try:
                self._instruct(instruction)
            except PenstockError as problem:
                _LOG.warning("a change was broken off, and its end failed: %s", problem)

    def _begin_move(self, now: float, action: MoveState) -> None:
        if self._mover is None:
            raise ActionFailed("state cannot be moved here")
        self._mover.begin(action.plans)
        self._move = (now, action)

    def _poll_move(self, now: float, begun: float, action: MoveState) -> Outcome | None:
        ended = self._mover.ended() if self._mover is not None else None
        if ended is None:
            return None
        self._move = None
        return ended.outcome(action, now - begun)

    def _perform(self, progress: scaling.ScalingProgress) -> None:
        for instruction in progress.instructions:
            _LOG.debug("performing %s", instruction)
            self._instruct(instruction)
        self._change, self._outcome = progress.change, progress.outcome

    def _instruct(self, instruction: scaling.Instruction) -> None:
        if isinstance(instruction, scaling.MoveAway):
            self._move_away(instruction.executor_ids)
        elif isinstance(instruction, scaling.RequestTotal):
            self._pool.request_total(instruction.total)
        elif isinstance(instruction, scaling.StopUsing):
            # before the call: when its answer is lost, it may have taken effect all the same
            self._stopped = instruction.executor_ids
            self._batches_before = self._pool.batches()
            self._pool.stop_using(instruction.executor_ids)
        else:
            self._pool.release(instruction.executor_ids)

    def _move_away(self, executor_ids: tuple[str, ...]) -> None:
        """Begin a drain; one that cannot begin costs a slow batch later, not the change."""
        try:
            if self._mover is not None:
                self._mover.begin([plan for _, plan in self._mover.plan_draining(executor_ids)])
        except PenstockError as problem:
            _LOG.warning("state stays where it is: %s", problem)
            self._stayed = str(problem)

    def _why_state_stayed(self) -> str:
        """Say why the last drain left something behind; nothing if it did not, or if there was none."""
        ended = self._mover.ended() if self._mover is not None and not self._stayed else None
        return ended.detail if ended is not None and ended.status is not Status.DONE else self._stayed

    def _executors(self) -> tuple[ExecutorState, ...]:
        return self._pool.executors(self._state_bins())

    def _no_batch_needs_them(self) -> bool:
        """Tell whether every batch that was running when the change began has ended.

        A later batch has put no shuffle data on executors that get no tasks, so losing them costs it nothing.
        """
        before = self._batches_before
        return all(
            not now.working or run not in before or now.newest > before[run].newest
            for run, now in self._pool.batches().items()
        )
