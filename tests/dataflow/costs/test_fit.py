"""Costs fitted from batches: planted truths come back, outliers and broken batches do not matter."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.costs.fit import fit_costs, weighted_median
from penstock.dataflow.costs.line import Line, fit_line
from penstock.dataflow.costs.model import QueryCosts, batch_seconds
from penstock.dataflow.metrics import BatchExecution, StageExecution
from penstock.dataflow.readiness import NotReady
from tests.dataflow.synthetic_batches import TrueQuery, TrueStage, word_count

SIZES = (600.0, 1500.0, 3000.0, 1500.0, 600.0, 3000.0, 2000.0, 900.0)


def predicted(costs: QueryCosts, query: TrueQuery, records: float, slots: int) -> float:
    """Predict a batch of so many source records, by the query's own selectivities."""
    taken: dict[str, float] = {}
    for true in query.stages:
        stage = costs.stage(true.operator)
        assert stage is not None
        taken[true.operator] = records
        records *= stage.selectivity
    return batch_seconds(costs, taken, 1.0, slots)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("seen", "other"), [(40, 10), (40, 6), (10, 40)])
def test_what_scatters_in_one_wave_of_tasks_does_not_make_several_waves_longer(seen, other, seed):
    random = np.random.default_rng(seed)
    query = TrueQuery((TrueStage("a", 40, 0.05, 0.01),), 0.2, noise=0.3, random=random)
    costs = fitted(query, seen)
    truth = np.mean([batch.seconds for batch in query.runs((3000.0,) * 40, other)])
    assert predicted(costs, query, 3000.0, other) == pytest.approx(truth, rel=0.2)


def fitted(query: TrueQuery, slots: int, sizes: tuple[float, ...] = SIZES) -> QueryCosts:
    costs = fit_costs(query.runs(sizes, slots), slots)
    assert isinstance(costs, QueryCosts)
    return costs


@settings(max_examples=60, deadline=None)
@given(st.floats(0.001, 2), st.floats(0, 0.1), st.integers(3, 40), st.integers(1, 20))
def test_planted_costs_come_back(per_task, per_record, tasks, slots):
    stage = TrueStage("a", tasks, per_task, per_record)
    cost = fitted(TrueQuery((stage,)), slots).stages[0]
    scale = per_task + per_record * 1500 / tasks
    assert cost.per_task_seconds == pytest.approx(per_task, rel=0.02, abs=0.02 * scale)
    assert cost.per_record_seconds * 1500 / tasks == pytest.approx(
        per_record * 1500 / tasks, rel=0.02, abs=0.02 * scale
    )


@settings(max_examples=40, deadline=None)
@given(st.floats(0.05, 1), st.floats(0.001, 0.05), st.integers(0, 1000))
def test_a_tenth_of_outliers_hardly_moves_the_fit(per_task, per_record, seed):
    stage = TrueStage("a", 20, per_task, per_record)
    random = np.random.default_rng(seed)
    noisy = fitted(TrueQuery((stage,), noise=0.05, outliers=0.1, random=random), 5).stages[0]
    for records in (600.0, 3000.0):
        truth = per_task + per_record * records / 20
        assert noisy.per_task_seconds + noisy.per_record_seconds * records / 20 == pytest.approx(
            truth, rel=0.1
        )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e4), st.integers(0, 3)), min_size=3, max_size=40))
def test_any_samples_give_finite_non_negative_costs(samples):
    records, seconds, group = (np.array(column) for column in zip(*samples, strict=True))
    line = fit_line(records, seconds, np.ones(len(samples)), group)
    for known in (None, 0.0, 1.0, 1e9):
        fixed, slope = line.split(known)
        assert 0 <= fixed < math.inf
        assert 0 <= slope < math.inf


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1e-4, 1e4), st.floats(1e-4, 1e4), st.floats(0.01, 1), st.floats(1e-4, 0.1), st.integers(0, 99)
)
def test_the_fit_follows_the_units(time_unit, record_unit, per_task, per_record, seed):
    random = np.random.default_rng(seed)
    records = random.uniform(10, 1000, 60)
    seconds = (per_task + per_record * records) * (1 + 0.05 * random.standard_normal(60))
    group, weight = np.repeat(np.arange(6), 10), np.ones(60)
    fixed, slope = fit_line(records, seconds, weight, group).split()
    scaled = fit_line(records * record_unit, seconds * time_unit, weight, group).split()
    assert scaled[0] == pytest.approx(fixed * time_unit, rel=1e-6, abs=1e-9 * time_unit)
    assert scaled[1] == pytest.approx(slope * time_unit / record_unit, rel=1e-6)


