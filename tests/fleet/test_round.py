"""Rounds over columns: what comes twice or late changes nothing, a decision flies until acknowledged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decide.sage.rounds import round_of
from penstock.decide.sage.settings import SageSettings
from penstock.fleet.round import RoundResult, describe_round, play_round, tabulate_decisions
from penstock.fleet.state import SAMPLES, FleetState, empty_state, from_bytes, to_bytes
from penstock.fleet.status import tabulate_status
from tests.fleet.agents import GIB, a_record, a_table

SETTINGS = SageSettings()
HUNGRY = {"heap_used_bytes": 5.8 * GIB}


def rounds(state: FleetState, times: range, *names: str, **changes: Any) -> list[RoundResult]:
    played = []
    for number in times:
        table = a_table(*(a_record(name, end=10.0 * number, **changes) for name in names))
        played.append(play_round(state, table, SETTINGS))
        state = from_bytes(to_bytes(played[-1].state))
    return played


def decided(result: RoundResult) -> list[tuple[str, str]]:
    return [(row["application"], row["rule"]) for row in tabulate_decisions(result, SETTINGS).to_pylist()]


def test_a_decision_comes_when_the_window_is_full_and_once():
    played = rounds(empty_state(), range(1, 11), "a", "b", **HUNGRY)
    assert [decided(result) for result in played[:3]] == [[], [], []]
    assert decided(played[3]) == [("a", "P1"), ("b", "P1")]
    assert all(decided(result) == [] for result in played[4:]), "the action is in flight"
    row = tabulate_decisions(played[3], SETTINGS).to_pylist()[0]
    assert (row["decision_id"], row["expires_at"]) == (40_000, 640.0)
    assert row["settings"] == '{"spark.executor.memory":"9216m"}'
    assert "heap use never fell below 97%" in row["reason"]
    assert (row["held_heap_bytes"], row["after_heap_bytes"]) == (6 * GIB, 9 * GIB)


def test_windows_that_come_twice_or_late_change_nothing():
    state = rounds(empty_state(), range(1, 4), "a")[-1].state
    before = to_bytes(state)
    again = play_round(state, a_table(a_record("a", end=30.0), a_record("a", end=10.0)), SETTINGS)
    assert again.ignored == 2 and len(again.rows) == 0
    assert to_bytes(again.state) == before


def test_the_order_within_a_batch_does_not_matter():
    records = [a_record(name, end=10.0 * number, **HUNGRY) for number in range(1, 6) for name in ("a", "b")]
    forwards, backwards = (
        play_round(empty_state(), a_table(*some), SETTINGS) for some in (records, records[::-1])
    )
    assert repr(tabulate_decisions(forwards, SETTINGS).to_pylist()) == repr(
        tabulate_decisions(backwards, SETTINGS).to_pylist()
    )
    assert decided(forwards) == [("a", "P1"), ("b", "P1")]


def test_an_acknowledged_decision_ends_and_old_samples_are_not_believed():
    state = rounds(empty_state(), range(1, 5), "a", **HUNGRY)[-1].state
    played = rounds(state, range(5, 14), "a", acknowledged=40_000, **HUNGRY)
    assert [len(decided(result)) for result in played] == [0, 0, 0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(("heap", "fires"), [(6, [("a", "P1")]), (12, [])])
def test_what_happened_before_a_restart_by_hand_is_not_held_against_the_new_size(heap, fires):
    """An executor ran out of heap, and before four samples were there somebody had doubled it himself."""
    state = rounds(empty_state(), range(1, 3), "a")[-1].state
    state = rounds(state, range(3, 4), "a", out_of_memory_count=1)[-1].state
    assert decided(rounds(state, range(4, 5), "a", held_heap_bytes=heap * GIB)[-1]) == fires


def test_a_decision_that_nobody_answers_runs_out():
    state = rounds(empty_state(), range(1, 5), "a", **HUNGRY)[-1].state
    played = rounds(state, range(5, 70), "a", **HUNGRY)
    again = [result.now[0] for result in played if decided(result)]
    assert again == [650.0], "the decision of 40 s ran out at 640 s"


def test_what_was_too_small_is_remembered():
    state = rounds(empty_state(), range(1, 5), "a", **HUNGRY)[-1].state
    assert state.too_small[0].tolist() == [6 * GIB, 0.0, 0.0, 0.0]
    played = rounds(state, range(5, 45), "a", acknowledged=40_000, held_heap_bytes=9 * GIB)
    assert all(not decided(result) for result in played), "5.9 GiB are committed, but 6 were too small"


def test_a_heap_that_was_lowered_is_remembered():
    idle = {"heap_committed_bytes": 3 * GIB, "heap_used_bytes": GIB, "memory_used_bytes": 3.75 * GIB}
    played = rounds(empty_state(), range(1, 32), "a", **idle)
    found = [result for result in played if decided(result)]
    assert decided(found[0]) == [("a", "P6")]
    assert played[-1].state.too_small[0].tolist() == [0.0, 0.0, 0.0, 3 * GIB]


@pytest.mark.parametrize(("told", "rule"), [({}, ["P2"]), ({"beside_heap_bytes": 0.5 * GIB}, [])])
def test_an_agent_may_tell_what_is_surely_beside_the_heap_apart(told, rule):
    likely = {"memory_used_bytes": 6.9 * GIB, **told}
    result = rounds(empty_state(), range(1, 5), "a", **likely)[-1]
    assert [decision for _, decision in decided(result)] == rule


def test_a_history_of_an_earlier_version_had_fewer_metrics():
    state = rounds(empty_state(), range(1, 5), "a")[-1].state
    earlier = replace(state, history=state.history[:, :-1].copy())
    history = from_bytes(to_bytes(earlier)).history
    np.testing.assert_array_equal(history[:, :-1], state.history[:, :-1])
    assert np.isnan(history[:, -1]).all()


def test_a_history_of_an_earlier_version_had_its_samples_first():
    state = rounds(empty_state(), range(1, 4), "a", "b")[-1].state
    turned = replace(state, history=state.history.transpose(0, 2, 1)[:, :, :-1].copy())
    stored = to_bytes(turned).replace(b"penstock-fleet-2", b"penstock-fleet-1")
    history = from_bytes(stored).history
    np.testing.assert_array_equal(history[:, :-1], state.history[:, :-1])
    assert np.isnan(history[:, -1]).all()


def test_what_an_earlier_version_did_not_keep_is_blank():
    state = rounds(empty_state(), range(1, 5), "a", **HUNGRY)[-1].state
    stored = to_bytes(replace(state, too_small=state.too_small[:, :3].copy()))
    assert from_bytes(stored).too_small.tolist() == [[6 * GIB, 0.0, 0.0, 0.0]]


def ordered(number: int, **orders: int) -> pa.Table:
    table = a_table(a_record("a", end=10.0 * number, **HUNGRY))
    given = {"pinned": 0, "vetoed": 0, "forced": 0, "force_id": 0, **orders}
    for name, value in given.items():
        table = table.append_column(name, pa.array([value]))
    return table


def test_a_force_that_finds_nothing_to_decide_waits_and_stops_no_other_rule():
    state, found = empty_state(), []
    for number in range(1, 6):
        result = play_round(state, ordered(number, forced=4, force_id=99), SETTINGS)
        state, found = result.state, found + decided(result)
    assert found == [("a", "P1")], "no more parallelism is needed, more heap is"
    assert state.forced.tolist() == [0], "it is not obeyed yet"


def test_orders_are_obeyed_and_a_force_once():
    state, found = empty_state(), []
    for number in range(1, 9):
        result = play_round(state, ordered(number, vetoed=1 << 1, forced=3, force_id=99), SETTINGS)
        state = result.state
        found.append(decided(result))
    assert found[0] == [("a", "P3")], "a force needs no symptom"
    assert all(not one for one in found[1:])
    assert state.forced.tolist() == [99]


@pytest.mark.parametrize("needed", [9, 2**53])
def test_the_need_is_what_the_agent_says(needed: int):
    """Also one that no application has: it must still be a number that a decision can hold."""
    state = empty_state()
    for number in range(1, 6):
        record = a_record("a", 10.0 * number, backlog_records=1000.0 * number, needed_parallelism=needed)
        result = play_round(state, a_table(record), SETTINGS)
        state = result.state
        if decided(result):
            break
    row = tabulate_decisions(result, SETTINGS).to_pylist()[0]
    assert (row["rule"], row["parallelism"]) == ("P4", needed)


def test_status_tells_waste():
    state = rounds(empty_state(), range(1, 3), "a", held_parallelism=8)[-1].state
    (row,) = tabulate_status(state, SETTINGS).to_pylist()
    assert (row["allocated_cores"], row["needed_cores"]) == (32.0, 16.0)
    assert row["allocated_bytes"] == 8 * 7.0 * GIB
    assert row["needed_bytes"] == pytest.approx(4 * (5.9 + 0.75 / 0.8) * GIB)


@pytest.mark.parametrize(
    ("used", "needed"), [(2.4, 4.0), (3.9, 4.0), (4.4, 8.0), (6.0, 12.0), (11.9, 12.0), (None, 12.0)]
)
def test_cores_that_tasks_do_not_use_are_waste_too(used: float | None, needed: float):
    """Four slots of three cores each: as many as P8 would leave, and no more than are held."""
    three = {"held_cores": 12, "held_task_cpus": 3}
    state = rounds(empty_state(), range(1, 3), "a", cpu_used_cores=used, **three)[-1].state
    state = rounds(state, range(3, 5), "a", cpu_used_cores=None, **three)[-1].state
    assert tabulate_status(state, SETTINGS)["needed_cores"].to_pylist() == [4 * needed]


def test_what_was_used_before_the_last_change_is_no_need():
    state = rounds(empty_state(), range(1, 3), "a", cpu_used_cores=3.9)[-1].state
    larger = {"held_cores": 12, "held_task_cpus": 3, "cpu_used_cores": 2.4}
    state = rounds(state, range(4, 5), "a", **larger)[-1].state
    assert tabulate_status(state, SETTINGS)["needed_cores"].to_pylist() == [16.0]


def test_a_round_says_what_it_did():
    words = describe_round(rounds(empty_state(), range(1, 5), "a", "b", **HUNGRY)[-1])
    assert words["judged"] == 2 and words["decided"] == {"P1": 2}


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_a_long_run_agrees_with_the_pure_rules_at_every_round(seed: int):
    """The state of each round, through bytes and back, gives what the pure rules give for it."""
    from penstock.fleet import round as fleet_round
    from tests.decide.sage.made_up import input_of
    from tests.decide.sage.reference import decide

    random, state = np.random.default_rng(seed), empty_state()
    for number in range(1, SAMPLES + 6):
        here = [name for name in "abc" if random.random() < 0.9]
        if not here:
            continue
        used = float(random.choice([3.0, 5.7]))
        records = [
            a_record(
                name,
                end=10.0 * number,
                heap_used_bytes=used * GIB,
                needed_parallelism=int(random.integers(2, 5)),
            )
            for name in here
        ]
        result = play_round(from_bytes(to_bytes(state)), a_table(*records), SETTINGS)
        taken, rows = fleet_round.add_applications(from_bytes(to_bytes(state)), result.state.names)
        fleet_round.push_samples(
            taken, rows[result.rows], result.now, result.state.history[result.rows, :, -1]
        )
        fleet_round._note(taken, result.rows, result.window, result.windows)
        asked = fleet_round.select_applications(taken, result.rows, result.window, result.windows)
        for place in range(len(result.rows)):
            expected = decide(input_of(asked, place), SETTINGS)
            assert repr(round_of(result.decisions, place)) == repr(expected)
        state = result.state
