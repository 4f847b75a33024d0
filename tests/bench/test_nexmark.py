"""Rows and targets of the Nexmark benchmark, from made-up outcomes."""

import pytest
from pyspark.errors import PySparkRuntimeError

from penstock.bench.nexmark import QUICK, _rows, events_per_second, row_figures, targets
from penstock.workloads.arrivals import LoadOutcome


def an_outcome(growth):
    return LoadOutcome(1000.0, 990.0, 800.0, 1200.0, 1500.0, 400.0, growth, 8, 12.0)


def a_row(growth=0.0, most=1250.0, made=5000.0):
    return {"case": "q1", **row_figures(an_outcome(growth), 1000, most, made)}


def test_a_sustained_query_has_its_rate_per_core_and_its_latency():
    row = a_row()
    assert row["sustained_records_per_s"] == 990.0
    assert row["records_per_s_per_core"] == 495.0
    assert (row["p50_ms"], row["p99_ms"]) == (800.0, 1500.0)
    assert row["generator_share"] == pytest.approx(1250 / 10_000)


def test_what_works_off_a_backlog_is_not_called_sustained():
    assert row_figures(an_outcome(-50.0), 900, 1250.0, 5000.0)["sustained_records_per_s"] == 900


def test_a_growing_backlog_is_no_sustained_rate_and_misses_the_target():
    row = a_row(growth=60.0)
    assert row["sustained_records_per_s"] is None
    assert row["records_per_s_per_core"] is None
    assert [target.met for target in targets([a_row(), row], 3e6)] == [True, True, False]


def test_a_query_that_could_not_be_measured_misses_the_target():
    assert [target.met for target in targets([a_row()], 3e6, unmeasured=1)] == [True, True, False]


class Refusing:
    """A session in which no query can be started, as without a package that it needs."""

    @property
    def conf(self):
        raise PySparkRuntimeError("a package is missing\n  at org.Spark.run")


def test_a_query_that_spark_refuses_costs_its_own_row_and_no_others(tmp_path):
    rows, failures = _rows(Refusing(), tmp_path, QUICK, lambda _: None)
    assert rows == []
    assert failures == [f"q{number} could not be measured: a package is missing" for number in QUICK.queries]


def test_a_query_bound_by_its_generator_misses_the_target():
    assert [target.met for target in targets([a_row(made=1000.0)], 1e6)] == [False, False, True]


def test_the_generator_has_a_speed():
    assert events_per_second({"bids": ["auction"]}, lambda _: None, seconds=0.02) > 0
