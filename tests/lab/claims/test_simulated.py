"""Claims on simulated parts, which are run whole on their smallest setting."""

import pytest

from penstock_lab.claims.autrascale import (
    FIGURE_8,
    TABLES_2_3,
    judge_against_drs,
    judge_beside_ds2,
    judge_cost,
    judge_instances,
    judge_latency_targets,
    judge_rates,
)
from penstock_lab.claims.claim import Verdict
from penstock_lab.claims.ds2 import simulated
from penstock_lab.claims.ds2.simulated import judge_least, judge_sizes_beside, judge_skewed
from penstock_lab.experiments.measurement import Extent, Measurement
from penstock_lab.report.catalog import PARTS

SIMULATED = ("heron", "two-phases", "convergence", "image-pipeline")


def run_quick(name):
    (part,) = (part for part in PARTS if part.name == name)
    return part.run(Extent(quick=True, report=True), lambda _: None)[1]


def verdicts(result):
    return {claim.name: claim.verdict for claim in result.claims}


def test_ds2_takes_one_step_where_dhalion_takes_many():
    found = verdicts(run_quick("heron"))
    assert found["steps of DS2"] is Verdict.ILLUSTRATION
    assert found["instances of count, DS2"] is Verdict.ILLUSTRATION
    assert found["Dhalion takes far longer to its last size"] is Verdict.REPRODUCED


@pytest.mark.parametrize(
    ("held", "expected"), [(10, Verdict.REPRODUCED), (9, Verdict.WORSE), (11, Verdict.WORSE)]
)
def test_fewer_instances_than_the_least_that_keep_up_are_not_better(held, expected):
    assert judge_least("instances", 10, held, "dhalion: 22").verdict is expected


def test_a_size_that_curves_are_fitted_to_is_an_illustration_and_that_of_the_second_phase_is_judged():
    sizes = {claim.name: claim for claim in run_quick("two-phases").claims}
    assert sizes["FlatMap and Count after the first phase"].verdict is Verdict.ILLUSTRATION
    assert sizes["FlatMap and Count after the second phase"].verdict is Verdict.REPRODUCED


def test_what_waits_is_drawn_and_sources_are_no_instances():
    found = run_quick("image-pipeline")
    waiting, _, instances = found.charts
    assert [name for name, _, _ in waiting.series] == ["threshold"] and max(waiting.series[0][2]) > 150
    # from second 2345 to 3275, over two changes of rate
    assert verdicts(found)["threshold, images that wait"] is Verdict.WORSE
    means = {one.name.partition(",")[0]: one.measured for one in found.claims if "mean inst" in one.name}
    for policy, _, counts in instances.series:
        assert min(counts) == 3 and sum(counts) / len(counts) == pytest.approx(means[policy], rel=0.05)


def test_figure_8_has_the_rate_and_the_latency_of_three_sizes():
    found = run_quick("accuracy")
    rates, latencies = found.charts
    smaller, chosen, larger = rates.series[0][2]
    assert smaller < 0.999 <= min(chosen, larger)
    slowest, *others = latencies.series[0][2]
    assert slowest > 100 * max(others)
    assert found.claims[0].measured.startswith("chose 24; 23: falls behind, 2.7 s, 24: keeps up, 0.0012 s")


def test_autrascale_is_held_beside_drs_and_a_smaller_size_is_no_success_where_capacities_are_fitted():
    held, _, latency = run_quick("autrascale-latency").claims
    assert held.verdict is not Verdict.BETTER
    # the Gaussian process chose no size
    assert (latency.verdict, latency.published) == (Verdict.ILLUSTRATION, "0.172 s of 0.180 s")
    published = TABLES_2_3["autrascale-yahoo-up"]
    assert [judge_instances(published, size, 43).verdict for size in (30, 48, 60)] == [
        Verdict.NOT_COMPARABLE,
        Verdict.REPRODUCED,
        Verdict.WORSE,
    ]


