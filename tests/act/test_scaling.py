from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.act import scaling
from penstock.act.scaling import (
    Release,
    RequestTotal,
    ScalingProgress,
    ScalingSettings,
    StopUsing,
    begin_change,
    step_change,
)
from penstock.dataflow.window import EXECUTORS, ExecutorState
from penstock.decide.outcome import Outcome, Status
from penstock.errors import ActionFailed


def executor(number: int, **figures: int) -> ExecutorState:
    return ExecutorState(executor_id=str(number), host="node", cores=2, **figures)


def fleet(*numbers: int) -> tuple[ExecutorState, ...]:
    return tuple(executor(number) for number in numbers)


def ended(progress: ScalingProgress) -> Outcome:
    assert progress.outcome is not None
    return progress.outcome


def passing(
    progress: ScalingProgress,
    seconds: int,
    executors: tuple[ExecutorState, ...],
    batch_boundary: bool = False,
) -> ScalingProgress:
    """The change after so many steps of a second, or where it gives an instruction or ends before."""
    start = progress.change.seen_at
    for second in range(1, seconds + 1):
        progress = step_change(progress.change, start + second, executors, batch_boundary)
        if progress.instructions or progress.outcome is not None:
            break
    return progress


def test_scale_out_ends_once_all_are_registered():
    started = begin_change(100.0, 4, fleet(1, 2))
    assert started.instructions == (RequestTotal(4),)
    waiting = step_change(started.change, 110.0, fleet(1, 2, 3), batch_boundary=False)
    assert waiting.outcome is None and waiting.instructions == ()
    outcome = ended(step_change(waiting.change, 112.0, fleet(1, 2, 3, 4), batch_boundary=False))
    assert outcome.status is Status.DONE
    assert outcome.planned == outcome.requested == outcome.observed == {EXECUTORS: 4}
    assert outcome.seconds == 12.0
    assert outcome.detail == "4 registered after 12 s"


def test_a_cluster_without_room_ends_the_wait_and_is_not_asked_any_further():
    started = begin_change(0.0, 6, fleet(1, 2), ScalingSettings(executor_timeout=60))
    assert passing(started, 59, fleet(1, 2, 3, 4), batch_boundary=True).outcome is None
    ending = passing(started, 60, fleet(1, 2, 3, 4), batch_boundary=True)
    assert ending.instructions == (RequestTotal(4),)
    outcome = ended(ending)
    assert outcome.status is Status.PARTIAL
    assert (outcome.planned, outcome.observed) == ({EXECUTORS: 6}, {EXECUTORS: 4})
    assert "asked for 6, 4 registered within 60 s: the cluster has no room" in outcome.detail


def test_growth_counts_who_is_alive_not_who_once_came():
    started = begin_change(0.0, 3, fleet(1, 2))
    waiting = step_change(started.change, 5.0, fleet(1, 3), batch_boundary=False)
    assert waiting.outcome is None
    assert ended(step_change(waiting.change, 9.0, fleet(1, 3, 4), batch_boundary=False)).status is Status.DONE


def test_giving_up_growth_never_asks_for_fewer_than_were_held_before():
    started = begin_change(0.0, 4, fleet(1, 2), ScalingSettings(executor_timeout=10))
    ending = step_change(started.change, 10.0, (), batch_boundary=False)
    assert ending.instructions == (RequestTotal(2),)
    assert "an executor died" in ended(ending).detail


def test_what_is_held_already_is_done_at_once_yet_said_to_spark():
    progress = begin_change(0.0, 2, fleet(1, 2))
    assert progress.instructions == (RequestTotal(2),), "or Spark would replace one that has just died"
    assert ended(progress).status is Status.DONE
    assert ended(progress).seconds == 0.0


@pytest.mark.parametrize("wanted", [0, -3])
def test_an_application_is_never_scaled_to_nothing(wanted: int):
    with pytest.raises(ActionFailed, match=f"cannot scale to {wanted} executors"):
        begin_change(0.0, wanted, fleet(1, 2))


