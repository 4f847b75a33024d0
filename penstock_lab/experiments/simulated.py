"""Published situations in the simulator: the same loop in virtual time, with capacities from the papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from penstock.dataflow.metrics import Floats
from penstock.dataflow.window import ApplicationWindow
from penstock.decide.policy import Hold
from penstock.simulate.comparison import Comparison, compare
from penstock.simulate.experiment import Experiment
from penstock.simulate.loading import SHIPPED, load, parse
from penstock.simulate.measures import least_instances
from penstock.simulate.run import Run, run_policy, simulate
from penstock.simulate.virtual import LATENCY, READ
from penstock_lab.experiments.curves import CURVES, CurveCase, make_curve
from penstock_lab.experiments.measurement import Extent, Measurement, Progress, Row, tell_settings

SIMULATED = "simulated, virtual time, seed 0"
INITIAL_SIZES = (8, 12, 16, 20, 24, 28)
"""Of DS2's table 4."""
SKEW_SHARES = (0.2, 0.5, 0.7)
COUNTS = 20
"""Instances of Count without skew."""
IMAGE_POLICIES = ("threshold", "queueing", "ds2")
LATENCY_SCENARIOS = tuple(
    f"autrascale-{job}-{way}" for job in ("wordcount", "yahoo") for way in ("up", "down")
)
"""Of tables II and III."""
RATE_SCENARIOS = ("autrascale-q5", "autrascale-q11")
RATE_POLICIES = ("autrascale", "ds2")
CHANGE_SECONDS = 6 * 3600
"""When the rate rises; half of the run."""
TRANSFERRED = "learned from"
"""In the reason of a size that was chosen with the model of another rate."""
POINTS = 400
"""Points of a line in a chart: a plot does not show more."""


def run_heron(_extent: Extent, progress: Progress) -> Measurement:
    """Run the word count of Heron with DS2 and with Dhalion."""
    return _compare("dhalion-wordcount", ("ds2", "dhalion"), progress)


def run_two_phases(_extent: Extent, progress: Progress) -> Measurement:
    """Run the word count of Flink, whose rate halves, with DS2."""
    return _compare("flink-two-phases", ("ds2",), progress)


def _compare(scenario: str, policies: Sequence[str], progress: Progress) -> Measurement:
    comparison = compare(load(scenario), list(policies), 0, progress)
    settings = tell_settings(comparison.experiment.settings)
    rows = [{**row, "settings": settings} for row in comparison.to_json()["policies"]]
    return Measurement(rows, found=comparison)


def run_convergence(extent: Extent, progress: Progress) -> Measurement:
    """Run DS2 from six initial sizes on curves that are fitted to nothing; quick has three of them."""
    rows: list[Row] = []
    for case, experiment in _list_curves(extent.quick):
        settings = tell_settings(experiment.settings)
        for initial in INITIAL_SIZES:
            progress(f"{case} from {initial}")
            run = simulate(experiment.starting_with({"main": initial}), "ds2")
            decided = tuple(int(action.planned["main"]) for action in run.actions)
            least = int(least_instances(experiment)[-1, experiment.scaled][0])
            told = {"case": case, "initial": initial, "decided": decided, "least": least}
            rows.append({**told, "final": (initial, *decided)[-1], "settings": settings})
    return Measurement(rows)


def _list_curves(quick: bool) -> list[tuple[str, Experiment]]:
    """List one constant rate on each curve, with its name."""
    return [
        (f"curve {number}", make_curve(CurveCase(alpha, beta, 1, 0.0)))
        for number, (alpha, beta) in enumerate(CURVES[: 3 if quick else None], start=1)
    ]


class _Stay:
    """A policy that leaves the size as it is."""

    name = "stay"

    def propose(self, _window: ApplicationWindow) -> Hold:
        return Hold("the size is given")


def run_accuracy(extent: Extent, progress: Progress) -> Measurement:
    """Hold the size that DS2 comes to on each curve, one smaller and one larger; quick has three curves."""
    rows: list[Row] = []
    for case, experiment in _list_curves(extent.quick):
        chosen = int(simulate(experiment, "ds2").held[-1, experiment.scaled][0])
        for size in (chosen - 1, chosen, chosen + 1):
            progress(f"{case} with {size}")
            run = run_policy(experiment.starting_with({"main": size}), _Stay())
            late = float(np.median(run.seen[-60:, LATENCY]))
            # sources are held back here, not queued: what is read of the second half tells
            half = experiment.seconds // 2
            read = float(run.seen[half:, READ].sum() / experiment.offered[half:].sum())
            told = {"case": case, "size": size, "chosen": chosen, "share_read": read, "latency_s": late}
            rows.append({**told, "settings": tell_settings(experiment.settings)})
    return Measurement(rows)


