"""Moving state by hand: what commands and notebooks ask of an attached autopilot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from penstock.decide.outcome import Outcome
from penstock.decide.policy import MoveState
from penstock.errors import BadInput, NotFound, Unsupported
from penstock.migrate.bins import StateView
from penstock.migrate.plan import Entry, Plan, Strategy, read_plan
from penstock.migrate.proposal import move_state
from penstock.migrate.repartition import Repartition
from penstock.migrate.report import plain_plan, plain_state
from penstock.repartitioning import Repartitioning

Planned = Sequence[tuple[StateView, Plan]]


class Mover(Protocol):
    """What looks at the state of an application, and plans; `penstock.migrate.spark_mover` for Spark."""

    def obstacle(self) -> str | None:
        """Why state cannot be moved, in one sentence."""

    def views(self) -> tuple[StateView, ...]:
        """Where the state of each query lies."""

    def rebalancing(self, strategy: str | None = None) -> Planned:
        """Plans that spread the state evenly."""

    def draining(self, executor_ids: Sequence[str], strategy: str | None = None) -> Planned:
        """Plans that take all state off these executors."""

    def standing(self) -> dict[str, Any] | None:
        """How the last migration stands."""

    def stop(self, reason: str) -> bool:
        """Ask the migration to stop; whether there was one."""


class Orders(Protocol):
    """Where an order is given; the loop."""

    def order(self, action: MoveState) -> None:
        """Have this done."""


class StateControl:
    """Shows where state lies and moves it on demand; what moves is journalled like any action."""

    commands = ("state", "rebalance", "drain", "migration", "stop-migration")

    def __init__(self, orders: Orders, mover: Mover, bins: Repartitioning | None = None) -> None:
        self._orders, self._mover, self._bins = orders, mover, bins

    def views(self) -> tuple[StateView, ...]:
        """Where the state of each query lies, bin by bin."""
        return self._mover.views()

    def rebalance(self, strategy: str | None = None, dry_run: bool = False) -> tuple[Plan, ...]:
        """Spread the state evenly over the executors; the answer is what is going to be done."""
        return self._carry_out(self._rebalancing(strategy), dry_run, "rebalanced by hand")

    def drain(self, executor: str, strategy: str | None = None, dry_run: bool = False) -> tuple[Plan, ...]:
        """Take all state off an executor."""
        return self._carry_out(self._draining(executor, strategy), dry_run, "drained by hand")

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
        """Give a running query more bins: what that would take, or, with `start`, stop it for that and do it.

        `start` is the user's own code that starts the query again from the same checkpoint.
        """
        self._check()
        if self._bins is None:
            raise Unsupported("this autopilot cannot change the number of bins")
        return self._bins.plan(query, bins) if start is None else self._bins.perform(query, bins, start)

    def standing(self) -> dict[str, Any] | None:
        """How the last migration stands, as plain data; None before the first."""
        return self._mover.standing()

    def stop(self) -> bool:
        """Stop a migration at the next batch boundary; whether there was one."""
        return self._mover.stop("stopped by hand")

    def answer(self, command: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """One command of the control socket."""
        answers: dict[str, Callable[[], Mapping[str, Any]]] = {
            "state": lambda: {"state": plain_state(self.views(), self._mover.obstacle())},
            "rebalance": lambda: self._ordered(
                self._rebalancing(_strategy(request)), request, "rebalanced by hand"
            ),
            "drain": lambda: self._ordered(
                self._draining(_executor(request), _strategy(request)), request, "drained by hand"
            ),
            "migration": lambda: {"migration": self.standing()},
            "stop-migration": lambda: {"stopping": self.stop()},
        }
        return answers[command]()

    def _rebalancing(self, strategy: str | None) -> Planned:
        self._check()
        return self._mover.rebalancing(strategy)

    def _draining(self, executor: str, strategy: str | None) -> Planned:
        self._check()
        return self._mover.draining((executor,), strategy)

    def _ordered(self, planned: Planned, request: Mapping[str, Any], reason: str) -> Mapping[str, Any]:
        dry_run = bool(request.get("dry_run"))
        done = self._carry_out(planned, dry_run, reason)
        plans = [plain_plan(view, plan) for view, plan in planned]
        return {"plans": plans, "started": bool(done) and not dry_run}

    def _carry_out(self, planned: Planned, dry_run: bool, reason: str) -> tuple[Plan, ...]:
        if planned and not dry_run:
            self._orders.order(move_state(planned, reason))
        return tuple(plan for _, plan in planned)

    def _check(self) -> None:
        obstacle = self._mover.obstacle()
        if obstacle is not None:
            raise Unsupported(obstacle)


def _strategy(request: Mapping[str, Any]) -> str | None:
    asked = request.get("strategy")
    known = [strategy.value for strategy in Strategy if strategy is not Strategy.OWN]
    if asked is not None and asked not in known:
        raise BadInput(f"unknown strategy {asked!r}: one of {', '.join(known)} is expected")
    return asked


def _executor(request: Mapping[str, Any]) -> str:
    executor = request.get("executor")
    if not isinstance(executor, str) or not executor:
        raise BadInput("drain needs the id of an executor")
    return executor
