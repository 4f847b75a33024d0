"""The rows and targets of the benchmark, from what was seen, without a cluster."""

from penstock.bench.wordcount_functions import (
    NEEDED,
    OPTIMAL,
    Sample,
    pipeline_of,
    row_of,
    summary,
    targets,
)
from penstock.decide.policy import ExpectedEffect
from penstock.journal.records import ActionRecord


def an_action(at, **sizes):
    return ActionRecord(
        action_id=1, application="a.words", decision_id=1, policy="ds2", intended_at=at, seen=(), before={},
        proposed=sizes, planned=sizes, exact={}, reason="", notes=(), expected=ExpectedEffect(""),
        ended_at=at + 5,
    )  # fmt: skip


SMALL, LARGE = {"split": 3, "count": 6}, {"split": 10, "count": 20}
SAMPLES = [Sample(100.0, 0.0, SMALL), Sample(110.0, 40.0, SMALL), Sample(120.0, 0.0, LARGE)]


def test_a_row_says_steps_sizes_and_backlog_over_time():
    row = row_of("ds2", 100.0, SAMPLES, [an_action(105.0, split=10, count=20)], {"split": 10, "count": 20})
    assert (row["steps"], row["seconds_to_converge"], row["backlog_record_seconds"]) == (1, 10.0, 400)
    assert row["final"] == row["optimal"] == {"split": 10, "count": 20}
    assert row["instance_seconds"] == 90 + 195
    assert all(target.met for target in targets([row]))
    assert summary([row])["ds2_instances"] == 30


def test_targets_are_missed_by_other_sizes_and_by_nothing_measured():
    row = row_of("ds2", 100.0, SAMPLES, [], {"split": 11, "count": 20})
    assert [target.met for target in targets([row])] == [False, False]
    assert row["seconds_to_converge"] is None
    assert not any(target.met for target in targets([]))


def test_the_right_answer_leaves_room_for_what_is_not_paced(tmp_path):
    assert OPTIMAL == {"split": 10, "count": 20}
    assert all(0.02 < 1 - NEEDED[name] / OPTIMAL[name] < 0.1 for name in NEEDED)
    assert pipeline_of(tmp_path, 0.0).check().functions == ("split", "count")
