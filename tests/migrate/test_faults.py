"""Whatever fails in between, a migration ends, in a consistent place, and says which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.moves import Bin, Move, Plan, Strategy
from penstock.decide.outcome import Status
from penstock.migrate.bins import StateView
from penstock.migrate.migration import MigrationOutcome, MigrationProgress, advance_migration, begin_migration
from penstock.migrate.pacing import PlaceBins
from penstock.migrate.plan import schedule
from penstock.migrate.settings import MigrationSettings
from penstock_lab.experiments.faults.state_cluster import (
    Cluster,
    Configuration,
    find_misplaced,
    find_out_of_order,
)
from tests.migrate.test_plan import FOLLOWED, any_assignments
from tests.migrate.test_planner import views

ANY_SETTINGS = st.builds(
    MigrationSettings,
    prepare=st.booleans(),
    retries=st.integers(0, 3),
    gap=st.integers(0, 2),
    bins_per_batch=st.integers(1, 8),
    order=st.sampled_from(["hot-first", "cold-first"]),
    snapshot_patience=st.integers(0, 2),
)


@dataclass(frozen=True)
class Trouble:
    """What goes wrong: placements lost, bins astray, snapshots missing, a worker dead, a stop, slowness.

    `astray`: batch → which bin goes where; `dies`: after which batch which worker does.
    """

    lost: frozenset[int] = frozenset()
    astray: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    not_uploaded: frozenset[int] = frozenset()
    dies: tuple[int, int] | None = None
    dies_early: bool = True
    stop_after: int | None = None
    slow_from: int | None = None


TROUBLES = st.builds(
    Trouble,
    lost=st.frozensets(st.integers(11, 60)),
    astray=st.dictionaries(st.integers(11, 60), st.tuples(st.integers(0, 9), st.integers(0, 4))),
    not_uploaded=st.frozensets(st.integers(11, 60)),
    dies=st.none() | st.tuples(st.integers(11, 30), st.integers(0, 4)),
    dies_early=st.booleans(),
    stop_after=st.none() | st.integers(11, 40),
    slow_from=st.none() | st.integers(11, 40),
)


def check_group(cluster: Cluster, strategy: Strategy, group: list[Move]) -> None:
    """No bin is asked to be at two places, and the strategy is kept wherever the bins have got to."""
    assert len({move.bin for move in group}) == len(group)
    if strategy is Strategy.FLUID:
        assert len(group) == 1
    if strategy is Strategy.OPTIMIZED:
        given_away = Counter(cluster.locations[move.bin] for move in group)
        loaded = Counter(move.target for move in group)
        for worker in cluster.workers.values():
            assert max(given_away[worker.worker], loaded[worker.worker]) <= worker.slots


def kill_one(cluster: Cluster, trouble: Trouble) -> None:
    assert trouble.dies is not None
    cluster.kill(sorted(cluster.workers)[trouble.dies[1] % len(cluster.workers)])


def stray_of(view: StateView, trouble: Trouble, batch: int, bin_: Bin) -> str | None:
    """Where this bin goes astray in this batch."""
    which, where = trouble.astray.get(batch, (-1, 0))
    return view.workers[where % len(view.workers)].worker if bin_.partition == which else None


def lived_through(cluster: Cluster, progress: MigrationProgress, trouble: Trouble) -> MigrationOutcome:
    """Batch after batch, with everything that goes wrong."""
    for _ in range(400):
        if progress.outcome is not None:
            return progress.outcome
        for one in progress.instructions:
            if isinstance(one, PlaceBins):
                check_group(cluster, progress.migration.plan.strategy, list(one.moves))
        cluster.obey(progress.instructions)
        dies = trouble.dies is not None and trouble.dies[0] == cluster.batch and len(cluster.workers) > 1
        if dies and trouble.dies_early:
            kill_one(cluster, trouble)
        cluster.steady = 9.0 if trouble.slow_from and cluster.batch >= trouble.slow_from else 1.0
        cluster.run()
        if dies and not trouble.dies_early:
            kill_one(cluster, trouble)
        boundary = cluster.look()
        stop = "by hand" if trouble.stop_after and cluster.batch >= trouble.stop_after else None
        progress = advance_migration(progress.migration, replace(boundary, stop=stop))
    raise AssertionError("no end after 400 batches")


@settings(max_examples=200)
@given(
    views(),
    st.data(),
    st.sampled_from(FOLLOWED),
    ANY_SETTINGS,
    TROUBLES,
)
def test_it_ends_in_a_consistent_place_whatever_happens(
    view: StateView, draws: st.DataObject, strategy: Strategy, chosen: MigrationSettings, trouble: Trouble
) -> None:
    chosen = chosen.change(strategy=strategy)
    plan = schedule(view, any_assignments(view, draws), strategy, chosen)
    cluster = Cluster.of(
        view,
        loses=lambda batch, one: batch in trouble.lost and one.partition % 2 == 0,
        strays=lambda batch, one: stray_of(view, trouble, batch, one),
        uploads=lambda batch, _: batch not in trouble.not_uploaded,
    )
    outcome = lived_through(cluster, begin_migration(plan, 1.0, cluster.look(), chosen), trouble)
    # every move is accounted for, once
    told = [move.bin for move in outcome.moved] + [move.bin for move, _ in outcome.given_up]
    assert sorted(told) == sorted(move.bin for move in plan.moves)
    assert all(reason for _, reason in outcome.given_up)
    # what is said to have moved is there
    targets = {move.bin: move.target for move in plan.moves}
    for move in outcome.moved:
        assert cluster.locations[move.bin] == targets[move.bin] == move.target
        assert move.target in cluster.workers
    # and came from where it was in the batch before
    ran = {(10, bin_): at for bin_, at in view.placement().items()}
    ran |= {(run.batch, run.bin): run.worker for run in cluster.executions}
    for move in outcome.moved:
        before = ran.get((move.batch - 1, move.bin), move.target)
        assert before in (move.source, move.target)
    assert not find_out_of_order(cluster.executions)
    assert (outcome.status is Status.DONE) == (not outcome.given_up)
    assert (outcome.status is Status.FAILED) == bool(outcome.given_up and not outcome.moved)


@given(views(), st.data(), st.sampled_from(list(Strategy)), ANY_SETTINGS)
def test_without_trouble_it_is_migrated_according_to_its_configuration(
    view: StateView, draws: st.DataObject, strategy: Strategy, chosen: MigrationSettings
) -> None:
    plan = schedule(view, any_assignments(view, draws), strategy, chosen)
    cluster = Cluster.of(view)
    outcome = lived_through(cluster, begin_migration(plan, 1.0, cluster.look(), chosen), Trouble())
    assert outcome.status is Status.DONE
    assert not find_misplaced(Configuration(view.placement(), outcome.moved), cluster.executions)
    wanted = {**view.placement(), **{move.bin: move.target for move in plan.moves}}
    assert cluster.locations == wanted


@given(views(), st.data(), st.integers(0, 3))
def test_lost_moves_cost_time_and_nothing_else(view: StateView, draws: st.DataObject, lost: int) -> None:
    plan = Plan("q", schedule(view, any_assignments(view, draws), Strategy.FLUID).moves, Strategy.FLUID, "")
    tries: dict[object, int] = {}

    def loses(_batch: int, one: object) -> bool:
        tries[one] = tries.get(one, 0) + 1
        return tries[one] <= lost

    cluster = Cluster.of(view, loses=loses)
    outcome = lived_through(cluster, begin_migration(plan, 1.0, cluster.look()), Trouble())
    assert outcome.status is Status.DONE
    assert not find_misplaced(Configuration(view.placement(), outcome.moved), cluster.executions)
