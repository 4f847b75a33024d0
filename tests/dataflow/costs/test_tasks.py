"""Tasks that follow the input: files, slots and records, by hand and by properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.costs.tasks import SeenTasks, TaskGrowth, fit_growth, spread_shares


def test_a_stage_with_partitions_has_as_many_tasks_in_every_batch():
    assert fit_growth([SeenTasks(40, 100.0, 4), SeenTasks(40, 9_000.0, 4)]) is None


def test_partitions_that_happen_to_equal_the_slots_are_not_files():
    assert fit_growth([SeenTasks(4, 100.0, 4), SeenTasks(4, 9_000.0, 4)]) is None


def test_few_files_have_a_task_each():
    # a batch of 20 files on 64 slots has 20 tasks, the next one 8
    growth = fit_growth([SeenTasks(20, 1_000.0, 64, 20), SeenTasks(8, 400.0, 64, 8)])
    assert growth == TaskGrowth(50.0)
    assert growth.tasks_for(200.0, 64) == 4


def test_many_small_files_are_packed_until_every_slot_has_a_task():
    growth = fit_growth([SeenTasks(4, 20_000.0, 4, 400), SeenTasks(4, 1_000.0, 4, 20)])
    assert growth is not None and growth.bounded_by_slots
    assert growth.records_per_task == 50.0
    # 20 files: a task for each slot, and never more tasks than files
    assert [growth.tasks_for(1_000.0, slots) for slots in (1, 4, 12, 64)] == [2, 4, 12, 20]


def test_the_batch_of_a_backlog_does_not_set_the_tasks_of_an_ordinary_one():
    seen = [SeenTasks(120, 12_000.0, 8), SeenTasks(3, 300.0, 8), SeenTasks(3, 290.0, 8)]
    growth = fit_growth(seen)
    assert growth is not None
    assert growth.tasks_for(300.0, 8) == 3


def test_batches_without_records_tell_nothing():
    assert fit_growth([SeenTasks(1, 0.0, 4), SeenTasks(200, 0.0, 4)]) is None
    assert fit_growth([]) is None


@given(
    st.lists(
        st.builds(
            SeenTasks,
            st.integers(1, 500),
            st.floats(0.1, 1e9),
            st.integers(1, 200),
            st.none() | st.integers(0, 10_000),
        ),
        min_size=1,
        max_size=20,
    ),
    st.floats(0, 1e12),
    st.integers(1, 1000),
)
def test_tasks_are_at_least_one_and_bounded(seen, records, slots):
    growth = fit_growth(seen)
    if growth is not None:
        tasks = growth.tasks_for(records, slots)
        assert 1 <= tasks <= 2000
        if growth.bounded_by_slots:
            assert tasks <= max(2, slots)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=50), st.integers(1, 300))
def test_shares_stay_a_whole_within_those_seen(sizes, tasks):
    whole = sum(sizes)
    shares = np.array(sizes) / whole if whole > 0 else np.full(len(sizes), 1 / len(sizes))
    spread = spread_shares(shares, tasks)
    assert len(spread) == tasks
    assert float(spread.sum()) == pytest.approx(1.0)
    assert spread.min() >= 0


def test_an_even_spread_stays_even_and_a_hot_task_stays_hot():
    np.testing.assert_allclose(spread_shares(np.full(8, 1 / 8), 20), np.full(20, 1 / 20))
    # the longest of four tasks has 2.8 times its even share, and so has the longest of sixteen
    assert spread_shares(np.array([0.7] + [0.1] * 3), 16).max() * 16 == pytest.approx(2.8, rel=0.02)
