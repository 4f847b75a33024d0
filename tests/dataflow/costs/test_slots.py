"""Makespan, batch seconds and the least slots, against plain references."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.costs.model import (
    QueryCosts,
    StageCost,
    batch_seconds,
    fixed_seconds,
    load_ratio,
    makespan,
)
from penstock.dataflow.costs.slots import least_slots, settled_batch_seconds

SECONDS = st.lists(st.floats(0, 100), min_size=1, max_size=60)


def plain_makespan(task_seconds: list[float], slots: int) -> float:
    free_at = [0.0] * slots
    for task in task_seconds:
        first = free_at.index(min(free_at))
        free_at[first] += task
    return max(free_at)


@given(SECONDS, st.integers(1, 20))
def test_makespan_equals_the_plain_reference(task_seconds, slots):
    assert makespan(np.array(task_seconds), slots) == pytest.approx(plain_makespan(task_seconds, slots))


@given(SECONDS, st.integers(1, 20))
def test_makespan_lies_between_its_bounds(task_seconds, slots):
    total, longest = sum(task_seconds), max(task_seconds)
    length = makespan(task_seconds, slots)
    assert length >= max(total / slots, longest) * (1 - 1e-12)
    assert length <= (total / slots + longest) * (1 + 1e-12)


def test_makespan_counts_whole_waves():
    assert makespan(np.ones(15), 15) == 1
    assert makespan(np.ones(15), 14) == 2
    assert makespan(np.ones(15), 5) == 3
    assert makespan(np.array([]), 3) == 0


def test_makespan_of_a_long_last_task_shows():
    assert makespan([1, 1, 1, 1, 10], 2) == 12
    assert makespan([10, 1, 1, 1, 1], 2) == 10


def test_no_slots_is_an_error():
    with pytest.raises(ValueError, match="at least one slot"):
        makespan([1.0], 0)


def stage(
    name: str, tasks: int, per_task: float, per_record: float, skew: list[float] | None = None
) -> StageCost:
    shares = np.full(tasks, 1 / tasks) if skew is None else np.array(skew) / sum(skew)
    return StageCost(name, per_task, per_record, tasks, shares, 1.0)


def test_batch_seconds_by_hand():
    costs = QueryCosts(0.5, (stage("a", 10, 0.1, 0.01), stage("b", 4, 0.2, 0.0)), 5)
    # a: 100 records/s · 5 s = 500 records, 50 a task: 0.6 s a task, 2 waves on 5 slots; b: one wave
    assert batch_seconds(costs, {"a": 100, "b": 10}, 5.0, 5) == pytest.approx(0.5 + 2 * 0.6 + 0.2)


@st.composite
def growing_costs(draw) -> Callable[[int], QueryCosts]:
    """Costs that change with the slots in any way, so that a batch may get longer with more of them."""
    shapes = []
    for number in range(draw(st.integers(1, 3))):
        tasks = draw(st.integers(1, 12))
        skew = draw(st.lists(st.floats(0.1, 5), min_size=tasks, max_size=tasks))
        shapes.append((f"s{number}", tasks, draw(st.floats(0, 0.5)), draw(st.floats(0, 0.05)), skew))
    serial = draw(st.floats(0, 1))
    factors = draw(st.lists(st.floats(0.5, 3), min_size=13, max_size=13))

    def costs_for(slots: int) -> QueryCosts:
        factor = factors[min(slots, 12)]
        stages = tuple(stage(n, t, a * factor, b * factor, skew) for n, t, a, b, skew in shapes)
        return QueryCosts(serial * factor, stages, slots)

    return costs_for


@settings(max_examples=200, deadline=None)
@given(growing_costs(), st.floats(0.1, 200), st.floats(0.5, 10), st.integers(1, 15))
def test_least_slots_is_minimal(costs_for, rate, period, max_slots):
    rates = {s.operator: rate for s in costs_for(1).stages}
    most = min(max_slots, max(s.tasks for s in costs_for(1).stages))
    by_slots = {s: batch_seconds(costs_for(s), rates, period, s) for s in range(1, most + 1)}
    ample = dict.fromkeys(rates, rate / 0.8)
    fitting = [s for s in by_slots if batch_seconds(costs_for(s), ample, period, s) <= period * (1 + 1e-9)]
    need = least_slots(costs_for, rates, period, 0.8, max_slots)
    assert need.feasible == bool(fitting)
    if fitting:
        assert need.slots == min(fitting)
        assert need.batch_seconds == pytest.approx(by_slots[need.slots])


def test_headroom_is_for_records_and_not_for_fixed_costs():
    # eight state tasks of 0.9 s are two waves on 4 to 7 slots: 1.8 s outside tasks + 1.8 s are there anyway
    state = replace(stage("state", 8, 0.9, 0.0), selectivity=0.0)
    costs = QueryCosts(1.8, (stage("read", 20, 0.0, 0.016), state), 8)
    rates = {"read": 60.0, "state": 0.0}
    # 300 records of 16 ms are 4.8 slot-seconds: 4.8 of 5 s on 4 slots, and 5.1 s at a rate a quarter higher
    assert batch_seconds(costs, rates, 5.0, 4) == pytest.approx(4.8)
    assert least_slots(lambda _: costs, rates, 5.0, 0.8, 8).slots == 5
    assert fixed_seconds(costs, rates, 5.0, 5) == pytest.approx(3.6)
    assert load_ratio(costs, rates, 5.0, 5) == pytest.approx(0.96 / 1.4)
    assert load_ratio(costs, rates, 5.0, 8) == pytest.approx(0.72 / 2.3), "20 tasks are three waves on 8"
    assert load_ratio(costs, rates, 3.6, 5) == math.inf, "no room for any record"
    assert load_ratio(costs, dict.fromkeys(rates, 0.0), 5.0, 5) == 0


@settings(max_examples=100, deadline=None)
@given(growing_costs(), st.floats(0.1, 200), st.floats(0.5, 10), st.integers(1, 12))
def test_fixed_costs_are_what_a_batch_without_records_takes(costs_for, rate, period, slots):
    costs, rates = costs_for(slots), {s.operator: rate for s in costs_for(1).stages}
    nothing = batch_seconds(costs, dict.fromkeys(rates, 0.0), period, slots)
    assert fixed_seconds(costs, rates, period, slots) == pytest.approx(nothing)


def settle_plainly(costs: QueryCosts, rates: dict[str, float], period: float, slots: int) -> float:
    """Let batch follow batch, each with what came during the one before, until their length stays."""
    length = period
    for _ in range(100_000):
        seconds = batch_seconds(costs, rates, max(period, length), slots)
        if seconds > 1e6:
            return math.inf
        if math.isclose(seconds, length, rel_tol=1e-6) or seconds <= period:
            return seconds
        length = seconds
    return math.inf


@settings(max_examples=200, deadline=None)
@given(growing_costs(), st.floats(0.1, 200), st.floats(0.5, 10), st.integers(1, 12))
def test_batches_settle_as_if_they_followed_each_other(costs_for, rate, period, slots):
    costs, rates = costs_for(slots), {s.operator: rate for s in costs_for(1).stages}
    work = sum(s.per_record_seconds * max(s.shares.max(), 1 / slots) for s in costs.stages) * rate
    if abs(work - 1) < 0.05:
        return  # at the very edge, whether lengths settle is a matter of the last digit
    plain = settle_plainly(costs, rates, period, slots)
    found = settled_batch_seconds(costs, rates, period, slots)
    assert found == pytest.approx(plain, rel=0.02) or (math.isinf(plain) and found > 100 * period)


def knee_plainly(seconds: dict[int, float], step: int) -> int:
    """The least size that no larger one beats by 5 % for every executor between them."""
    for size in sorted(seconds):
        if not any(
            then > size and seconds[then] < seconds[size] * 0.95 ** ((then - size) / step) for then in seconds
        ):
            return size
    raise AssertionError("the largest size is always a knee")


@settings(max_examples=200, deadline=None)
@given(growing_costs(), st.floats(0.1, 20), st.integers(1, 3))
def test_where_no_size_fits_growth_ends_where_it_brings_little(costs_for, rate, step):
    rates = {s.operator: rate for s in costs_for(1).stages}
    need = least_slots(costs_for, rates, 0.01, 0.8, 15, step)
    if need.feasible:
        return
    most = min(15, max(s.tasks for s in costs_for(1).stages))
    sizes = [*range(min(step, most), most, step), most]
    seconds = {size: settled_batch_seconds(costs_for(size), rates, 0.01, size) for size in sizes}
    if all(map(math.isfinite, seconds.values())):
        assert need.slots == knee_plainly(seconds, step)


def test_time_outside_tasks_is_no_reason_to_grow():
    # 5.7 s on the driver, 40 tasks of 0.1 s: no size fits into 5 s, and four slots leave 1 s of tasks
    costs = QueryCosts(5.7, (stage("a", 40, 0.1, 0.0),), 2)
    need = least_slots(lambda _: costs, {"a": 60.0}, 5.0, 0.8, 1024)
    assert not need.feasible
    # 4 slots: 6.7 s, 5: 6.5 (3 % less), 8: 6.2 (7.5 % less for four more)
    assert need.slots == 4
    assert need.batch_seconds == pytest.approx(6.7)


def test_a_rate_that_one_slot_cannot_carry_is_carried_before_gains_count():
    # 100 records/s of 50 ms keep five slots busy; 20 s on the driver make every batch late
    costs = QueryCosts(20.0, (stage("a", 64, 0.0, 0.05),), 2)
    need = least_slots(lambda _: costs, {"a": 100.0}, 5.0, 0.8, 64)
    assert not need.feasible
    assert need.slots > 5
    # on S slots lengths settle at 20 / (1 − 5 / S)
    assert need.batch_seconds == pytest.approx(20 / (1 - 5 / need.slots), rel=0.1)


@given(st.integers(1, 30), st.floats(0.001, 0.1), st.floats(1, 1000))
def test_never_below_the_work_itself(tasks, per_record, rate):
    costs = QueryCosts(0.0, (stage("a", tasks, 0.0, per_record),), 1)
    need = least_slots(lambda _: costs, {"a": rate}, 10.0, 0.8, 1000)
    if need.feasible:
        assert need.slots >= math.floor(per_record * rate)
    else:
        assert need.slots == tasks or per_record * rate * 10 / tasks > 8


def test_a_stage_with_too_few_tasks_limits_and_is_named():
    costs = QueryCosts(0.1, (stage("wide", 40, 0.0, 0.001), stage("narrow", 4, 0.0, 0.01)), 5)
    need = least_slots(lambda _: costs, {"wide": 1000, "narrow": 1000}, 10.0, 0.8, 1000)
    # narrow: 10,000 records · 0.01 s on 4 tasks is 25 s whatever the slots
    assert not need.feasible
    assert need.limiting == "narrow"
    assert need.slots < 40, "slots that shorten the batch by little are not asked for"


def test_most_slots_are_never_passed():
    costs = QueryCosts(0.1, (stage("wide", 400, 0.0, 0.01),), 5)
    need = least_slots(lambda _: costs, {"wide": 1000}, 10.0, 0.8, 7)
    assert (need.slots, need.feasible, need.limiting) == (7, False, None)


def test_interference_can_make_fewer_slots_the_better_ones():
    def costs_for(slots: int) -> QueryCosts:
        return QueryCosts(0.0, (stage("a", 20, 0.02 * slots**2, 0.0),), slots)

    need = least_slots(costs_for, {"a": 1}, 1.0, 0.8, 20)
    # waves · 0.02 · slots²: 0.4 on one slot, 0.8 on two, 1.26 on three
    assert need.slots == 1


def test_a_batch_that_fits_exactly_is_enough():
    costs = QueryCosts(0.0, (stage("a", 10, 0.1, 0.0),), 1)
    assert least_slots(lambda _: costs, {"a": 1}, 1.0, 1.0, 10).slots == 1
