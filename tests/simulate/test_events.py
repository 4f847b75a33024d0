"""Single records: exact results of queueing theory, percentiles, the same whatever the steps."""

import numpy as np
import pytest

from penstock.decide.queueing.queues import markov_response_seconds
from penstock.simulate.events import BINS, VirtualEvents, count_latencies, percentiles
from penstock.simulate.measures import measure
from penstock.simulate.run import simulate
from penstock.simulate.virtual import BACKLOG, LATENCY, QUEUED, READ
from tests.simulate.experiments import an_experiment


def queue(rate, duration=4000, arrivals="poisson", **operator):
    return an_experiment(
        duration=duration,
        latency="events",
        sources={"events": {"rate": f"constant:{rate}", "arrivals": arrivals}},
        operators={"serve": {"inputs": ["events"], "service_time": "100ms", **operator}},
    )


def mean_latency(experiment, seeds=3):
    found = []
    for seed in range(seeds):
        dataflow = VirtualEvents(experiment, seed)
        dataflow.advance(experiment.seconds)
        found.append(dataflow.latency(experiment.seconds // 10, experiment.seconds))
    return np.mean(found)


def test_mm1_and_mmk_have_their_exact_mean_response():
    one = queue(7, duration=20_000, distribution="exponential")
    assert mean_latency(one) == pytest.approx(1 / (10 - 7), rel=0.05)
    four = queue(32, duration=10_000, distribution="exponential", instances=4)
    assert mean_latency(four) == pytest.approx(markov_response_seconds(4, 32, 10), rel=0.05)


def test_md1_waits_half_as_long_and_a_constant_load_not_at_all():
    # Pollaczek-Khinchine: waiting ρ / (2 μ (1 − ρ)) with constant service
    constant = queue(7, duration=20_000)
    assert mean_latency(constant) == pytest.approx(0.1 + 0.7 / (2 * 10 * 0.3), rel=0.05)
    even = queue(7, arrivals="even")
    assert mean_latency(even, seeds=1) == pytest.approx(0.1)


@pytest.mark.parametrize("kind", ["gamma", "lognormal"])
def test_mg1_waits_by_the_variation_of_its_service(kind):
    cv = 1.5
    experiment = queue(5, duration=30_000, distribution={"kind": kind, "cv": cv})
    expected = 0.1 + 0.5 / (10 * 0.5) * (1 + cv**2) / 2
    assert mean_latency(experiment) == pytest.approx(expected, rel=0.08)


def test_percentiles_of_records_are_those_of_the_exponential_response_of_mm1():
    experiment = queue(5, duration=20_000, distribution="exponential")
    dataflow = VirtualEvents(experiment, 1)
    dataflow.advance(experiment.seconds)
    # the response time of M/M/1 is exponential with the rate μ − λ
    expected = [-np.log(1 - share) / 5 for share in (0.5, 0.95, 0.99)]
    assert dataflow.record_latencies() == pytest.approx(expected, rel=0.08)


def test_one_advance_is_the_same_as_many():
    operators = {
        "parse": {"inputs": ["events"], "service_time": "80ms", "instances": 3, "selectivity": 1.5},
        "count": {"inputs": ["parse"], "service_time": "30ms", "instances": 2, "distribution": "exponential"},
    }
    operators["parse"]["distribution"] = {"kind": "gamma", "cv": 0.5}
    sources = {"events": {"rate": "constant:30", "arrivals": "poisson"}}
    experiment = an_experiment(latency="events", sources=sources, operators=operators)
    whole, pieces = VirtualEvents(experiment, 5), VirtualEvents(experiment, 5)
    whole.advance(300)
    for until in range(7, 301):
        pieces.advance(until)
    assert np.allclose(whole.seen[:, [READ, LATENCY]], pieces.seen[:, [READ, LATENCY]])
    assert whole.record_latencies() == pieces.record_latencies()
    assert whole.waiting(2) == pieces.waiting(2)


def test_records_wait_for_a_restart_and_for_failed_instances():
    experiment = an_experiment(
        duration=600,
        latency="events",
        sources={"events": {"rate": "constant:15"}},
        operators={"serve": {"inputs": ["events"], "service_time": "100ms", "instances": 2}},
        scaling={"kind": "restart", "pause": "20s"},
        failures=[{"operator": "serve", "start": 300, "lasts": 60}],
    )
    dataflow = VirtualEvents(experiment)
    dataflow.advance(100)
    dataflow.change({"serve": 3})
    dataflow.advance(600)
    assert (dataflow.seen[101:120, READ] == 0).all() and dataflow.seen[110, BACKLOG] == 300
    assert dataflow.seen[125, LATENCY] > 10 and dataflow.seen[200, LATENCY] == pytest.approx(0.1)
    # two of three instances are left from 300 on, and they are enough
    assert dataflow.seen[350, LATENCY] == pytest.approx(0.1) and dataflow.seen[599, QUEUED] == 0


def test_what_a_policy_sees_has_the_work_of_each_instance():
    dataflow = VirtualEvents(queue(15, duration=100, instances=2), 0)
    dataflow.advance(100)
    operator, records, worked = dataflow.instance_work()
    assert operator.tolist() == [0, 1, 1]
    assert worked[1:] == pytest.approx(records[1:] * 0.1)
    assert dataflow.instance_work()[1].sum() == 0


def test_a_run_is_measured_by_records_and_seeded():
    experiment = queue(25, duration=900, distribution="exponential")
    runs = [simulate(experiment, "ds2", seed) for seed in (1, 1, 2)]
    first, again, other = (measure(run) for run in runs)
    assert first == again and first != other
    assert first.p99_latency_seconds > first.p50_latency_seconds > 0 and first.steps >= 1


def test_the_histogram_gives_percentiles_within_its_bins():
    counts = np.zeros(BINS, dtype=np.int64)
    ages = np.random.default_rng(0).lognormal(0, 1, 50_000)
    count_latencies(ages, counts)
    assert percentiles(counts, (50.0, 99.0)) == pytest.approx(np.percentile(ages, [50, 99]), rel=0.02)
    assert percentiles(np.zeros(BINS, dtype=np.int64), (50.0,)) == (0.0,)