def test_more_instances_than_a_drs_that_misses_the_target_are_worse_where_the_published_drs_met_it():
    """48 against 43 that miss the target is no 48 against 179."""
    found = judge_against_drs(TABLES_2_3["autrascale-yahoo-up"], 48, 43, other_meets=False)
    assert (found.verdict, found.published) == (Verdict.WORSE, "48 against 179")


@pytest.mark.parametrize(
    ("held", "other", "meets", "expected"),
    [
        (29, 33, True, Verdict.REPRODUCED),
        (65, 19, False, Verdict.REPRODUCED),
        (65, 19, True, Verdict.WORSE),
    ],
)
def test_more_instances_than_drs_are_worse_unless_drs_misses_the_target(held, other, meets, expected):
    finding = judge_against_drs(TABLES_2_3["autrascale-wordcount-up"], held, other, meets)
    assert finding.verdict is expected and finding.published == "65 against 19, which miss the targets"


@pytest.mark.parametrize("name", SIMULATED)
def test_every_claim_of_a_simulated_part_says_its_conditions_and_why_it_is_not_compared(name):
    found = run_quick(name).claims
    assert found and all("simulated" in finding.conditions for finding in found)
    assert all(finding.why for finding in found if finding.verdict is Verdict.NOT_COMPARABLE)


def test_a_model_of_one_rate_spares_samples_at_the_next():
    found = run_quick("autrascale-rates")
    judged = verdicts(found)
    assert judged["query 11: sizes tried"] is Verdict.REPRODUCED
    assert judged["query 11: latency at the second rate"] is Verdict.REPRODUCED
    assert {"query 11: instances more than DS2's", "query 11: iterations more than DS2's"} <= judged.keys()
    bars, over_time, late = found.charts
    # sources are no instances
    assert [series[2][0] for series in bars.series] == [series[2][-1] for series in over_time.series]
    assert all(shares == sorted(shares) and shares[-1] == 1 for _, _, shares in late.series)


def test_skew_leaves_ds2_at_the_size_that_fits_without_it():
    found = verdicts(run_quick("skew"))
    assert {found[f"skew of {share}: final size"] for share in ("20%", "50%", "70%")} == {
        Verdict.ILLUSTRATION
    }


def test_from_above_ds2_stops_one_short_of_the_least_on_most_curves():
    """That table 4 does not show it: no size there is one above the one that others end with."""
    found = run_quick("convergence").claims
    assert {claim.verdict for claim in found} == {Verdict.WORSE}
    assert found[0].measured.startswith("at most 2 steps; least 24") and "25 from 28" in found[0].measured


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ((0.9, 1.0, 1.0), Verdict.REPRODUCED),
        ((1.0, 1.0, 1.0), Verdict.WORSE),
        ((0.9, 0.99, 1.0), Verdict.WORSE),
    ],
)
def test_a_chosen_size_that_is_not_the_least_that_keeps_up_is_worse(read, expected):
    rows = [
        {"size": 15 + place, "chosen": 16, "share_read": share, "latency_s": 1.0}
        for place, share in enumerate(read)
    ]
    assert judge_sizes_beside("curve 1", rows).verdict is expected


def test_growing_with_skew_or_going_on_changing_is_worse():
    row = {"case": "50%", "final": {"flatmap": 10, "count": 20}, "read": 0.3, "steps": 1}
    assert {claim.verdict for claim in judge_skewed(row)} == {Verdict.ILLUSTRATION}
    larger = {**row, "final": {"flatmap": 10, "count": 30}, "steps": 3}
    assert {claim.verdict for claim in judge_skewed(larger)} == {Verdict.WORSE}


def test_slower_algorithms_than_published_are_worse_and_miss_their_targets():
    row = {"operators": 2, "train_s": 1.0, "use_s": 1.0, "transfer_s": 1.0}
    found = judge_cost(Measurement([{**row, "operators": count} for count in (2, 4, 6, 8, 10)]))
    assert {(claim.verdict, claim.met) for claim in found.claims} == {(Verdict.WORSE, False)}
    quick = judge_cost(
        Measurement([{**row, "operators": count, "train_s": 1e-3} for count in (2, 4, 6, 8, 10)])
    )
    assert {(one.verdict, one.met) for one in quick.targets[:5]} == {(Verdict.BETTER, True)}


