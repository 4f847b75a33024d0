"""Stories of migrations on a made-up cluster."""

from __future__ import annotations

from dataclasses import replace

from penstock.dataflow.moves import Plan, Strategy
from penstock.decide.outcome import Status
from penstock.migrate.migration import (
    MigrationOutcome,
    MigrationProgress,
    abandon_migration,
    advance_migration,
    begin_migration,
    join_outcomes,
)
from penstock.migrate.pacing import Boundary, PlaceBins, UploadSnapshots
from penstock.migrate.settings import MigrationSettings
from penstock_lab.experiments.faults.state_cluster import (
    QUERY,
    Cluster,
    Configuration,
    a_bin,
    a_view,
    find_misplaced,
    find_out_of_order,
    find_unfinished,
    moves,
    play,
)

VIEW = a_view({"1": range(4), "2": (), "3": ()})
AT_TEN = Cluster.of(VIEW).look()
THREE = moves((0, "1", "2"), (1, "1", "2"), (2, "1", "3"))


def a_plan(strategy: Strategy = Strategy.FLUID, planned=THREE) -> Plan:
    return Plan(QUERY, planned, strategy, "because")


def test_each_move_follows_its_snapshot_by_one_batch() -> None:
    cluster = Cluster.of(VIEW, per_bin=0.4)
    first = begin_migration(a_plan(), 1.0, AT_TEN)
    assert first.instructions == (UploadSnapshots((a_bin(0),)),)
    cluster.obey(first.instructions)
    second = advance_migration(first.migration, cluster.run())
    assert second.instructions == (PlaceBins(THREE[:1]), UploadSnapshots((a_bin(1),)))
    ended = play(cluster, second)
    assert ended.outcome is not None
    assert ended.outcome.status is Status.DONE
    assert [(move.bin.partition, move.batch) for move in ended.outcome.moved] == [(0, 12), (1, 13), (2, 14)]
    assert "3 of 3 bins moved in 4 batches" in ended.outcome.detail


def test_the_three_properties_hold() -> None:
    cluster = Cluster.of(VIEW)
    ended = play(cluster, begin_migration(a_plan(), 1.0, AT_TEN))
    assert ended.outcome is not None
    configuration = Configuration(VIEW.placement(), ended.outcome.moved)
    assert not find_out_of_order(cluster.executions)
    assert not find_misplaced(configuration, cluster.executions)
    assert not find_unfinished(configuration, cluster.batch, cluster.locations)


def test_nothing_to_move_is_done_at_once() -> None:
    outcome = begin_migration(a_plan(planned=()), 1.0, AT_TEN).outcome
    assert outcome is not None and (outcome.status, outcome.detail) == (Status.DONE, "nothing had to move")


def test_plain_all_at_once_prepares_nothing() -> None:
    progress = begin_migration(a_plan(Strategy.ALL_AT_ONCE), 1.0, AT_TEN)
    assert progress.instructions == (PlaceBins(THREE),)
    ended = play(Cluster.of(VIEW), progress)
    assert ended.outcome is not None
    assert {move.batch for move in ended.outcome.moved} == {11}


def test_all_at_once_prepared() -> None:
    settings = MigrationSettings.of(Strategy.ALL_AT_ONCE, prepare=True)
    cluster = Cluster.of(VIEW)
    progress = begin_migration(a_plan(Strategy.ALL_AT_ONCE), 1.0, AT_TEN, settings)
    assert progress.instructions == (UploadSnapshots((a_bin(0), a_bin(1), a_bin(2))),)
    cluster.obey(progress.instructions)
    assert advance_migration(progress.migration, cluster.run()).instructions == (PlaceBins(THREE),)


def test_a_lost_move_is_issued_again() -> None:
    cluster = Cluster.of(VIEW, loses=lambda batch, _: batch == 12)
    ended = play(cluster, begin_migration(a_plan(), 1.0, AT_TEN))
    assert ended.outcome is not None
    assert ended.outcome.status is Status.DONE
    assert [move.batch for move in ended.outcome.moved if move.bin == a_bin(0)] == [13]


