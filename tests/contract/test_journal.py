"""What every store of the journal must do, whatever database it is in."""

from __future__ import annotations

import math
import threading
from contextlib import closing

import pytest
import sqlalchemy as sa

from penstock.dataflow.moves import Bin, Move, Plan, Strategy
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.outcome import Status
from penstock.decide.policy import BINS, ExpectedEffect, Hold, MoveState, Proposal, Resize
from penstock.decide.sage.metrics import Parameter, Rule
from penstock.decide.verdict import Accepted, NothingToDo, Rejected, Verdict, Waiting
from penstock.errors import NotFound
from penstock.journal.explain import explain
from penstock.journal.overrides import add_override, recall_all_overrides, recall_overrides
from penstock.journal.report import make_report
from penstock.journal.schema import decisions, memories
from penstock.journal.store import Journal
from penstock.view.report_page import thin_out
from tests.contract.conftest import Opener
from tests.fakes import APPLICATION, a_query, a_scale, a_window, an_outcome


def hold(
    journal: Journal, now: float, reason: str = "the size is right", application: str = APPLICATION
) -> int:
    return journal.decided(now, application, Hold(reason), NothingToDo(reason))


def intend(journal: Journal, now: float = 20.0, executors: int = 4, application: str = APPLICATION) -> int:
    action = a_scale(executors)
    decision = journal.decided(now, application, action, Accepted(action, ("at most 4",)), policy="ds2")
    return journal.intend(now, application, decision, action, {EXECUTORS: 2})


def test_an_observation_comes_back_with_its_figures(journal: Journal):
    journal.observed(10.5, a_window(10.0, executors=3))
    (record,) = journal.observations(APPLICATION)
    assert (record.at, record.start, record.slots) == (10.5, 0.0, 6)
    assert record.parallelism == {EXECUTORS: 3}
    (query,) = record.queries
    assert (query.name, query.offered_per_second, query.observed_per_second) == ("words", 100.0, 80.0)
    assert (query.backlog_records, query.batch_seconds, query.period_seconds) == (500.0, 8.0, 10.0)


def test_a_span_is_read_without_details(journal: Journal):
    for now in (10.0, 20.0, 30.0):
        journal.observed(now, a_window(now))
        hold(journal, now, f"reason {now}")
    journal.observed(30.0, a_window(30.0, application="other"))
    read = journal.outlines((APPLICATION, "alias"), since=20.0)
    assert [one.at for one in read] == [20.0, 30.0]
    assert [one.queries[0].detail for one in read] == [{}, {}] and read[0].queries[0].backlog_records == 500.0
    assert [one.last_at for one in journal.decisions(APPLICATION, since=20.0)] == [30.0], "the same, counted"
    number = journal.action(intend(journal, 40.0)).action_id
    assert [one.action_id for one in journal.actions(since=40.0)] == [number] and not journal.actions(
        since=41.0
    )


def test_rates_that_were_not_measured_come_back_as_no_numbers(journal: Journal):
    unknown = a_query(offered=math.nan, observed=math.nan, backlog=math.nan)
    journal.observed(10.0, a_window(10.0, queries=(unknown, a_query(name="lines"))))
    report = make_report("words", 0.0, 20.0, read := journal.outlines(APPLICATION, 0.0), [], [], {})
    query, known = read[0].queries
    assert math.isnan(query.offered_per_second) and known.offered_per_second == 100.0
    assert [one.largest_backlog_records for one in report.queries] == [0.0, 500.0]
    assert thin_out(read)[0]["offered_per_second"] is None


def test_an_accepted_rollback_is_known_as_one(journal: Journal):
    action = a_scale(4)
    for rollback in (False, True):
        decision = journal.decided(1.0, APPLICATION, action, Accepted(action, rollback=rollback))
        journal.intend(1.0, APPLICATION, decision, action, {EXECUTORS: 2})
    assert [one.rollback for one in journal.actions()] == [False, True]


