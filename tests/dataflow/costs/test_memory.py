"""Costs on slot counts that were seen, lie between or beyond them, or come from an earlier run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.costs.memory import CostMemory
from penstock.dataflow.costs.model import QueryCosts, StageCost
from penstock.dataflow.costs.slots import CostsBySlots
from penstock.dataflow.readiness import NotReady
from tests.dataflow.costs.test_fit import SIZES, predicted
from tests.dataflow.synthetic_batches import TrueQuery, TrueStage, word_count


def costs_at(slots: int, per_task: float, per_record: float = 0.01, serial: float = 0.5) -> QueryCosts:
    return QueryCosts(serial, (StageCost("a", per_task, per_record, 4, np.full(4, 0.25), 1.0),), slots)


def known(memory: CostMemory) -> CostsBySlots:
    costs = memory.costs()
    assert isinstance(costs, CostsBySlots)
    return costs


def test_one_slot_count_serves_all():
    seen = CostsBySlots({5: costs_at(5, 0.2)})
    assert seen.costs_for(50) is seen.costs_for(5) is seen.newest


def test_between_two_slot_counts_costs_lie_on_a_line():
    seen = CostsBySlots({5: costs_at(5, 0.2, 0.01, 0.4), 15: costs_at(15, 0.6, 0.03, 0.8)})
    middle = seen.costs_for(10)
    assert middle.per_batch_seconds == pytest.approx(0.6)
    assert middle.stages[0].per_task_seconds == pytest.approx(0.4)
    assert middle.stages[0].per_record_seconds == pytest.approx(0.02)
    assert seen.costs_for(15).stages[0].per_task_seconds == pytest.approx(0.6)


def test_beyond_them_the_trend_goes_on_but_at_most_doubles_or_halves():
    seen = CostsBySlots({5: costs_at(5, 0.2), 10: costs_at(10, 0.4)})
    assert 0.4 < seen.costs_for(12).stages[0].per_task_seconds < 0.5
    assert seen.costs_for(100).stages[0].per_task_seconds == pytest.approx(0.8)
    assert seen.costs_for(1).stages[0].per_task_seconds == pytest.approx(0.1)


def test_a_cost_that_seems_to_fall_with_slots_is_not_extrapolated():
    seen = CostsBySlots({5: costs_at(5, 0.4), 10: costs_at(10, 0.2)})
    assert seen.costs_for(20).stages[0].per_task_seconds == pytest.approx(0.2)


def test_near_slot_counts_say_little_about_a_trend():
    near = CostsBySlots({9: costs_at(9, 0.20), 10: costs_at(10, 0.22)})
    assert near.costs_for(20).stages[0].per_task_seconds < 0.3


@given(
    st.dictionaries(
        st.integers(1, 60), st.tuples(st.floats(0, 9), st.floats(0, 1), st.floats(0, 9)), min_size=1
    ),
    st.integers(1, 500),
)
def test_costs_stay_finite_and_non_negative_everywhere(points, slots):
    fits = {count: costs_at(count, *values) for count, values in points.items()}
    costs = CostsBySlots(fits).costs_for(slots)
    for value in (
        costs.per_batch_seconds,
        costs.stages[0].per_task_seconds,
        costs.stages[0].per_record_seconds,
    ):
        assert 0 <= value <= 18


@pytest.mark.parametrize(
    ("seen", "other"), [((5,), 10), ((10,), 5), ((10,), 15), ((5, 10), 15), ((5, 15), 10)]
)
@pytest.mark.parametrize("seed", range(4))
def test_neighbouring_slot_counts_are_predicted_within_25_percent(seen, other, seed):
    query, memory = word_count(noise=0.1, outliers=0.003, seed=seed), CostMemory()
    for number, slots in enumerate(seen):
        memory.remember(query.runs(SIZES, slots, first_id=100 * number))
    for records in (1500.0, 3000.0):
        truth = np.median([b.seconds for b in query.runs((records,) * 25, other, first_id=900)])
        assert predicted(known(memory).costs_for(other), query, records, other) == pytest.approx(
            truth, rel=0.25
        )


def test_slot_counts_teach_each_other_what_a_record_costs():
    query, memory = TrueQuery((TrueStage("a", 10, 0.5, 0.01, interference=0.2),)), CostMemory()
    memory.remember(query.runs(SIZES, 5))
    memory.remember(query.runs((1000.0,) * 6, 10, first_id=50))
    stage = known(memory).costs_for(10).stages[0]
    # equal batches alone could not tell the two apart; at ten slots a task costs 0.5 · (1 + 0.2 · 5)
    assert stage.per_record_seconds == pytest.approx(0.01, rel=0.05)
    assert stage.per_task_seconds == pytest.approx(1.0, rel=0.05)


def test_slot_counts_with_batches_of_one_size_each_tell_together_what_a_record_costs():
    # without a trigger interval batches settle at a size, which is another one on other slots
    query, memory = TrueQuery((TrueStage("a", 10, 0.5, 0.001),), noise=0.1), CostMemory()
    memory.remember(query.runs((9000.0,) * 6, 5))
    memory.remember(query.runs((3000.0,) * 6, 10, first_id=50))
    for slots in (5, 10):
        stage = known(memory).costs_for(slots).stages[0]
        assert stage.per_record_seconds == pytest.approx(0.001, rel=0.1)
        assert stage.per_task_seconds == pytest.approx(0.5, rel=0.1)


def test_a_single_batch_on_new_slots_is_not_yet_believed():
    query, memory = word_count(), CostMemory()
    memory.remember(query.runs(SIZES, 5))
    memory.remember(query.runs((1500.0,), 10, first_id=50))
    assert known(memory).newest.slots == 5
    memory.remember(query.runs((1500.0,), 10, first_id=51))
    assert known(memory).newest.slots == 10


def test_a_batch_seen_twice_counts_once():
    query, memory = word_count(noise=0.1), CostMemory()
    batches = query.runs(SIZES, 5)
    memory.remember(batches)
    first = known(memory).newest
    memory.remember(batches[3:])
    assert known(memory).newest.per_batch_seconds == first.per_batch_seconds


def test_what_did_not_change_is_not_fitted_again():
    query, memory = word_count(), CostMemory()
    memory.remember(query.runs(SIZES, 5))
    first = known(memory).newest
    memory.remember([])
    assert known(memory).newest is first
    memory.remember(query.runs(SIZES, 5, first_id=20))
    assert known(memory).newest is not first


def test_memory_is_bounded_and_forgets():
    query, memory = word_count(), CostMemory(batches_kept=5, slot_counts_kept=2, forget_after_seconds=1000)
    memory.remember(query.runs((1000.0,) * 30, 3))
    memory.remember(query.runs((1000.0,) * 30, 5, first_id=30))
    memory.remember(query.runs((1000.0,) * 30, 7, first_id=60))
    assert {slots: len(kept) for slots, kept in memory._batches.items()} == {7: 5, 5: 5}
    memory.remember(query.runs((1000.0,) * 3, 9, first_id=500))
    assert list(memory._batches) == [9]


def test_batches_out_of_order_are_put_in_order():
    query, memory = word_count(), CostMemory(batches_kept=3)
    memory.remember(reversed(query.runs((1000.0,) * 6, 3)))
    assert [batch.batch_id for batch in memory._batches[3]] == [3, 4, 5]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("column", ["records_in", "records_out", "useful_seconds"])
def test_broken_columns_do_not_enter(column, bad):
    batch = word_count().run(1, 0.0, 100.0, 5)
    broken = replace(batch.stages[0], **{column: np.full(15, bad)})
    memory = CostMemory()
    assert memory.remember([replace(batch, stages=(broken, *batch.stages[1:]))]) == 0
    assert isinstance(memory.costs(), NotReady)


@pytest.mark.parametrize(
    "change",
    [{"seconds": float("nan")}, {"seconds": -1.0}, {"slots": 0}, {"start": float("inf")}, {"settled": False}],
)
def test_broken_batches_do_not_enter(change):
    memory = CostMemory()
    assert memory.remember([replace(word_count().run(1, 0.0, 100.0, 5), **change)]) == 0


def test_columns_of_different_length_do_not_enter():
    batch = word_count().run(1, 0.0, 100.0, 5)
    broken = replace(batch.stages[0], useful_seconds=np.ones(3))
    assert CostMemory().remember([replace(batch, stages=(broken,))]) == 0


EARLIER_SIZES = (500, 1000, 1500, 1200)


def earlier(query, *slot_counts):
    memory = CostMemory()
    for number, slots in enumerate(slot_counts):
        memory.remember(query.runs(EARLIER_SIZES, slots, first_id=100 * number))
    assert isinstance(memory.costs(), CostsBySlots)
    return memory.list_fits()


def restarted(fits, query, slots, **limits):
    """A memory that recalls the fits and then sees batches of this run."""
    memory = CostMemory(**limits)
    memory.recall(fits)
    memory.remember(query.runs(EARLIER_SIZES, slots))
    return memory


def slower_by(factor):
    stages = (
        replace(stage, per_task=factor * stage.per_task, per_record=factor * stage.per_record)
        for stage in word_count().stages
    )
    return TrueQuery(tuple(stages), 0.5)


def state_cost(costs):
    return costs.stage("state").per_task_seconds


def test_nothing_is_said_before_a_batch_of_this_run():
    memory = CostMemory()
    memory.recall(earlier(word_count(), 5, 15))
    assert isinstance(memory.costs(), NotReady)


def test_slot_counts_of_the_earlier_run_fill_in_for_unseen_ones():
    before = earlier(word_count(), 5, 15)
    costs = restarted(before, word_count(), 10).costs()
    assert costs.newest.slots == 10
    for fit in before:
        assert state_cost(costs.costs_for(fit.slots)) == pytest.approx(state_cost(fit))
    assert state_cost(costs.newest) < state_cost(costs.costs_for(12)) < state_cost(before[-1])


def test_what_this_run_has_seen_outranks_what_the_earlier_run_had():
    before = earlier(word_count(), 5, 15)
    costs = restarted(before, slower_by(1.2), 5).costs()
    assert state_cost(costs.costs_for(5)) == state_cost(costs.newest) > 1.1 * state_cost(before[0])
    assert state_cost(costs.costs_for(15)) == pytest.approx(state_cost(before[-1]))


def test_costs_that_do_not_hold_any_more_are_dropped(caplog):
    caplog.set_level("INFO")
    memory = restarted(earlier(word_count(), 5, 15), slower_by(3.0), 5)
    assert memory.costs().costs_for(15) == memory.costs().newest
    assert "do not hold any more on 5 slots" in caplog.text


def test_costs_of_other_stages_are_dropped():
    renamed = TrueQuery((*word_count().stages[:2], TrueStage("join", 15, 0.21, 0.0)), 0.5)
    memory = restarted(earlier(renamed, 5, 15), word_count(), 10)
    assert {stage.operator for stage in memory.costs().costs_for(15).stages} == {"flatmap", "count", "state"}
    assert memory.costs().costs_for(15) == memory.costs().newest


def test_they_are_forgotten_when_this_run_would_forget_its_own():
    memory = restarted(earlier(word_count(), 5, 15), word_count(), 10, forget_after_seconds=100.0)
    assert memory.costs().costs_for(15).stage("state") != memory.costs().newest.stage("state")
    memory.remember(word_count().runs(EARLIER_SIZES, 10, first_id=50))
    assert memory.costs().costs_for(15) == memory.costs().newest
    assert [fit.slots for fit in memory.list_fits()] == [10]


def test_beside_another_query_they_do_not_count():
    memory = restarted(earlier(word_count(), 5, 15), word_count(), 10)
    assert memory.costs(alone=False).costs_for(15) == memory.costs(alone=False).newest


def test_what_is_kept_is_bounded_over_many_runs():
    fits = ()
    for slots in range(4, 30, 2):
        memory = restarted(fits, word_count(), slots)
        memory.costs()
        fits = memory.list_fits()
    assert len(fits) == 6
    assert fits[-1].slots == 28


def service(per_record: float) -> TrueQuery:
    return TrueQuery((TrueStage("lookup", 8, 0.0, per_record),), per_batch=0.2)


def runs_later(query: TrueQuery, slots: int, at: float, count: int = 6):
    sizes = (400.0, 500.0, 600.0, 450.0, 550.0, 500.0, 480.0, 520.0)[:count]
    batches = query.runs(sizes, slots)
    return [replace(b, start=at + 10 * n, batch_id=int(at) + n) for n, b in enumerate(batches)]


def lookup_cost(costs: CostsBySlots, slots: int) -> float:
    return costs.costs_for(slots).stages[0].per_record_seconds


def test_costs_of_fewer_slots_that_the_held_ones_contradict_are_dropped():
    memory = CostMemory()
    memory.remember(runs_later(service(0.0125), 1, 0.0))
    memory.remember(runs_later(service(0.001), 2, 1000.0))
    # one slot alone is never slower than one of two: the service got faster meanwhile
    assert lookup_cost(known(memory), 1) == pytest.approx(0.001, rel=0.2)


def test_costs_of_fewer_slots_that_are_far_too_low_are_dropped():
    memory = CostMemory()
    memory.remember(runs_later(service(0.001), 4, 0.0))
    memory.remember(runs_later(service(0.02), 8, 1000.0))
    assert lookup_cost(known(memory), 4) == pytest.approx(0.02, rel=0.2)


def test_slots_that_share_cores_may_cost_in_proportion():
    memory = CostMemory()
    memory.remember(runs_later(service(0.005), 4, 0.0))
    memory.remember(runs_later(service(0.01), 8, 1000.0))
    assert lookup_cost(known(memory), 4) == pytest.approx(0.005, rel=0.2)


def test_a_service_that_gets_faster_is_believed_after_two_batches():
    memory = CostMemory()
    memory.remember(runs_later(service(0.024), 2, 0.0, 8))
    memory.remember(runs_later(service(0.001), 2, 1000.0, 2))
    assert lookup_cost(known(memory), 2) == pytest.approx(0.001, rel=0.3)


def runs_cold_then_warm(warm: int):
    """Two batches of cold executors, then so many at half the cost, each with all that came meanwhile."""
    cold, hot = service(0.02), service(0.01)
    runs = [(cold, 2400.0), (cold, 2900.0), (hot, 5900.0), (hot, 5100.0)][: 2 + warm]
    return [query.run(number, 20.0 * number, size, 6) for number, (query, size) in enumerate(runs)]


def test_cold_batches_are_dropped_as_soon_as_two_newer_ones_cost_far_less():
    memory = CostMemory()
    memory.remember(runs_cold_then_warm(2))
    assert lookup_cost(known(memory), 6) == pytest.approx(0.01, rel=0.05)
    assert memory.find_relief(6, 1e9, 5.0) is None, "the costs are those of the newest batches"


def test_a_newest_batch_that_costs_far_less_is_told():
    memory = CostMemory()
    memory.remember(runs_cold_then_warm(1))
    known(memory)
    assert "took 0.5 times the work that those before it tell" in (memory.find_relief(6, 1e9, 5.0) or "")


def test_a_newest_batch_like_the_others_or_alone_is_no_relief():
    for count in (1, 2):
        memory = CostMemory()
        memory.remember(runs_cold_then_warm(0)[:count])
        known(memory)
        assert memory.find_relief(6, 1e9, 5.0) is None


def remember_batches(*batches: tuple[float, float]) -> CostMemory:
    """Batches of so many records that took so many seconds, whatever their tasks did."""
    memory = CostMemory()
    runs = [service(0.01).run(number, 30.0 * number, size, 6) for number, (size, _) in enumerate(batches)]
    memory.remember([replace(run, seconds=seconds) for run, (_, seconds) in zip(runs, batches, strict=True)])
    known(memory)
    return memory


def test_batches_that_get_shorter_by_themselves_are_told():
    """As of six cold executors that were enough: by their first batches 24 were asked for."""
    memory = remember_batches((38_350, 19.2), (25_025, 12.9))
    assert "batches get shorter by themselves: 19.2 s, then 12.9 s" in (
        memory.find_relief(6, 1300.0, 5.0) or ""
    )
    assert memory.find_relief(6, 2000.0, 5.0) is None, "more is offered than they read"
    assert memory.find_relief(3, 1300.0, 5.0) is None, "on other slots"
    assert remember_batches((25_025, 12.9), (25_025, 12.2)).find_relief(6, 1300.0, 5.0) is None, (
        "hardly shorter"
    )
    assert remember_batches((25_025, 12.9)).find_relief(6, 1300.0, 5.0) is None


def test_batches_over_a_backlog_that_settle_far_too_long_are_no_relief():
    # each has what came during the one before: 16.3 s and 0.7 ms a record settle at 31 s, with ten asked for
    drain = remember_batches((79_000, 71.6), (65_000, 61.8))
    assert drain.find_relief(6, 680.0, 10.0) is None
    assert drain.find_relief(6, 680.0, 25.0) is not None


def test_one_odd_batch_changes_no_level():
    memory = CostMemory()
    memory.remember(runs_later(service(0.01), 2, 0.0, 8))
    memory.remember(runs_later(service(0.1), 2, 1000.0, 1))
    assert lookup_cost(known(memory), 2) == pytest.approx(0.01, rel=0.2)


def warm_up(sizes, per_record=0.0036, begin=0):
    """Batches of falling sizes, whose tasks need less and less beside their records."""
    for number, size in enumerate(sizes, start=begin):
        fixed = 0.4 + 0.6 * 0.9**number
        query = TrueQuery((TrueStage("charge", 8, fixed, per_record),), 0.4, noise=0.1)
        yield query.run(number, 10.0 * number, size, 8)


FALLING = [25460, 11390, 5863, 3852, 2848, 2345, 2177, 2010, *[1675 - 15 * number for number in range(47)]]


def charge_cost(memory: CostMemory) -> float:
    stage = known(memory).costs_for(8).stage("charge")
    assert stage is not None
    return stage.per_record_seconds


def test_a_large_batch_of_before_bounds_what_a_record_costs():
    """Code that warms up makes tasks cheaper while batches get smaller: that is not what a record costs."""
    memory = CostMemory()
    for batch in warm_up(FALLING):
        memory.remember([batch])
    largest = 8 * (0.4 + 0.6) / 25460 + 0.0036
    assert 0.0034 < charge_cost(memory) <= largest * 1.1


def test_a_large_batch_that_took_longer_since_lifts_the_bound():
    memory = CostMemory()
    for batch in (*warm_up(FALLING), *warm_up([24000, 12000], 0.0045, len(FALLING))):
        memory.remember([batch])
    assert charge_cost(memory) > 0.0042


def test_a_bound_is_forgotten_with_the_batches():
    memory = CostMemory(forget_after_seconds=300.0)
    for batch in warm_up(FALLING):
        memory.remember([batch])
    forgetful = CostMemory()
    for batch in list(warm_up(FALLING))[-20:]:
        forgetful.remember([batch])
    assert charge_cost(memory) == pytest.approx(charge_cost(forgetful), rel=0.01)
