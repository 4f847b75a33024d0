"""Claims of Penstock itself: targets that no paper has set."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from penstock_lab.claims.claim import Claim, Judged
from penstock_lab.experiments.measurement import Measurement

if TYPE_CHECKING:
    from penstock_lab.experiments.policies import Compared

ONE, FUSED = "one query", "fused pipeline"
"""Systems of the experiment that splits a query."""
KAFKA = "kafka"
FLEET = 100_000
"""The target holds for this many applications."""


def _judge_by(*targets: tuple[str, str, str]) -> Callable[[Measurement], Judged]:
    """Make a function that judges an experiment's summary by these targets."""
    return lambda measured: Judged(Claim.judge_summary(measured.summary, *targets))


judge_decision = _judge_by(
    ("100 operators, seconds", "< 0.001", "seconds_at_100_operators"),
    ("growth exponent (1 is linear)", "<= 1.1", "growth_exponent"),
)
judge_event_log = _judge_by(
    ("seconds for 126,000 tasks, 795 MB", "<= 6", "seconds_per_126000_tasks"),
    ("their peak memory, bytes", "<= 8e8", "peak_memory_bytes"),
    ("time for a megabyte over that of half the log", "<= 1.2", "seconds_per_mb_over_half"),
)
judge_answers = _judge_by(
    ("made logs", ">= 40", "logs"),
    ("logs whose first finding is the cause", ">= 0.95", "right_share"),
    ("median error of the predicted gain", "<= 0.15", "median_error"),
    ("logs with a gain to tell in which one is predicted", ">= 0.95", "predicted_share"),
)
judge_simulator = _judge_by(
    ("one day of the model alone, seconds", "< 1", "model_day_seconds"),
    ("one day with ds2 every 10 s, seconds", "< 1", "day_seconds"),
)
judge_what_if = _judge_by(("median error of predicted batch time", "< 0.1", "median_error"))


def judge_dashboard(measured: Measurement) -> Judged:
    """Judge the pages, and that a driver pays nothing measurable for being watched."""
    figures = measured.summary
    low, ratio, high = (figures.get(f"driver_overhead_ratio{end}") for end in ("_low", "", "_high"))
    pages = Claim.judge_summary(
        figures,
        ("first paint of the dashboard, milliseconds", "< 1000", "first_paint_ms"),
        ("from a changed status to the changed page, milliseconds", "<= 1500", "event_to_screen_ms"),
        ("share of a core with ten applications watched", "< 0.01", "server_cpu_share"),
        ("a page of a fleet of 100,000 applications, milliseconds", "<= 300", "fleet_page_ms"),
    )
    name = "processor time of a driver, page open over closed, low end of its interval"
    told = low is not None and not math.isnan(low)
    why = f"{ratio:.3f}, 95 % between {low:.3f} and {high:.3f}" if told else ""
    doubts = [] if told else [f"{name}: not measured; a quick run has too few blocks for an interval"]
    return Judged([*pages, Claim.judge_target(name, "<= 1", low if told else None, why)], notes=doubts)


def judge_seamless(measured: Measurement) -> Judged:
    """Judge that no batch of the other function is slower than its own 99th percentile."""
    ours = next((row for row in measured.rows if row["system"] == "between batches"), {})
    name = "batches of the other function near a change over its own p99"
    return Judged(Claim.judge_summary(ours, (name, "== 0", "slower_than_p99")))


def judge_splitting(measured: Measurement) -> Judged:
    """Judge how many times slower three fused functions are than one query on Kafka; the rest is shown."""
    ratios = {row["system"]: row["cost_ratio"] for row in measured.rows if not row["system"].startswith(ONE)}
    name, why = "times slower as three functions", "no target is set for it"
    judged = f"{FUSED}, {KAFKA}"
    shown = [
        Claim.show_beside(f"{name}, {system}", None, ratio, why)
        for system, ratio in ratios.items()
        if system != judged
    ]
    return Judged([Claim.judge_target(f"{name}, {judged}", "<= 1.3", ratios.get(judged)), *shown])


