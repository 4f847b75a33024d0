"""Rows and targets of the Nexmark benchmark, from made-up outcomes."""

import pytest
from pyspark.errors import PySparkRuntimeError

from penstock_lab.claims.penstock import judge_nexmark
from penstock_lab.experiments.batches import LoadOutcome
from penstock_lab.experiments.measurement import Measurement
from penstock_lab.experiments.nexmark import make_figures, time_generator
from penstock_lab.experiments.spark_query import note_failure


def an_outcome(growth):
    return LoadOutcome(1000.0, 990.0, 800.0, 1200.0, 1500.0, 400.0, growth, 8, 12.0)


def a_row(growth=0.0, most=1250.0, made=5000.0):
    return {"case": "q1", **make_figures(an_outcome(growth), 1000, most, made)}


def targets_met(rows, generator, failures=()):
    measured = Measurement(rows, {"generator_events_per_s": generator}, failures=list(failures))
    return [claim.met for claim in judge_nexmark(measured).targets]


def test_a_sustained_query_has_its_rate_per_core_and_its_latency():
    row = a_row()
    assert row["sustained_records_per_s"] == 990.0
    assert row["records_per_s_per_core"] == 495.0
    assert (row["p50_ms"], row["p99_ms"]) == (800.0, 1500.0)
    assert row["generator_share"] == pytest.approx(1250 / 10_000)


def test_what_works_off_a_backlog_is_not_called_sustained():
    assert make_figures(an_outcome(-50.0), 900, 1250.0, 5000.0)["sustained_records_per_s"] == 900


def test_a_growing_backlog_is_no_sustained_rate_and_misses_the_target():
    row = a_row(growth=60.0)
    assert row["sustained_records_per_s"] is None
    assert row["records_per_s_per_core"] is None
    assert targets_met([a_row(), row], 3e6) == [True, True, False]


def test_a_query_that_could_not_be_measured_misses_the_target():
    assert targets_met([a_row()], 3e6, ["q2 could not be measured"]) == [True, True, False]


def test_a_query_that_spark_refuses_is_noted_without_the_stack_and_our_own_bugs_are_not():
    failures: list[str] = []
    for number in (1, 5):
        with note_failure(failures, f"q{number}"):
            raise PySparkRuntimeError("a package is missing\n  at org.Spark.run")
    assert failures == [f"q{number} could not be measured: a package is missing" for number in (1, 5)]
    with pytest.raises(TypeError), note_failure(failures, "q8"):
        raise TypeError("a bug of ours")


def test_a_query_bound_by_its_generator_misses_the_target():
    assert targets_met([a_row(made=1000.0)], 1e6) == [False, False, True]


def test_the_generator_has_a_speed():
    assert time_generator({"bids": ["auction"]}, lambda _: None, seconds=0.02) > 0