def test_an_application_without_queries_can_be_observed(journal: Journal):
    journal.observed(10.0, a_window(queries=()))
    assert journal.observations(APPLICATION)[0].queries == ()


def test_runs_are_told_with_what_they_held_the_latest_first(open_store: Opener):
    journal = open_store()
    # 10 s each: the first run with 4, 8 and 4 slots, the second with 2
    for end, executors, name in (
        (10.0, 2, "a"),
        (20.0, 4, "a"),
        (30.0, 2, "a"),
        (25.0, 1, "b"),
        (40.0, 1, "b"),
    ):
        journal.observed(end, a_window(end, executors, application=name))
    latest, first = journal.runs()
    assert (first.application, first.first_at, first.last_at) == ("a", 0.0, 30.0)
    assert (first.slot_seconds, first.slots_at_start, first.slots_at_peak) == (160.0, 4, 8)
    assert (first.executor_seconds, first.executors_at_start, first.executors_at_peak) == (80.0, 2, 4)
    assert first.usage == {
        "seconds": 30.0, "slot_seconds": 160.0, "slots_at_start": 4, "slots_at_peak": 8,
        "executor_seconds": 80.0, "executors_at_start": 2, "executors_at_peak": 4,
    }  # fmt: skip
    assert (latest.application, latest.slot_seconds) == ("b", 40.0)
    assert journal.runs("a") == (first,) and journal.runs(limit=1) == (latest,)


def test_observations_are_kept_in_order_and_bounded(open_store: Opener):
    journal = open_store(retained=5)
    for now in range(20):
        journal.observed(float(now), a_window(float(now)))
        journal.observed(float(now), a_window(float(now), application="other"))
    assert [record.at for record in journal.observations(APPLICATION)] == [15.0, 16.0, 17.0, 18.0, 19.0]
    assert len(journal.observations("other")) == 5


def test_many_short_runs_of_drivers_are_bounded_in_all(open_store: Opener):
    for run in range(30):
        journal = open_store(retained=2)
        for now in range(3):
            journal.observed(100.0 * run + now, a_window(float(now), application=f"app-{run}"))
            answer = Hold(f"reason {'abc'[now]}")
            journal.decided(100.0 * run + now, f"app-{run}", answer, NothingToDo(answer.reason))
    # ten times what one application may keep, and the newest of them
    kept = journal.observations()
    assert 2 * 10 <= len(kept) <= 2 * 10 + 1
    assert kept[-1].application == "app-29"
    assert {record.application for record in journal.decisions()} == {f"app-{run}" for run in range(20, 30)}
    assert all(record.first_at < 3000.0 for record in journal.decisions())


def test_the_same_hold_again_is_one_row_with_a_count_and_both_times(journal: Journal):
    first = hold(journal, 10.0, "12.5 slots are needed and 14 are held")
    assert hold(journal, 20.0, "12.7 slots are needed and 14 are held") == first
    assert hold(journal, 30.0, "no batch finished") != first
    assert hold(journal, 40.0, "12.5 slots are needed and 14 are held") != first
    records = journal.decisions(APPLICATION)
    assert [(record.first_at, record.last_at, record.count) for record in records] == [
        (10.0, 20.0, 2),
        (30.0, 30.0, 1),
        (40.0, 40.0, 1),
    ]
    assert records[0].reason == "12.7 slots are needed and 14 are held", "the latest figures are kept"


def test_another_application_in_between_does_not_break_a_run_of_holds(journal: Journal):
    first = hold(journal, 10.0)
    hold(journal, 11.0, application="other")
    assert hold(journal, 12.0) == first


@pytest.mark.parametrize("size", [5, 6])
def test_rejections_merge_only_for_the_same_size(journal: Journal, size: int):
    verdict = Rejected("largest step", "too large a step")
    first = journal.decided(10.0, APPLICATION, a_scale(5), verdict)
    assert (journal.decided(20.0, APPLICATION, a_scale(size), verdict) == first) == (size == 5)


