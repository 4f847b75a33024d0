"""Batches near a change against the others, without a cluster."""

from penstock.pipeline.batches import BatchDone, InstanceWork
from penstock_lab.claims.penstock import judge_seamless
from penstock_lab.experiments.measurement import Measurement
from penstock_lab.experiments.seamless import (
    RESTART,
    SEAMLESS,
    ChangesSeen,
    build_pipeline,
    make_row,
    summarise_both,
)


def is_met(*rows):
    (claim,) = judge_seamless(Measurement(list(rows))).targets
    return claim.met


def batches(*spans):
    work = (InstanceWork(0, 10, 10, 0, 0.1),)
    return tuple(BatchDone("steady", n, start, end, 2, work) for n, (start, end) in enumerate(spans))


def steady(slowest=0.5):
    quiet = [(float(n), n + 0.5) for n in range(20)]
    return ChangesSeen(batches(*quiet, (20.0, 20.0 + slowest), (21.0, 21.5)), (20.1,), 0.0)


def test_a_change_that_nobody_notices_meets_the_target():
    row = make_row(SEAMLESS, steady())
    assert (row["batches_near"], row["batches_away"], row["slower_than_p99"]) == (2, 20, 0)
    assert row["longest_pause_s"] == 1.0
    assert is_met(row)


def test_a_slow_batch_near_the_change_misses_it():
    row = make_row(SEAMLESS, steady(slowest=0.9))
    assert (row["slower_than_p99"], row["slowest_near_s"]) == (1, 0.9)
    assert not is_met(row)


def test_nothing_near_a_change_is_nothing_measured():
    row = make_row(SEAMLESS, ChangesSeen(batches((0.0, 1.0)), (), 0.0))
    assert row["slower_than_p99"] is None and not is_met(row)
    assert not is_met()


def test_a_percentile_of_few_batches_is_not_given():
    row = make_row(SEAMLESS, ChangesSeen(batches((0.0, 1.0), (2.0, 3.0), (4.0, 4.5)), (4.1,), 0.0))
    assert (row["batches_away"], row["batch_p99_away_s"], row["slower_than_p99"]) == (2, None, None)


def test_the_pause_of_a_restart_is_seen_and_batches_before_the_warm_up_are_not():
    row = make_row(RESTART, ChangesSeen(batches((0.0, 9.0), (10.0, 11.0), (16.0, 17.0)), (11.0,), 10.0))
    assert row["longest_pause_s"] == 6.0
    assert summarise_both([row])["restart_longest_pause_s"] == 6.0


def test_both_functions_read_the_same_topic(tmp_path):
    layout = build_pipeline(tmp_path, 0.0).check()
    assert layout.readers("numbers") == ("steady", "changing")