def a_run(steps, sizes, ended):
    actions = [
        {"at": ended - 10.0, "ended_at": ended, "from": {}, "to": {"flatmap": sizes[0], "count": sizes[1]}}
    ] * steps
    final = {"flatmap": sizes[0], "count": sizes[1]}
    return {"policy": "ds2", "steps": steps, "final_parallelism": final, "actions": actions}


@pytest.mark.parametrize(
    ("dhalion", "holds"), [(a_run(6, (22, 30), 2000.0), True), (a_run(6, (10, 20), 500.0), False)]
)
def test_a_baseline_that_is_as_good_as_ds2_is_not_reproduced(dhalion, holds):
    ds2 = a_run(1, (10, 20), 60.0)
    time = simulated._judge_dhalion_time(ds2["actions"], dhalion["actions"])
    size = simulated._judge_dhalion_size(dhalion["final_parallelism"])
    assert {time.verdict, size.verdict} == {Verdict.REPRODUCED if holds else Verdict.WORSE}


def test_another_size_after_the_first_phase_is_worse():
    actions = [*a_run(1, (19, 11), 60.0)["actions"], *a_run(1, (7, 5), 900.0)["actions"]]
    right, least = simulated.judge_phase_sizes(actions, 1, (7, 5))
    wrong, more = simulated.judge_phase_sizes([*a_run(1, (18, 11), 60.0)["actions"], actions[1]], 1, (7, 4))
    none, _ = simulated.judge_phase_sizes([], 0, (7, 5))
    assert (right.verdict, least.verdict) == (Verdict.ILLUSTRATION, Verdict.REPRODUCED)
    assert {one.verdict for one in (wrong, more, none)} == {Verdict.WORSE}


def test_a_latency_over_its_target_is_worse():
    row = {"case": "autrascale-yahoo-up", "target_s": 0.25, "instances": 48, "drs_instances": 60}
    late = {**row, "latency_s": 0.3, "drs_latency_s": 0.2, "model_trials": 0}
    *_, latency = judge_latency_targets(Measurement([late])).claims
    assert latency.verdict is Verdict.WORSE


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [Verdict.REPRODUCED, Verdict.REPRODUCED]),
        ({"tried_at_second_rate": 9}, [Verdict.WORSE, Verdict.REPRODUCED]),
        ({"latency_s": 0.3}, [Verdict.REPRODUCED, Verdict.WORSE]),
        ({"transferred_trials": 0}, [Verdict.ILLUSTRATION, Verdict.REPRODUCED]),
        ({"transferred_trials": 0, "tried_at_second_rate": 9}, [Verdict.WORSE, Verdict.REPRODUCED]),
    ],
)
def test_a_model_that_spares_nothing_or_is_late_is_worse(changes, expected):
    row = {"tried_at_first_rate": 7, "tried_at_second_rate": 3, "latency_s": 0.1, "target_s": 0.2}
    row |= {"transferred_trials": 1}
    found = judge_rates(FIGURE_8["autrascale-q11"], {**row, "instances": 20, **changes})
    assert [claim.verdict for claim in found] == expected


@pytest.mark.parametrize(
    ("instances", "late", "expected"),
    [(20, 0.1, Verdict.REPRODUCED), (25, 0.1, Verdict.WORSE), (25, 0.3, Verdict.NOT_COMPARABLE)],
)
def test_more_instances_than_ds2_are_worse_unless_ds2_is_late(instances, late, expected):
    row = {"instances": instances, "latency_s": 0.1, "target_s": 0.2}
    ds2 = {"instances": 20, "latency_s": late, "target_s": 0.2}
    assert judge_beside_ds2(FIGURE_8["autrascale-q11"], row, ds2).verdict is expected
