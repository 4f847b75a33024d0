"""Claims of Elastic Pulsar Functions (Auto-DaSP 2021): three policies on the image pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.dataflow.metrics import Floats
from penstock.simulate.comparison import Comparison
from penstock.simulate.virtual import LATENCY, QUEUED
from penstock_lab.claims.claim import Chart, Claim, Judged, add_conditions
from penstock_lab.experiments.measurement import Measurement, Row
from penstock_lab.experiments.simulated import SIMULATED, choose_seconds, count_instances, round_values

if TYPE_CHECKING:
    from penstock_lab.experiments.images.policies import ImagesSeen


CONDITIONS = "real cluster, the paper's stretches of ten minutes compressed, service times paced"
TRIGGER_CONDITIONS = "real cluster, fixed sizes, images mixed by real computing"
QUEUEING_TARGET_SECONDS = 1.0
"""The response time that the paper's queueing policy keeps."""
FIGURES = {"threshold": "figures 5 and 6", "queueing": "figure 7", "ds2": "figure 8"}
FIGURED = {
    "mean_response_s": "mean response time, s",
    "peak_response_s": "longest response time, s",
    "mean_instances": "mean instances",
}
"""Field of the benchmark's rows and of its published figures → its name."""
PAPER = "Elastic Pulsar Functions, "
PUBLISHED: dict[str, Any] = {
    "threshold_mean_instances": 3.5,
    "threshold_mean_response_s": 23,
    "threshold_peak_response_s": 74,
    "queueing_mean_instances": 5,
    "queueing_mean_response_s": 1.03,
    "queueing_peak_response_s": 3,
    "ds2_mean_instances": 4.5,
    "ds2_mean_response_s": 2.7,
    "ds2_peak_response_s": 26,
}
"""Queueing has five instances "most of the time"."""
MOST_WAITING = 150
"""The paper's upper threshold, and the policy's own default."""
UNPUBLISHED = "rates and service times are not published as numbers: only the policies' order can be compared"
ORDERS = {
    "mean_response_s": ("order of the response times", "queueing < ds2 < threshold"),
    "mean_instances": ("order of the instances", "threshold < ds2 < queueing"),
}
CONTROL_SECONDS = 600
"""The paper's rates change every ten minutes: a queue that is longer too long is not under control."""
ALIKE = 1.02
"""Two means that are closer than this say nothing about which policy comes first."""
SERVED_SHARE = 0.9
"""Share of the images: with fewer recognised, those that still wait distort a policy's mean."""


def judge_simulated(measured: Measurement) -> Judged:
    """Judge figures 5 to 8 in the simulator."""
    comparison: Comparison = measured.found
    waiting = {run.policy: run.seen[:, QUEUED] for run, _ in comparison.runs}["threshold"]
    claims = [*judge_images(measured.rows, PUBLISHED), judge_waiting(waiting)]
    return Judged(add_conditions(SIMULATED, claims), _draw_simulated(comparison, waiting))