def test_a_move_that_never_takes_is_given_up_with_its_reason() -> None:
    cluster = Cluster.of(VIEW, loses=lambda _, one: one == a_bin(1))
    ended = play(cluster, begin_migration(a_plan(), 1.0, AT_TEN))
    assert ended.outcome is not None
    assert ended.outcome.status is Status.PARTIAL
    assert [move.bin for move in ended.outcome.moved] == [a_bin(0), a_bin(2)]
    [(move, reason)] = ended.outcome.given_up
    assert (move.bin, reason) == (a_bin(1), "did not take in 4 tries: the bin is at 1")


def test_asked_to_stop_it_ends_at_this_boundary() -> None:
    cluster = Cluster.of(VIEW, per_bin=0.4)
    progress = begin_migration(a_plan(), 1.0, AT_TEN)
    for _ in range(2):
        cluster.obey(progress.instructions)
        progress = advance_migration(progress.migration, cluster.run())
    cluster.obey(progress.instructions)
    ended = advance_migration(progress.migration, replace(cluster.run(), stop="by hand"))
    assert ended.outcome is not None
    assert ended.outcome.stopped
    assert not ended.instructions
    # two had taken when it was asked, the third was not placed any more
    assert (ended.outcome.status, len(ended.outcome.moved)) == (Status.PARTIAL, 2)
    assert ended.outcome.detail.startswith("stopped: by hand")


def test_abandoned_it_says_what_was_not_verified() -> None:
    cluster = Cluster.of(VIEW)
    progress = begin_migration(a_plan(), 1.0, AT_TEN)
    cluster.obey(progress.instructions)
    outcome = abandon_migration(
        advance_migration(progress.migration, cluster.run()).migration, "the query was restarted"
    )
    assert outcome.status is Status.FAILED
    assert outcome.given_up[0][1] == "the query was restarted; its last placement was not verified"
    assert len(outcome.given_up) == 3


def test_nothing_is_issued_by_a_boundary_without_workers() -> None:
    progress = begin_migration(a_plan(), 1.0, AT_TEN)
    ended = advance_migration(progress.migration, Boundary(11, 1.0, {}, ()))
    assert ended.outcome is not None
    assert ended.outcome.status is Status.FAILED
    assert "2 given up: executor 2 is gone" in ended.outcome.detail


def ended_with(cluster: Cluster, plan: Plan, settings: MigrationSettings | None = None) -> MigrationOutcome:
    outcome = play(cluster, begin_migration(plan, cluster.steady, cluster.look(), settings)).outcome
    assert outcome is not None
    return outcome


def after_batches(cluster: Cluster, progress: MigrationProgress, batches: int) -> MigrationProgress:
    for _ in range(batches):
        cluster.obey(progress.instructions)
        progress = advance_migration(progress.migration, cluster.run())
    return progress


def test_the_target_dies_and_the_others_still_move() -> None:
    cluster = Cluster.of(VIEW, per_bin=0.4)
    progress = after_batches(cluster, begin_migration(a_plan(), 1.0, AT_TEN), 2)
    assert progress.migration.moved[0].bin == a_bin(0)
    cluster.kill("2")
    outcome = play(cluster, progress).outcome
    assert outcome is not None and outcome.status is Status.PARTIAL
    # bin 0 had arrived at the worker that died, bin 1 was on its way there
    assert [move.bin for move in outcome.moved] == [a_bin(2)]
    assert {move.bin: reason for move, reason in outcome.given_up} == {
        a_bin(0): "executor 2 is gone",
        a_bin(1): "executor 2 is gone",
    }
    assert "strayed" not in outcome.detail


