"""Moving state by hand, and giving a query more bins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.dataflow.moves import Bin, Strategy
from penstock.decide.outcome import Status
from penstock.decide.policy import MoveState
from penstock.errors import ActionFailed, BadInput, NotFound, Unsupported
from penstock.journal.explain import explain
from penstock.journal.store import Journal, open_journal
from penstock.migrate.bins import BinState, StateView, Worker
from penstock.migrate.mover import Planned
from penstock.migrate.plan import schedule
from penstock.migrate.planner import balance, drain
from penstock.migrate.repartition import Repartition, plan_repartition
from penstock.runtime.state_control import PARTITIONS, Repartitioning, StateControl

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

    def plan_rebalancing(self, strategy: Strategy | None = None) -> Planned:
        return [(VIEW, schedule(VIEW, balance(VIEW), strategy or Strategy.FLUID))]

    def plan_draining(self, executor_ids: Sequence[str], strategy: Strategy | None = None) -> Planned:
        return [(VIEW, schedule(VIEW, drain(VIEW, executor_ids), strategy or Strategy.FLUID))]

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
    answer = StateControl(orders, FakeMover()).answer("rebalance", {"strategy": "all-at-once", "by": "ada"})
    (action,) = orders.ordered
    assert answer["started"] and len(action.moves) == 2
    assert "rebalanced by ada in words" in action.reason and "100% more load" in action.reason
    assert action.expected.figures == {"imbalance_ratio": 0.0, "bytes_moved": 200.0}
    assert action.plans[0].strategy is Strategy.ALL_AT_ONCE


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
        (
            "rebalance",
            {"strategy": "hasty"},
            "unknown strategy 'hasty': fluid, batched, optimized or all-at-once",
        ),
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


ONE_WORKER = StateView(
    "query-id",
    "words",
    7,
    tuple(BinState(Bin("query-id", 0, number), "1", 1000, 100, 1.0) for number in range(4)),
    (Worker("1", "a", 2),),
)


@dataclass
class FakeBins:
    """Tells in which order it was asked for what."""

    done: list[str] = field(default_factory=list)
    obstacle: str | None = None
    failure: ActionFailed | None = None
    comes_back: bool = True

    def expected(self, query: str, bins: int) -> Repartition:
        found = plan_repartition(ONE_WORKER, bins, 2.0, self.obstacle)
        assert found is not None
        return found

    def rewrite(self, query: str, bins: int) -> None:
        self.done.append(f"rewrite {query} to {bins}")
        if self.failure is not None:
            raise self.failure

    def first_batch(self, query: str) -> bool:
        self.done.append("first batch")
        return self.comes_back


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return open_journal(tmp_path / "journal.db")


def a_clock() -> Callable[[], float]:
    ticks = iter(range(100, 200))
    return lambda: float(next(ticks))


def test_it_is_written_down_then_done_then_its_pause_is_kept_beside_the_expected_one(journal: Journal):
    bins = FakeBins()
    acting = Repartitioning("app", journal, bins, a_clock())

    def start() -> None:
        assert journal.unfinished("app")[0].planned == {PARTITIONS: 8}
        bins.done.append("start")

    outcome = acting.perform("words", 8, start)
    assert bins.done == ["rewrite words to 8", "start", "first batch"]
    assert (outcome.status, outcome.observed) == (Status.DONE, {PARTITIONS: 8})
    (record,) = journal.actions("app")
    assert (record.policy, record.before, record.seconds) == ("by hand", {PARTITIONS: 4}, 1.0)
    assert record.expected.figures["pause_seconds"] == acting.plan("words", 8).pause_seconds
    assert "needs a pause of about" in explain(record)


def test_a_query_whose_state_cannot_be_rewritten_is_started_as_it_was(journal: Journal):
    bins = FakeBins(failure=ActionFailed("the disk is full"))
    started: list[str] = []
    with pytest.raises(ActionFailed, match="words keeps its bins: the disk is full"):
        Repartitioning("app", journal, bins, a_clock()).perform("words", 8, lambda: started.append("again"))
    assert started == ["again"]
    (record,) = journal.actions("app")
    assert (record.status, record.observed) == (Status.FAILED, {PARTITIONS: 4})
    assert "started again as it was" in record.detail


@pytest.mark.parametrize(
    ("failure", "status"), [(None, Status.UNKNOWN), (ActionFailed("the disk is full"), Status.FAILED)]
)
def test_a_query_that_the_users_code_cannot_start_again_leaves_no_action_open(
    journal: Journal, failure: ActionFailed | None, status: Status
):
    def start() -> None:
        raise ValueError("no such topic")

    with pytest.raises(ValueError, match="no such topic"):
        Repartitioning("app", journal, FakeBins(failure=failure), a_clock()).perform("words", 8, start)
    (record,) = journal.actions("app")
    assert record.status is status and "not started again: ValueError: no such topic" in record.detail


def test_what_spark_cannot_do_is_refused_before_anything_is_stopped(journal: Journal):
    bins = FakeBins(obstacle="this is Spark 4.1")
    with pytest.raises(Unsupported, match=r"is not possible: this is Spark 4\.1"):
        Repartitioning("app", journal, bins, a_clock()).perform("words", 8, lambda: None)
    assert bins.done == [] and journal.actions("app") == ()


def test_a_query_that_does_not_come_back_is_not_called_done(journal: Journal):
    outcome = Repartitioning("app", journal, FakeBins(comes_back=False), a_clock()).perform(
        "words", 8, lambda: None
    )
    assert outcome.status is Status.UNKNOWN and "no batch has ended" in outcome.detail
