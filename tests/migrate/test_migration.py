"""Stories of migrations on a made-up cluster."""

from __future__ import annotations

from dataclasses import replace

from penstock.decide.outcome import Status
from penstock.migrate.boundary import Boundary, Place, Snapshot, Warm
from penstock.migrate.configuration import Configuration, misplaced, out_of_order, unfinished
from penstock.migrate.migration import MigrationSettings, abandon, begin, step
from penstock.migrate.plan import Plan, Strategy
from tests.migrate.model import QUERY, Cluster, a_bin, a_view, moves, play

VIEW = a_view({"1": range(4), "2": (), "3": ()})
THREE = moves((0, "1", "2"), (1, "1", "2"), (2, "1", "3"))


def a_plan(strategy: Strategy = Strategy.FLUID, planned=THREE) -> Plan:
    return Plan(QUERY, planned, strategy, "because")


def test_each_move_follows_its_snapshot_by_one_batch() -> None:
    cluster = Cluster.of(VIEW, per_bin=0.4)
    first = begin(a_plan(), 1.0, 10)
    assert first.instructions == (Snapshot((a_bin(0),)),)
    cluster.obey(first.instructions)
    second = step(first.migration, cluster.run())
    assert second.instructions == (Place(THREE[:1]), Snapshot((a_bin(1),)))
    ended = play(cluster, second)
    assert ended.outcome is not None
    assert ended.outcome.status is Status.DONE
    assert [(move.bin.partition, move.batch) for move in ended.outcome.moved] == [(0, 12), (1, 13), (2, 14)]
    assert "3 of 3 bins moved in 4 batches" in ended.outcome.detail


def test_the_three_properties_hold() -> None:
    cluster = Cluster.of(VIEW)
    ended = play(cluster, begin(a_plan(), 1.0, 10))
    assert ended.outcome is not None
    configuration = Configuration(VIEW.placement(), ended.outcome.moved)
    assert not out_of_order(cluster.executions)
    assert not misplaced(configuration, cluster.executions)
    assert not unfinished(configuration, cluster.batch, cluster.locations)


def test_nothing_to_move_is_done_at_once() -> None:
    outcome = begin(a_plan(planned=()), 1.0, 10).outcome
    assert outcome is not None
    assert (outcome.status, outcome.detail) == (Status.DONE, "nothing had to move")


def test_plain_all_at_once_prepares_nothing() -> None:
    progress = begin(a_plan(Strategy.ALL_AT_ONCE), 1.0, 10)
    assert progress.instructions == (Place(THREE),)
    ended = play(Cluster.of(VIEW), progress)
    assert ended.outcome is not None
    assert {move.batch for move in ended.outcome.moved} == {11}


def test_all_at_once_prepared_and_warmed() -> None:
    settings = MigrationSettings.of(Strategy.ALL_AT_ONCE, prepare=True, warm=True)
    cluster = Cluster.of(VIEW)
    progress = begin(a_plan(Strategy.ALL_AT_ONCE), 1.0, 10, settings)
    assert progress.instructions == (Snapshot((a_bin(0), a_bin(1), a_bin(2))),)
    cluster.obey(progress.instructions)
    assert step(progress.migration, cluster.run()).instructions == (Warm(THREE), Place(THREE))


def test_a_lost_move_is_issued_again() -> None:
    cluster = Cluster.of(VIEW, loses=lambda batch, _: batch == 12)
    ended = play(cluster, begin(a_plan(), 1.0, 10))
    assert ended.outcome is not None
    assert ended.outcome.status is Status.DONE
    assert [move.batch for move in ended.outcome.moved if move.bin == a_bin(0)] == [13]


def test_a_move_that_never_takes_is_given_up_with_its_reason() -> None:
    cluster = Cluster.of(VIEW, loses=lambda _, one: one == a_bin(1))
    ended = play(cluster, begin(a_plan(), 1.0, 10))
    assert ended.outcome is not None
    assert ended.outcome.status is Status.PARTIAL
    assert [move.bin for move in ended.outcome.moved] == [a_bin(0), a_bin(2)]
    [(move, reason)] = ended.outcome.given_up
    assert (move.bin, reason) == (a_bin(1), "did not take in 4 tries: the bin is at 1")


def test_asked_to_stop_it_ends_at_this_boundary() -> None:
    cluster = Cluster.of(VIEW, per_bin=0.4)
    progress = begin(a_plan(), 1.0, 10)
    for _ in range(2):
        cluster.obey(progress.instructions)
        progress = step(progress.migration, cluster.run())
    cluster.obey(progress.instructions)
    ended = step(progress.migration, replace(cluster.run(), stop="by hand"))
    assert ended.outcome is not None
    assert ended.outcome.stopped
    assert not ended.instructions
    # two had taken when it was asked, the third was not placed any more
    assert (ended.outcome.status, len(ended.outcome.moved)) == (Status.PARTIAL, 2)
    assert ended.outcome.detail.startswith("stopped: by hand")


def test_abandoned_it_says_what_was_not_verified() -> None:
    cluster = Cluster.of(VIEW)
    progress = begin(a_plan(), 1.0, 10)
    cluster.obey(progress.instructions)
    outcome = abandon(step(progress.migration, cluster.run()).migration, "the query was restarted")
    assert outcome.status is Status.FAILED
    assert outcome.given_up[0][1] == "the query was restarted; its last placement was not verified"
    assert len(outcome.given_up) == 3


def test_nothing_is_issued_by_a_boundary_without_workers() -> None:
    progress = begin(a_plan(), 1.0, 10)
    ended = step(progress.migration, Boundary(11, 1.0, {}, ()))
    assert ended.outcome is not None
    assert ended.outcome.status is Status.FAILED
    assert "2 given up: executor 2 is gone" in ended.outcome.detail
