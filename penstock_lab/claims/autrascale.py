"""Claims of AuTraScale: instances and latency beside DRS, transfer to another rate, and processor time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.simulate.comparison import Comparison
from penstock_lab.claims.claim import Chart, Claim, Judged, Verdict, add_conditions
from penstock_lab.experiments.measurement import Measurement, Row
from penstock_lab.experiments.simulated import (
    SIMULATED,
    choose_seconds,
    count_instances,
    list_late_latencies,
    round_values,
)

OTHER_MACHINE = "published on other machines"
TABLE_4: dict[str, tuple[float, ...]] = {
    "train_s": (0.042, 0.053, 0.065, 0.076, 0.088),
    "use_s": (0.0008, 0.0006, 0.0006, 0.0006, 0.0006),
    "transfer_s": (0.070, 0.081, 0.094, 0.104, 0.116),
}
"""Table IV: Alg1_train, Alg1_use and Alg2, for 2, 4, 6, 8 and 10 operators."""
ALGORITHMS = {"train_s": "training", "use_s": "use", "transfer_s": "transfer"}
TABLE_II_III, TABLE_IV, FIGURE = (
    "AuTraScale, tables II and III",
    "AuTraScale, table IV",
    "AuTraScale, figure 8",
)
FITTED_SIZE = "capacities are fitted, and a smaller size may meet the target here than in the paper"
NO_MODEL = "the Gaussian process chose none of the sizes: throughput and the first samples alone led here"
NO_TRANSFER = "no size was chosen with the model of the other rate, so that nothing was transferred"
FITTED = "simulated, virtual time, seed 0; capacities fitted to the published least sizes"
OFFLINE = "the paper computes DS2's sizes offline; here it goes on with every small change of what is offered"


def judge_cost(measured: Measurement) -> Judged:
    """Judge table IV: processor time of the algorithms."""
    operators = [row["operators"] for row in measured.rows]
    claims, lines = [], []
    for key, what in ALGORITHMS.items():
        ours = [row[key] for row in measured.rows]
        for count, figure, value in zip(operators, TABLE_4[key], ours, strict=True):
            name, target = f"{key}, {count} operators", f"< {figure}"
            more: dict[str, Any] = {"figure": TABLE_IV, "conditions": OTHER_MACHINE, "target": target}
            claims.append(Claim.judge_figure(name, figure, value, **more))
        lines += [(f"{what}, published", operators, list(TABLE_4[key])), (f"{what}, ours", operators, ours)]
    chart = Chart("table IV", "operators", "seconds", lines, points=True, logarithmic="y")
    published = {"operators": operators, **{key: list(value) for key, value in TABLE_4.items()}}
    return Judged(claims, [chart], published=published)


@dataclass(frozen=True, slots=True)
class Scaled:
    """The figures of tables II and III for one scenario; DRS is the variant with true rates."""

    title: str
    instances: int
    latency_seconds: float
    drs_instances: int
    drs_meets: bool
    """Whether DRS meets the targets of latency and throughput."""


TABLES_2_3: Mapping[str, Scaled] = {
    "autrascale-wordcount-up": Scaled("word count, from too few", 65, 0.172, 19, drs_meets=False),
    "autrascale-wordcount-down": Scaled("word count, from too many", 48, 0.160, 153, drs_meets=False),
    "autrascale-yahoo-up": Scaled("Yahoo, from too few", 48, 0.2237, 179, drs_meets=True),
    "autrascale-yahoo-down": Scaled("Yahoo, from too many", 62, 0.246, 179, drs_meets=True),
}
"""Scenario → the published figures."""


def judge_latency_targets(measured: Measurement) -> Judged:
    """Judge tables II and III: instances held in the end, beside DRS, and the latency target."""
    claims: list[Claim] = []
    for row in measured.rows:
        published, target = TABLES_2_3[row["case"]], row["target_s"]
        late, held, other = row["latency_s"], row["instances"], row["drs_instances"]
        claim, said = (f"{seconds:.3f} s of {target:.3f} s" for seconds in (published.latency_seconds, late))
        name = f"{published.title}: latency meets its target"
        found = [
            judge_instances(published, held, other),
            judge_against_drs(published, held, other, row["drs_latency_s"] <= target),
            Claim.judge_statement(name, claim, said, late <= target, figure=TABLE_II_III),
        ]
        claims += found if row["model_trials"] else [one.illustrate(NO_MODEL) for one in found]
    return Judged(add_conditions(SIMULATED, claims))


def judge_instances(published: Scaled, held: int, other: int) -> Claim:
    """Judge the size; a smaller one than published is no success where the capacities are fitted."""
    result, baseline = f"{published.title}: instances in the end", f"drs: {other}"
    found = Claim.judge_figure(result, published.instances, held, figure=TABLE_II_III, baseline=baseline)
    if found.verdict is Verdict.BETTER:
        return replace(found, verdict=Verdict.NOT_COMPARABLE, why=FITTED_SIZE)
    return found


def judge_against_drs(published: Scaled, held: int, other: int, other_meets: bool) -> Claim:
    """Judge whether it holds fewer than DRS; more only where DRS misses the target, as published."""
    missed = "" if published.drs_meets else ", which miss the targets"
    claim = f"{published.instances} against {published.drs_instances}{missed}"
    ours = f"{held} against {other}" + ("" if other_meets else ", which miss the target")
    holds = held < other or not (published.drs_meets or other_meets)
    name = f"{published.title}: instances against DRS"
    return Claim.judge_statement(name, claim, ours, holds, figure=TABLE_II_III)


@dataclass(frozen=True, slots=True)
class Transferred:
    """Figure 8 for one query: how many more instances and iterations AuTraScale has than DS2."""

    title: str
    more_instances: int
    more_iterations: int


FIGURE_8: Mapping[str, Transferred] = {
    "autrascale-q5": Transferred("query 5", -5, 2),
    "autrascale-q11": Transferred("query 11", 0, 0),
}
"""Scenario → the published figures; instances of query 11 are called similar."""


def judge_other_rates(measured: Measurement) -> Judged:
    """Judge figure 8: sizes tried at either rate, the latency target at the second, and DS2 beside it."""
    comparisons: Mapping[str, Comparison] = measured.found
    claims: list[Claim] = []
    charts: list[Chart] = [_draw_end(measured.rows)]
    for name, comparison in comparisons.items():
        published = FIGURE_8[name]
        ours, ds2 = (row for row in measured.rows if row["case"] == name)
        tried, beside = ours["tried_at_second_rate"], ds2["tried_at_second_rate"]
        result, more = f"{published.title}: iterations more than DS2's", published.more_iterations
        claims += [
            *judge_rates(published, ours),
            judge_beside_ds2(published, ours, ds2),
            Claim.show_beside(result, more, tried - beside, OFFLINE, baseline=f"DS2: {beside}"),
        ]
        charts += [_draw_instances(published.title, comparison), _draw_latency(published.title, comparison)]
    return Judged(add_conditions(FITTED, claims), charts)


def judge_rates(published: Transferred, ours: Row) -> list[Claim]:
    """Judge that fewer sizes are tried where a model is there already, and that the target is met."""
    first, second = ours["tried_at_first_rate"], ours["tried_at_second_rate"]
    said = f"{second} sizes tried at the second rate, {first} at the first"
    late, target = ours["latency_s"], ours["target_s"]
    met = f"{late:.3f} s of {target:.3f} s, with {ours['instances']} instances"
    tried, latency = f"{published.title}: sizes tried", f"{published.title}: latency at the second rate"
    claim = "a model of another rate spares samples"
    spared = Claim.judge_statement(tried, claim, said, second < first, figure=FIGURE)
    return [
        spared if ours["transferred_trials"] else spared.illustrate(NO_TRANSFER),
        Claim.judge_statement(latency, "meets its target", met, late <= target, figure=FIGURE),
    ]


def judge_beside_ds2(published: Transferred, ours: Row, ds2: Row) -> Claim:
    """Compare instances with those of DS2, unless DS2's latency is over the target."""
    more, late, target = ours["instances"] - ds2["instances"], ds2["latency_s"], ds2["target_s"]
    result = f"{published.title}: instances more than DS2's"
    baseline = f"DS2: {ds2['instances']} instances, {late:.3f} s"
    if late <= target:
        return Claim.judge_figure(result, published.more_instances, more, figure=FIGURE, baseline=baseline)
    why = f"DS2, which knows no latency, holds the least that keeps up: {late:.3f} s of {target:.3f} s"
    return Claim.show_beside(result, published.more_instances, more, why, figure=FIGURE, baseline=baseline)


