"""Failures, neighbours, crowded cores, remote limits and random arrivals: all seeded."""

import numpy as np
import pytest

from penstock.decide.policy import ExpectedEffect, Hold, Scale
from penstock.simulate.capacity import Distribution
from penstock.simulate.flow import VirtualDataflow
from penstock.simulate.measures import least_instances, measure
from penstock.simulate.ports import VirtualSource
from penstock.simulate.run import run_policy
from penstock.simulate.virtual import LATENCY, READ, draw_disturbances, draw_offered
from tests.fakes import FixedPolicy
from tests.simulate.experiments import an_experiment


def parse(**changes):
    return {"parse": {"inputs": ["events"], "service_time": "1ms", "queue": 500, **changes}}


def test_failed_instances_are_held_and_do_nothing():
    failure = {"operator": "parse", "start": 100, "lasts": 50, "instances": 1}
    experiment = an_experiment(
        operators=parse(instances=2),
        failures=[failure],
        sources={"events": {"rate": "constant:1500"}},
    )
    dataflow = VirtualDataflow(experiment)
    source = VirtualSource(dataflow, 0)
    dataflow.advance(120)
    assert dataflow.seen[99, READ] == pytest.approx(1500) and dataflow.seen[119, READ] == pytest.approx(1000)
    assert dataflow.parallelism()["parse"] == 2
    source.observe(120.0)
    dataflow.advance(130)
    metrics = source.observe(130.0).queries[0].metrics
    assert metrics.useful_seconds[1:].tolist() == pytest.approx([10, 0])
    dataflow.advance(600)
    assert dataflow.seen[599, READ] == pytest.approx(1500)


def test_short_counts_what_has_failed_and_what_is_still_cold():
    failure = {"operator": "parse", "start": 100, "lasts": 50, "instances": 1}
    experiment = an_experiment(
        operators=parse(instances=2), failures=[failure], sources={"events": {"rate": "constant:1500"}}
    )
    run = run_policy(experiment, FixedPolicy(Hold("enough")))
    measures = measure(run)
    # two are held all the time and are what the oracle holds, but for 50 seconds only one of them works
    assert (measures.under_slot_seconds, measures.under_seconds) == (0, 50)
    growing = an_experiment(
        operators=parse(),
        sources={"events": {"rate": "constant:1500"}},
        scaling={"kind": "live", "pause": "5s", "warm_up": "60s", "cold": 0.2},
    )
    change = Scale({"events": 1, "parse": 2}, "because", ExpectedEffect("better"))
    run = run_policy(growing, FixedPolicy(change, change, Hold("enough")))
    # the change of second 20 is there at 25, and its instance does 200 a second instead of 1,000 until 85
    assert measure(run).under_seconds == 85


def test_noise_is_that_of_an_operator_however_many_instances_it_has():
    experiment = an_experiment(
        noise=0.1, operators=parse(instances=50), sources={"events": {"rate": "constant:20000"}}
    )
    dataflow = VirtualDataflow(experiment)
    source, busy = VirtualSource(dataflow, 0), []
    for until in range(5, 600, 5):
        dataflow.advance(until)
        busy.append(source.observe(float(until)).queries[0].metrics.useful_seconds[1:].sum())
    assert np.std(busy) / np.mean(busy) == pytest.approx(0.1, rel=0.25)


def test_metrics_are_known_a_lag_after_their_time():
    experiment = an_experiment(
        metrics_lag=7, sources={"events": {"rate": "steps:0=100,50=900"}}, operators=parse(instances=2)
    )
    policy = FixedPolicy(Hold("enough"))
    run_policy(experiment, policy)
    spans = [(window.start, window.end) for window in policy.windows[:3]]
    assert spans == [(0, 3), (3, 13), (13, 23)]
    rates = {int(w.end): w.queries[0].sources["events"].offered_per_second for w in policy.windows}
    assert (rates[43], rates[53], rates[63]) == pytest.approx((100, (7 * 100 + 3 * 900) / 10, 900))


def test_when_all_have_failed_nothing_is_processed():
    failure = {"operator": "parse", "start": 10, "lasts": 10}
    dataflow = VirtualDataflow(an_experiment(operators=parse(), failures=[failure]))
    dataflow.advance(30)
    assert (dataflow.flow.processed[1], dataflow.seen[15, LATENCY] > 4) == (pytest.approx(20_000), True)


def test_random_failures_come_as_often_as_they_are_said_to():
    failure = {"operator": "parse", "every": "1000s", "lasts": "20s"}
    experiment = an_experiment(duration=200_000, operators=parse(instances=2), failures=[failure])
    found = draw_disturbances(experiment, 4)
    spells = np.flatnonzero(np.diff(found.failed[:, 1]) > 0)
    assert 150 < len(spells) < 250 and found.failed[:, 1].sum() == pytest.approx(20 * len(spells), rel=0.05)
    again, other = draw_disturbances(experiment, 4), draw_disturbances(experiment, 5)
    assert np.array_equal(found.failed, again.failed) and not np.array_equal(found.failed, other.failed)
    assert found.steady_until(0) == spells[0] + 1 and found.changes[-1] == 200_000


