"""The fleet benchmark's rows, its generator, and what it makes of them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import orjson
import pytest

from penstock.decide.policy import Hold
from penstock.fleet.agent import FleetPolicy
from penstock.fleet.records import read_lines
from penstock.journal.store import open_journal
from penstock_lab.claims.penstock import judge_fleet
from penstock_lab.experiments.fleet import (
    KEY,
    generate_lines,
    judge_one_by_one,
    make_row,
    measure_growth,
    summarise,
    take_apart,
)
from tests.fakes import FixedPolicy
from tests.fleet.test_agent import CONF, Post, a_sized_window


def test_generated_windows_are_good_ones_and_the_same_for_a_number():
    lines = list(generate_lines(0, 200, 3, 10.0, KEY))
    read = read_lines(lines, [""] * 200, key=KEY)
    assert read.windows.num_rows == 200 and read.dead.num_rows == 0
    assert lines == list(generate_lines(0, 200, 3, 10.0, KEY))
    assert lines[50:60] == list(generate_lines(50, 60, 3, 10.0, KEY)), "whatever the number of others"
    assert lines != list(generate_lines(0, 200, 4, 10.0, KEY))


def test_generated_windows_hold_what_an_agent_sends(tmp_path: Path):
    with closing(open_journal(tmp_path / "journal.db")) as journal:
        agent = FleetPolicy("words", Post(), journal, FixedPolicy(Hold("right")), CONF)
        agent.record(a_sized_window(10.0))
        sent = agent.record(a_sized_window(20.0))
    (line,) = generate_lines(0, 1, 3, 10.0)
    assert set(orjson.loads(line)) == set(sent)


def test_a_round_in_parts_and_single_applications_decide_for_the_same_share():
    parts, single = take_apart(300), judge_one_by_one(300)
    assert {row["changes"] for row in parts} == {single["changes"]} and single["changes"] > 0
    assert [row["system"] for row in parts] == ["read", "judge", "keep", "tell"]


def test_growth_is_the_slope_of_the_logarithms():
    assert measure_growth({10_000: 1.0, 100_000: 10.0, 10: 9.0}) == pytest.approx(1.0)
    assert measure_growth({10: 1.0, 100: 100.0}) == pytest.approx(2.0)


def test_the_report_judges_the_largest_run_that_keeps_up():
    rows = [make_row(n, n / 20_000, 5, 2e9) for n in (10_000, 100_000, 300_000)]
    report = summarise(rows)
    assert report.summary["applications"] == 100_000 and report.summary["seconds_per_round"] == 5.0
    assert np.isclose(report.summary["growth_exponent"], 1.0)
    assert all(claim.met for claim in judge_fleet(report).targets)
    small = [make_row(n, n / 20_000, 5, 2e9) for n in (1_000, 3_000)]
    assert not judge_fleet(summarise(small)).targets[0].met, "a quick run does not show the target"
