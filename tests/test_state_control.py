from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.decide.policy import MoveState
from penstock.errors import ActionFailed, BadInput, NotFound, Unsupported
from penstock.migrate.bins import Bin, BinState, StateView, Worker
from penstock.migrate.plan import Plan, Strategy
from penstock.migrate.planner import balance, drain
from penstock.migrate.strategies import schedule
from penstock.state_control import StateControl

VIEW = StateView(
    "query-id",
    "words",
    7,
    tuple(BinState(Bin("query-id", 0, number), "1", 10, 100, 1.0) for number in range(4)),
    (Worker("1", "a", 2), Worker("2", "a", 2)),
)


@dataclass
class FakeMover:
    """Plans for real over a view that is made up."""

    hindered: str | None = None
    under_way: dict[str, Any] | None = None
    stopped: list[str] = field(default_factory=list)

    def obstacle(self) -> str | None:
        return self.hindered

    def views(self) -> tuple[StateView, ...]:
        return (VIEW,)

    def rebalancing(self, strategy: str | None = None) -> list[tuple[StateView, Plan]]:
        return [(VIEW, schedule(VIEW, balance(VIEW), Strategy(strategy or "fluid")))]

    def draining(
        self, executor_ids: Sequence[str], strategy: str | None = None
    ) -> list[tuple[StateView, Plan]]:
        return [(VIEW, schedule(VIEW, drain(VIEW, executor_ids), Strategy(strategy or "fluid")))]

    def standing(self) -> dict[str, Any] | None:
        return self.under_way

    def stop(self, reason: str) -> bool:
        self.stopped.append(reason)
        return self.under_way is not None


@dataclass
class FakeOrders:
    """Keeps what was ordered."""

    ordered: list[MoveState] = field(default_factory=list)

    def order(self, action: MoveState) -> None:
        if self.ordered:
            raise ActionFailed("another action is under way: wait for its end")
        self.ordered.append(action)


@pytest.fixture
def orders() -> FakeOrders:
    return FakeOrders()


def test_state_is_shown_bin_by_bin(orders: FakeOrders):
    state = StateControl(orders, FakeMover()).answer("state", {})["state"]
    assert state["obstacle"] is None
    assert [worker["worker"] for worker in state["workers"]] == ["1", "2"]
    (query,) = state["queries"]
    assert (query["name"], query["batch"], query["imbalance"]) == ("words", 7, 1.0)
    assert query["bins"][2] == {
        "operator": 0,
        "partition": 2,
        "worker": "1",
        "rows": 10,
        "bytes": 100,
        "load_seconds": 1.0,
    }


def test_a_dry_run_shows_the_plan_and_orders_nothing(orders: FakeOrders):
    answer = StateControl(orders, FakeMover()).answer("rebalance", {"dry_run": True})
    (plan,) = answer["plans"]
    assert not answer["started"] and orders.ordered == []
    assert (plan["strategy"], plan["bytes"], len(plan["moves"])) == ("fluid", 200, 2)
    assert (plan["imbalance_before"], plan["imbalance_after"]) == (1.0, 0.0)


def test_a_rebalancing_is_ordered_as_one_action_that_says_why(orders: FakeOrders):
    answer = StateControl(orders, FakeMover()).answer("rebalance", {"strategy": "all-at-once"})
    (action,) = orders.ordered
    assert answer["started"] and len(action.moves) == 2
    assert "rebalanced by hand in words" in action.reason and "100% more load" in action.reason
    assert action.expected.figures == {"imbalance_ratio": 0.0, "bytes_moved": 200.0}
    assert action.plans[0]["strategy"] == "all-at-once"


def test_an_executor_is_drained_of_all_its_bins(orders: FakeOrders):
    (plan,) = StateControl(orders, FakeMover()).drain("1")
    assert {move.target for move in plan.moves} == {"2"} and len(plan.moves) == 4
    assert len(orders.ordered) == 1


def test_a_plan_of_ones_own_is_checked_and_ordered(orders: FakeOrders):
    control = StateControl(orders, FakeMover())
    with pytest.raises(BadInput, match="move 1: there is no executor 9"):
        control.migrate("words", [(9, (0, 1), "1", "9")])
    with pytest.raises(NotFound, match="no query clicks"):
        control.migrate("clicks", [])
    plan = control.migrate("words", [(9, (0, 1), "1", "2")])
    assert plan.strategy is Strategy.OWN and len(orders.ordered) == 1


@pytest.mark.parametrize(
    ("command", "request_", "message"),
    [
        ("rebalance", {"strategy": "hasty"}, "unknown strategy 'hasty': one of"),
        ("drain", {}, "drain needs the id of an executor"),
        ("drain", {"executor": "7"}, "there is no executor 7"),
    ],
)
def test_bad_requests_are_refused(orders: FakeOrders, command: str, request_: dict[str, Any], message: str):
    with pytest.raises(BadInput, match=message):
        StateControl(orders, FakeMover()).answer(command, request_)
    assert orders.ordered == []


def test_where_state_cannot_be_moved_it_is_said_and_state_is_shown_all_the_same(orders: FakeOrders):
    control = StateControl(orders, FakeMover("state cannot be moved: no executors"))
    assert control.answer("state", {})["state"]["obstacle"] == "state cannot be moved: no executors"
    for command in ("rebalance", "drain"):
        with pytest.raises(Unsupported, match="state cannot be moved"):
            control.answer(command, {"executor": "1"})


def test_a_migration_is_watched_and_stopped(orders: FakeOrders):
    mover = FakeMover(under_way={"state": "moving", "moved": 1, "of": 4})
    control = StateControl(orders, mover)
    assert control.answer("migration", {}) == {"migration": {"state": "moving", "moved": 1, "of": 4}}
    assert control.answer("stop-migration", {}) == {"stopping": True}
    assert mover.stopped == ["stopped by hand"]
