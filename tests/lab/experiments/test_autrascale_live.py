"""Courses of policies reduced to rows, and the pipeline that is sized, without a cluster."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from penstock_lab.claims.autrascale import judge_live
from penstock_lab.claims.claim import Verdict
from penstock_lab.experiments.autrascale_live import (
    HEADROOM,
    SETTINGS,
    SizeCourse,
    build_pipeline,
    choose_target,
    describe_method,
    make_row,
    score_with,
)
from penstock_lab.experiments.measurement import Measurement


def change(at, reason, **figures):
    return SimpleNamespace(intended_at=at, reason=reason, expected=SimpleNamespace(figures=figures))


def a_course():
    """100 s at either rate, from second 1000 on."""
    actions = [
        change(1010.0, "throughput phase, step 1"),
        change(1020.0, "latency search, sample 2, learned at this rate: a 1 → 5"),
        change(1050.0, "latency search, sample 3, learned at this rate: a 5 → 3", expected_improvement=0.1),
        change(1120.0, "latency search, sample 2, learned from 180 records/s: a 3 → 4",
               expected_improvement=0.2),
    ]  # fmt: skip
    sizes = [(1005.0, 2), (1099.0, 5), (1150.0, 6), (1199.0, 7), (1300.0, 9)]
    batches = [(1050.0, 10, 9.0), (1080.0, 30, 2.0), (1090.0, 10, 4.0), (1190.0, 10, 3.0)]
    return SizeCourse(1000.0, (100.0, 100.0), sizes, batches, actions)


def test_a_course_becomes_sizes_latencies_and_trials_at_both_rates():
    row = make_row("pipeline", "autrascale", 2.6, a_course(), SETTINGS)
    # of the last 30 s: 30 records of 2 s and 10 of 4 s
    assert (row["first_size"], row["first_latency_s"], row["first_trials"]) == (5, 2.5, 2)
    assert (row["second_size"], row["second_latency_s"], row["second_trials"]) == (7, 3.0, 1)
    assert (row["chosen_by_improvement"], row["transferred_trials"]) == (2, 1)
    assert "autrascale_changes_per_hour=3600" in row["settings"]


def test_the_target_is_below_the_latency_of_what_throughput_needs():
    assert choose_target(a_course()) == HEADROOM * 2.5
    assert choose_target(SizeCourse(0.0, (1.0, 1.0))) == float("inf")


def test_a_rate_without_batches_or_samples_is_told_as_such():
    row = make_row("query", "ds2", float("inf"), SizeCourse(0.0, (10.0, 10.0)), SETTINGS)
    assert row["first_size"] is None and row["second_latency_s"] is None


def test_the_two_functions_score_for_real(tmp_path):
    pipeline = build_pipeline(tmp_path, {"prepare": 1, "score": 2}, "constant:1", 5.0)
    assert pipeline.check().functions == ("prepare", "score")
    batch = pa.RecordBatch.from_pydict({"number": np.arange(4)})
    one, other = (score_with(layers)(batch).column("score").to_pylist() for layers in (1, 2))
    assert len(one) == 4 and one != other
    assert any("0.8 times" in line for line in describe_method())


@pytest.mark.parametrize("system", ["drs", "ds2"])
def test_what_misses_the_target_is_not_compared(system):
    ours = make_row("pipeline", "autrascale", 3.0, a_course(), SETTINGS)
    theirs = {**ours, "system": system, "first_latency_s": 9.0, "second_latency_s": 9.0}
    *_, saving = judge_live(Measurement([ours, theirs])).claims
    assert saving.verdict is Verdict.NOT_COMPARABLE and f"{system} misses the target" in saving.why
