"""State that moves in the loop: proposed by the mover where the size stays, or ordered by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.dataflow.moves import Bin, Move, Plan, Strategy
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, ApplicationWindow
from penstock.decide.goals import SizeBounds
from penstock.decide.manager.manager import ScalingManager
from penstock.decide.outcome import Outcome, Status
from penstock.decide.policy import BINS, Action, ExpectedEffect, Hold, MoveState, Proposal
from penstock.decide.verdict import Accepted, Rejected, Verdict, Waiting
from penstock.errors import ActionFailed, Unsupported
from penstock.journal.explain import explain
from penstock.journal.store import Journal, open_journal
from penstock.runtime.loop import Loop, LoopSettings
from penstock.runtime.ports import Ports
from tests.decide.manager_run import EAGER
from tests.fakes import APPLICATION, AgreeingManager, FakeSource, FixedPolicy, a_query, a_scale, a_window
from tests.loop_setting import FlakyRecord

PLAN = Plan(
    "q",
    (Move(11, Bin("q", 0, 3), "1", "2"), Move(12, Bin("q", 0, 5), "1", "2")),
    Strategy.FLUID,
    "state lies unevenly",
)
MOVE = MoveState((PLAN,), "state lies unevenly", ExpectedEffect("2 bins move", {"imbalance_ratio": 0.05}))
MOVED = Outcome(Status.DONE, {BINS: 2}, {BINS: 2}, {BINS: 2}, 12.0, "2 of 2 bins moved in 4 batches")


@dataclass
class FakeMover:
    """Proposes what it has in store, one at each question."""

    answers: list[MoveState | None] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    at_work: bool = True

    def stop(self, reason: str) -> bool:
        self.stopped.append(reason)
        return True

    def moving(self) -> bool:
        return self.at_work

    def propose(self, now: float, window: ApplicationWindow) -> MoveState | None:
        return self.answers.pop(0) if self.answers else None


@dataclass
class MovingActuator:
    """Ends every action after some polls, the first by default."""

    begun: list[Action] = field(default_factory=list)
    polls: int = 0

    def begin(self, now: float, action: Action) -> None:
        self.begun.append(action)

    def poll(self, now: float) -> Outcome | None:
        self.polls -= 1
        return MOVED if self.polls < 0 else None

    def abandon(self) -> None:
        self.begun.pop()

    def held(self) -> dict[str, int]:
        return {EXECUTORS: 2}


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return open_journal(tmp_path / "journal.db")


def a_loop(
    journal: Journal, answer: Proposal | NotReady, *moves: MoveState | None, acts: bool = True
) -> tuple[Loop, MovingActuator, AgreeingManager]:
    actuator, manager = MovingActuator(), AgreeingManager()
    acting, mover = actuator if acts else None, FakeMover(list(moves))
    ports = Ports(FakeSource(), FixedPolicy(answer), manager, journal, acting, mover)
    return Loop(APPLICATION, ports, LoopSettings(policy_interval=10.0)), actuator, manager


def test_where_the_size_stays_state_moves_and_is_recorded_like_any_action(journal: Journal):
    loop, actuator, manager = a_loop(journal, Hold("the size is right"), MOVE)
    assert loop.tick(10.0).action == MOVE
    assert actuator.begun == [MOVE]
    assert loop.tick(11.0).outcome == MOVED
    loop.tick(20.0)
    (record,) = journal.actions(APPLICATION)
    assert (record.planned, record.observed, record.status) == ({BINS: 2}, {BINS: 2}, Status.DONE)
    assert "2 bins" in explain(record) and "state lies unevenly" in explain(record)
    (decision, *_) = journal.decisions(APPLICATION)
    assert decision.answer["moves"] == [["q/0/3", "1", "2"], ["q/0/5", "1", "2"]]
    assert manager.started == [] and manager.ended == []


@pytest.mark.parametrize(("seconds", "moves"), [(50.0, False), (60.0, True)])
def test_state_stays_for_a_minute_where_nothing_is_known_of_the_size_yet(
    journal: Journal, seconds: float, moves: bool
):
    """A move over the first, cold batches held up the first decision."""
    loop, actuator, _ = a_loop(journal, NotReady("it warms up", "a window"), *[MOVE] * 2)
    loop.tick(10.0)
    loop.tick(10.0 + seconds)
    assert actuator.begun == ([MOVE] if moves else [])


@pytest.mark.parametrize(
    ("wanted", "most", "begun"),
    [(4, 8, a_scale(4)), (9, 2, MOVE), (1, 2, None)],
    ids=["a change that is accepted", "more than is allowed", "less than is allowed"],
)
def test_state_moves_where_the_manager_lets_it(
    journal: Journal, wanted: int, most: int, begun: Action | None
):
    """At the most executors that are allowed, new ones would else stay without state for good."""
    loop, actuator, _ = a_loop(journal, a_scale(wanted), MOVE)
    loop.manager = ScalingManager(EAGER, SizeBounds(least=2, most=most))
    loop.tick(10.0)
    assert actuator.begun == ([] if begun is None else [begun])


def test_a_move_that_the_manager_rejects_is_recorded_with_the_guardrail_and_not_begun(journal: Journal):
    loop, actuator, manager = a_loop(journal, Hold("the size is right"), MOVE)
    manager.rejects_moves = Rejected("bad-proposal", "no bin is to move")
    cycle = loop.tick(10.0)
    assert (cycle.answer, cycle.verdict) == (MOVE, manager.rejects_moves)
    (decision,) = journal.decisions(APPLICATION)
    assert (decision.answer["kind"], decision.verdict["guardrail"]) == ("move-state", "bad-proposal")
    assert actuator.begun == [] and journal.actions(APPLICATION) == ()


class RollingBack(AgreeingManager):
    """Goes back to another size whatever the policy says."""

    def judge(self, now: float, window: ApplicationWindow, answer: Proposal | NotReady) -> Verdict:
        self.objection = Rejected("size-first", "back to 1")
        return Accepted(a_scale(1))


def test_a_change_that_the_manager_makes_by_itself_is_not_lost_to_a_move(journal: Journal):
    loop, actuator, _ = a_loop(journal, Hold("the size is right"), MOVE)
    loop.manager = RollingBack()
    assert loop.tick(10.0).action == a_scale(1)
    assert actuator.begun == [a_scale(1)]


def test_without_an_actuator_and_while_paused_nothing_moves_by_itself(journal: Journal):
    loop, _, _ = a_loop(journal, Hold("the size is right"), MOVE, acts=False)
    assert loop.tick(10.0).answer == Hold("the size is right")
    with pytest.raises(Unsupported, match="only observes"):
        loop.order(MOVE)
    loop, actuator, _ = a_loop(journal, Hold("the size is right"), MOVE)
    loop.pause()
    loop.tick(10.0)
    assert actuator.begun == []


def test_an_order_by_hand_is_done_at_the_next_tick_also_while_paused_and_is_recorded(journal: Journal):
    loop, actuator, _ = a_loop(journal, Hold("the size is right"))
    loop.tick(10.0)
    loop.pause()
    loop.order(MOVE)
    with pytest.raises(ActionFailed, match="another action is under way"):
        loop.order(MOVE)
    loop.tick(11.0)
    assert actuator.begun == [MOVE]
    with pytest.raises(ActionFailed, match="another action is under way"):
        loop.order(MOVE)
    loop.tick(12.0)
    (record,) = journal.actions(APPLICATION)
    assert (record.policy, record.before, record.planned) == ("by hand", {EXECUTORS: 2}, {BINS: 2})
    assert loop.timeline.decisions[-1].verdict.reason == "state lies unevenly"
    loop.order(MOVE)


def test_an_order_right_after_a_move_said_done_waits_for_the_tick_that_notes_its_end(journal: Journal):
    loop, actuator, _ = a_loop(journal, Hold("the size is right"), MOVE)
    loop.tick(10.0)
    assert isinstance(loop.mover, FakeMover) and loop.action_under_way == MOVE
    loop.mover.at_work = False

    loop.order(MOVE)

    with pytest.raises(ActionFailed, match="another action is under way"):
        loop.order(MOVE)
    cycle = loop.tick(11.0)
    assert actuator.begun == [MOVE, MOVE] and cycle.action == MOVE
    done, begun = sorted(journal.actions(APPLICATION), key=lambda one: one.action_id)
    assert (done.status, begun.status, begun.policy) == (Status.DONE, None, "by hand")


@pytest.mark.parametrize("broken", ["decided", "intend"])
def test_an_order_by_hand_waits_for_a_journal_that_is_away(journal: Journal, broken: str):
    loop, actuator, _ = a_loop(journal, Hold("the size is right"))
    loop.tick(10.0)
    loop.record = record = FlakyRecord(journal)
    record.broken = {broken}
    loop.order(MOVE)
    assert "the disk is full" in str(loop.tick(11.0).error)
    assert actuator.begun == [] and loop.action_under_way is None
    record.broken = set()
    assert loop.tick(12.0).action == MOVE
    assert actuator.begun == [MOVE]
    (action,) = journal.actions(APPLICATION)
    assert (action.policy, action.status) == ("by hand", None)


def test_a_controller_that_died_in_mid_migration_does_not_move_again(journal: Journal):
    loop, _, _ = a_loop(journal, Hold("the size is right"), MOVE)
    loop.tick(10.0)
    successor, actuator, _ = a_loop(journal, Hold("the size is right"))
    successor.tick(30.0)
    (record,) = journal.actions(APPLICATION)
    assert record.status is Status.UNKNOWN and actuator.begun == []


def offering(end: float, rate: float) -> ApplicationWindow:
    return a_window(end, queries=[a_query(end - 10, offered=rate)])


@pytest.mark.parametrize(
    ("rate", "wanted", "stops"),
    [(130.0, 4, True), (110.0, 4, False), (130.0, 1, False), (130.0, 2, False)],
    ids=["a higher load that needs more", "the same load", "a smaller size", "the same size"],
)
def test_state_that_moves_gives_way_to_a_higher_load_that_needs_more(
    journal: Journal, rate: float, wanted: int, stops: bool
):
    loop, actuator, _ = a_loop(journal, Hold("the size is right"), MOVE)
    mover = loop.mover
    assert isinstance(mover, FakeMover)
    loop.source = FakeSource(answers=[offering(10.0, 100.0), offering(20.0, rate)])
    loop.policy = FixedPolicy(Hold("the size is right"), a_scale(wanted))
    actuator.polls = 2
    loop.tick(10.0)

    cycle = loop.tick(20.0)

    assert mover.stopped == (["the load asks for another size"] if stops else [])
    assert loop.action_under_way == MOVE, "it ends at a boundary, not here"
    assert isinstance(cycle.verdict, Waiting) is stops
    assert any("comes to a stop first" in one.reason for one in journal.decisions()) is stops
    loop.tick(21.0)
    assert loop.tick(22.0).outcome == MOVED
    assert loop.tick(40.0).action == (None if wanted == 2 else a_scale(wanted))


@pytest.mark.parametrize(("seconds", "wanted", "stops"), [(50, 4, False), (70, 4, True), (70, 2, False)])
def test_state_that_moves_for_long_gives_way_to_growth_at_the_same_load_too(
    journal: Journal, seconds: int, wanted: int, stops: bool
):
    """Over a backlog a batch may take most of a minute, and a move some of them: nothing else was decided."""
    loop, actuator, _ = a_loop(journal, Hold("the size is right"), MOVE)
    loop.source = FakeSource(answers=[offering(10.0, 100.0), offering(10.0 + seconds, 100.0)])
    loop.policy = FixedPolicy(Hold("the size is right"), a_scale(wanted))
    actuator.polls = 2
    loop.tick(10.0)

    loop.tick(10.0 + seconds)

    assert isinstance(loop.mover, FakeMover)
    assert loop.mover.stopped == (["the load asks for another size"] if stops else [])


@pytest.mark.parametrize(
    "first", [NotReady("it warms up", "a window"), None], ids=["without a window", "with one"]
)
def test_an_order_by_hand_does_not_give_way(journal: Journal, first: NotReady | None):
    loop, actuator, _ = a_loop(journal, a_scale(4))
    loop.order(MOVE)
    actuator.polls = 2
    answers = [first or offering(10.0, 100.0), offering(20.0, 900.0), offering(90.0, 900.0)]
    loop.source = FakeSource(answers=answers)
    for now in (10.0, 20.0, 90.0):
        loop.tick(now)
    assert isinstance(loop.mover, FakeMover) and loop.mover.stopped == []
