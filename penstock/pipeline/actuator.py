"""A change of sizes, step by step: executors come before state moves to them, and go after it has left.

grow     board ─ executors register ─ state spreads ─ no batch runs at an old size → DONE
shrink   board ─ state draws together ─ executors are released ─ the same          → DONE
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import Action, ExpectedEffect, MoveState, Scale
from penstock.errors import ActionFailed, PenstockError
from penstock.pipeline.board import Board
from penstock.pipeline.state_moves import StateSpreader
from penstock.runtime.ports import Actuator

PATIENCE_SECONDS = 120.0
"""A batch that runs at the old parallelism may take so long before the change counts as partial."""


class ExecutorStep:
    """A part of a change: brings the executors to a number."""

    def __init__(self, executors: Actuator, needed: int, reason: str) -> None:
        self._executors, self._needed, self._reason = executors, needed, reason

    def begin(self, now: float) -> None:
        """Ask for them."""
        effect = ExpectedEffect("a slot for every instance")
        self._executors.begin(now, Scale({EXECUTORS: self._needed}, self._reason, effect))

    def poll(self, now: float) -> str | None:
        """Say what the cluster gave."""
        outcome = self._executors.poll(now)
        return None if outcome is None else f"{self._needed} executors: {outcome.detail}"

    def abandon(self) -> None:
        """Give it up; executors that are there stay."""
        self._executors.abandon()


class StateStep:
    """A part of a change: lets state follow; if it cannot move now, that costs evenness, not the change."""

    def __init__(self, state: StateSpreader) -> None:
        self._state = state
        self._said: str | None = None
        self._since = 0.0

    def begin(self, now: float) -> None:
        """Begin to move."""
        self._since = now
        try:
            if not self._state.begin():
                self._said = ""
        except PenstockError as problem:
            self._said = f"state stays where it is: {problem}"

    def poll(self, now: float) -> str | None:
        """Say how the moves ended; a query without batches moves nothing, so the wait has an end."""
        if self._said is not None:
            return self._said
        ended = self._state.poll()
        if ended is not None:
            moved = f"{ended.moved} bins moved"
            return moved if ended.status is Status.DONE else f"{moved}: {ended.detail}"
        if now - self._since > PATIENCE_SECONDS:
            self._state.stop("the move took too long")
            return f"state was not moved within {PATIENCE_SECONDS:.0f} s"
        return None

    def abandon(self) -> None:
        """Stop the moves; bins that have moved stay."""
        self._state.stop("the change was given up")


Step = ExecutorStep | StateStep


class BoardActuator:
    """Changes parallelism for the next batches; executors and state follow where these are given."""

    def __init__(
        self,
        board: Board,
        executors: Actuator | None = None,
        slots_per_executor: int = 1,
        state: StateSpreader | None = None,
        executor_limits: tuple[int, int] | None = None,
    ) -> None:
        self._board, self._executors, self._state = board, executors, state
        self._slots, self._limits = max(1, slots_per_executor), executor_limits
        self._begun_at = 0.0
        self._planned: Mapping[str, int] = {}
        self._kept: list[str] = []
        self._steps: list[Step] = []
        self._said: list[str] = []
        self._move: MoveState | None = None

    def begin(self, now: float, action: Action) -> None:
        """Set the new sizes; each function takes its own up with its next batch."""
        self._begun_at, self._said, self._steps, self._move = now, [], [], None
        if isinstance(action, MoveState):
            if self._state is None:
                raise ActionFailed("a pipeline changes the parallelism of its functions and nothing else")
            self._state.carry_out(action)
            self._move = action
            return
        wanted = self._board.change(action.parallelism)
        self._planned = {name: wanted[name] for name in action.parallelism if name in wanted}
        self._kept = [name for name, size in self._planned.items() if size != action.parallelism[name]]
        kept = ", ".join(f"{name} at {wanted[name]}" for name in self._kept)
        self._said = [f"pinned or at its limit: {kept}"] if kept else []
        self._said += self._board.tell_groups(self._planned)
        self._steps = self._order_steps(wanted, action.reason)
        self._begin_step(now)

    def _begin_step(self, now: float) -> None:
        """Begin the next step; one that cannot be begun is told of, and left out."""
        while self._steps:
            try:
                self._steps[0].begin(now)
                return
            except PenstockError as problem:
                self._said.append(str(problem))
                del self._steps[0]

    def _order_steps(self, wanted: Mapping[str, int], reason: str) -> list[Step]:
        state: list[Step] = [StateStep(self._state)] if self._state is not None else []
        if self._executors is None:
            return state
        needed, held = -(-sum(wanted.values()) // self._slots), self._executors.held().get(EXECUTORS)
        least, most = self._limits or (1, needed)
        needed = min(max(needed, least), most)
        if needed == held:
            return state
        follow: list[Step] = [ExecutorStep(self._executors, needed, reason)]
        return [*follow, *state] if held is None or needed > held else [*state, *follow]

    def poll(self, now: float) -> Outcome | None:
        """Return the outcome once executors and state are there and no batch runs at an old size."""
        if self._move is not None:
            return self._poll_move(now, self._move)
        while self._steps:
            said = self._steps[0].poll(now)
            if said is None:
                return None
            self._said += [said] if said else []
            del self._steps[0]
            self._begin_step(now)
        held, late = self._board.in_effect, now - self._begun_at > PATIENCE_SECONDS
        missing = {name for name, size in self._planned.items() if held[name] != size}
        if missing - self._board.unsettled and not late:
            return None
        status = Status.DONE if not missing and not self._kept else Status.PARTIAL
        detail = "; ".join(self._said)
        return Outcome(status, self._planned, self._planned, self.held(), now - self._begun_at, detail)

    def _poll_move(self, now: float, action: MoveState) -> Outcome | None:
        ended = self._state.poll() if self._state is not None else None
        if ended is None:
            return None
        self._move = None
        return ended.outcome(action, now - self._begun_at)

    def abandon(self) -> None:
        """Give up what is under way; sizes that were set stay."""
        for step in self._steps[:1]:
            step.abandon()
        if self._move is not None and self._state is not None:
            self._state.stop("the change was given up")
        self._steps, self._move = [], None

    def held(self) -> Mapping[str, int]:
        """Return the instances that functions work with now."""
        return self._board.in_effect