def test_recommendations_merge_until_one_is_acted_upon(journal: Journal):
    action = a_scale(4)
    first = journal.decided(10.0, APPLICATION, action, Accepted(action))
    assert journal.decided(20.0, APPLICATION, action, Accepted(action)) == first
    journal.intend(20.0, APPLICATION, first, action, {EXECUTORS: 2})
    assert journal.decided(30.0, APPLICATION, action, Accepted(action)) != first


@pytest.mark.parametrize(
    ("answer", "verdict", "kinds"),
    [
        (NotReady("no batch yet", "a batch", 30.0), Waiting("warming up", 40.0), ("not-ready", "waiting")),
        (Hold("right"), NothingToDo("right"), ("hold", "nothing-to-do")),
        (a_scale(9), Rejected("maximum", "64 at most"), ("scale", "rejected")),
        (a_scale(9), Accepted(a_scale(8), ("8 at most",)), ("scale", "accepted")),
        (Resize({"k": "v"}, "memory", ExpectedEffect("")), Rejected("kind", "no"), ("resize", "rejected")),
        (MoveState((), "skew", ExpectedEffect("")), Waiting("x"), ("move-state", "waiting")),
    ],
)
def test_every_answer_and_verdict_can_be_written_and_read(
    journal: Journal, answer: Proposal | NotReady, verdict: Verdict, kinds: tuple[str, str]
):
    journal.decided(10.0, APPLICATION, answer, verdict, policy="ds2")
    (record,) = journal.decisions()
    assert (record.answer["kind"], record.kind) == kinds
    assert record.policy == "ds2" and record.reason == verdict.reason


MOVES_AS_EVER_WRITTEN = {
    "kind": "move-state",
    "reason": "state lies unevenly",
    "moves": [["q/0/3", "1", "2"]],
    "expected": {"summary": "1 bin moves", "figures": {"bytes_moved": 7.0}},
    "plans": [
        {
            "query": "q",
            "strategy": "fluid",
            "reason": "uneven",
            "moves": [{"batch": 11, "operator": 0, "partition": 3, "from": "1", "to": "2"}],
        }
    ],
}


def test_moves_are_written_as_ever_and_old_records_of_them_are_read(journal: Journal):
    plan = Plan("q", (Move(11, Bin("q", 0, 3), "1", "2"),), Strategy.FLUID, "uneven")
    move = MoveState((plan,), "state lies unevenly", ExpectedEffect("1 bin moves", {"bytes_moved": 7.0}))
    decision = journal.decided(10.0, APPLICATION, move, Accepted(move), "ds2")
    journal.intend(10.0, APPLICATION, decision, move, {EXECUTORS: 2})
    old = {"application": "old", "policy": "ds2", "first_at": 1.0, "last_at": 1.0, "count": 1, "sameness": ""}
    verdict = {"kind": "accepted", "reason": "uneven", "parallelism": {BINS: 1}, "notes": []}
    with journal.database.writing() as connection:
        row = sa.insert(decisions).values(**old, answer=MOVES_AS_EVER_WRITTEN, verdict=verdict)
        (old_decision,) = connection.execute(row).inserted_primary_key or ()
    journal.intend(2.0, "old", old_decision, move, {EXECUTORS: 2})
    for application in (APPLICATION, "old"):
        (found,) = journal.decisions(application)
        assert found.answer == MOVES_AS_EVER_WRITTEN
        (action,) = journal.actions(application)
        assert action.planned == {BINS: 1} and "1 bins" in explain(action)


def test_decisions_are_bounded_but_those_of_actions_stay(open_store: Opener):
    journal = open_store(retained=3)
    action = intend(journal)
    for now in range(30):
        hold(journal, 100.0 + now, f"reason {'abcdefgh'[now % 8]}")
    assert len(journal.decisions(APPLICATION)) == 4
    assert journal.action(action).reason == "the load needs more"