def judge_waiting(waits: Floats) -> Claim:
    """Judge figure 5: whether the queue comes below the upper threshold again every time, and soon."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], waits > MOST_WAITING, [False])).astype(int)))
    times = (edges[1::2] - edges[::2]).tolist()
    longest, ended = max(times, default=0), bool(waits[-1] <= MOST_WAITING)
    ours = f"{len(times)} times above {MOST_WAITING}, for {longest} s at most; {waits.max():.0f} at most"
    ours += f", {waits[-1]:.0f} in the end"
    return Claim.judge_statement(
        "threshold, images that wait",
        f"brought back below {MOST_WAITING} every time",
        ours,
        ended and longest <= CONTROL_SECONDS,
        figure=f"{PAPER}figure 5",
        doubt="" if times else f"the queue never exceeded {MOST_WAITING}",
        why=f"within {CONTROL_SECONDS} s counts as brought back",
    )


def judge_order(result: str, published: str, values: Mapping[str, float]) -> Claim:
    """Judge an order, the least first; values that hardly differ are in no order."""
    ranked = sorted(values, key=lambda policy: values[policy])
    ours = " < ".join(f"{policy} {values[policy]:.4g}" for policy in ranked)
    pairs = [(values[less], values[more]) for less, more in pairwise(published.split(" < "))]
    contradicted = any(less > ALIKE * more for less, more in pairs)
    alike = not contradicted and any(more <= ALIKE * less for less, more in pairs)
    doubt = f"values within {ALIKE - 1:.0%} of each other are in no order" if alike else ""
    figure = f"{PAPER}figures 6 to 8"
    return Claim.judge_statement(result, published, ours, not contradicted, figure=figure, doubt=doubt)


def _draw_simulated(comparison: Comparison, waiting: Floats) -> list[Chart]:
    seconds = choose_seconds(comparison)
    late, held = (
        [(run.policy, seconds, round_values(figure(run)[seconds])) for run, _ in comparison.runs]
        for figure in (lambda run: run.seen[:, LATENCY], count_instances)
    )
    waits = [("threshold", seconds, round_values(waiting[seconds]))]
    return [
        Chart("figure 5: images that wait", "seconds", "images", waits),
        Chart("figures 6 to 8: response time", "seconds", "seconds", late),
        Chart("figures 6 to 8: instances", "seconds", "instances", held),
    ]


def judge_cluster(measured: Measurement) -> Judged:
    """Judge response times and instances on a real cluster."""
    seen: Mapping[str, ImagesSeen] = measured.found
    claims = add_conditions(CONDITIONS, [*judge_images(measured.rows, PUBLISHED), judge_ratio(measured.rows)])
    return Judged(claims, [draw_responses(seen), draw_instances(seen)], published=PUBLISHED)


def judge_triggers(measured: Measurement) -> Judged:
    """Judge whether the best trigger and topics bring an image through within the paper's second."""
    known = [row for row in measured.rows if row["mean_latency_s"] is not None]
    best = min(known, key=lambda row: row["mean_latency_s"], default=None)
    shortest = None if best is None else best["mean_latency_s"]
    why = "" if best is None else f"{best['case']}, {best['system']}, trigger {best['trigger_s']:g} s"
    name = "shortest mean latency of the image pipeline, s"
    claims = [Claim.judge_target(name, f"<= {QUEUEING_TARGET_SECONDS:g}", shortest, why)]
    for row in known:
        result = f"{row['case']}, {row['system']}, trigger {row['trigger_s']:g} s: mean latency, s"
        claims.append(Claim.show_beside(result, None, row["mean_latency_s"], UNPUBLISHED))
    return Judged(add_conditions(TRIGGER_CONDITIONS, claims))


def judge_ratio(rows: Sequence[Row]) -> Claim:
    """Judge the paper's order: with the latency model responses are shorter than with thresholds."""
    mean = {row["system"]: row["mean_response_s"] for row in rows}
    queueing, threshold = mean.get("queueing"), mean.get("threshold")
    ratio = queueing / threshold if queueing is not None and threshold else None
    return Claim.judge_target("mean response of queueing over that of threshold", "< 1", ratio)


def judge_images(rows: Sequence[Row], published: Mapping[str, Any]) -> list[Claim]:
    """Show the figures of every policy, and judge the order of the policies."""
    found: list[Claim] = []
    for row in rows:
        policy, said = row["system"], UNPUBLISHED
        if row.get("recognised", 0) < SERVED_SHARE * row.get("images", 0):
            said += f"; of {row['images']} images {row['recognised']} were recognised when the run ended, "
            said += "and the others count with what they had waited"
        for key, name in ((key, name) for key, name in FIGURED.items() if key in row):
            result = f"{policy}, {name} ({FIGURES.get(policy, '')})"
            value = None if row[key] is None else round(row[key], 2)
            found.append(Claim.show_beside(result, published.get(f"{policy}_{key}"), value, said))
    return [*found, *_judge_orders(rows)]


def _judge_orders(rows: Sequence[Row]) -> list[Claim]:
    if any(row["mean_response_s"] is None for row in rows):
        return []
    return [
        judge_order(name, claim, {row["system"]: row[key] for row in rows})
        for key, (name, claim) in ORDERS.items()
    ]


def draw_responses(seen: Mapping[str, ImagesSeen]) -> Chart:
    """Draw the mean response time of the images that arrived in each second (figures 5 to 8)."""
    from penstock_lab.experiments.images.policies import average_by_second

    series = []
    for policy, one in seen.items():
        arrived, times = one.list_responses()
        if len(arrived):
            seconds, means = average_by_second(arrived - arrived.min(), times)
            series.append((policy, seconds.tolist(), round_values(means)))
    title = "response time (figures 5 to 8)"
    return Chart(title, "seconds since the first image", "seconds", series, logarithmic="y")


def draw_instances(seen: Mapping[str, ImagesSeen]) -> Chart:
    """Draw function instances over time (figures 5 to 8)."""
    series = [
        (policy, [float(second) for second in range(len(one.instances))], [float(n) for n in one.instances])
        for policy, one in seen.items()
    ]
    return Chart("instances (figures 5 to 8)", "seconds", "instances", series, steps=True)
