"""Micro-batches on shared slots: their times, what a policy sees, and the real loop over them."""

import numpy as np
import pytest

from penstock.dataflow.window import EXECUTORS, SlotWindow
from penstock.simulate.batches import VirtualBatches
from penstock.simulate.measures import least_instances, measure
from penstock.simulate.run import BatchSource, follow_sizes, simulate
from penstock.simulate.virtual import BACKLOG, LATENCY, READ
from tests.simulate.experiments import an_experiment

OPERATORS = {
    "count": {"inputs": ["events"], "service_time": "8ms", "tasks": 8, "task_time": "50ms", "selectivity": 0}
}
BATCHES = {"trigger": "10s", "serial": "1s", "executors": 2, "cores": 2}
SETTINGS = {"policy_interval": 20, "warm_up_intervals": 1, "batch_period": "10s"}


def spark(rate="constant:200", **changes):
    sources = {"events": {"rate": rate, "tasks": 4}}
    given = {"operators": OPERATORS, "batches": BATCHES, "settings": SETTINGS, "duration": 1200, **changes}
    return an_experiment(sources=sources, **given)


def test_a_batch_takes_its_serial_time_and_the_waves_of_its_stages():
    batches = VirtualBatches(spark())
    batches.advance(60)
    first, *_, last = batches.finished
    # 2,000 records of 8 ms on 8 tasks of 50 ms: 4 slots take two waves of 2.05 s each
    assert last.input_records == pytest.approx(2000)
    assert last.seconds == pytest.approx(1 + 2 * 2.05, abs=0.01)
    assert (last.slots, last.stages[1].tasks, last.start % 10) == (4, 8, 0)
    assert first.start == 10 and [batch.batch_id for batch in batches.finished] == [0, 1, 2, 3, 4]
    # half a trigger interval of waiting, and the batch
    assert batches.latency == pytest.approx(5 + 5.1, abs=0.01)
    assert batches.seen[20:50, READ].sum() == pytest.approx(6000, rel=0.01)


def test_a_size_that_does_not_keep_up_has_long_batches_and_a_backlog():
    batches = VirtualBatches(spark("constant:600"))
    batches.advance(600)
    assert batches.finished[-1].seconds > 30 and batches.seen[599, BACKLOG] > 10_000
    assert batches.seen[599, LATENCY] > 30


def test_executors_that_come_during_a_batch_leave_it_unsettled():
    batches = VirtualBatches(spark(scaling={"kind": "live", "pause": "2s"}))
    batches.advance(51)
    batches.change({EXECUTORS: 4})
    batches.advance(80)
    settled = {batch.start: (batch.settled, batch.slots) for batch in batches.finished}
    assert settled[50.0] == (False, 4) and settled[60.0] == (True, 8) and settled[40.0] == (True, 4)


def test_a_long_batch_is_seen_while_it_runs():
    batches = VirtualBatches(spark("constant:600"))
    source = BatchSource(batches, 3)
    batches.advance(300)
    source.observe(300.0)
    batches.advance(301)
    assert batches.running is not None and batches.running.seconds > 10
    begun = batches.running.start
    batches.advance(int(begun) + 3)
    window = source.observe(batches.now)
    (query,) = window.queries
    assert query.running.batch_id == len(batches.ended) and query.running.start == begun
    # a second of it is the driver's own, and stages follow one another
    read, count = query.running.stages
    assert read.is_over and read.tasks_done == read.tasks_total == 4
    assert not count.is_over and count.tasks_done < 8 and count.tasks_running == 4
    assert query.batches == () and batches.advance(int(begun) + 200) is None


def test_growth_goes_on_while_a_batch_of_ten_times_the_records_runs():
    many = {"count": {**OPERATORS["count"], "tasks": 64}}
    experiment = spark("steps:0=300,400=6000", duration=1200, operators=many, scaling={"pause": "20s"})
    run = simulate(experiment, "ds2", 1)
    grown = [action.intended_at for action in run.actions if action.intended_at > 400]
    longest = max(run.batches, key=lambda batch: batch.seconds)
    during = [at for at in grown if longest.start < at < longest.start + longest.seconds]
    assert longest.seconds > 120 and during


def test_a_policy_sees_what_spark_would_show():
    experiment = spark(noise=0.02)
    batches = VirtualBatches(experiment)
    source = BatchSource(batches, 3)
    batches.advance(40)
    window = source.observe(40.0)
    (query,) = window.queries
    assert isinstance(window, SlotWindow) and window.slots == 4
    assert window.parallelism == {EXECUTORS: 2} and query.period_seconds == 10
    assert len(query.batches) == 3 and query.batches[-1].stages[0].records_in.sum() == pytest.approx(2000)
    assert query.sources["events"].offered_per_second == pytest.approx(200, rel=0.1)
    batches.advance(60)
    # the one of 50 has just ended, and that of 40 before it
    assert len(source.observe(60.0).queries[0].batches) == 2


def test_ds2_sizes_executors_and_the_oracle_knows_the_least():
    many = {"count": {**OPERATORS["count"], "tasks": 48}}
    experiment = spark("steps:0=200,600=900", noise=0.02, duration=1800, operators=many)
    run = simulate(experiment, "ds2", 1)
    assert run.errors == {} and run.held[-1, 0] > run.held[500, 0]
    least = least_instances(experiment)
    assert least[0, 0] <= run.held[500, 0] and least[-1, 0] <= run.held[-1, 0]
    # the oracle's size just fits: one executor less would not end within the trigger interval
    size = int(least[-1, 0])
    rates = experiment.capacities[0]
    assert rates[size] >= 900 > rates[size - 1]
    assert measure(run).under_seconds < 500 and run.seen[-1, BACKLOG] <= 10_000


def test_the_oracle_of_tasks_that_scatter_can_be_held():
    scattered = {"count": {**OPERATORS["count"], "tasks": 32, "distribution": {"kind": "lognormal", "cv": 1}}}
    even = {"count": {**OPERATORS["count"], "tasks": 32}}
    settings = {**SETTINGS, "max_executors": 16}
    rough, smooth = (spark("constant:300", operators=o, settings=settings) for o in (scattered, even))
    size = int(least_instances(rough)[0, 0])
    assert size > int(least_instances(smooth)[0, 0])
    run = follow_sizes(rough, np.full((1200, 1), size), "oracle", 3)
    shares = [batch.seconds <= 10 for batch in run.batches]
    assert np.mean(shares) >= 0.9 and run.seen[-1, BACKLOG] <= 2 * 10 * 300
    mean_size = int(least_instances(smooth)[0, 0])
    small = follow_sizes(rough, np.full((1200, 1), mean_size), "too small", 3)
    assert np.mean([batch.seconds <= 10 for batch in small.batches]) < 0.9


def test_executors_fail_and_come_back():
    experiment = spark(failures=[{"operator": "executors", "start": 100, "lasts": 100, "instances": 1}])
    batches = VirtualBatches(experiment)
    batches.advance(150)
    assert batches.slots == 2 and batches.parallelism() == {EXECUTORS: 2}
    batches.advance(300)
    assert batches.slots == 4


@pytest.mark.parametrize("policy", ["ds2", "queueing", "autrascale", "dynamic-allocation"])
def test_policies_of_spark_run_on_batches(policy):
    settings = {**SETTINGS, "latency_target": "15s"}
    run = simulate(spark("constant:500", noise=0.02, settings=settings, duration=3600), policy, 0)
    assert run.errors == {} and (run.held >= 1).all() and run.held.shape == (3600, 1)
    assert np.isfinite(run.seen).all()
