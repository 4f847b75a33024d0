"""What a query's costs are on slot counts that were seen, lie between, or lie beyond them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.cost_memory import CostMemory
from penstock.dataflow.costs import QueryCosts, StageCost
from penstock.dataflow.costs_by_slots import CostsBySlots
from penstock.dataflow.readiness import NotReady
from tests.dataflow.synthetic_batches import TrueQuery, TrueStage, word_count
from tests.dataflow.test_costs import SIZES, predicted


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
