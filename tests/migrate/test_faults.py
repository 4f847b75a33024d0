"""Whatever fails in between, a migration ends, in a consistent place, and says which."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.moves import Plan, Strategy
from penstock.decide.outcome import Status
from penstock.migrate.bins import StateView
from penstock.migrate.migration import MigrationOutcome, MigrationProgress, advance_migration, begin_migration
from penstock.migrate.pacing import PlaceBins
from penstock.migrate.plan import schedule
from penstock.migrate.settings import MigrationSettings
from tests.migrate.model import Cluster, Configuration, find_misplaced, find_out_of_order
from tests.migrate.test_plan import any_assignments
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
    """What goes wrong: placements lost, snapshots missing, a worker dead, a stop, a slow cluster."""

    lost: frozenset[int]
    not_uploaded: frozenset[int]
    dies: tuple[int, int] | None
    stop_after: int | None
    slow_from: int | None


TROUBLES = st.builds(
    Trouble,
    lost=st.frozensets(st.integers(11, 60)),
    not_uploaded=st.frozensets(st.integers(11, 60)),
    dies=st.none() | st.tuples(st.integers(11, 30), st.integers(0, 4)),
    stop_after=st.none() | st.integers(11, 40),
    slow_from=st.none() | st.integers(11, 40),
)


def lived_through(cluster: Cluster, progress: MigrationProgress, trouble: Trouble) -> MigrationOutcome:
    """Batch after batch, with everything that goes wrong."""
    for _ in range(400):
        if progress.outcome is not None:
            return progress.outcome
        for one in progress.instructions:
            if isinstance(one, PlaceBins):
                # no bin is asked to be at two places
                assert len({move.bin for move in one.moves}) == len(one.moves)
        cluster.obey(progress.instructions)
        if trouble.dies and trouble.dies[0] == cluster.batch and len(cluster.workers) > 1:
            cluster.kill(sorted(cluster.workers)[trouble.dies[1] % len(cluster.workers)])
        cluster.steady = 9.0 if trouble.slow_from and cluster.batch >= trouble.slow_from else 1.0
        boundary = cluster.run()
        stop = "by hand" if trouble.stop_after and cluster.batch >= trouble.stop_after else None
        progress = advance_migration(progress.migration, replace(boundary, stop=stop))
    raise AssertionError("no end after 400 batches")


@settings(max_examples=200)
@given(
    views(),
    st.data(),
    st.sampled_from([Strategy.FLUID, Strategy.BATCHED, Strategy.ALL_AT_ONCE]),
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
        uploads=lambda batch, _: batch not in trouble.not_uploaded,
    )
    outcome = lived_through(cluster, begin_migration(plan, 1.0, view.batch, chosen), trouble)
    # every move is accounted for, once
    told = [move.bin for move in outcome.moved] + [move.bin for move, _ in outcome.given_up]
    assert sorted(told) == sorted(move.bin for move in plan.moves)
    assert all(reason for _, reason in outcome.given_up)
    # what is said to have moved is there
    targets = {move.bin: move.target for move in plan.moves}
    for move in outcome.moved:
        assert cluster.locations[move.bin] == targets[move.bin] == move.target
    assert not find_out_of_order(cluster.executions)
    assert (outcome.status is Status.DONE) == (not outcome.given_up)
    assert (outcome.status is Status.FAILED) == bool(outcome.given_up and not outcome.moved)


@given(views(), st.data(), st.sampled_from(list(Strategy)), ANY_SETTINGS)
def test_without_trouble_it_is_migrated_according_to_its_configuration(
    view: StateView, draws: st.DataObject, strategy: Strategy, chosen: MigrationSettings
) -> None:
    plan = schedule(view, any_assignments(view, draws), strategy, chosen)
    cluster = Cluster.of(view)
    nothing = Trouble(frozenset(), frozenset(), None, None, None)
    outcome = lived_through(cluster, begin_migration(plan, 1.0, view.batch, chosen), nothing)
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
    nothing = Trouble(frozenset(), frozenset(), None, None, None)
    outcome = lived_through(cluster, begin_migration(plan, 1.0, view.batch), nothing)
    assert outcome.status is Status.DONE
    assert not find_misplaced(Configuration(view.placement(), outcome.moved), cluster.executions)