def test_the_cheapest_to_lose_have_least_state_then_cache_then_tasks_then_are_newest():
    executors = (
        executor(1, state_bins=2),
        executor(2, cached_bytes=10),
        executor(9),
        executor(10),
        executor(11, active_tasks=1),
        executor(12, state_bins=1, cached_bytes=99),
    )
    assert scaling.rank_by_loss(executors) == ("10", "9", "11", "2", "12", "1")


def test_ids_that_are_not_numbers_can_be_ordered_too():
    named = (ExecutorState("driver-x", "a", 1), ExecutorState("3", "a", 1), ExecutorState("²", "a", 1))
    assert scaling.rank_by_loss(named)[0] == "3"


def test_scale_in_drains_releases_at_a_boundary_and_waits_until_gone():
    started = begin_change(0.0, 1, fleet(1, 2, 3))
    assert started.instructions == (RequestTotal(1), StopUsing(("3", "2")))
    busy = (executor(1), executor(2, active_tasks=1), executor(3))
    draining = step_change(started.change, 2.0, busy, batch_boundary=True)
    assert draining.instructions == ()
    mid_batch = step_change(draining.change, 4.0, fleet(1, 2, 3), batch_boundary=False)
    assert mid_batch.instructions == ()
    releasing = step_change(mid_batch.change, 5.0, fleet(1, 2, 3), batch_boundary=True)
    assert releasing.instructions == (Release(("3", "2")), RequestTotal(1))
    assert releasing.change.phase is scaling.ScalingPhase.RELEASING
    going = step_change(releasing.change, 6.0, fleet(1, 2), batch_boundary=False)
    assert going.outcome is None
    outcome = ended(step_change(going.change, 7.0, fleet(1), batch_boundary=False))
    assert (outcome.status, outcome.seconds) == (Status.DONE, 7.0)
    assert outcome.detail == "released executors 3, 2"


def test_a_drain_that_takes_too_long_releases_anyway_and_says_so():
    started = begin_change(0.0, 1, fleet(1, 2), ScalingSettings(drain_timeout=30))
    busy = (executor(1), executor(2, active_tasks=1))
    assert passing(started, 29, busy).instructions == ()
    releasing = passing(started, 30, busy)
    assert Release(("2",)) in releasing.instructions
    outcome = ended(step_change(releasing.change, 31.0, fleet(1), batch_boundary=False))
    assert outcome.status is Status.DONE
    assert outcome.detail == "released executor 2 while tasks still ran there, after a drain of 30 s"


def test_queries_whose_batches_never_pause_together_are_named_as_the_cause():
    started = begin_change(0.0, 1, fleet(1, 2), ScalingSettings(drain_timeout=30))
    releasing = passing(started, 30, fleet(1, 2))
    assert "while a batch ran" in releasing.change.notes[-1]


def test_a_chosen_executor_that_dies_by_itself_is_not_made_up_for_with_another():
    started = begin_change(0.0, 2, fleet(1, 2, 3))
    progress = step_change(started.change, 1.0, fleet(1, 2), batch_boundary=False)
    assert progress.instructions == (RequestTotal(2),), "a release whose answer was lost lowered the total"
    assert ended(progress).status is Status.DONE
    assert "executor 3 left by itself" in ended(progress).detail


def test_nobody_who_was_told_to_stop_is_spared_when_one_that_was_to_stay_dies():
    started = begin_change(0.0, 2, fleet(1, 2, 3, 4))
    draining = step_change(started.change, 1.0, fleet(2, 3, 4), batch_boundary=False)
    assert draining.instructions == () and draining.change.leaving == ("4", "3")
    releasing = step_change(draining.change, 2.0, fleet(2, 3, 4), batch_boundary=True)
    assert releasing.instructions == (Release(("4", "3")), RequestTotal(2))
    short = step_change(releasing.change, 3.0, fleet(2), batch_boundary=True)
    assert short.outcome is None, "Spark still replaces the one that died"
    outcome = ended(step_change(short.change, 9.0, fleet(2, 5), batch_boundary=True))
    assert (outcome.status, outcome.observed) == (Status.DONE, {EXECUTORS: 2})