def test_the_source_dies_and_its_bins_still_go_where_they_should() -> None:
    view = a_view({"1": range(4), "2": (), "3": (), "4": ()})
    cluster = Cluster.of(view, per_bin=0.4)
    progress = begin_migration(a_plan(), 1.0, AT_TEN)
    cluster.kill("1")
    # with batch 11 Spark spreads the bins over 2, 3 and 4: bin 0 to 2, 1 to 3, 2 to 4
    outcome = play(cluster, progress).outcome
    assert outcome is not None and outcome.status is Status.DONE
    assert {bin_: cluster.locations[bin_] for bin_ in map(a_bin, range(3))} == {
        a_bin(0): "2",
        a_bin(1): "2",
        a_bin(2): "3",
    }
    # what it put at the right place needs no move
    assert "1 found at the target already" in outcome.detail
    assert "1 found at executor 3, not at 1, which died: moved from there" in outcome.detail
    assert "1 found at executor 4, not at 1, which died: moved from there" in outcome.detail
    assert [move.source for move in outcome.moved] == ["1", "3", "4"]


def test_a_bin_whose_executor_has_just_died_is_loaded_from_the_checkpoint() -> None:
    cluster = Cluster.of(VIEW)
    cluster.kill("1")
    outcome = ended_with(cluster, a_plan(Strategy.ALL_AT_ONCE))
    assert outcome.status is Status.DONE
    assert "3 loaded from the checkpoint: executor 1, which held them, had died" in outcome.detail


def test_a_plan_that_came_true_by_itself_is_done_at_once() -> None:
    cluster = Cluster.of(VIEW.place({a_bin(0): "2", a_bin(1): "2", a_bin(2): "3"}))
    progress = begin_migration(a_plan(), 1.0, cluster.look())
    assert progress.outcome is not None and not progress.instructions
    assert progress.outcome.status is Status.DONE
    assert progress.outcome.detail == "3 of 3 bins moved in 0 batches; 3 found at the target already"


def test_what_arrived_at_a_target_that_died_since_is_not_reported_as_moved() -> None:
    cluster = Cluster.of(VIEW)
    progress = begin_migration(a_plan(Strategy.ALL_AT_ONCE), 1.0, cluster.look())
    cluster.obey(progress.instructions)
    cluster.run()
    cluster.kill("2")
    outcome = advance_migration(progress.migration, cluster.look()).outcome
    assert outcome is not None and outcome.status is Status.PARTIAL
    assert [move.bin for move in outcome.moved] == [a_bin(2)]
    assert "2 given up: executor 2 is gone" in outcome.detail


def test_a_bin_that_does_not_stay_is_placed_again() -> None:
    cluster = Cluster.of(VIEW, per_bin=0.4)
    progress = after_batches(cluster, begin_migration(a_plan(), 1.0, AT_TEN), 2)
    assert len(progress.migration.moved) == 1
    # the target was busy for longer than the locality wait, and the task ran at its old place
    cluster.locations[a_bin(0)] = "1"
    outcome = play(cluster, progress).outcome
    assert outcome is not None and outcome.status is Status.DONE
    assert cluster.locations[a_bin(0)] == "2"
    assert "1 strayed after arrival" in outcome.detail


def test_a_late_snapshot_is_waited_for_and_then_done_without() -> None:
    late = Cluster.of(VIEW, per_bin=0.4, uploads=lambda _batch, one: one != a_bin(0))
    late.snapshots[a_bin(0)] = 3
    outcome = ended_with(late, a_plan())
    assert outcome.status is Status.DONE
    # asked after batch 10, and two batches of patience: placed after batch 13
    assert [move.batch for move in outcome.moved if move.bin == a_bin(0)] == [14]


def test_too_long_batches_stop_it_with_the_reason() -> None:
    cluster = Cluster.of(VIEW, per_bin=0.0, loses=lambda _batch, _bin: True)
    progress = begin_migration(a_plan(), 1.0, AT_TEN, MigrationSettings(retries=99))
    cluster.steady = 9.0
    outcome = play(cluster, progress).outcome
    assert outcome is not None and (outcome.status, outcome.stopped) == (Status.FAILED, False)
    assert "3 batches in a row took longer than 3.0 s" in outcome.detail
    assert (outcome.batches, outcome.slowest_seconds) == (3, 9.0)