def test_an_action_is_known_from_its_intent_on(journal: Journal):
    journal.observed(19.0, a_window(19.0))
    action_id = intend(journal)
    record = journal.action(action_id)
    assert (record.status, record.ended_at, record.measured) == (None, None, None)
    assert (record.before, record.planned) == ({EXECUTORS: 2}, {EXECUTORS: 4})
    assert (record.policy, record.notes, record.exact) == ("ds2", ("at most 4",), {EXECUTORS: 3.75})
    assert record.expected == ExpectedEffect("batches fit their period", {"batch_seconds": 7.5})
    assert record.seen[0].name == "words"
    assert journal.unfinished(APPLICATION) == (record,)
    assert journal.unfinished("other") == ()


def test_an_outcome_keeps_planned_requested_and_observed_apart(journal: Journal):
    action_id = intend(journal)
    journal.ended(30.0, action_id, an_outcome(3, Status.PARTIAL, "no room", seconds=9.5))
    record = journal.action(action_id)
    assert (record.status, record.ended_at, record.seconds) == (Status.PARTIAL, 30.0, 9.5)
    assert (record.planned, record.requested, record.observed) == (
        {EXECUTORS: 4},
        {EXECUTORS: 3},
        {EXECUTORS: 3},
    )
    assert record.detail == "no room"
    assert journal.unfinished(APPLICATION) == ()


def test_the_first_outcome_and_the_first_effect_stand(journal: Journal):
    action_id = intend(journal)
    journal.ended(30.0, action_id, an_outcome(4))
    journal.ended(40.0, action_id, an_outcome(2, Status.UNKNOWN))
    journal.effect(60.0, action_id, {"batch_seconds": 7.9})
    journal.effect(70.0, action_id, {"batch_seconds": 1.0})
    record = journal.action(action_id)
    assert (record.status, record.ended_at) == (Status.DONE, 30.0)
    assert (record.effect_at, record.measured) == (60.0, {"batch_seconds": 7.9})


def test_figures_that_are_no_numbers_are_left_out(journal: Journal):
    action_id = intend(journal)
    journal.effect(60.0, action_id, {"batch_seconds": float("nan"), "backlog_records": 3.0})
    assert journal.action(action_id).measured == {"backlog_records": 3.0}


def test_actions_are_listed_in_order_for_one_application_or_for_all(journal: Journal):
    ids = [intend(journal, now, application=name) for now, name in ((1.0, "a"), (2.0, "b"), (3.0, "a"))]
    assert [record.action_id for record in journal.actions()] == ids
    assert [record.action_id for record in journal.actions("a")] == [ids[0], ids[2]]
    assert [record.action_id for record in journal.actions(limit=2)] == ids[1:]


def test_an_action_of_a_number_that_no_database_holds_is_unknown(journal: Journal):
    for number in (2**31, 2**63, -(2**63), 10**20):
        with pytest.raises(NotFound, match=f"no action {number}"):
            journal.action(number)


def test_an_unknown_action_is_named(journal: Journal):
    with pytest.raises(NotFound, match="no action 99"):
        journal.action(99)
    with pytest.raises(NotFound, match="no action 99"):
        journal.ended(1.0, 99, an_outcome(1))
    with pytest.raises(NotFound, match="no action 99"):
        journal.effect(1.0, 99, {})


def test_what_was_written_is_there_after_opening_again(open_store: Opener):
    action_id = intend(open_store())
    assert open_store().action(action_id).planned == {EXECUTORS: 4}