def test_what_spark_does_not_replace_ends_the_wait_as_partial():
    started = begin_change(0.0, 2, fleet(1, 2, 3), ScalingSettings(executor_timeout=20))
    releasing = step_change(started.change, 1.0, fleet(3), batch_boundary=True)
    assert releasing.instructions == (Release(("3",)), RequestTotal(2))
    outcome = ended(passing(releasing, 20, fleet(4)))
    assert (outcome.status, outcome.observed) == (Status.PARTIAL, {EXECUTORS: 1})
    assert "only 1 of 2 there 20 s after the release" in outcome.detail


def test_a_released_executor_that_stays_does_not_stand_in_for_one_that_died():
    started = begin_change(0.0, 2, fleet(1, 2, 3), ScalingSettings(executor_timeout=20))
    releasing = step_change(started.change, 1.0, fleet(1, 2, 3), batch_boundary=True)
    outcome = ended(passing(releasing, 20, fleet(1, 3)))
    assert outcome.status is Status.PARTIAL
    assert "executor 3 still registered" in outcome.detail


def test_a_change_that_is_broken_off_releases_those_who_were_told_to_stop():
    assert scaling.abandon_change(2, ("4", "3")) == (Release(("4", "3")), RequestTotal(2))
    assert scaling.abandon_change(5, ()) == ()


def test_a_released_executor_that_stays_ends_in_a_bounded_wait():
    started = begin_change(0.0, 1, fleet(1, 2), ScalingSettings(executor_timeout=20))
    releasing = step_change(started.change, 1.0, fleet(1, 2), batch_boundary=True)
    outcome = ended(passing(releasing, 20, fleet(1, 2), batch_boundary=True))
    assert outcome.status is Status.PARTIAL
    assert "executor 2 still registered 20 s after the release" in outcome.detail


def test_executors_that_joined_during_a_scale_in_are_reported_not_killed():
    started = begin_change(0.0, 1, fleet(1, 2))
    releasing = step_change(started.change, 1.0, fleet(1, 2, 3), batch_boundary=True)
    assert Release(("2",)) in releasing.instructions
    outcome = ended(step_change(releasing.change, 2.0, fleet(1, 3), batch_boundary=True))
    assert (outcome.status, outcome.observed) == (Status.PARTIAL, {EXECUTORS: 2})
    assert "1 joined meanwhile" in outcome.detail


def test_a_clock_that_jumps_back_neither_crashes_nor_prolongs_the_wait():
    started = begin_change(1000.0, 3, fleet(1), ScalingSettings(executor_timeout=60))
    waiting = passing(started, 40, fleet(1))
    jumped = step_change(waiting.change, 100.0, fleet(1), batch_boundary=False)
    outcome = ended(passing(jumped, 20, fleet(1)))
    assert (outcome.status, outcome.seconds) == (Status.PARTIAL, 60.0)


def test_a_clock_that_jumps_forward_does_not_use_up_the_wait():
    started = begin_change(0.0, 3, fleet(1, 2), ScalingSettings(executor_timeout=60))
    jumped = step_change(started.change, 3600.0, fleet(1, 2), batch_boundary=False)
    assert jumped.outcome is None and jumped.instructions == ()
    assert jumped.change.waited == scaling.LONGEST_STEP
    assert (
        ended(step_change(jumped.change, 3601.0, fleet(1, 2, 3), batch_boundary=False)).status is Status.DONE
    )


def test_a_clock_that_jumps_forward_does_not_release_who_is_busy():
    started = begin_change(0.0, 1, fleet(1, 2), ScalingSettings(drain_timeout=120))
    busy = (executor(1), executor(2, active_tasks=1))
    assert step_change(started.change, 3600.0, busy, batch_boundary=False).instructions == ()


