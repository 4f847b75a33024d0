"""The fleet benchmark's rows, its generator, and what it makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.bench.fleet import _columns_alone, _one_by_one, _report, _row, growth_exponent
from penstock.fleet.generated import generated_windows
from penstock.fleet.records import faults, operator_columns


def test_generated_windows_are_good_ones_and_the_same_for_a_number():
    table = generated_windows(200, 10, 3, 10.0)
    assert (faults(table) == -1).all()
    assert operator_columns(table).first[-1] == 2000
    assert table.equals(generated_windows(200, 10, 3, 10.0))
    assert not table.equals(generated_windows(200, 10, 4, 10.0))


def test_columns_and_single_applications_decide_for_the_same_share():
    columns, single = _columns_alone(300, 1), _one_by_one(300)
    assert columns["changes"] == single["changes"] > 0
    assert columns["applications"] == single["applications"] == 300


def test_growth_is_the_slope_of_the_logarithms():
    assert growth_exponent({10_000: 1.0, 100_000: 10.0, 10: 9.0}) == pytest.approx(1.0)
    assert growth_exponent({10: 1.0, 100: 100.0}) == pytest.approx(2.0)


def test_the_report_judges_the_largest_run_of_the_job():
    rows = [_row("x", "spark job", n, n / 20_000, 5, 2e9) for n in (10_000, 100_000)]
    rows.append(_row("x", "columns alone", 100_000, 0.5, 5, 1e9))
    report = _report(rows)
    assert report.summary["applications"] == 100_000 and report.summary["seconds_per_round"] == 5.0
    assert np.isclose(report.summary["growth_exponent"], 1.0)
    assert report.met
    small = [_row("x", "spark job", n, n / 20_000, 5, 2e9) for n in (1_000, 3_000)]
    assert not _report(small).targets[0].met, "a quick run does not show the target"
