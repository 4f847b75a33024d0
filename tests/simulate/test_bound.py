"""The causal bound: what a controller could hold that knows all but the future."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.simulate.bound import find_bound
from penstock.simulate.comparison import compare
from penstock.simulate.measures import least_instances
from tests.simulate.experiments import an_experiment

PARSE = {"parse": {"inputs": ["events"], "service_time": "1ms", "instances": 3}}


def day(rate, **changes):
    given = {"operators": PARSE, "duration": 3600, "scaling": {"kind": "live", "pause": "30s"}, **changes}
    return an_experiment(sources={"events": {"rate": rate}}, **given)


def test_a_constant_load_without_noise_is_held_exactly():
    bound = find_bound(day("constant:2500"))
    assert (bound.run.held[:, 1] == 3).all()
    assert (bound.measures.over_slot_seconds, bound.measures.under_seconds) == (0, 0)


def test_a_step_that_nobody_can_foresee_makes_it_short_for_the_delay():
    # one window of 10 s in which it is seen, and 30 s until the change is there
    bound = find_bound(day("steps:0=900,1800=30000"), allowed=0.0)
    assert bound.measures.under_seconds in range(30, 51)


def test_noise_costs_a_margin_and_a_failing_instance_a_spare():
    swing = "sine:mean=20000,amplitude=15000,period=1800"
    quiet, noisy = (find_bound(day(swing, noise=noise)) for noise in (0.0, 0.1))
    assert quiet.measures.over_slot_seconds < noisy.measures.over_slot_seconds
    failing = [{"operator": "parse", "every": "10min", "lasts": "1min"}]
    spared = find_bound(day("constant:9800", failures=failing))
    assert spared.run.held[-1, 1] == 11
    assert spared.measures.under_seconds <= 4


def test_the_same_spike_is_foreseen_on_the_second_day():
    spikes = "bursts:base=2000,peak=9000,every=86400,length=600"
    settings = {"policy_interval": 300, "max_executors": 12}
    bound = find_bound(day(spikes, duration=2 * 86400, settings=settings), allowed=0.0)
    assert "the day before" in bound.predictor and bound.measures.under_seconds == 0


@settings(max_examples=10, deadline=None)
@given(mean=st.integers(1500, 9000), noise=st.sampled_from([0.0, 0.05]), seed=st.integers(0, 9))
def test_it_is_short_in_few_seconds_and_never_cheaper_than_the_oracle(mean, noise, seed):
    experiment = day(f"sine:mean={mean},amplitude={mean // 2},period=3000", noise=noise)
    bound = find_bound(experiment, seed)
    assert bound.measures.under_seconds <= 4
    oracle = least_instances(experiment)[:, 1]
    assert bound.run.held[:, 1].sum() >= oracle.sum() - 4 * oracle.max()
    assert np.array_equal(bound.run.held, find_bound(experiment, seed).run.held)


def test_every_comparison_has_the_bound_beside_its_policies():
    comparison = compare(day("constant:2500"), ["ds2"], 0, lambda _: None)
    written = comparison.to_json()
    assert [one["policy"] for one in written["policies"]] == ["ds2"]
    assert written["bound"]["over_slot_seconds_ratio"] == pytest.approx(0)
    assert "windows" in written["bound"]["predictor"]