def test_one_writes_while_others_read(open_store: Opener):
    journal, finished, failures = open_store(), threading.Event(), list[Exception]()

    def read() -> None:
        reader = open_store()
        while not finished.is_set():
            try:
                counts = [len(reader.observations(APPLICATION)), len(journal.observations(APPLICATION))]
                assert all(0 <= count <= 30 for count in counts)
            except Exception as error:
                failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for now in range(30):
        journal.observed(float(now), a_window(float(now), queries=[a_query(now - 10)]))
    finished.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert len(journal.observations(APPLICATION)) == 30


def test_several_writers_lose_nothing(open_store: Opener):
    def write(name: str) -> None:
        mine = open_store()
        for now in range(15):
            mine.observed(float(now), a_window(float(now), application=name))
            hold(mine, float(now), application=name)

    names = ["a", "b", "c"]
    writers = [threading.Thread(target=write, args=(name,)) for name in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    journal = open_store()
    assert [len(journal.observations(name)) for name in names] == [15, 15, 15]
    assert [record.count for record in journal.decisions()] == [15, 15, 15]


def test_what_was_learned_is_found_by_owner_and_kind_and_the_last_word_counts(journal: Journal):
    journal.remember(1.0, "words", "costs", "q1", {"seconds": [1.0, 2.0]})
    journal.remember(2.0, "words", "costs", "q2", {"seconds": []})
    journal.remember(3.0, "words", "costs", "q1", {"seconds": [3.0]})
    journal.remember(4.0, "words", "capacity", "q1", {})
    journal.remember(5.0, "clicks", "costs", "q1", {})
    assert journal.recall("words", "costs") == {"q2": {"seconds": []}, "q1": {"seconds": [3.0]}}
    assert journal.recall("nobody", "costs") == {}


def test_memories_are_bounded_for_each_owner_and_the_newest_stay(journal: Journal):
    for number in range(260):
        journal.remember(float(number), "words", "costs", f"query {number}", {})
    journal.remember(0.5, "clicks", "costs", "old", {})
    kept = journal.recall("words", "costs")
    assert 200 <= len(kept) <= 220
    assert list(kept)[-1] == "query 259"
    assert journal.recall("clicks", "costs") == {"old": {}}


def test_many_runs_do_not_drive_out_what_an_operator_said_long_ago(journal: Journal):
    add_override(journal, 1.0, "words", "ops", pin=["heap"])
    runs = [
        {"owner": f"job {n}", "kind": "run", "key": "k", "at": 2.0 + n, "body": {}} for n in range(10_050)
    ]
    with journal.database.writing() as connection:
        connection.execute(sa.insert(memories), runs)
    journal.remember(20_000.0, "words", "run", "app-1", {})
    assert len(journal.recall_all("run")) == 10_000
    assert recall_overrides(journal, "words")["pin"] == ["heap"]


def test_two_operators_at_the_same_time_both_have_their_say(open_store: Opener):
    def say(number: int) -> None:
        with closing(open_store()) as journal:
            for again in range(5):
                add_override(journal, float(again), "words", f"ops {number}", veto=[f"P{number}"])

    operators = [threading.Thread(target=say, args=(number,)) for number in (1, 2, 3)]
    for operator in operators:
        operator.start()
    for operator in operators:
        operator.join()
    said = recall_overrides(open_store(), "words")
    assert said["veto"] == ["P1", "P2", "P3"] and len(said["log"]) == 15


def test_what_operators_said_of_all_applications_is_read_at_once_and_damage_is_named(journal: Journal):
    add_override(journal, 1.0, "words", "ops", pin=["heap"], force="P6")
    add_override(journal, 1.0, "clicks", "night shift", veto=["P3"])
    journal.remember(1.0, "damaged", "overrides", "said", {"pin": ["hip"]})
    said, problems = recall_all_overrides(journal)
    assert set(said) == {"words", "clicks"} and said["clicks"].overrides.vetoed == {Rule.CPU_UP}
    assert said["words"].overrides.pinned == {Parameter.HEAP} and said["words"].force_id == "1.000000"
    assert list(problems) == ["damaged"] and "hip" in problems["damaged"]