class RandomCluster:
    """Grants, denies, kills and delays at random; checks each instruction as it is given."""

    def __init__(self, seed: int, held: int, room: int, grants: float = 0.3) -> None:
        self.random = random.Random(seed)
        self.room, self.grants, self.deadly = room, grants, 0.03
        self.total = held
        self.next_id = held + 1
        self.executors = {number: executor(number) for number in range(1, held + 1)}
        self.doomed: set[int] = set()
        self.stopped: set[str] = set()
        self.released: list[str] = []

    def seen(self) -> tuple[ExecutorState, ...]:
        return tuple(self.executors.values())

    def perform(self, instructions: tuple[scaling.Instruction, ...]) -> None:
        for instruction in instructions:
            match instruction:
                case RequestTotal(total):
                    self.total = total
                case Release(ids):
                    assert set(ids) <= self.stopped, "released without a drain"
                    here = {str(number) for number in self.executors}
                    assert set(ids) == self.stopped & here, "spared one that gets no tasks"
                    self.released += ids
                    self.doomed |= {int(executor_id) for executor_id in ids}
                case StopUsing(ids):
                    self.stopped |= set(ids)

    def pass_time(self) -> None:
        chance = self.random.random
        for number in tuple(self.executors):
            tasks = self.random.randrange(3)
            self.executors[number] = replace(self.executors[number], active_tasks=tasks)
            if chance() < (0.6 if number in self.doomed else self.deadly):
                del self.executors[number]
        if len(self.executors) < min(self.total, self.room) and chance() < self.grants:
            self.executors[self.next_id] = executor(self.next_id)
            self.next_id += 1


@given(
    seed=st.integers(0, 2**32),
    held=st.integers(0, 8),
    wanted=st.integers(1, 8),
    room=st.integers(1, 10),
    boundary_chance=st.floats(0, 1),
)
def test_whatever_the_cluster_does_a_change_ends_and_takes_no_more_than_planned(
    seed: int, held: int, wanted: int, room: int, boundary_chance: float
):
    cluster = RandomCluster(seed, held, room)
    patience = ScalingSettings(executor_timeout=20, drain_timeout=30)
    progress, now = begin_change(0.0, wanted, cluster.seen(), patience), 0.0
    chosen = progress.change.leaving
    while progress.outcome is None:
        cluster.perform(progress.instructions)
        cluster.pass_time()
        now += 1.0
        assert now <= patience.executor_timeout + patience.drain_timeout + 1, "the change does not end"
        boundary = cluster.random.random() < boundary_chance
        progress = step_change(progress.change, now, cluster.seen(), boundary)
    assert len(cluster.released) == len(set(cluster.released)) <= max(0, held - wanted)
    assert set(cluster.released) <= set(chosen)
    outcome = progress.outcome
    assert outcome.observed == {EXECUTORS: len(cluster.executors)}
    useless = cluster.stopped & {str(number) for number in cluster.executors}
    assert (outcome.status is Status.DONE) == (
        not useless and (len(cluster.executors) == wanted or (held <= wanted <= len(cluster.executors)))
    )
    assert outcome.detail


@given(seed=st.integers(0, 2**32), held=st.integers(1, 8), wanted=st.integers(1, 8), dying=st.integers(0, 20))
def test_on_a_cluster_that_grants_a_change_ends_at_the_wanted_count_whoever_dies_in_between(
    seed: int, held: int, wanted: int, dying: int
):
    cluster = RandomCluster(seed, held, room=20, grants=1.0)
    progress, now = (
        begin_change(0.0, wanted, cluster.seen(), ScalingSettings(executor_timeout=120, drain_timeout=10)),
        0.0,
    )
    while progress.outcome is None:
        cluster.perform(progress.instructions)
        cluster.deadly = 0.2 if now < dying else 0.0
        cluster.pass_time()
        now += 1.0
        progress = step_change(
            progress.change, now, cluster.seen(), batch_boundary=cluster.random.random() < 0.5
        )
    assert progress.outcome.status is Status.DONE
    usable = {str(number) for number in cluster.executors} - cluster.stopped
    assert len(usable) == len(cluster.executors) == wanted
