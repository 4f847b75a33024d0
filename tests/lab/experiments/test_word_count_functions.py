"""The rows and targets of the benchmark, from what was seen, without a cluster."""

from penstock_lab.claims.ds2.functions import judge_targets
from penstock_lab.experiments.word_count.functions import (
    NEEDED,
    OPTIMAL,
    Sample,
    build_pipeline,
    make_row,
    summarise_systems,
)
from tests.lab.made_up import an_action

SMALL, LARGE = {"split": 3, "count": 6}, {"split": 10, "count": 20}
SAMPLES = [Sample(100.0, 0.0, SMALL), Sample(110.0, 40.0, SMALL), Sample(120.0, 0.0, LARGE)]


def test_a_row_says_steps_sizes_and_backlog_over_time():
    row = make_row("ds2", 100.0, SAMPLES, [an_action(105.0, LARGE, seconds=5)], LARGE)
    assert (row["steps"], row["seconds_to_converge"], row["backlog_record_seconds"]) == (1, 10.0, 400)
    assert row["final"] == row["optimal"] == {"split": 10, "count": 20}
    assert row["instance_seconds"] == 90 + 195
    assert all(target.met for target in judge_targets(row))
    assert summarise_systems([row])["ds2_instances"] == 30


def test_targets_are_missed_by_other_sizes_and_by_nothing_measured():
    row = make_row("ds2", 100.0, SAMPLES, [], {"split": 11, "count": 20})
    assert [target.met for target in judge_targets(row)] == [False, False]
    assert row["seconds_to_converge"] is None
    assert not any(target.met for target in judge_targets(None))


def test_the_right_answer_leaves_room_for_what_is_not_paced(tmp_path):
    assert OPTIMAL == {"split": 10, "count": 20}
    assert all(0.02 < 1 - NEEDED[name] / OPTIMAL[name] < 0.1 for name in NEEDED)
    assert build_pipeline(tmp_path, 0.0).check().functions == ("split", "count")
