"""What each strategy moves at a boundary, on a made-up cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.moves import Move, Strategy
from penstock.migrate.bins import StateView
from penstock.migrate.migration import begin_migration
from penstock.migrate.pacing import Pending, remove_from, take_undisturbed
from penstock.migrate.plan import schedule
from penstock.migrate.planner import Assignment
from penstock.migrate.settings import MigrationSettings
from penstock_lab.experiments.faults.state_cluster import Cluster, a_bin, a_view, play
from tests.migrate.test_plan import FOLLOWED, any_assignments
from tests.migrate.test_planner import views


def batches_of(
    view: StateView,
    assignments: Sequence[Assignment],
    strategy: Strategy,
    per_bin: float = 0.01,
    **settings: object,
) -> list[list[int]]:
    """Carry the moves out, unprepared; return which partitions moved in which batch."""
    chosen = MigrationSettings.of(strategy, **{"prepare": False, **settings})
    cluster = Cluster.of(view, per_bin=per_bin)
    outcome = play(
        cluster,
        begin_migration(schedule(view, assignments, strategy, chosen), 1.0, cluster.look(), chosen),
    ).outcome
    assert outcome is not None and len(outcome.moved) == len(assignments)
    return [sorted(one.partition for one in moved) for _, moved in sorted(cluster.moved_in.items())]


def to_one(bins: int, slots: int = 1) -> tuple[StateView, list[Assignment]]:
    """All bins of four workers go to a fifth."""
    placed: Mapping[str, list[int]] = {f"s{n}": list(range(n, bins, 4)) for n in range(4)}
    view = a_view({**placed, "t": []}, slots=slots)
    return view, [Assignment(a_bin(n), f"s{n % 4}", "t") for n in range(bins)]


def test_fluid_moves_one_bin_a_batch() -> None:
    view, assignments = to_one(16)
    assert [len(moved) for moved in batches_of(view, assignments, Strategy.FLUID)] == [1] * 16


def test_batched_moves_so_many_a_batch_wherever_they_go() -> None:
    view, assignments = to_one(16)
    moved = batches_of(view, assignments, Strategy.BATCHED, bins_per_batch=6)
    assert moved == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], [12, 13, 14, 15]]


def test_optimized_gives_an_executor_no_more_bins_than_it_has_slots() -> None:
    # three bins at a time load beside each other at the fifth worker, and no source has to give two of them
    for slots, expected in ((1, [1] * 16), (3, [1, 2, 3, 3, 3, 3, 1])):
        view, assignments = to_one(16, slots)
        assert [len(moved) for moved in batches_of(view, assignments, Strategy.OPTIMIZED)] == expected


def test_all_at_once_moves_all_in_one_batch() -> None:
    view, assignments = to_one(16)
    assert batches_of(view, assignments, Strategy.ALL_AT_ONCE) == [list(range(16))]


def crossing() -> tuple[StateView, list[Assignment]]:
    """Two workers with one slot each give a bin to each of two others: a → x, a → y, b → x, b → y."""
    view = a_view({"a": [0, 1], "b": [2, 3], "x": [], "y": []}, slots=1)
    ways = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]
    return view, [Assignment(a_bin(n), source, target) for n, (source, target) in enumerate(ways)]


def test_moves_that_cross() -> None:
    view, assignments = crossing()
    # two matchings: a → x with b → y, a → y with b → x
    plan = schedule(view, assignments, Strategy.OPTIMIZED, MigrationSettings(prepare=False))
    assert [(move.bin.partition, move.batch) for move in plan.moves] == [(0, 11), (3, 11), (1, 12), (2, 12)]
    # the pace begins with one bin: the first matching takes two batches, the second one
    assert batches_of(view, assignments, Strategy.OPTIMIZED) == [[0], [3], [1, 2]]
    # one bin alone uses up the latency budget of half a batch
    assert batches_of(view, assignments, Strategy.OPTIMIZED, per_bin=0.6) == [[0], [3], [1], [2]]
    assert batches_of(view, assignments, Strategy.FLUID) == [[0], [1], [2], [3]]
    assert batches_of(view, assignments, Strategy.BATCHED, bins_per_batch=3) == [[0, 1, 2], [3]]


def test_a_bin_that_strayed_is_counted_where_it_is() -> None:
    # bin 1 is planned from b, and lies at a now: a would give away two with one slot
    view = a_view({"a": [0, 1], "b": [], "x": [], "y": []}, slots=1)
    queue = tuple(
        Pending(move, move.source)
        for move in (Move(11, a_bin(0), "a", "x"), Move(11, a_bin(1), "a", "y"), Move(11, a_bin(2), "b", "y"))
    )
    assert take_undisturbed(queue, view.workers) == (queue[0], queue[2])
    # a is dead: both are loaded from the checkpoint, and nobody gives them away
    assert take_undisturbed(queue, view.workers[1:]) == (queue[0], queue[1])


@given(views(), st.data(), st.integers(1, 4), st.sampled_from([0.01, 0.2, 0.6]))
def test_how_many_batches_each_takes(
    view: StateView, draws: st.DataObject, most: int, per_bin: float
) -> None:
    assignments = any_assignments(view, draws)
    moves = len(assignments)
    took = {
        strategy: batches_of(view, assignments, strategy, per_bin, bins_per_batch=most, latency_budget=100)
        for strategy in FOLLOWED
    }
    assert len(took[Strategy.FLUID]) == moves
    assert [len(moved) for moved in took[Strategy.BATCHED][:-1]] == [most] * ((moves - 1) // most)
    assert len(took[Strategy.ALL_AT_ONCE]) == min(1, moves)
    settings = MigrationSettings(bins_per_batch=most, prepare=False)
    plan = schedule(view, assignments, Strategy.OPTIMIZED, settings)
    planned = len({move.batch for move in plan.moves})
    assert planned <= len(took[Strategy.OPTIMIZED]) <= moves


@given(views(), st.data(), st.integers(1, 6))
def test_no_more_steps_than_planned_where_the_pace_allows_it(
    view: StateView, draws: st.DataObject, most: int
) -> None:
    settings = MigrationSettings(bins_per_batch=most)
    plan = schedule(view, any_assignments(view, draws), Strategy.OPTIMIZED, settings)
    queue, steps = tuple(Pending(move, move.source) for move in plan.moves), 0
    while queue:
        queue = remove_from(queue, take_undisturbed(queue, view.workers)[:most])
        steps += 1
    assert steps <= len({move.batch for move in plan.moves})