def run_skew(_extent: Extent, progress: Progress) -> Measurement:
    """Run the word count of Heron with DS2 while one word has a large share."""
    rows: list[Row] = []
    for share in SKEW_SHARES:
        progress(f"{share:.0%} of the words are one word")
        run = simulate(skew_word_count(share), "ds2")
        read = float(run.seen[-60:, READ].mean() / run.experiment.offered[-60:].sum(axis=1).mean())
        final = {name: run.actions[-1].planned[name] for name in ("flatmap", "count")}
        told = {"case": f"{share:.0%}", "final": final, "read": read, "steps": len(run.actions)}
        rows.append({**told, "settings": tell_settings(run.experiment.settings)})
    return Measurement(rows)


def skew_word_count(share: float) -> Experiment:
    """Return Heron's word count; one instance of Count gets this share besides its part of the rest."""
    path = SHIPPED / "dhalion-wordcount.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    # share + (1 - share) / n of all records, against the average 1 / n
    values["operators"]["count"]["skew"] = share * (COUNTS - 1)
    return parse(yaml.safe_dump(values), path)


def run_images(_extent: Extent, progress: Progress) -> Measurement:
    """Run the image pipeline of Elastic Pulsar Functions with three policies."""
    comparison = compare(load("image-pipeline"), list(IMAGE_POLICIES), 0, progress)
    rows = [
        {
            "system": run.policy,
            "mean_response_s": float(run.seen[:, LATENCY].mean()),
            "mean_instances": float(count_instances(run).mean()),
            "settings": tell_settings(run.experiment.settings),
        }
        for run, _ in comparison.runs
    ]
    return Measurement(rows, found=comparison)


def run_latency_targets(extent: Extent, progress: Progress) -> Measurement:
    """Run AuTraScale beside DRS on the scenarios of tables II and III; quick has the first one."""
    rows: list[Row] = []
    for name in LATENCY_SCENARIOS[: 1 if extent.quick else None]:
        (ours, _), (drs, _) = compare(load(name), ["autrascale", "drs"], 0, progress).runs
        rows.append(
            {
                "case": name,
                "target_s": find_latency_target(ours),
                "instances": int(count_instances(ours)[-1]),
                "latency_s": find_late_latency(ours),
                "drs_instances": int(count_instances(drs)[-1]),
                "drs_latency_s": find_late_latency(drs),
                "model_trials": count_model_trials(ours),
                "settings": tell_settings(ours.experiment.settings),
            }
        )
    return Measurement(rows)


def run_other_rates(extent: Extent, progress: Progress) -> Measurement:
    """Run AuTraScale beside DS2 on queries whose rate rises; quick has query 11."""
    rows: list[Row] = []
    found: dict[str, Comparison] = {}
    for name in RATE_SCENARIOS[1:] if extent.quick else RATE_SCENARIOS:
        found[name] = compare(load(name), list(RATE_POLICIES), 0, progress)
        for run, _ in found[name].runs:
            early = sum(action.intended_at < CHANGE_SECONDS for action in run.actions)
            rows.append(
                {
                    "case": name,
                    "system": run.policy,
                    "instances": int(np.median(count_instances(run)[-len(run.held) // 10 :])),
                    "latency_s": find_late_latency(run),
                    "target_s": find_latency_target(run),
                    "tried_at_first_rate": early,
                    "tried_at_second_rate": len(run.actions) - early,
                    "transferred_trials": sum(TRANSFERRED in action.reason for action in run.actions),
                    "settings": tell_settings(run.experiment.settings),
                }
            )
    return Measurement(rows, found=found)


def count_model_trials(run: Run) -> int:
    """Count the sizes that AuTraScale's Gaussian process chose; its first samples are set beforehand."""
    return sum("expected_improvement" in action.expected.figures for action in run.actions)


def find_latency_target(run: Run) -> float:
    """Return the scenario's latency target in seconds, infinity if it has none."""
    return run.experiment.settings.goals.latency_target or float("inf")


def count_instances(run: Run) -> Floats:
    """Count the instances of all operators in each second; nobody scales a source."""
    counts: Floats = run.held[:, run.experiment.scaled].sum(axis=1)
    return counts


def list_late_latencies(run: Run) -> Floats:
    """Return the latency in each second of the last tenth of the run."""
    latencies: Floats = run.seen[-len(run.seen) // 10 :, LATENCY]
    return latencies


def find_late_latency(run: Run) -> float:
    """Return the median latency of the last tenth of the run."""
    return float(np.median(list_late_latencies(run)))


def choose_seconds(comparison: Comparison) -> list[int]:
    """Choose the seconds of a run that charts show."""
    return list(range(0, comparison.experiment.seconds, max(1, comparison.experiment.seconds // POINTS)))


def round_values(values: Any) -> list[float]:
    """Return numbers of a run as a chart keeps them."""
    return [round(float(value), 3) for value in values]
