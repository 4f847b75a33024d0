"""Small fakes for the ports of the loop, and windows to feed them with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.metrics import BatchExecution
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import (
    EXECUTORS,
    ApplicationWindow,
    ExecutorState,
    SlotQuery,
    SlotWindow,
    SourceRate,
)
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import ExpectedEffect, Hold, MoveState, Proposal, Scale
from penstock.decide.verdict import Accepted, NothingToDo, Rejected, Verdict, Waiting

APPLICATION = "app-1"


def a_query(
    start: float = 0.0,
    name: str = "words",
    offered: float = 100.0,
    observed: float = 80.0,
    backlog: float = 500.0,
    batch_seconds: Sequence[float] = (8.0,),
    period: float | None = 10.0,
) -> SlotQuery:
    return SlotQuery(
        query_id=f"{name}-id",
        name=name,
        graph=LogicalGraph(["read", "count"], [("read", "count")]),
        sources={"read": SourceRate(offered, observed, backlog)},
        batches=tuple(
            BatchExecution(number, start, seconds, slots=4, input_records=800, stages=())
            for number, seconds in enumerate(batch_seconds)
        ),
        period_seconds=period,
    )


def a_window(
    end: float = 10.0,
    executors: int = 2,
    seconds: float = 10.0,
    queries: Sequence[SlotQuery] | None = None,
    application: str = APPLICATION,
) -> SlotWindow:
    """One query on executors of two cores each, over the `seconds` before `end`."""
    start = end - seconds
    return SlotWindow(
        application=application,
        start=start,
        end=end,
        parallelism={EXECUTORS: executors},
        queries=tuple(queries) if queries is not None else (a_query(start),),
        executors=tuple(ExecutorState(str(number), "node", 2) for number in range(1, executors + 1)),
        slots_per_executor=2,
    )


def a_scale(executors: int, reason: str = "the load needs more", **figures: float) -> Scale:
    return Scale(
        parallelism={EXECUTORS: executors},
        reason=reason,
        expected=ExpectedEffect("batches fit their period", figures or {"batch_seconds": 7.5}),
        exact={EXECUTORS: executors - 0.25},
    )


def an_outcome(
    executors: int, status: Status = Status.DONE, detail: str = "", seconds: float = 5.0
) -> Outcome:
    sizes = {EXECUTORS: executors}
    return Outcome(status, planned=sizes, requested=sizes, observed=sizes, seconds=seconds, detail=detail)


@dataclass
class FakeSource:
    """Answers each observation with a window that ends now, or with what `answers` has in store."""

    executors: Callable[[], int] = lambda: 2
    seconds: float = 10.0
    answers: list[ApplicationWindow | NotReady | Exception] = field(default_factory=list)
    observed_at: list[float] = field(default_factory=list)

    def observe(self, now: float) -> ApplicationWindow | NotReady:
        self.observed_at.append(now)
        if not self.answers:
            return a_window(now, self.executors(), self.seconds)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class FakeActuator:
    """Performs an action at once; it ends after `takes` polls, or with what `outcomes` has in store."""

    size: int = 2
    takes: int = 1
    outcomes: list[Outcome | Exception | None] = field(default_factory=list)
    begin_error: Exception | None = None
    begun: list[Scale] = field(default_factory=list)
    abandoned: list[Scale] = field(default_factory=list)
    abandon_error: Exception | None = None
    _polls_left: int = 0

    def begin(self, now: float, action: Scale) -> None:
        if self.begin_error is not None:
            raise self.begin_error
        self.begun.append(action)
        self._polls_left = self.takes

    def poll(self, now: float) -> Outcome | None:
        self._polls_left -= 1
        if self._polls_left > 0:
            return None
        outcome = self.outcomes.pop(0) if self.outcomes else an_outcome(self.begun[-1].parallelism[EXECUTORS])
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is not None:
            self.size = outcome.observed[EXECUTORS]
        return outcome

    def abandon(self) -> None:
        self.abandoned += self.begun[-1:]
        if self.abandon_error is not None:
            raise self.abandon_error

    def held(self) -> Mapping[str, int]:
        return {EXECUTORS: self.size}


class FixedPolicy:
    """Gives the answers in order, and the last one for ever; an exception among them is raised."""

    name = "fixed"

    def __init__(self, *answers: Proposal | NotReady | Exception) -> None:
        self.answers = list(answers) or [Hold("the size is right")]
        self.windows: list[ApplicationWindow] = []

    def propose(self, window: ApplicationWindow) -> Proposal | NotReady:
        self.windows.append(window)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class AgreeingManager:
    """Accepts every change of size at once, and remembers what it was told."""

    notes: tuple[str, ...] = ()
    started: list[Scale] = field(default_factory=list)
    ended: list[Outcome] = field(default_factory=list)
    restored: list[float | None] = field(default_factory=list)
    objection: Rejected | None = None
    rejects_moves: Rejected | None = None

    def judge(self, now: float, window: ApplicationWindow, answer: Proposal | NotReady) -> Verdict:
        if isinstance(answer, NotReady):
            return Waiting(str(answer), answer.until)
        if isinstance(answer, Scale) and dict(answer.parallelism) != dict(window.parallelism):
            return Accepted(answer, self.notes)
        return NothingToDo(answer.reason)

    def judge_fallback(self, now: float, window: ApplicationWindow, fallback: Scale) -> Verdict:
        return self.judge(now, window, fallback)

    def object_to_moves(self) -> Rejected | None:
        return self.objection

    def judge_move(self, window: ApplicationWindow, move: MoveState) -> Accepted | Rejected:
        return self.rejects_moves or Accepted(move)

    def action_started(self, now: float, action: Scale) -> None:
        self.started.append(action)

    def action_ended(self, now: float, action: Scale, outcome: Outcome) -> None:
        self.ended.append(outcome)

    def restore(self, last_action_at: float | None) -> None:
        self.restored.append(last_action_at)
