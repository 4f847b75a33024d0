"""The fluid model: nothing is lost or made, queues stay in their bounds, records leave with their age."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.simulate.flow import VirtualDataflow, share_records
from penstock.simulate.ports import VirtualSource
from penstock.simulate.virtual import BACKLOG, LATENCY, QUEUED, READ
from tests.simulate.experiments import an_experiment

DIAMOND = {
    "left": {"inputs": ["events"], "service_time": "0.5ms", "selectivity": 0.5, "queue": 300},
    "right": {"inputs": ["events", "other"], "service_time": "1ms", "selectivity": 3, "queue": 700},
    "join": {"inputs": ["left", "right"], "service_time": "0.4ms", "queue": 400},
}
SOURCES = {
    "events": {"rate": "sine:mean=900,amplitude=600,period=120"},
    "other": {"rate": "bursts:base=10,peak=900,every=60,length=7", "keeps_backlog": False},
}


def run(dataflow, until):
    dataflow.advance(until)
    return dataflow.flow


@settings(max_examples=40, deadline=None)
@given(
    instances=st.lists(st.integers(1, 6), min_size=3, max_size=3),
    until=st.integers(1, 300),
    queue=st.sampled_from([50, 400, 10_000, None]),
)
def test_records_are_conserved_and_queues_bounded(instances, until, queue):
    operators = {
        name: {**spec, "instances": count, "queue": queue}
        for (name, spec), count in zip(DIAMOND.items(), instances, strict=True)
    }
    experiment = an_experiment(sources=SOURCES, operators=operators)
    dataflow = VirtualDataflow(experiment)
    flow = run(dataflow, until)
    assert np.allclose(flow.arrived, flow.processed + flow.queue + flow.lost)
    assert np.allclose(flow.arrived[:2], experiment.offered[:until, :2].sum(axis=0))
    selectivity = dataflow.wiring.selectivity
    for number, feeds in enumerate(experiment.graph.upstream):
        if feeds:
            sent = sum(flow.processed[feed] * selectivity[feed] for feed in feeds)
            assert flow.arrived[number] == pytest.approx(sent)
    assert (flow.queue >= 0).all() and (flow.processed >= 0).all()
    if queue is not None:
        scaled = experiment.graph.is_scalable
        assert (flow.queue[scaled] <= queue * (1 + 1e-9)).all()
    assert (dataflow.seen[:until] >= 0).all()


def test_a_pipeline_that_keeps_up_has_empty_queues_and_the_latency_of_its_services():
    experiment = an_experiment().starting_with({"parse": 1, "count": 2})
    dataflow = VirtualDataflow(experiment)
    run(dataflow, 100)
    assert (dataflow.flow.queue == 0).all()
    assert dataflow.seen[99, READ] == pytest.approx(1000)
    assert dataflow.seen[99, LATENCY] == pytest.approx(0.002, abs=1e-5)


def test_backpressure_slows_the_source_to_what_the_slowest_operator_takes():
    # count takes 1,000 words a second, and a record of the source becomes two
    dataflow = VirtualDataflow(an_experiment())
    run(dataflow, 100)
    assert dataflow.seen[50:100, READ] == pytest.approx(np.full(50, 500.0))
    assert dataflow.seen[99, BACKLOG] == pytest.approx(100 * 500 - 500 - 250, rel=0.02)
    assert dataflow.seen[99, QUEUED] == pytest.approx(1000)


def test_without_bounds_records_wait_inside():
    operators = {
        "parse": {"inputs": ["events"], "service_time": "1ms", "selectivity": 2},
        "count": {"inputs": ["parse"], "service_time": "1ms"},
    }
    dataflow = VirtualDataflow(an_experiment(operators=operators))
    run(dataflow, 100)
    assert dataflow.seen[99, READ] == pytest.approx(1000)
    assert dataflow.seen[99, BACKLOG] == 0
    # two thousand arrive and one thousand leave: what leaves now, the 100,000th, came after 50 seconds
    assert dataflow.seen[99, QUEUED] == pytest.approx(100_000)
    assert dataflow.seen[99, LATENCY] == pytest.approx(50, abs=0.01)


def test_what_leaves_has_the_age_of_its_record_while_a_queue_grows_and_shrinks():
    # 2,000 a second for 60 s on a capacity of 1,000, then 500: by hand, records leave in their order
    parse = {"inputs": ["events"], "service_time": "1ms"}
    experiment = an_experiment(
        sources={"events": {"rate": "steps:0=2000,60=500"}}, operators={"parse": parse}, duration=200
    )
    dataflow = VirtualDataflow(experiment)
    dataflow.advance(200)
    left = np.arange(1, 201) * 1000.0
    came = np.where(left <= 120_000, left / 2000, 60 + (left - 120_000) / 500)
    expected = np.maximum(0.0, np.arange(1, 201) - came)
    assert dataflow.seen[:, LATENCY] == pytest.approx(expected, abs=0.01)
    # Little's law would have said 30 s after half a minute, and the record that leaves then is 15 s old
    assert dataflow.seen[29, LATENCY] == pytest.approx(15, abs=0.01)


@settings(max_examples=25, deadline=None)
@given(
    rates=st.lists(st.integers(0, 3000), min_size=4, max_size=4),
    sizes=st.lists(st.integers(1, 3), min_size=2, max_size=2),
)
def test_ages_are_those_of_records_followed_one_by_one(rates, sizes):
    steps = ",".join(f"{20 * number}={rate}" for number, rate in enumerate(rates))
    first, second = sizes
    operators = {
        "parse": {"inputs": ["events"], "service_time": "1ms", "instances": first},
        "count": {"inputs": ["parse"], "service_time": "1ms", "instances": second},
    }
    experiment = an_experiment(
        sources={"events": {"rate": f"steps:{steps}"}}, operators=operators, duration=100
    )
    dataflow = VirtualDataflow(experiment)
    dataflow.advance(100)
    # plain reference: one record after the other, each at most so many a second through both operators
    offered = experiment.offered[:, 0]
    came = np.interp(np.arange(0.5, offered.sum()), np.cumsum([0, *offered]), np.arange(101))
    ages = dict.fromkeys(range(100), 0.0)
    free = [0.0, 0.0]
    for birth in came:
        at = birth
        for place, size in enumerate(sizes):
            free[place] = at = max(at, free[place] + 0.001 / size)
        if at < 100:
            ages[int(at)] = at - birth
    busy = [second for second in range(5, 100) if offered[second] > 0 and ages[second] > 0]
    seen = dataflow.seen[busy, LATENCY] if busy else np.zeros(0)
    assert seen == pytest.approx([ages[second] for second in busy], abs=1.1)


def test_new_instances_are_slow_until_they_are_warm():
    scaling = {"kind": "live", "pause": "20s", "warm_up": "30s", "cold": 0.5}
    parse = {"inputs": ["events"], "service_time": "1ms"}
    experiment = an_experiment(
        scaling=scaling, operators={"parse": parse}, sources={"events": {"rate": "constant:5000"}}
    )
    dataflow = VirtualDataflow(experiment)
    dataflow.advance(10)
    dataflow.change({"parse": 3})
    dataflow.advance(100)
    done = np.diff(dataflow.capable[:, 1][[0, 29, 30, 59, 60, 99]])
    # 1,000 a second, from second 30 on two new ones at half their speed, from 60 on all of them
    assert done.tolist() == pytest.approx([0, 1000, 0, 1000, 0])


def test_a_restart_stops_all_for_its_pause_and_records_grow_older_meanwhile():
    experiment = an_experiment(scaling={"kind": "restart", "pause": "20s"})
    dataflow = VirtualDataflow(experiment)
    dataflow.advance(10)
    assert dataflow.change({"parse": 1, "count": 2}) == 30
    dataflow.advance(60)
    assert (dataflow.seen[10:30, READ] == 0).all() and (dataflow.seen[30:60, READ] > 0).all()
    assert dataflow.down[10:30].all() and dataflow.down.sum() == 20
    assert np.diff(dataflow.seen[10:30, LATENCY]) == pytest.approx(np.full(19, 1.0))
    count = experiment.graph.index["count"]
    assert (dataflow.held[:30, count] == 1).all() and (dataflow.held[30:60, count] == 2).all()


def test_live_scaling_goes_on_working_until_the_change_is_there():
    dataflow = VirtualDataflow(an_experiment(scaling={"kind": "live", "pause": "20s"}))
    dataflow.advance(10)
    dataflow.change({"count": 2})
    dataflow.advance(60)
    assert (dataflow.seen[10:30, READ] == 500).all()
    assert dataflow.seen[59, READ] == pytest.approx(1000)
    assert not dataflow.down.any()


def test_a_slow_service_has_its_share_of_capacity_in_its_time():
    slow = {"operator": "parse", "start": 100, "end": 200, "capacity": 0.5}
    experiment = an_experiment(slowdowns=[slow]).starting_with({"count": 4})
    dataflow = VirtualDataflow(experiment)
    dataflow.advance(600)
    assert dataflow.seen[99, READ] == pytest.approx(1000)
    assert dataflow.seen[150, READ] == pytest.approx(500)
    assert dataflow.seen[250, READ] == pytest.approx(1000)


def test_with_skew_an_operator_is_full_when_its_busiest_instance_is():
    parse = {"inputs": ["events"], "service_time": "1ms", "instances": 4, "skew": 0.6}
    experiment = an_experiment(sources={"events": {"rate": "constant:9000"}}, operators={"parse": parse})
    dataflow = VirtualDataflow(experiment)
    source = VirtualSource(dataflow, seed=0)
    dataflow.advance(10)
    assert dataflow.seen[9, READ] == pytest.approx(9000)
    # one of four gets 40% of the records, and takes 1,000 a second
    assert dataflow.flow.processed[1] == pytest.approx(10 * 2500)
    metrics = source.observe(10.0).queries[0].metrics
    assert metrics.useful_seconds[1:].tolist() == pytest.approx([10, 5, 5, 5])
    assert metrics.records_in[1:].tolist() == pytest.approx([10_000, 5000, 5000, 5000])


def test_a_single_instance_knows_no_skew():
    assert share_records(np.array([1, 2]), np.array([0.0, 1.0])).tolist() == [1.0, 1.0, 0.0]


def test_one_advance_is_the_same_as_many():
    whole, pieces = VirtualDataflow(an_experiment()), VirtualDataflow(an_experiment())
    whole.advance(300)
    for until in range(7, 301, 1):
        pieces.advance(until)
    assert np.array_equal(whole.seen, pieces.seen)


def test_random_waiting_is_that_of_the_single_server_queue():
    # M/M/1 at a load of one half: a record waits as long as it is served
    parse = {"inputs": ["events"], "service_time": "1ms", "variability": 1}
    experiment = an_experiment(sources={"events": {"rate": "constant:500"}}, operators={"parse": parse})
    dataflow = VirtualDataflow(experiment)
    dataflow.advance(10)
    assert dataflow.seen[9, LATENCY] == pytest.approx(0.002, abs=1e-5)