def _draw_end(rows: list[Row]) -> Chart:
    """Draw the instances of both at the second rate, query by query (figure 8a)."""
    bars = Chart.group_rows(
        rows, lambda row: FIGURE_8[row["case"]].title, lambda row: float(row["instances"])
    )
    return Chart("instances in the end (figure 8a)", "", "instances", bars, bars=True)


def _draw_instances(title: str, comparison: Comparison) -> Chart:
    every = choose_seconds(comparison)
    hours = [round(second / 3600, 3) for second in every]
    series = [(run.policy, hours, round_values(count_instances(run)[every])) for run, _ in comparison.runs]
    return Chart(f"{title}: instances over time", "hours", "instances", series, steps=True)


def _draw_latency(title: str, comparison: Comparison) -> Chart:
    """Draw the distribution of latency in the last tenth of the run (figure 8b)."""
    shares = np.linspace(0, 1, 101)
    series = [
        (run.policy, round_values(np.quantile(list_late_latencies(run), shares)), round_values(shares))
        for run, _ in comparison.runs
    ]
    y = "share of seconds that are no later"
    return Chart(f"{title}: latency in the end (figure 8b)", "latency, s", y, series)


LIVE_CONDITIONS = "real cluster, hosts with quotas, computing that is real"
SAVED_AGAINST: Mapping[str, tuple[str, float, str]] = {
    "drs": ("first", 36.7, TABLE_II_III),
    "ds2": ("second", 13.5, FIGURE),
}
"""Baseline → the rate at which sizes are compared, the published saving in percent, and where."""


