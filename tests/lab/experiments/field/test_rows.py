"""Figures of one trial in the field: traces and rows by hand; the trials themselves need the ground."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.journal.records import DecisionRecord
from penstock.simulate.profiles import parse_profile
from penstock_lab.experiments.field.driver import list_settings
from penstock_lab.experiments.field.ground import Field, add_connector, is_begun, list_changes
from penstock_lab.experiments.field.rows import complete_row, fit_seconds, measure_trial
from penstock_lab.experiments.field.trace import (
    DoneBatch,
    FieldTrace,
    find_latencies,
    find_quantile,
    keeps_up,
    read_notes,
)
from penstock_lab.jobs.catalog import find_job
from tests.lab.experiments.field.made_runs import a_run, a_trial, batches

HELD = ((0.0, 1), (10.0, 4), (30.0, 2), (50.0, 2))


def test_sizes_by_hand():
    trace = FieldTrace(HELD, ())
    # 10 s of one, 20 s of four, 30 s of two
    assert trace.sum_sizes(0.0, 60.0) == {1: 10.0, 4: 20.0, 2: 30.0}
    assert trace.sum_sizes(20.0, 60.0) == {4: 10.0, 2: 30.0}
    assert (trace.held_at(-1.0), trace.held_at(29.0), trace.held_at(99.0)) == (0, 4, 2)
    assert [trace.unchanged_since(moment) for moment in (-1.0, 5.0, 29.0, 99.0)] == [-1.0, 0.0, 10.0, 30.0]


def test_release_counts_until_the_last_moment_above():
    trace = FieldTrace(HELD, ())
    assert trace.released_after(5.0, 2) == 5.0
    assert trace.released_after(40.0, 2) == 0.0
    assert trace.released_after(5.0, 1) is None


def every_five(_query: str) -> float:
    return 5.0


def test_a_size_keeps_up_if_batches_take_what_comes_in_their_time():
    steady = FieldTrace((), batches(*[3.0] * 12))
    assert keeps_up(steady, 10.0, 0.0, 60.0, every_five)
    assert not keeps_up(steady, 12.0, 0.0, 60.0, every_five), "2 of 12 records a second wait for ever"
    long = FieldTrace((), batches(*[7.0] * 12, every=7.0, records=70.0))
    assert not keeps_up(long, 10.0, 0.0, 90.0, every_five)
    assert not keeps_up(FieldTrace((), batches(3.0)), 10.0, 0.0, 60.0, every_five)
    assert not keeps_up(FieldTrace((), ()), 10.0, 0.0, 60.0, every_five)


@pytest.mark.parametrize(("records", "does"), [(150, True), (60, False)])
def test_every_query_must_take_what_comes_in_its_own_period(records, does):
    slow = tuple(DoneBatch("archive", number, 15.0 * number, 14.0, records) for number in range(4))
    both = FieldTrace((), batches(*[2.0] * 12) + slow)
    find_period = a_trial(job="two-queries").find_period
    assert keeps_up(both, 10.0, 0.0, 60.0, find_period) is does


def test_latency_by_hand():
    # ten records a second, record k at k/10 s; one batch of 50 from 5 s to 8 s, one of 30 from 8 s to 10 s
    done = (DoneBatch("q", 0, 105.0, 3.0, 50), DoneBatch("q", 1, 108.0, 2.0, 30))
    ages = find_latencies(FieldTrace((), done), parse_profile("constant:10"), 100.0, 12.0)
    # until 8 s the first record is the oldest, then the 51st (5.1 s), from 10 s on the 81st (8.1 s)
    expected = [0.9, 1.9, 2.9, 3.9, 4.9, 5.9, 6.9, 2.9, 3.9, 1.9, 2.9, 3.9]
    assert ages == pytest.approx(expected)


def test_nothing_waits_where_all_is_done_or_nothing_comes():
    done = (DoneBatch("q", 0, 2.0, 1.0, 20),)
    ages = find_latencies(FieldTrace((), done), parse_profile("steps:0=10,2=0,6=10"), 0.0, 8.0)
    # 20 records in 2 s, all done at 3 s; then none until 6 s, whose first is whole at 6.1 s
    assert ages == pytest.approx([0.9, 1.9, 0.0, 0.0, 0.0, 0.0, 0.9, 1.9])
    assert find_latencies(FieldTrace((), ()), parse_profile("constant:1"), 0.0, 3.0) == [0.0, 1.0, 2.0]


def test_the_slowest_of_two_queries_counts():
    done = (DoneBatch("fast", 0, 1.0, 1.0, 10), DoneBatch("slow", 0, 1.0, 3.0, 10))
    ages = find_latencies(FieldTrace((), done), parse_profile("constant:10"), 0.0, 4.0)
    assert ages == pytest.approx([0.9, 1.9, 2.9, 2.9])


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 60)), max_size=12), st.integers(1, 20))
def test_latency_is_that_of_a_plain_walk(steps, rate):
    """Walk over the records one by one, each with the moment at which it is done."""
    start, taken, done = 0.0, [], []
    for seconds, records in steps:
        done.append(DoneBatch("q", len(done), start, float(seconds), records))
        start += seconds
        taken += [start] * records
    offered = [(number + 1) / rate for number in range(20 * rate)]
    ends = [*taken, *[math.inf] * len(offered)]
    expected = [
        max((second - at for at, end in zip(offered, ends, strict=False) if at <= second < end), default=0.0)
        for second in range(1, 21)
    ]
    found = find_latencies(FieldTrace((), tuple(done)), parse_profile(f"constant:{rate}"), 0.0, 20.0)
    assert found == pytest.approx(expected, abs=1e-6)


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


def test_a_row_has_what_was_held_released_and_waited_for():
    done = measure_trial(a_run())
    row = complete_row(done, 2, "searched")
    assert (row["final_executors"], row["most_held"], row["oracle_executors"]) == (3, 3, 2)
    assert row["executor_seconds"] == pytest.approx(180.0)
    assert row["executor_seconds_over_oracle"] == pytest.approx(60.0)
    assert (row["seconds_to_release_when_idle"], row["idle_seconds"]) == (pytest.approx(0.0), 30.0)
    assert (row["seconds_behind"], row["oracle"], row["load"], row["seconds"]) == (
        0,
        "searched",
        "steady",
        60,
    )
    # the batch of second 5k has all records until 5k + 5, and is done at 5k + 3: one second before it ends,
    # the first of them, of 5k + 0.1, is 1.9 s old
    assert row["latency_p99_seconds"] == pytest.approx(1.9)


def test_seconds_behind_are_those_with_a_record_older_than_three_periods():
    # nothing is done in 60 s: record 1, at 0.1 s, is older than 3 periods and a file's length from 16 s on
    row = measure_trial(a_run(batches=())).row
    assert row["seconds_behind"] == 60 - 15


def test_a_run_shows_whether_its_last_size_keeps_up():
    fixed = a_run(a_trial("fixed"))
    assert fixed.shows is True
    slow = batches(*[7.0] * 8, every=7.0)
    assert a_run(a_trial("fixed"), batches=slow).shows is False
    assert a_run().shows is True, "it held its size, and kept up"
    assert a_run(batches=slow).shows is None, "one that is steered may be catching up"
    changed = tuple((float(second), 3 if second > 40 else 8) for second in range(95))
    assert a_run(held=changed).shows is None, "the size is 20 s old"
    assert a_run(a_trial(load="day")).shows is None
    assert replace(fixed, failure="it died").shows is None


def decided(kind: str, at: float, seconds: float, **more: object) -> DecisionRecord:
    figures = {"batch_seconds": seconds, "period_seconds": 10.0}
    sizes = {"parallelism": {"executors": 3}, "expected": {"figures": figures}}
    answer = {"kind": kind, "figures": figures, **(sizes if kind == "scale" else {}), **more}
    return DecisionRecord(1, "app", "ds2", at, at, 1, answer, {"kind": "accepted", "reason": ""})


def test_prediction_is_compared_with_the_median_batch_at_the_last_size():
    told = a_run(decisions=(decided("scale", 20.0, 3.3), decided("hold", 50.0, 9.0)))
    # the one of second 50 is too late to be a prediction; batches take 3 s
    assert measure_trial(told).row["prediction_error"] == pytest.approx(0.1)
    resized = tuple((float(second), 3 if second > 40 else 8) for second in range(95))
    lengths = batches(*[1.0] * 9, *[3.0] * 3)
    late = a_run(held=resized, batches=lengths, decisions=(decided("scale", 20.0, 3.3),))
    assert measure_trial(late).row["prediction_error"] == pytest.approx(0.1), (
        "batches of 8 executors are others"
    )
    of_before = a_run(held=resized, batches=lengths, decisions=(decided("hold", 20.0, 3.3),))
    assert measure_trial(of_before).row["prediction_error"] is None, "a hold is about what was held then"
    assert measure_trial(a_run(a_trial(load="day"), decisions=told.decisions)).row["prediction_error"] is None


def test_prediction_is_not_compared_with_batches_over_a_backlog():
    # ten records a second and five seconds: of 50 records 3 s are predicted, and taken; 500 take 25 s
    over = tuple(DoneBatch("q", number, 25.0 * number, 25.0, 500) for number in range(2))
    usual = (DoneBatch("q", 2, 50.0, 3.0, 50), DoneBatch("q", 3, 55.0, 3.0, 60))
    told = (decided("hold", 30.0, 3.3),)
    assert measure_trial(a_run(batches=over + usual, decisions=told)).row[
        "prediction_error"
    ] == pytest.approx(0.1)
    assert measure_trial(a_run(batches=over, decisions=told)).row["prediction_error"] is None


def test_prediction_is_of_the_query_that_is_busiest_for_its_period():
    # 3 s of 5 are more than 6 s of 15
    slow = tuple(DoneBatch("archive", number, 15.0 * number, 6.0, 150) for number in range(4))
    ran = a_run(
        a_trial(job="two-queries"),
        batches=batches(*[3.0] * 12) + slow,
        decisions=(decided("hold", 30.0, 3.3),),
    )
    assert measure_trial(ran).row["prediction_error"] == pytest.approx(0.1)


def test_prediction_without_a_trigger_is_for_the_input_of_a_period():
    # 1 s and 30 ms a record: the 100 records of 10 s take 4 s, however short the batches are that run
    sizes = [20, 30, 25, 40, 35, 20, 30, 25, 40, 35, 30, 20]
    done = tuple(
        DoneBatch("q", number, 5.0 * number, 1 + 0.03 * size, size) for number, size in enumerate(sizes)
    )
    ran = a_run(a_trial(job="no-trigger"), batches=done, decisions=(decided("hold", 30.0, 5.0),))
    assert measure_trial(ran).row["prediction_error"] == pytest.approx(0.25)
    assert fit_seconds(done, 100.0) == pytest.approx(4.0)
    assert fit_seconds(done[:3], 100.0) is None
    assert fit_seconds(batches(3.0, 3.1, 3.2, 3.0), 100.0) is None, "batches of one size lay no line"


def test_only_dynamic_allocation_brings_settings_of_its_own():
    assert list_settings("penstock", 2, 8) == list_settings("fixed", 2, 8) == {}
    settings = list_settings("dynamic-allocation", 2, 8)
    assert settings["spark.dynamicAllocation.initialExecutors"] == "2"
    assert settings["spark.dynamicAllocation.maxExecutors"] == "8"


def test_settings_that_differ_stand_in_the_row(tmp_path: Path):
    journal = tmp_path / "journal.db"
    usual = {"HOME": str(tmp_path)}
    changed = list_changes(a_trial(), {**usual, "PENSTOCK_JOURNAL": str(journal)}, 8, tmp_path)
    assert changed == {"journal": "journal.db"}
    slower = list_changes(a_trial(), {**usual, "PENSTOCK_UTILISATION": "0.7"}, 8, tmp_path)
    assert slower == {"utilisation": "0.7"}
    assert list_changes(a_trial("fixed"), usual, 8, tmp_path) == {}
    dynamic = list_changes(a_trial("dynamic-allocation"), usual, 8, tmp_path)
    assert dynamic["spark.dynamicAllocation.shuffleTracking.enabled"] == "true"
    row = measure_trial(replace(a_run(), settings=changed)).row
    assert row["settings"] == "journal=journal.db"


def test_a_driver_that_reads_kafka_has_the_connector():
    usual = {"PYSPARK_SUBMIT_ARGS": "--conf a=b pyspark-shell"}
    given = add_connector(usual, find_job("kafka-windows"), lambda: [Path("one.jar"), Path("two.jar")])
    assert given["PYSPARK_SUBMIT_ARGS"] == "--conf spark.jars=one.jar,two.jar --conf a=b pyspark-shell"
    assert add_connector(usual, find_job("no-trigger"), list) == usual


def test_a_feed_begins_with_the_executors_that_the_trial_begins_with():
    assert is_begun(a_trial(executors=3), 3) and not is_begun(a_trial(executors=3), 8)
    assert is_begun(a_trial("dynamic-allocation", executors=3), 1)
    assert not is_begun(a_trial("dynamic-allocation"), 0)


class WithoutJava:
    """A ground on which no driver can start."""

    def environment(self) -> dict[str, str]:
        return {**os.environ, "JAVA_HOME": "nowhere"}


def test_a_driver_that_cannot_start_is_told_in_its_row(tmp_path: Path):
    field = Field([find_job("small-files-lookup")])
    field.ground, field.directory, field.brokers, field.service = WithoutJava(), tmp_path, "", ""
    row = measure_trial(field.run(a_trial(seconds=5.0))).row
    assert row["failure"].startswith("the job ended with code 1 before its input did: ")
    assert (row["output_equal"], row["final_executors"], row["settings"]) == (None, 0, "journal=journal.db")
    assert not list(tmp_path.iterdir()), "nothing is left of it"