def test_equal_batches_count_as_cost_per_record():
    cost = fitted(TrueQuery((TrueStage("a", 10, 0.5, 0.01),)), 5, (1000.0,) * 8).stages[0]
    # 0.5 + 100 · 0.01 = 1.5 s for 100 records a task: plain DS2 says 0.015 s a record
    assert (cost.per_task_seconds, cost.identified) == (pytest.approx(0), False)
    assert cost.per_record_seconds == pytest.approx(0.015)


def test_a_cost_per_record_known_from_elsewhere_parts_equal_batches():
    batches = TrueQuery((TrueStage("a", 10, 0.5, 0.01),)).runs((1000.0,) * 8, 5)
    costs = fit_costs(batches, 5, known_slopes={"a": 0.01})
    assert isinstance(costs, QueryCosts)
    assert costs.stages[0].per_task_seconds == pytest.approx(0.5)
    assert costs.stages[0].per_record_seconds == pytest.approx(0.01)


def test_a_known_cost_per_record_never_exceeds_what_was_seen():
    assert Line(0.0, 100.0, 1.0, math.inf).split(known_slope=5.0) == (0.0, 0.01)


def test_empty_tasks_show_the_fixed_cost():
    skew = np.array([0.0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    cost = fitted(TrueQuery((TrueStage("a", 10, 0.5, 0.01, skew=skew),)), 5, (1000.0,) * 4).stages[0]
    assert cost.per_task_seconds == pytest.approx(0.5, rel=0.02)
    assert cost.per_record_seconds == pytest.approx(0.01, rel=0.02)


def test_a_state_stage_with_few_rows_costs_by_the_task():
    random = np.random.default_rng(3)
    skew = random.poisson(25, 40).astype(float)
    query = TrueQuery((TrueStage("state", 40, 0.55, 0.0, skew=skew),), noise=0.1, random=random)
    cost = fitted(query, 10, (997.0,) * 6).stages[0]
    assert cost.per_task_seconds == pytest.approx(0.55, rel=0.2)


def test_a_stage_without_records_has_only_a_fixed_cost():
    cost = fitted(TrueQuery((TrueStage("a", 5, 0.4, 0.01),)), 5, (0.0,) * 3).stages[0]
    assert (cost.per_task_seconds, cost.per_record_seconds) == (pytest.approx(0.4), 0.0)
    assert cost.selectivity == 1.0
    assert cost.shares == pytest.approx(np.full(5, 0.2))


def test_serial_part_and_selectivity_and_shares():
    skew = np.array([3.0, 1.0, 1.0, 1.0])
    query = TrueQuery((TrueStage("a", 4, 0.1, 0.01, selectivity=20, skew=skew),), per_batch=0.7)
    costs = fitted(query, 4)
    assert costs.per_batch_seconds == pytest.approx(0.7, rel=0.02)
    assert costs.stages[0].selectivity == pytest.approx(20)
    assert costs.stages[0].shares == pytest.approx(skew / 6)
    assert costs.error_ratio < 0.01


def test_time_that_stages_spend_waiting_is_no_cost_beside_other_queries():
    waited = [
        replace(batch, seconds=batch.seconds + 5, stages=(replace(batch.stages[0], wall_seconds=5 + w),))
        for batch in TrueQuery((TrueStage("a", 4, 0.1, 0.01),), per_batch=0.7).runs(SIZES, 4)
        for w in [batch.stages[0].wall_seconds]
    ]
    alone, beside = fit_costs(waited, 4), fit_costs(waited, 4, alone=False)
    assert isinstance(alone, QueryCosts)
    assert isinstance(beside, QueryCosts)
    assert alone.per_batch_seconds == pytest.approx(5.7, rel=0.02)
    assert beside.per_batch_seconds == pytest.approx(0.7, rel=0.02)


def test_a_slow_first_batch_is_not_believed():
    query = word_count(noise=0.05)
    batches = list(query.runs(SIZES, 10))
    first = batches[0]
    slow = tuple(replace(stage, useful_seconds=5 * stage.useful_seconds) for stage in first.stages)
    batches[0] = replace(first, seconds=5 * first.seconds, stages=slow)
    costs = fit_costs(batches, 10)
    assert isinstance(costs, QueryCosts)
    assert predicted(costs, query, 1500, 10) == pytest.approx(query.seconds(1500, 10), rel=0.1)


def test_costs_that_drift_are_followed():
    before = TrueQuery((TrueStage("a", 20, 0.1, 0.010),), noise=0.05)
    after = TrueQuery((TrueStage("a", 20, 0.1, 0.020),), noise=0.05)
    batches = before.runs(SIZES, 5) + after.runs(SIZES + SIZES[:2], 5, first_id=8)
    costs = fit_costs(batches, 5)
    assert isinstance(costs, QueryCosts)
    assert costs.stages[0].per_record_seconds == pytest.approx(0.020, rel=0.1)


def test_a_new_task_count_is_taken_over():
    old, new = (TrueQuery((TrueStage("a", tasks, 0.1, 0.01),)) for tasks in (10, 4))
    costs = fit_costs(old.runs(SIZES, 5) + new.runs(SIZES, 5, first_id=8), 5)
    assert isinstance(costs, QueryCosts)
    assert costs.stages[0].tasks == 4
    assert costs.stages[0].shares == pytest.approx(np.full(4, 0.25))


@pytest.mark.parametrize("slots", [5, 10, 15])
@pytest.mark.parametrize("seen", [(600.0, 1500.0), (600.0, 3000.0), (1500.0, 3000.0)])
@pytest.mark.parametrize("seed", range(5))
def test_other_batch_sizes_are_predicted_within_15_percent(slots, seen, seed):
    query = word_count(noise=0.1, outliers=0.005, seed=seed)
    costs = fitted(query, slots, seen * 4)
    for records in (600.0, 1500.0, 3000.0):
        truth = np.median([b.seconds for b in query.runs((records,) * 25, slots, first_id=100)])
        assert predicted(costs, query, records, slots) == pytest.approx(truth, rel=0.2)


def test_nothing_to_fit_is_not_ready():
    assert fit_costs([], 5) == NotReady("no batch has finished", "a finished batch")


def test_too_few_tasks_are_not_ready():
    answer = fit_costs(TrueQuery((TrueStage("a", 1, 0.1, 0.01),)).runs((100.0, 200.0), 5), 5)
    assert isinstance(answer, NotReady)
    assert "a has shown 2 tasks" in answer.reason


def test_a_stage_that_hardly_counts_is_believed_by_its_first_task():
    """A joined table is read by one task a batch: three of them were awaited while batches took a minute."""
    stages = TrueStage("a", 4, 0.1, 0.01), TrueStage("table", 1, 0.2, 0.0)
    answer = fit_costs(TrueQuery(stages).runs((900.0,), 5), 5)
    assert isinstance(answer, QueryCosts)
    table = answer.stage("table")
    assert table is not None and table.slot_seconds_at(900.0, 5) == pytest.approx(0.2)
    assert isinstance(fit_costs(TrueQuery(stages).runs((10.0,), 5), 5), NotReady), "here it is a third"


def test_records_without_useful_time_are_not_ready():
    ones, zeros = np.ones(4), np.zeros(4)
    stage = StageExecution("a", ones, ones, zeros, zeros, 1.0)
    answer = fit_costs([BatchExecution(1, 0.0, 1.0, 4, 4.0, (stage,))], 4)
    assert isinstance(answer, NotReady)
    assert "no useful time" in answer.reason


def test_weighted_median_follows_the_weight():
    values = np.array([1.0, 2.0, 9.0])
    assert weighted_median(values, np.ones(3)) == 2
    assert weighted_median(values, np.array([1.0, 1.0, 5.0])) == 9


def listed(number: int, files: int, listing: float, slots: int = 4) -> BatchExecution:
    """Five records a file, 20 ms each; every batch spends a second outside tasks."""
    records = np.full(4, 5 * files / 4)
    stage = StageExecution("scan", records, records, 0.02 * records, np.zeros(4), float(0.02 * records[0]))
    seconds = 1.0 + listing + stage.wall_seconds
    return BatchExecution(
        number, 10.0 * number, seconds, slots, 5.0 * files, (stage,), files=files, listing_seconds=listing
    )


def test_listing_the_files_of_a_backlog_is_no_cost_of_an_ordinary_batch():
    # 200 files were listed by four slots in 10 s: 0.2 slot-seconds each
    batches = [listed(0, 200, 10.0), listed(1, 20, 0.0), listed(2, 22, 0.0), listed(3, 18, 0.0)]
    costs = fit_costs(batches, 4, sources=("scan",))
    assert isinstance(costs, QueryCosts) and costs.listing is not None
    assert costs.per_batch_seconds == pytest.approx(1.0)
    assert costs.listing.slot_seconds_per_file == pytest.approx(0.2)
    # 100 records are 20 files, which the driver lists; 400 are 80, of 16 slot-seconds
    assert batch_seconds(costs, {"scan": 20.0}, 5.0, 4) == pytest.approx(1.0 + 25 * 0.02, rel=0.05)
    assert batch_seconds(costs, {"scan": 80.0}, 5.0, 4) == pytest.approx(1.0 + 100 * 0.02 + 4.0, rel=0.05)


def test_without_listing_there_is_no_such_cost():
    costs = fit_costs([listed(number, 20, 0.0) for number in range(4)], 4, sources=("scan",))
    assert isinstance(costs, QueryCosts) and costs.listing is None
