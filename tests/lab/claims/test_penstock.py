"""Targets of Penstock itself, and of the kernels: each is met by a good figure and missed by a bad one."""

import math

import pytest

from penstock_lab.claims import penstock, snailtrail
from penstock_lab.claims.claim import Verdict
from penstock_lab.claims.ds2.functions import judge_targets as judge_functions
from penstock_lab.claims.megaphone import judge_targets as judge_moves
from penstock_lab.experiments.measurement import Measurement

WATCHED = "processor time of a driver, page open over closed, low end of its interval"
GOOD = {
    "decision": {"seconds_at_100_operators": 0.0004, "growth_exponent": 1.05},
    "event_log": {
        "seconds_per_126000_tasks": 5.5,
        "peak_memory_bytes": 7e8,
        "seconds_per_mb_over_half": 1.1,
    },
    "answers": {"logs": 96, "right_share": 0.97, "median_error": 0.03, "predicted_share": 1.0},
    "simulator": {"model_day_seconds": 0.2, "day_seconds": 0.6},
    "dashboard": {
        "first_paint_ms": 300.0,
        "event_to_screen_ms": 1200.0,
        "server_cpu_share": 0.008,
        "fleet_page_ms": 120.0,
        "driver_overhead_ratio": 1.004,
        "driver_overhead_ratio_low": 0.995,
        "driver_overhead_ratio_high": 1.012,
    },
    "what_if": {"median_error": 0.05},
    "fleet": {
        "applications": 100_000,
        "seconds_per_round": 6.0,
        "peak_rss_bytes": 3e9,
        "growth_exponent": 1.0,
    },
}


def missed(bench, **changes):
    figures = {**GOOD[bench], **changes}
    judged = getattr(penstock, f"judge_{bench}")(Measurement([], figures))
    return [claim.name for claim in judged.targets if not claim.met]


@pytest.mark.parametrize("bench", GOOD)
def test_good_figures_meet_all_targets(bench):
    assert missed(bench) == []


@pytest.mark.parametrize(
    ("bench", "figure", "bad", "name"),
    [
        ("decision", "seconds_at_100_operators", 0.001, "100 operators, seconds"),
        ("decision", "growth_exponent", 1.2, "growth exponent (1 is linear)"),
        ("event_log", "seconds_per_126000_tasks", 6.1, "seconds for 126,000 tasks, 795 MB"),
        ("event_log", "peak_memory_bytes", 8.1e8, "their peak memory, bytes"),
        ("event_log", "seconds_per_mb_over_half", 1.3, "time for a megabyte over that of half the log"),
        ("answers", "logs", 39, "made logs"),
        ("answers", "right_share", 0.94, "logs whose first finding is the cause"),
        ("answers", "median_error", 0.16, "median error of the predicted gain"),
        ("answers", "median_error", math.nan, "median error of the predicted gain"),
        ("answers", "predicted_share", 0.9, "logs with a gain to tell in which one is predicted"),
        ("simulator", "model_day_seconds", 1.0, "one day of the model alone, seconds"),
        ("simulator", "day_seconds", 1.5, "one day with ds2 every 10 s, seconds"),
        ("dashboard", "first_paint_ms", 1000.0, "first paint of the dashboard, milliseconds"),
        ("dashboard", "server_cpu_share", 0.01, "share of a core with ten applications watched"),
        ("dashboard", "fleet_page_ms", 301.0, "a page of a fleet of 100,000 applications, milliseconds"),
        ("dashboard", "driver_overhead_ratio_low", 1.001, WATCHED),
        ("dashboard", "driver_overhead_ratio_low", math.nan, WATCHED),
        ("dashboard", "driver_overhead_ratio_low", None, WATCHED),
        ("what_if", "median_error", 0.1, "median error of predicted batch time"),
        ("fleet", "peak_rss_bytes", 8e9, "their peak memory, bytes"),
        ("fleet", "growth_exponent", 1.3, "growth exponent (1 is linear)"),
        ("fleet", "growth_exponent", math.nan, "growth exponent (1 is linear)"),
    ],
)
def test_a_bad_figure_misses_its_target_and_no_other(bench, figure, bad, name):
    assert missed(bench, **{figure: bad}) == [name]


KERNELS = {
    "kernel_events_per_s_longest": 2e7,
    "worst_latency_of_window": 0.01,
    "growth_exponent": 1.0,
    "spark_events_per_s": 6e6,
}


@pytest.mark.parametrize(
    ("figure", "bad"),
    [
        (None, None),
        ("kernel_events_per_s_longest", 1.9e7),
        ("worst_latency_of_window", 0.2),
        ("growth_exponent", 1.3),
        ("spark_events_per_s", 4.9e6),
    ],
)
def test_a_slow_kernel_misses_its_target(figure, bad):
    figures = {**KERNELS, **({figure: bad} if figure else {})}
    judged = snailtrail.judge_tables(Measurement([], figures))
    assert sum(not claim.met for claim in judged.targets) == (figure is not None)


MOVES = {
    "fluid_max_over_steady": 1.4,
    "all_at_once_over_fluid": 12.0,
    "fluid_growth_with_bins": 1.1,
    "batched_growth_with_bins": 1.2,
    "fluid_rss_over_steady": 1.05,
}


@pytest.mark.parametrize(
    ("figure", "bad"),
    [
        ("fluid_max_over_steady", 1.6),
        ("all_at_once_over_fluid", 9.0),
        ("fluid_growth_with_bins", 1.6),
        ("batched_growth_with_bins", 1.6),
        ("fluid_rss_over_steady", 1.2),
    ],
)
def test_a_move_that_disturbs_misses_its_target(figure, bad):
    assert all(claim.met for claim in judge_moves(MOVES))
    assert sum(not claim.met for claim in judge_moves({**MOVES, figure: bad})) == 1


def test_a_second_step_and_another_size_miss_the_targets_of_functions():
    row = {"steps": 1, "final": {"split": 10, "count": 20}}
    assert all(claim.met for claim in judge_functions(row))
    assert [claim.met for claim in judge_functions({**row, "steps": 2})] == [False, True]
    assert [claim.met for claim in judge_functions({**row, "final": {"split": 9, "count": 20}})] == [
        True,
        False,
    ]


@pytest.mark.parametrize(("ratio", "expected"), [(1.3, Verdict.MET), (2.1, Verdict.NOT_MET)])
def test_the_cost_of_splitting_is_judged_on_kafka_and_shown_on_files(ratio, expected):
    rows = [
        {"case": "kafka", "system": "one query, kafka", "cost_ratio": 1.0},
        {"case": "kafka", "system": "fused pipeline, kafka", "cost_ratio": ratio},
        {"case": "files", "system": "fused pipeline, files", "cost_ratio": 4.1},
    ]
    kafka, files = penstock.judge_splitting(Measurement(rows)).claims
    assert (kafka.verdict, files.verdict, files.counts) == (expected, Verdict.NOT_COMPARABLE, False)
