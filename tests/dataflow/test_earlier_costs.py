"""Costs of an earlier run beside those of this one: used where this run knows nothing, while they hold."""

from dataclasses import replace

import pytest

from penstock.dataflow.cost_memory import CostMemory
from penstock.dataflow.costs_by_slots import CostsBySlots
from penstock.dataflow.readiness import NotReady
from tests.dataflow.synthetic_batches import TrueQuery, TrueStage, word_count

SIZES = (500, 1000, 1500, 1200)


def earlier(query, *slot_counts):
    memory = CostMemory()
    for number, slots in enumerate(slot_counts):
        memory.remember(query.runs(SIZES, slots, first_id=100 * number))
    assert isinstance(memory.costs(), CostsBySlots)
    return memory.fitted()


def restarted(fits, query, slots, **limits):
    """A memory that recalls the fits and then sees batches of this run."""
    memory = CostMemory(**limits)
    memory.recall(fits)
    memory.remember(query.runs(SIZES, slots))
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
    memory.remember(word_count().runs(SIZES, 10, first_id=50))
    assert memory.costs().costs_for(15) == memory.costs().newest
    assert [fit.slots for fit in memory.fitted()] == [10]


def test_beside_another_query_they_do_not_count():
    memory = restarted(earlier(word_count(), 5, 15), word_count(), 10)
    assert memory.costs(alone=False).costs_for(15) == memory.costs(alone=False).newest


def test_what_is_kept_is_bounded_over_many_runs():
    fits = ()
    for slots in range(4, 30, 2):
        memory = restarted(fits, word_count(), slots)
        memory.costs()
        fits = memory.fitted()
    assert len(fits) == 6
    assert fits[-1].slots == 28
