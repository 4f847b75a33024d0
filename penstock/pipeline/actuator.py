"""A change of sizes, step by step: executors come before state moves to them, and go after it has left.

grow     board ─ executors register ─ state spreads ─ no batch runs at an old size → DONE
shrink   board ─ state draws together ─ executors are released ─ the same          → DONE
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import BINS, Action, ExpectedEffect, MoveState, Scale
from penstock.errors import ActionFailed, PenstockError
from penstock.pipeline.board import Board
from penstock.ports import Actuator

PATIENCE_SECONDS = 120.0
"""A batch that runs at the old parallelism may take so long before the change counts as partial."""

MovesEnded = tuple[Status, int, str]
"""Status, bins moved, and words."""


class StateMoves(Protocol):
    """What brings state where the sizes of its functions want it; raises PenstockError."""

    def begin(self) -> bool:
        """Begin to move what lies wrong; whether anything does."""

    def carry_out(self, action: MoveState) -> None:
        """Begin these moves."""

    def ended(self) -> MovesEnded | None:
        """None while state moves."""

    def stop(self, reason: str) -> bool:
        """Stop at the next batch boundary; whether anything moved."""


class Step(Protocol):
    """One part of a change."""

    def begin(self, now: float) -> None:
        """Start it; returns at once."""

    def poll(self, now: float) -> str | None:
        """What came of it; None while it is under way."""

    def abandon(self) -> None:
        """Give it up."""


class ExecutorStep:
    """Brings the executors to a number."""

    def __init__(self, executors: Actuator, needed: int, reason: str) -> None:
        self._executors, self._needed, self._reason = executors, needed, reason

    def begin(self, now: float) -> None:
        """Ask for them."""
        effect = ExpectedEffect("a slot for every instance")
        self._executors.begin(now, Scale({EXECUTORS: self._needed}, self._reason, effect))

    def poll(self, now: float) -> str | None:
        """What the cluster gave."""
        outcome = self._executors.poll(now)
        return None if outcome is None else f"{self._needed} executors: {outcome.detail}"

    def abandon(self) -> None:
        """What is there stays."""
        self._executors.abandon()


class StateStep:
    """Lets state follow; what cannot be moved now costs evenness, not the change."""

    def __init__(self, state: StateMoves) -> None:
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
        """How the moves ended; a query without batches moves nothing, so the wait has an end."""
        if self._said is not None:
            return self._said
        ended = self._state.ended()
        if ended is not None:
            status, moved, detail = ended
            return f"{moved} bins moved" if status is Status.DONE else f"{moved} bins moved: {detail}"
        if now - self._since > PATIENCE_SECONDS:
            self._state.stop("the move took too long")
            return f"state was not moved within {PATIENCE_SECONDS:.0f} s"
        return None

    def abandon(self) -> None:
        """Bins that have moved stay."""
        self._state.stop("the change was given up")


class BoardActuator:
    """Changes parallelism for the next batches; executors and state follow where these are given."""

    def __init__(
        self,
        board: Board,
        executors: Actuator | None = None,
        slots_per_executor: int = 1,
        state: StateMoves | None = None,
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
            self._begin_move(action)
            return
        wanted = self._board.change(action.parallelism)
        self._planned = {name: wanted[name] for name in action.parallelism if name in wanted}
        self._kept = [name for name, size in self._planned.items() if size != action.parallelism[name]]
        if self._kept:
            kept = ", ".join(f"{name} at {wanted[name]}" for name in self._kept)
            self._said.append(f"pinned or at its limit: {kept}")
        self._steps = self._ordered(wanted, action.reason)
        self._begin_step(now)

    def _begin_move(self, action: MoveState) -> None:
        if self._state is None:
            raise ActionFailed("a pipeline changes the parallelism of its functions and nothing else")
        self._state.carry_out(action)
        self._move = action

    def _begin_step(self, now: float) -> None:
        """Begin the next step; one that cannot be begun is told of, and left out."""
        while self._steps:
            try:
                self._steps[0].begin(now)
                return
            except PenstockError as problem:
                self._said.append(str(problem))
                del self._steps[0]

    def _ordered(self, wanted: Mapping[str, int], reason: str) -> list[Step]:
        state: list[Step] = [StateStep(self._state)] if self._state is not None else []
        if self._executors is None:
            return state
        needed, held = self._needed(wanted), self._executors.held().get(EXECUTORS)
        if needed == held:
            return state
        follow: list[Step] = [ExecutorStep(self._executors, needed, reason)]
        return [*follow, *state] if held is None or needed > held else [*state, *follow]

    def _needed(self, wanted: Mapping[str, int]) -> int:
        needed = -(-sum(wanted.values()) // self._slots)
        least, most = self._limits or (1, needed)
        return min(max(needed, least), most)

    def poll(self, now: float) -> Outcome | None:
        """Done when executors and state are there and no batch runs at an old size."""
        if self._move is not None:
            return self._poll_move(now, self._move)
        while self._steps:
            said = self._steps[0].poll(now)
            if said is None:
                return None
            self._said += [said] if said else []
            del self._steps[0]
            self._begin_step(now)
        held, late = self._board.in_effect(), now - self._begun_at > PATIENCE_SECONDS
        missing = {name for name, size in self._planned.items() if held[name] != size}
        if missing - self._board.unsettled() and not late:
            return None
        status = Status.DONE if not missing and not self._kept else Status.PARTIAL
        detail = "; ".join(self._said)
        return Outcome(status, self._planned, self._planned, self.held(), now - self._begun_at, detail)

    def _poll_move(self, now: float, action: MoveState) -> Outcome | None:
        ended = self._state.ended() if self._state is not None else None
        if ended is None:
            return None
        self._move = None
        status, moved, detail = ended
        return Outcome(status, action.planned, action.planned, {BINS: moved}, now - self._begun_at, detail)

    def abandon(self) -> None:
        """Sizes that were set stay; what is under way beside them is given up."""
        for step in self._steps[:1]:
            step.abandon()
        if self._move is not None and self._state is not None:
            self._state.stop("the change was given up")
        self._steps, self._move = [], None

    def held(self) -> Mapping[str, int]:
        """What functions work with now."""
        return self._board.in_effect()
