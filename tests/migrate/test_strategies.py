"""Plans made of assignments: complete, in order, and in groups that do not disturb each other."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.migrate.bins import Bin, StateView
from penstock.migrate.configuration import Configuration
from penstock.migrate.matching import groups
from penstock.migrate.migration_settings import MigrationSettings
from penstock.migrate.plan import Strategy
from penstock.migrate.planner import Assignment
from penstock.migrate.strategies import schedule
from tests.migrate.model import a_view
from tests.migrate.test_planner import views

WAYS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("wxyz")), max_size=40)
FOLLOWED = st.sampled_from([Strategy.FLUID, Strategy.BATCHED, Strategy.ALL_AT_ONCE])


@given(WAYS, st.dictionaries(st.sampled_from("abcdwxyz"), st.integers(1, 3)))
def test_groups_hold_each_way_once_and_no_worker_more_often_than_it_has_slots(
    ways: list[tuple[str, str]], slots: dict[str, int]
) -> None:
    made = groups(ways, slots)
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
    assert len(groups(ways, slots)) == max(busiest, default=0)


def any_assignments(view: StateView, draws: st.DataObject) -> tuple[Assignment, ...]:
    """Some bins to any other worker."""
    workers = [worker.worker for worker in view.workers]
    wanted = draws.draw(st.lists(st.sampled_from(workers), min_size=len(view.bins), max_size=len(view.bins)))
    pairs = zip(view.bins, wanted, strict=True)
    return tuple(Assignment(one.bin, one.worker, to) for one, to in pairs if one.worker and one.worker != to)


@given(views(), st.data(), FOLLOWED, st.integers(0, 2), st.booleans(), st.integers(1, 4))
def test_every_bin_ends_where_planned_and_is_never_in_two_places(
    view: StateView, draws: st.DataObject, strategy: Strategy, gap: int, hot_first: bool, most: int
) -> None:
    assignments = any_assignments(view, draws)
    settings = MigrationSettings.of(strategy, gap_batches=gap, hot_first=hot_first, most_bins_per_batch=most)
    plan = schedule(view, assignments, strategy, settings)
    # the configuration refuses a bin with two workers, and a move from where the bin is not
    configuration = Configuration(view.placement(), plan.moves)
    wanted = {**view.placement(), **{one.bin: one.target for one in assignments}}
    assert configuration.placement(plan.last_batch() or 0) == wanted
    assert configuration.placement(view.batch) == view.placement()


@given(
    views(),
    st.data(),
    st.sampled_from([Strategy.FLUID, Strategy.BATCHED]),
    st.integers(0, 2),
    st.integers(1, 4),
)
def test_moves_of_a_group_do_not_conflict(
    view: StateView, draws: st.DataObject, strategy: Strategy, gap: int, most: int
) -> None:
    settings = MigrationSettings.of(strategy, gap_batches=gap, most_bins_per_batch=most)
    plan = schedule(view, any_assignments(view, draws), strategy, settings)
    slots = {worker.worker: worker.slots for worker in view.workers}
    for group in plan.groups():
        assert len(group) <= (1 if strategy is Strategy.FLUID else most)
        for worker, times in Counter(move.source for move in group).items():
            assert times <= slots[worker]
        for worker, times in Counter(move.target for move in group).items():
            assert times <= slots[worker]
    batches = sorted({move.batch for move in plan.moves})
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
        settings = MigrationSettings(hot_first=hot_first)
        plan = schedule(view, assignments, Strategy.FLUID, settings)
        assert [move.bin.partition for move in plan.moves] == order


def test_when_the_first_move_takes_effect() -> None:
    view, assignments = scattered()
    # after batch 10: prepared in batch 11, moved in batch 12
    assert [move.batch for move in schedule(view, assignments, Strategy.FLUID).moves] == [12, 13, 14, 15]
    assert {move.batch for move in schedule(view, assignments, Strategy.ALL_AT_ONCE).moves} == {11}
    settings = MigrationSettings(strategy=Strategy.BATCHED, gap_batches=2, most_bins_per_batch=3)
    assert [move.batch for move in schedule(view, assignments, Strategy.BATCHED, settings).moves] == [
        12,
        12,
        12,
        15,
    ]


def test_nothing_assigned_is_an_empty_plan() -> None:
    view, _ = scattered()
    for strategy in (Strategy.FLUID, Strategy.BATCHED, Strategy.ALL_AT_ONCE):
        plan = schedule(view, (), strategy, reason="even already")
        assert (plan.moves, plan.groups(), plan.last_batch(), plan.reason) == ((), (), None, "even already")