def judge_nexmark(measured: Measurement) -> Judged:
    """Judge the generator, and that every query has a rate it sustains."""
    rows = measured.rows
    failed = sum(row["sustained_records_per_s"] is None for row in rows) + len(measured.failures)
    share = max((row["generator_share"] for row in rows), default=None)
    generator = measured.summary["generator_events_per_s"]
    return Judged(
        [
            Claim.judge_target("generator, events a second on one core", ">= 2000000", generator),
            Claim.judge_target("share of the cores that generating takes, at most", "<= 0.5", share),
            Claim.judge_target("queries without a rate that they sustain", "== 0", failed),
        ]
    )


def judge_fleet(measured: Measurement) -> Judged:
    """Judge how many applications the job keeps up with; a quick run is too small to show the target."""
    figures = measured.summary
    whole = figures["applications"] >= FLEET
    seconds, memory = (figures[key] if whole else None for key in ("seconds_per_round", "peak_rss_bytes"))
    claims = [
        Claim.judge_target("100,000 applications or more, seconds per round", "<= 10", seconds),
        Claim.judge_target("their peak memory, bytes", "< 8e9", memory),
        Claim.judge_target("growth exponent (1 is linear)", "<= 1.1", figures["growth_exponent"]),
    ]
    published = "thousands of applications at LinkedIn (Sage); no figure per core is published"
    return Judged(claims, published={"fleets": published})


def judge_policies(measured: Measurement) -> Judged:
    """Judge learned curves, forecasts and AuTraScale side by side."""
    published = {
        "ds2 steps on Nexmark (table 4 of DS2)": "1 to 3, at most 3",
        "instances of AuTraScale, word count up, down": "65, 48; drs 112 or 19 and 153 or 153",
        "instances of AuTraScale, Yahoo up, down": "48, 62; drs 172 or 179 and 172 or 179",
    }
    tables = Claim.judge_summary(
        measured.summary,
        ("tables II and III: autrascale meets the target", "== 4", "autrascale_cases_met"),
        ("tables II and III: with fewer than either drs", "== 4", "autrascale_cases_fewer_than_each_drs"),
        (
            "tables II and III: with fewer than any drs that meets it",
            "== 4",
            "autrascale_cases_fewer_than_drs_that_meets_it",
        ),
    )
    return Judged([*_judge_learned(measured.found, measured.summary), *tables], published=published)


def _judge_learned(found: Compared, figures: dict[str, float]) -> list[Claim]:
    from penstock_lab.experiments.policies import AHEAD, LEARNED, NOISES, TRAFFIC, compare_changes, find_row

    ahead = find_row(found, TRAFFIC, AHEAD)
    few = {noise: float((np.array(found.steps[noise, LEARNED]) <= 2).mean()) for noise in NOISES}
    exact, noisy = NOISES
    targets = (
        ("ds2-learned, median steps for a change of rate", "<= 1", figures["learned_median_steps"]),
        ("changes of rate with at most 2 steps, exact measurements", ">= 0.99", few[exact]),
        ("changes of rate with at most 2 steps, noise of 2 %", ">= 0.99", few[noisy]),
        ("changes over plain ds2's, exact measurements", "<= 0.25", compare_changes(found, exact)),
        ("changes over plain ds2's, noise of 2 %", "<= 0.25", compare_changes(found, noisy)),
        (f"{AHEAD} on traffic, over the oracle", "<= 0.05", ahead["over_slot_seconds_ratio"]),
        (f"{AHEAD} on traffic, seconds too small", "<= 0.001", ahead["under_seconds_ratio"]),
        ("flips under constant load with 10 % noise", "== 0", figures["noisy_day_flips"]),
    )
    return [Claim.judge_target(*target) for target in targets]