def test_one_long_batch_only_slows_it_down() -> None:
    plan = a_plan(Strategy.OPTIMIZED, moves(*[(number, "1", "2") for number in range(12)]))
    cluster = Cluster.of(a_view({"1": range(12), "2": ()}, slots=8), per_bin=0.01)
    progress = after_batches(cluster, begin_migration(plan, 1.0, cluster.look()), 4)
    quick = progress.migration.pace.bins
    assert quick > 1
    cluster.steady = 8.0
    progress = after_batches(cluster, progress, 1)
    cluster.steady = 1.0
    assert progress.migration.pace.bins < quick
    outcome = play(cluster, progress).outcome
    assert outcome is not None and outcome.status is Status.DONE


def test_cheap_moves_go_faster_than_one_a_batch() -> None:
    plan = a_plan(Strategy.OPTIMIZED, moves(*[(number, "1", "2") for number in range(30)]))
    cluster = Cluster.of(a_view({"1": range(30), "2": ()}, slots=8), per_bin=0.01)
    outcome = ended_with(cluster, plan)
    assert outcome.status is Status.DONE
    # a group is prepared at the pace of the boundary before, so each pace is seen twice
    assert [len(cluster.moved_in[batch]) for batch in range(11, cluster.batch + 1)] == [
        0,
        1,
        1,
        2,
        2,
        4,
        4,
        8,
        8,
    ]
    assert outcome.slowest_seconds <= 1.5


def test_gap_batches_let_queued_records_drain() -> None:
    cluster = Cluster.of(VIEW, per_bin=0.4)
    outcome = ended_with(cluster, a_plan(), MigrationSettings(gap=2))
    assert [move.batch for move in outcome.moved] == [12, 15, 18]


def test_batched_moves_are_prepared_together() -> None:
    settings = MigrationSettings.of(Strategy.BATCHED, bins_per_batch=2)
    outcome = ended_with(Cluster.of(VIEW), a_plan(Strategy.BATCHED), settings)
    assert [move.batch for move in outcome.moved] == [12, 12, 13]


def test_a_plan_of_ones_own_keeps_its_batches() -> None:
    own = (*moves((0, "1", "2"), batch=15), *moves((1, "1", "3"), batch=15), *moves((0, "2", "1"), batch=19))
    cluster = Cluster.of(VIEW)
    outcome = ended_with(cluster, a_plan(Strategy.OWN, own))
    assert outcome.status is Status.DONE
    assert [(move.bin.partition, move.batch) for move in outcome.moved] == [(0, 15), (1, 15), (0, 19)]
    configuration = Configuration(VIEW.placement(), outcome.moved)
    assert not find_misplaced(configuration, cluster.executions)


def test_a_plan_whose_batches_have_passed_begins_at_once() -> None:
    outcome = ended_with(Cluster.of(VIEW), a_plan(Strategy.OWN, moves((0, "1", "2"), batch=3)))
    assert [move.batch for move in outcome.moved] == [12]


def test_a_slow_cluster_does_not_end_what_only_waits_for_its_batch() -> None:
    cluster = Cluster.of(VIEW)
    progress = begin_migration(a_plan(Strategy.OWN, moves((0, "1", "2"), batch=30)), 1.0, AT_TEN)
    cluster.steady = 9.0
    progress = after_batches(cluster, progress, 10)
    assert progress.outcome is None
    cluster.steady = 1.0
    outcome = play(cluster, progress).outcome
    assert outcome is not None
    assert [move.batch for move in outcome.moved] == [30]


def test_what_became_of_several_queries_at_once() -> None:
    done = ended_with(Cluster.of(VIEW), a_plan())
    failed = replace(done, status=Status.FAILED, moved=(), detail="the query ended")
    assert join_outcomes([done, done]) == (Status.DONE, 6, f"{done.detail}; {done.detail}")
    assert join_outcomes([done, failed]) == (Status.PARTIAL, 3, f"{done.detail}; the query ended")
    assert join_outcomes([failed]) == (Status.FAILED, 0, "the query ended")