def test_neighbours_slow_all_operators_down_again_and_again():
    neighbours = {"every": "200s", "lasts": "50s", "capacity": 0.5}
    experiment = an_experiment(duration=20_000, interference={"neighbours": neighbours})
    shares = draw_disturbances(experiment, 0).shares
    assert set(np.unique(shares)) == {0.5, 1.0} and (shares[:, 0] == shares[:, 1]).all()
    assert 0.1 < (shares[:, 0] < 1).mean() < 0.35


def test_instances_beyond_the_cores_slow_each_other_down_and_the_oracle_knows():
    operators = parse(instances=8)
    sources = {"events": {"rate": "constant:20000"}}
    experiment = an_experiment(operators=operators, sources=sources, interference={"cores": 5, "weight": 0.5})
    dataflow = VirtualDataflow(experiment)
    dataflow.advance(10)
    # nine instances on five cores, each slower by 1 + 0.5 · 0.8
    assert dataflow.seen[9, READ] == pytest.approx(8000 / 1.4)
    quiet = an_experiment(operators=operators, sources={"events": {"rate": "constant:3500"}})
    crowded = an_experiment(
        operators=operators,
        sources={"events": {"rate": "constant:6500"}},
        interference={"cores": 5, "weight": 0.5},
    )
    assert least_instances(quiet)[0, 1] == 4
    least = int(least_instances(crowded)[0, 1])
    held = np.array([1, least])
    assert crowded.capacity_of(held)[1] * crowded.slow_down(held) >= 6500


def test_a_remote_service_takes_only_so_much_however_many_ask():
    experiment = an_experiment(
        operators=parse(instances=8, limit=2500), sources={"events": {"rate": "constant:5000"}}
    )
    dataflow = VirtualDataflow(experiment)
    dataflow.advance(10)
    assert dataflow.seen[9, READ] == pytest.approx(2500)
    assert least_instances(experiment)[0, 1] == 3


@pytest.mark.parametrize(("rate", "busy"), [(2000, 2000 / 8000), (5000, 1.0)])
def test_instances_are_slow_only_while_a_remote_service_holds_them_back(rate, busy):
    experiment = an_experiment(
        operators=parse(instances=8, limit=2500), sources={"events": {"rate": f"constant:{rate}"}}
    )
    dataflow = VirtualDataflow(experiment)
    dataflow.advance(100)
    _, records, worked = dataflow.instance_work()
    assert worked[1:].sum() == pytest.approx(8 * 100 * busy, rel=0.01)
    # what a policy takes for the capacity of all instances: their own, or what the service leaves them
    assert 8 * records[1:].sum() / worked[1:].sum() == pytest.approx(8000 if busy < 1 else 2500, rel=0.01)


def test_a_source_outside_takes_no_core_from_instances():
    crowd = {"operators": parse(instances=6), "interference": {"cores": 6, "weight": 0.5}}
    inside = an_experiment(**crowd)
    outside = an_experiment(**crowd, sources={"events": {"rate": "constant:1000", "slots": 0}})
    assert (inside.slow_down(inside.initial) < 1, outside.slow_down(outside.initial)) == (True, 1.0)


def test_coordination_adds_latency_with_each_instance():
    experiment = an_experiment(operators=parse(instances=5, coordination="3ms"))
    dataflow = VirtualDataflow(experiment)
    dataflow.advance(10)
    assert dataflow.seen[9, LATENCY] == pytest.approx(0.001 + 0.015, abs=1e-5)


def test_poisson_arrivals_scatter_and_are_the_same_for_every_policy():
    experiment = an_experiment(sources={"events": {"rate": "constant:100", "arrivals": "poisson"}})
    drawn = draw_offered(experiment, 1)[:, 0]
    assert drawn.mean() == pytest.approx(100, rel=0.05) and drawn.var() == pytest.approx(100, rel=0.25)
    assert np.array_equal(drawn, draw_offered(experiment, 1)[:, 0])
    assert not np.array_equal(drawn, draw_offered(experiment, 2)[:, 0])
    assert experiment.offered[0, 0] == 100


def test_variability_follows_from_the_distributions_unless_it_is_given():
    sources = {"events": {"rate": "constant:100", "arrivals": "poisson"}}
    gamma = an_experiment(sources=sources, operators=parse(distribution={"kind": "gamma", "cv": 2}))
    given = an_experiment(sources=sources, operators=parse(distribution="exponential", variability=0.25))
    assert gamma.variability[1] == pytest.approx((1 + 4) / 2) and given.variability[1] == 0.25


@pytest.mark.parametrize(
    "kind",
    [
        Distribution(),
        Distribution(kind="exponential"),
        Distribution(kind="lognormal", cv=0.7),
        Distribution(kind="gamma", cv=0.4),
        Distribution(kind="gamma", cv=1.6),
    ],
)
def test_service_times_have_their_mean_and_variation(kind):
    drawn = kind.draw_factors(np.random.default_rng(1), 200_000)
    assert drawn.mean() == pytest.approx(1, rel=0.02)
    assert drawn.var() == pytest.approx(kind.squared_variation, rel=0.05, abs=1e-12)