def judge_live(measured: Measurement) -> Judged:
    """Judge a live query and a live pipeline: target met at both rates, with fewer trials at the second."""
    claims: list[Claim] = []
    for case in dict.fromkeys(row["case"] for row in measured.rows):
        systems = {row["system"]: row for row in measured.rows if row["case"] == case}
        ours = systems.get("autrascale")
        if ours is None:
            continue
        claims += [
            _judge_met(case, "first", ours, TABLE_II_III),
            _judge_met(case, "second", ours, FIGURE),
            _judge_search(case, ours),
            _judge_transfer(case, ours),
            *(judge_saving(case, name, ours, systems[name]) for name in SAVED_AGAINST if name in systems),
        ]
    return Judged(add_conditions(LIVE_CONDITIONS, claims))


def _judge_met(case: str, rate: str, ours: Row, figure: str) -> Claim:
    late, target, size = ours[f"{rate}_latency_s"], ours["target_s"], ours[f"{rate}_size"]
    said = "no latency was measured" if late is None else f"{late:.2f} s of {target:.2f} s, with {size}"
    met = late is not None and late <= target
    return Claim.judge_statement(
        f"live {case}: latency at the {rate} rate", "meets its target", said, met, figure=figure
    )


def _judge_search(case: str, ours: Row) -> Claim:
    """Judge that the model was needed: without a size of its choice the rest says nothing about it."""
    name = f"live {case}: sizes that expected improvement chose"
    return Claim.judge_target(name, ">= 1", float(ours["chosen_by_improvement"]))


def _judge_transfer(case: str, ours: Row) -> Claim:
    first, second, moved = ours["first_trials"], ours["second_trials"], ours["transferred_trials"]
    said = (
        f"{second} sizes tried at the second rate, {moved} of them by what was learned; {first} at the first"
    )
    claim, holds = "a model of another rate spares samples", second < first and moved > 0
    return Claim.judge_statement(f"live {case}: sizes tried", claim, said, holds, figure=FIGURE)


def judge_saving(case: str, baseline: str, ours: Row, theirs: Row) -> Claim:
    """Compare sizes in percent, if both meet the target; one that misses it is no cheaper."""
    rate, published, figure = SAVED_AGAINST[baseline]
    held, other = ours[f"{rate}_size"], theirs[f"{rate}_size"]
    late = {name: row[f"{rate}_latency_s"] for name, row in (("autrascale", ours), (baseline, theirs))}
    saved = round(100 * (1 - held / other), 1) if held and other else None
    result = f"live {case}: percent saved against {baseline.upper()}, {rate} rate"
    beside = f"{baseline}: {other}, {late[baseline]} s of {ours['target_s']} s"
    missing = [name for name, seconds in late.items() if seconds is None or seconds > ours["target_s"]]
    if missing:
        why = f"{' and '.join(missing)} misses the target"
        return Claim.show_beside(result, published, saved, why, figure=figure, baseline=beside)
    return Claim.judge_figure(result, published, saved, figure=figure, lower_is_better=False, baseline=beside)
