"""How paths are spread over tasks."""

from __future__ import annotations

import pytest

from penstock.diagnose.spark_pipeline import count_tasks


@pytest.mark.parametrize(
    ("paths", "slots", "tasks"), [(0, 2, 1), (1, 2, 1), (5, 2, 5), (50, 2, 8), (1000, 2, 125), (50, 100, 50)]
)
def test_tasks_are_a_few_for_each_slot_and_read_at_most_eight_paths(paths, slots, tasks):
    assert count_tasks(paths, slots) == tasks
