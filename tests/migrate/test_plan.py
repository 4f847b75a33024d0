"""Plans: read from users, scheduled from assignments, described, and made into actions."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.moves import Bin, Move, Plan, Strategy
from penstock.errors import BadInput
from penstock.migrate.bins import StateView
from penstock.migrate.plan import describe_plan, group_ways, propose_moves, read_plan, schedule
from penstock.migrate.planner import Assignment, balance, drain
from penstock.migrate.settings import MigrationSettings
from penstock_lab.experiments.faults.state_cluster import QUERY, Configuration, a_bin, a_view
from tests.migrate.test_planner import views

VIEW = a_view({"1": range(4), "2": ()})
GOOD = (12, (0, 3), "1", "2")


def test_the_forms_in_which_a_move_can_be_written() -> None:
    wanted = (Move(12, a_bin(3), "1", "2"),)
    for entry in (
        GOOD,
        [12, [0, 3], 1, 2],
        (12, a_bin(3), "1", "2"),
        (12, "q/0/3", "1", "2"),
        {"batch": 12, "bin": "q/0/3", "from": "1", "to": "2"},
        {"batch": 12, "operator": 0, "partition": 3, "from": "1", "to": "2", "bytes": 7},
    ):
        assert read_plan(QUERY, [entry], VIEW).moves == wanted


def test_moves_come_in_the_order_of_their_batches() -> None:
    plan = read_plan(QUERY, [(14, (0, 1), "1", "2"), GOOD])
    assert [move.batch for move in plan.moves] == [12, 14]
    assert plan.strategy is Strategy.OWN
    assert plan.last_batch() == 14


def test_a_bin_may_go_and_come_back() -> None:
    plan = read_plan(QUERY, [GOOD, (20, (0, 3), "2", "1")], VIEW)
    assert [move.target for move in plan.moves] == ["2", "1"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ((12, (0, 9), "1", "2"), "move 2: the query has no bin q/0/9"),
        ((12, (0, 1), "2", "1"), "move 2: bin q/0/1 is at 1, not at 2"),
        ((12, (0, 1), "1", "7"), "move 2: there is no executor 7"),
        ((12, (0, 1), "1", "1"), "move 2: bin q/0/1 is to move from 1 to itself"),
        ((12, (0, 3), "2", "1"), "move 2: bin q/0/3 moves twice at batch 12"),
        ((14, (0, 3), "1", "2"), "move 2: bin q/0/3 is at 2, not at 1"),
        ((12, "other/0/1", "1", "2"), "move 2: bin other/0/1 is not of query q"),
        ((12, "q-0-1", "1", "2"), "move 2: 'q-0-1' is no bin"),
        ((12, 5, "1", "2"), "move 2: 5 is no bin"),
        ((-1, (0, 1), "1", "2"), "move 2: 'batch' is -1"),
        ((True, (0, 1), "1", "2"), "move 2: 'batch' is True"),
        ((12, (0, 1), None, "2"), "move 2: 'from' is None"),
        ((12, (0, 1), "1"), "move 2: (12, (0, 1), '1') is neither"),
        ("12 q/0/1 1 2", "move 2: '12 q/0/1 1 2' is neither"),
        ({"batch": 12, "bin": "q/0/1", "from": "1", "target": "2"}, "move 2: unknown key 'target'"),
    ],
)
def test_what_cannot_be_used_is_named(entry: Any, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_plan(QUERY, [GOOD, entry], VIEW)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("entries", ["all", 7, {"moves": []}])
def test_moves_that_are_no_list_are_refused(entries: Any) -> None:
    with pytest.raises(BadInput, match="the plan's moves are no list"):
        read_plan(QUERY, entries)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), unique_by=lambda one: one[1], max_size=9))
def test_a_plan_written_is_the_plan_read(entries: list[tuple[int, int]]) -> None:
    moves = tuple(Move(batch, a_bin(number), "1", "2") for batch, number in sorted(entries))
    plan = Plan(QUERY, moves, Strategy.BATCHED, "because")
    assert read_plan(QUERY, plan.plain()["moves"]).moves == plan.moves


def test_the_names_of_strategies() -> None:
    assert Strategy.parse("all-at-once") is Strategy.ALL_AT_ONCE
    with pytest.raises(BadInput, match="unknown strategy 'swift': fluid, batched, optimized or all-at-once"):
        Strategy.parse("swift")
    with pytest.raises(BadInput):
        Strategy.parse("own")


@given(st.text(min_size=1), st.integers(0, 99), st.integers(0, 9999))
def test_a_bin_written_is_the_bin_read(query: str, operator: int, partition: int) -> None:
    bin_ = Bin(query, operator, partition)
    assert Bin.parse(str(bin_)) == bin_


@pytest.mark.parametrize("text", ["", "q", "q/1", "/1/2", "q/x/1", "q/1/-1", "q/1/²"])
def test_what_is_no_bin_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no bin"):
        Bin.parse(text)


WAYS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("wxyz")), max_size=40)
ORDERS = st.sampled_from(["hot-first", "cold-first"])
FOLLOWED = tuple(strategy for strategy in Strategy if strategy is not Strategy.OWN)


@given(WAYS, st.dictionaries(st.sampled_from("abcdwxyz"), st.integers(1, 3)))
def test_groups_hold_each_way_once_and_no_worker_more_often_than_it_has_slots(
    ways: list[tuple[str, str]], slots: dict[str, int]
) -> None:
    made = group_ways(ways, slots)
    assert sorted(number for group in made for number in group) == list(range(len(ways)))
    for group in made:
        for side in (0, 1):
            for worker, times in Counter(ways[number][side] for number in group).items():
                assert times <= slots.get(worker, 1)


@given(WAYS, st.dictionaries(st.sampled_from("abcdwxyz"), st.integers(1, 3)))
def test_there_are_as_few_groups_as_there_can_be(ways: list[tuple[str, str]], slots: dict[str, int]) -> None:
    busiest = [
        -(-times // slots.get(worker, 1))
        for side in (0, 1)
        for worker, times in Counter(way[side] for way in ways).items()
    ]
    assert len(group_ways(ways, slots)) == max(busiest, default=0)


def any_assignments(view: StateView, draws: st.DataObject) -> tuple[Assignment, ...]:
    """Some bins to any other worker."""
    workers = [worker.worker for worker in view.workers]
    wanted = draws.draw(st.lists(st.sampled_from(workers), min_size=len(view.bins), max_size=len(view.bins)))
    pairs = zip(view.bins, wanted, strict=True)
    return tuple(Assignment(one.bin, one.worker, to) for one, to in pairs if one.worker and one.worker != to)


@given(views(), st.data(), st.sampled_from(FOLLOWED), st.integers(0, 2), ORDERS, st.integers(1, 4))
def test_every_bin_ends_where_planned_and_is_never_in_two_places(
    view: StateView, draws: st.DataObject, strategy: Strategy, gap: int, order: str, most: int
) -> None:
    assignments = any_assignments(view, draws)
    settings = MigrationSettings.of(strategy, gap=gap, order=order, bins_per_batch=most)
    plan = schedule(view, assignments, strategy, settings)
    # the configuration refuses a bin with two workers, and a move from where the bin is not
    configuration = Configuration(view.placement(), plan.moves)
    wanted = {**view.placement(), **{one.bin: one.target for one in assignments}}
    assert configuration.placement(plan.last_batch() or 0) == wanted
    assert configuration.placement(view.batch) == view.placement()


@given(views(), st.data(), st.sampled_from(FOLLOWED), st.integers(0, 2), st.integers(1, 4))
def test_what_moves_in_a_batch_of_a_plan(
    view: StateView, draws: st.DataObject, strategy: Strategy, gap: int, most: int
) -> None:
    settings = MigrationSettings.of(strategy, gap=gap, bins_per_batch=most)
    plan = schedule(view, any_assignments(view, draws), strategy, settings)
    slots = {worker.worker: worker.slots for worker in view.workers}
    at_once = {Strategy.FLUID: 1, Strategy.ALL_AT_ONCE: len(plan.moves)}.get(strategy, most)
    batches = sorted({move.batch for move in plan.moves})
    for batch in batches:
        group = [move for move in plan.moves if move.batch == batch]
        assert len(group) <= at_once
        if strategy is Strategy.OPTIMIZED:
            given_away = Counter(move.source for move in group)
            loaded = Counter(move.target for move in group)
            assert all(given_away[worker] <= slots[worker] for worker in slots)
            assert all(loaded[worker] <= slots[worker] for worker in slots)
        elif batch != batches[-1]:
            assert len(group) == at_once
    assert all(later - earlier == 1 + gap for earlier, later in pairwise(batches))


def scattered(count: int = 4) -> tuple[StateView, tuple[Assignment, ...]]:
    """As many sources as targets, so that no two moves meet; bin n has load n + 1."""
    view = a_view(
        {**{f"s{n}": (n,) for n in range(count)}, **{f"t{n}": () for n in range(count)}},
        loads=lambda number: number + 1.0,
    )
    return view, tuple(Assignment(Bin("q", 0, n), f"s{n}", f"t{n}") for n in range(count))


def test_hot_first_and_cold_first() -> None:
    view, assignments = scattered()
    for hot_first, order in ((True, [3, 2, 1, 0]), (False, [0, 1, 2, 3])):
        settings = MigrationSettings(order="hot-first" if hot_first else "cold-first")
        plan = schedule(view, assignments, Strategy.FLUID, settings)
        assert [move.bin.partition for move in plan.moves] == order


def test_when_the_first_move_takes_effect() -> None:
    view, assignments = scattered()
    # after batch 10: prepared in batch 11, moved in batch 12
    assert [move.batch for move in schedule(view, assignments, Strategy.FLUID).moves] == [12, 13, 14, 15]
    assert {move.batch for move in schedule(view, assignments, Strategy.ALL_AT_ONCE).moves} == {11}
    settings = MigrationSettings(strategy=Strategy.BATCHED, gap=2, bins_per_batch=3)
    assert [move.batch for move in schedule(view, assignments, Strategy.BATCHED, settings).moves] == [
        12,
        12,
        12,
        15,
    ]


def test_nothing_assigned_is_an_empty_plan() -> None:
    view, _ = scattered()
    for strategy in FOLLOWED:
        plan = schedule(view, (), strategy, reason="even already")
        assert (plan.moves, plan.last_batch(), plan.reason) == ((), None, "even already")


UNEVEN = a_view({"1": range(6), "2": range(6, 12), "3": ()})
SPREAD = schedule(UNEVEN, balance(UNEVEN), Strategy.FLUID, reason="state lies unevenly")
EMPTIED = schedule(UNEVEN, drain(UNEVEN, {"2"}), Strategy.BATCHED, reason="executor 2 leaves")


def test_a_plan_tells_bytes_batches_and_what_it_brings() -> None:
    plain = describe_plan(UNEVEN, SPREAD)
    assert (plain["strategy"], plain["reason"], plain["bytes"]) == ("fluid", "state lies unevenly", 400)
    # after batch 10: one batch to prepare, then one bin a batch
    assert plain["batches"] == 5
    assert (plain["imbalance_before"], plain["imbalance_after"]) == (pytest.approx(0.5), pytest.approx(0.0))
    assert read_plan(UNEVEN.query, plain["moves"], UNEVEN).moves == SPREAD.moves


def test_a_drained_worker_is_not_missed_afterwards() -> None:
    plain = describe_plan(UNEVEN, EMPTIED)
    assert {move["from"] for move in plain["moves"]} == {"2"}
    # six and six: even among those who stay
    assert plain["imbalance_after"] == pytest.approx(0.0)


def test_plans_become_an_action_with_its_expected_effect() -> None:
    action = propose_moves([(UNEVEN, SPREAD)], "state lies unevenly")
    assert len(action.moves) == 4
    assert action.expected.figures == {"imbalance_ratio": pytest.approx(0.0), "bytes_moved": 400.0}
    assert "50% more load a slot than the mean" in action.reason
    assert action.plans == (SPREAD,)
