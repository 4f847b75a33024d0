"""State by hand: what commands and notebooks ask of an autopilot, to move bins or to have more of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from penstock.dataflow.moves import Plan, Strategy
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import ExpectedEffect, MoveState, Resize
from penstock.decide.verdict import Accepted
from penstock.errors import ActionFailed, BadInput, NotFound, PenstockError, Unsupported
from penstock.journal.ports import Record
from penstock.migrate.bins import StateView, describe_state
from penstock.migrate.mover import Mover, Planned
from penstock.migrate.plan import Entry, describe_plan, propose_moves, read_plan
from penstock.migrate.repartition import Repartition
from penstock.runtime.by_hand import read_name


class Orders(Protocol):
    """The place where orders are given: the loop."""

    def order(self, action: MoveState) -> None:
        """Have this done."""


class StateControl:
    """The control over state: shows where it lies and moves it, journalled like any action."""

    commands = ("state", "rebalance", "drain", "migration", "stop-migration")

    def __init__(self, orders: Orders, mover: Mover, bins: Repartitioning | None = None) -> None:
        self._orders, self._mover, self._bins = orders, mover, bins

    def views(self) -> tuple[StateView, ...]:
        """Return where the state of each query lies, bin by bin."""
        return self._mover.views()

    def rebalance(self, strategy: str | None = None, dry_run: bool = False) -> tuple[Plan, ...]:
        """Spread the state evenly over the executors; return the plans."""
        return self._carry_out(self._plan_rebalancing(strategy), dry_run, "rebalanced by hand")

    def drain(self, executor: str, strategy: str | None = None, dry_run: bool = False) -> tuple[Plan, ...]:
        """Take all state off an executor."""
        return self._carry_out(self._plan_draining(executor, strategy), dry_run, "drained by hand")

    def migrate(self, query: str, moves: Sequence[Entry]) -> Plan:
        """Carry out a plan of one's own: (batch, bin, from, to) each, checked against what is there."""
        view = next((one for one in self.views() if query in (one.query, one.name)), None)
        if view is None:
            raise NotFound(f"there is no query {query} with state")
        plan = read_plan(view.query, moves, view)
        self._carry_out([(view, plan)], False, "planned by hand")
        return plan

    def repartition(
        self, query: str, bins: int, start: Callable[[], object] | None = None
    ) -> Repartition | Outcome:
        """Say what more bins for a running query would take; with `start`, stop the query and do it.

        `start` is the user's own code that starts the query again from the same checkpoint.
        """
        self._check()
        if self._bins is None:
            raise Unsupported("this autopilot cannot change the number of bins")
        return self._bins.plan(query, bins) if start is None else self._bins.perform(query, bins, start)

    def standing(self) -> dict[str, Any] | None:
        """Return how the last migration stands, as plain data; None before the first."""
        return self._mover.standing()

    def stop(self) -> bool:
        """Stop a migration at the next batch boundary; return whether there was one."""
        return self._mover.stop("stopped by hand")

    def answer(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer one command of the control socket."""
        answers: dict[str, Callable[[], Mapping[str, Any]]] = {
            "state": lambda: {"state": describe_state(self.views(), self._mover.obstacle())},
            "rebalance": lambda: self._ordered(
                self._plan_rebalancing(request.get("strategy")),
                request,
                f"rebalanced by {read_name(request)}",
            ),
            "drain": lambda: self._ordered(
                self._plan_draining(_executor(request), request.get("strategy")),
                request,
                f"drained by {read_name(request)}",
            ),
            "migration": lambda: {"migration": self.standing()},
            "stop-migration": lambda: {"stopping": self.stop()},
        }
        return answers[command]()

    def _plan_rebalancing(self, strategy: str | None) -> Planned:
        self._check()
        return self._mover.plan_rebalancing(_chosen(strategy))

    def _plan_draining(self, executor: str, strategy: str | None) -> Planned:
        self._check()
        return self._mover.plan_draining((executor,), _chosen(strategy))

    def _ordered(self, planned: Planned, request: Mapping[str, Any], reason: str) -> Mapping[str, Any]:
        dry_run = bool(request.get("dry_run"))
        done = self._carry_out(planned, dry_run, reason)
        plans = [describe_plan(view, plan) for view, plan in planned]
        return {"plans": plans, "started": bool(done) and not dry_run}

    def _carry_out(self, planned: Planned, dry_run: bool, reason: str) -> tuple[Plan, ...]:
        if planned and not dry_run:
            self._orders.order(propose_moves(planned, reason))
        return tuple(plan for _, plan in planned)

    def _check(self) -> None:
        obstacle = self._mover.obstacle()
        if obstacle is not None:
            raise Unsupported(obstacle)


def _chosen(strategy: str | None) -> Strategy | None:
    return None if strategy is None else Strategy.parse(strategy)


def _executor(request: Mapping[str, Any]) -> str:
    executor = request.get("executor")
    if not isinstance(executor, str) or not executor:
        raise BadInput("drain needs the id of an executor")
    return executor


PARTITIONS = "spark.sql.shuffle.partitions"


class Bins(Protocol):
    """The hand that changes the number of a query's bins; `migrate.spark_repartition` for Spark."""

    def expected(self, query: str, bins: int) -> Repartition:
        """Return what it would take."""

    def rewrite(self, query: str, bins: int) -> None:
        """Stop the query after its batch, and rewrite its state; the query is stopped also if this fails."""

    def first_batch(self, query: str) -> bool:
        """Wait, within bounds, for the first batch after the restart; return whether there was one."""


class Repartitioning:
    """The change of a query's number of bins; the user's code starts it again, for only that knows how."""

    def __init__(
        self, application: str, record: Record, bins: Bins, clock: Callable[[], float] = time.time
    ) -> None:
        self._application, self._record, self._bins, self._clock = application, record, bins, clock

    def plan(self, query: str, bins: int) -> Repartition:
        """Return what it would take, with the expected pause; nothing is done."""
        return self._bins.expected(query, bins)

    def perform(self, query: str, bins: int, start: Callable[[], object]) -> Outcome:
        """Stop the query, rewrite its state, call `start`; if rewriting fails, start it as it was."""
        expected = self._bins.expected(query, bins)
        if expected.obstacle is not None:
            raise Unsupported(expected.words())
        action_id, begun = self._intend(expected), self._clock()
        try:
            self._bins.rewrite(query, bins)
        except PenstockError as problem:
            self._restart(start, action_id, expected, Status.FAILED, begun)
            self._end(action_id, expected, Status.FAILED, begun, f"{problem}; started again as it was")
            raise ActionFailed(f"{query} keeps its bins: {problem}") from problem
        self._restart(start, action_id, expected, Status.UNKNOWN, begun)
        alive = self._bins.first_batch(query)
        detail = "the query runs again" if alive else "no batch has ended since the restart"
        return self._end(action_id, expected, Status.DONE if alive else Status.UNKNOWN, begun, detail)

    def _restart(
        self, start: Callable[[], object], action_id: int, expected: Repartition, status: Status, begun: float
    ) -> None:
        """Call the user's code; an error in it ends the action and is raised on."""
        try:
            start()
        except Exception as problem:
            said = f"the query was not started again: {type(problem).__name__}: {problem}"
            self._end(action_id, expected, status, begun, said)
            raise

    def _intend(self, expected: Repartition) -> int:
        figures = {"pause_seconds": expected.pause_seconds}
        effect = ExpectedEffect(expected.words(), figures)
        action = Resize({PARTITIONS: str(expected.bins_after)}, f"{expected.name} gets more bins", effect)
        now, held = self._clock(), {PARTITIONS: expected.bins_before}
        decision_id = self._record.decided(now, self._application, action, Accepted(action), "by hand")
        return self._record.intend(now, self._application, decision_id, action, held)

    def _end(
        self, action_id: int, expected: Repartition, status: Status, begun: float, detail: str
    ) -> Outcome:
        wanted = {PARTITIONS: expected.bins_after}
        now = self._clock()
        seconds = max(0.0, now - begun)
        said = f"{detail}; it stood still for {seconds:.0f} s"
        outcome = Outcome(status, wanted, wanted, wanted, seconds, said)
        if status is Status.FAILED:
            outcome = replace(outcome, observed={PARTITIONS: expected.bins_before})
        self._record.ended(now, action_id, outcome)
        return outcome
