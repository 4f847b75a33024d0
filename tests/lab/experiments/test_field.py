"""Trials in the field: traces by hand, rows and their summary; the trials themselves need the ground."""

from __future__ import annotations

import math
from pathlib import Path

import orjson
import pytest

from penstock_lab.claims.field import judge_field
from penstock_lab.experiments.field_driver import list_settings
from penstock_lab.experiments.field_rows import FieldTrial, KeptRows, Ran, make_row, summarise_field
from penstock_lab.experiments.field_trace import (
    DoneBatch,
    FieldTrace,
    find_lags,
    find_quantile,
    keeps_up,
    read_notes,
    sum_behind,
)
from penstock_lab.experiments.measurement import Measurement
from penstock_lab.jobs.catalog import find_job


def batches(*lengths: float, every: float = 5.0, records: float = 50.0) -> tuple[DoneBatch, ...]:
    return tuple(
        DoneBatch("q", number, number * every, seconds, records) for number, seconds in enumerate(lengths)
    )


HELD = ((0.0, 1), (10.0, 4), (30.0, 2), (50.0, 2))


def test_executor_seconds_by_hand():
    trace = FieldTrace(HELD, ())
    # 10 s of one, 20 s of four, 30 s of two
    assert trace.executor_seconds(0.0, 60.0) == 10 + 80 + 60
    assert trace.integrate_over(2, 0.0, 60.0) == 2 * 20
    assert trace.integrate_over(2, 20.0, 60.0) == 2 * 10
    assert (trace.held_at(-1.0), trace.held_at(29.0), trace.held_at(99.0)) == (0, 4, 2)


def test_release_counts_until_the_last_moment_above():
    trace = FieldTrace(HELD, ())
    assert trace.released_after(5.0, 2) == 5.0
    assert trace.released_after(40.0, 2) == 0.0
    assert trace.released_after(5.0, 1) is None


def test_a_size_keeps_up_if_batches_take_what_comes_in_their_time():
    steady = FieldTrace((), batches(*[3.0] * 12))
    assert keeps_up(steady, 10.0, 0.0, 60.0, 5.0)
    assert not keeps_up(steady, 12.0, 0.0, 60.0, 5.0), "2 of 12 records a second wait for ever"
    assert not keeps_up(FieldTrace((), batches(*[7.0] * 12, every=7.0, records=70.0)), 10.0, 0.0, 90.0, 5.0)
    assert not keeps_up(FieldTrace((), batches(3.0)), 10.0, 0.0, 60.0, 5.0)


def test_lags_and_seconds_behind_by_hand():
    trace = FieldTrace((), batches(5.0, 5.0, 5.0, records=40.0))
    sent = [(float(second), 10.0 * second) for second in range(16)]
    lags = find_lags(trace, sent, 0.0, 20.0)
    assert lags == [(5.0, 10.0), (10.0, 20.0), (15.0, 30.0)]
    assert sum_behind(lags, 15.0) == 5.0


def test_notes_are_read_and_a_broken_last_line_is_left_out(tmp_path: Path):
    told = {"query": "q", "number": 0, "timestamp": "1970-01-01T00:00:10.000Z", "seconds": 2.0}
    lines = [
        {"at": 1.0, "began": True},
        {"at": 9.0, "executors": 3},
        {"at": 12.5, "batch": {**told, "records": 7, "executed": True}},
        {"at": 13.0, "batch": {**told, "records": 0, "executed": False}},
    ]
    path = tmp_path / "notes.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, lines)) + b'\n{"at": 14.0, "exec')
    assert read_notes(path) == FieldTrace(((9.0, 3),), (DoneBatch("q", 0, 10.0, 2.0, 7),))


def test_quantiles():
    assert find_quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert find_quantile([3.0, 1.0, 2.0], 0.9) == 3.0
    assert math.isnan(find_quantile([], 0.5))


def a_row(final: int = 3, requested: int = 3, **others: object) -> dict:
    trial = FieldTrial(find_job("small-files-lookup"), "penstock", 1, 10.0, 60.0, 30.0)
    held = tuple((float(second), final if second < 61 else 1) for second in range(95))
    ran = Ran(trial, 0.0, 60.0, FieldTrace(held, batches(*[3.0] * 12)), output_equal=True)
    row = make_row(ran, "under", "penstock", 3)
    told = {"most_requested": requested, "seconds_to_first_decision": 40.0, "prediction_error": 0.1}
    return {**row, **told, **others}


def test_a_row_has_what_was_held_and_released():
    row = a_row()
    assert (row["final_executors"], row["oracle_executors"], row["most_held"]) == (3, 3, 3)
    assert row["executor_seconds"] == pytest.approx(180.0)
    assert row["executor_seconds_over_oracle"] == 0.0
    assert row["seconds_to_release_when_idle"] == pytest.approx(0.0)
    assert row["seconds_behind"] == 0.0


def judged(*rows: dict) -> dict[str, bool]:
    claims = judge_field(Measurement(list(rows), summarise_field(rows))).claims
    return {claim.name: claim.met for claim in claims}


def test_a_right_trial_meets_every_target():
    assert all(judged(a_row()).values())


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"final_executors": 5}, "share of rows that end at the oracle or one executor above"),
        ({"final_executors": 2}, "rows that end below the oracle"),
        ({"most_requested": 134}, "share of rows that ask for at most 1.5 times the oracle and one more"),
        ({"steps": 3}, "share of rows with at most two steps"),
        ({"seconds_to_first_decision": 130.0}, "seconds to the first decision, at most"),
        ({"seconds_to_first_decision": None}, "seconds to the first decision, at most"),
        ({"prediction_error": 0.6}, "median error of the predicted batch"),
        ({"seconds_to_release_when_idle": None}, "seconds until idle executors are released, at most"),
        ({"output_equal": False}, "share of rows whose output equals the batch query's"),
        ({"output_equal": None}, "share of rows whose output equals the batch query's"),
    ],
)
def test_every_verdict_can_fail(change, missed):
    assert not judged(a_row(**change))[missed]


def test_without_rows_nothing_is_met():
    assert not any(judged().values())


def test_rows_that_are_done_are_kept_and_forgotten(tmp_path: Path):
    path = tmp_path / "kept" / "rows.jsonl"
    row = KeptRows(path).add(a_row())
    assert KeptRows(path).find("small-files-lookup", "under", "penstock") == row
    assert KeptRows(path).find("small-files-lookup", "over", "penstock") is None
    KeptRows(path).forget()
    assert KeptRows(path).find("small-files-lookup", "under", "penstock") is None


def test_only_dynamic_allocation_brings_settings_of_its_own():
    assert list_settings("penstock", 2, 8) == list_settings("fixed", 2, 8) == {}
    settings = list_settings("dynamic-allocation", 2, 8)
    assert settings["spark.dynamicAllocation.initialExecutors"] == "2"
    assert settings["spark.dynamicAllocation.maxExecutors"] == "8"
