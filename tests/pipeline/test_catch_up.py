"""What waits before each function counts towards its own catch-up, and towards that of what follows it.

The pipeline of these tests, over ten seconds: images (10/s from outside) → resize (2 instances) → small →
recognise (4 instances); store (1 instance) reads images, too. An instance of recognise does 5 images in a
second, those of the others 50.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.summary import measure_figures, read_operator_query, summarise, write_query
from penstock.decide.ds2.policy import Ds2Policy, size_operator_query
from penstock.decide.goals import Goals
from penstock.decide.policy import Scale
from penstock.decide.queueing.queues import read_loads
from penstock.pipeline import Pipeline, files
from penstock.pipeline.batches import BatchDone, InstanceWork
from penstock.pipeline.monitor import Monitor, TopicReading
from penstock.settings.model import Settings
from penstock_lab.experiments.faults.virtual_pipeline import VirtualPipeline
from tests.decide.built import built
from tests.pipeline.test_monitor import SETTINGS

HELD = {"store": 1, "resize": 2, "recognise": 4}
PER_SECOND = {"store": 50.0, "resize": 50.0, "recognise": 5.0}
DS2 = Goals(utilisation=1.0, catch_up=20.0)


def images(fixed=()):
    pipeline = Pipeline("images", topics=files("topics"))
    pipeline.topic("images", schema="number bigint")
    limits = {name: (HELD[name] if name in fixed else (1, 15)) for name in HELD}
    for name, (reads, writes) in {
        "store": ("images", "large"),
        "resize": ("images", "small"),
        "recognise": ("small", "objects"),
    }.items():
        pipeline.add(
            len, name=name, reads=reads, writes=writes, schema="number bigint", parallelism=limits[name]
        )
    return pipeline


def batch(function, end, records):
    count, rate = HELD[function], PER_SECOND[function]
    work = tuple(
        InstanceWork(n, records / count, records / count, 0.0, records / count / rate) for n in range(count)
    )
    return BatchDone(function, int(end), end - 2, end, count, work)


def window_of(resized=(50, 50), recognised=(50, 50), waiting=0.0, stored_behind=0.0, fixed=()):
    """Batches end after five and ten seconds; `waiting` images are unread for resize, others for store."""
    monitor = Monitor("images", images(fixed).layout())
    readings = {
        "store": {"images": TopicReading(10.0, stored_behind)},
        "resize": {"images": TopicReading(10.0, waiting)},
    }
    assert isinstance(monitor.observe(0.0, HELD, readings), NotReady)
    for name, counts in {"store": (50, 50), "resize": resized, "recognise": recognised}.items():
        for number, records in enumerate(counts):
            monitor.take_in(batch(name, 5.0 * (number + 1), records))
    return monitor.observe(10.0, HELD, readings)


def test_several_topics_from_outside_count_once_each_and_with_what_a_function_wrote():
    """a (30/s) and b (20/s) are read together, and with c, which copy writes from a."""
    pipeline = Pipeline("fan-in", topics=files("topics"))
    for topic in "ab":
        pipeline.topic(topic, schema="number bigint")
    pipeline.add(len, name="copy", reads="a", writes="c", schema="number bigint")
    pipeline.add(len, name="join", reads=["a", "b", "c"])
    monitor, held = Monitor("fan-in", pipeline.layout()), {"copy": 1, "join": 1}
    readings = {
        "copy": {"a": TopicReading(30.0, 0.0)},
        "join": {"a": TopicReading(30.0, 0.0), "b": TopicReading(20.0, 60.0)},
    }
    monitor.observe(0.0, held, readings)
    monitor.take_in(BatchDone("copy", 0, 4.0, 9.0, 1, (InstanceWork(0, 300, 300, 0, 5.0),)))
    monitor.take_in(BatchDone("join", 0, 4.0, 9.0, 1, (InstanceWork(0, 400, 0, 0, 5.0),)))
    (query,) = monitor.observe(10.0, held, readings).queries
    rates = {name: (one.offered_per_second, one.observed_per_second) for name, one in query.readings.items()}
    # join reads 40/s of the 80/s that come: half of each topic
    assert rates == {"copy": (30, 30), "join": (80, 40), "a": (30, 15), "b": (20, 10)}
    assert (query.sources["a"].backlog_records, query.sources["b"].backlog_records) == (0, 60)
    # copy does 60/s and join 80/s; join is fed 30 + 20 + 30, and 60 in 20 s are 3/s more
    needs = size_operator_query(query, held, DS2)
    assert needs.exact == pytest.approx({"a": 1, "b": 1, "copy": 0.5, "join": 83 / 80})


def overdue(window):
    return {name: topic.overdue_records for name, topic in window.queries[0].topics.items()}


def test_a_batch_under_way_and_one_that_waits_are_no_backlog():
    # 100 written and 50 read: 50 wait, and two batches of 25 would be as many
    window = window_of(recognised=(25, 25))
    assert window.queries[0].topics["recognise"].backlog_records == 50
    assert overdue(window) == {"store": 0.0, "resize": 0.0, "recognise": 0.0}


def test_what_exceeds_two_batches_is_overdue():
    # 700 written and 100 read leave 600, of which two batches of 50 are none
    assert overdue(window_of(resized=(350, 350)))["recognise"] == 500


def test_what_waits_outside_is_overdue_before_the_function_that_it_waits_for():
    assert overdue(window_of(waiting=400.0)) == {"store": 0.0, "resize": 400.0, "recognise": 0.0}


class TestDs2:
    def exact(self, **figures):
        answer = Ds2Policy(DS2).propose(window_of(**figures))
        assert isinstance(answer, Scale)
        return answer.exact

    def test_without_a_backlog_only_rates_count(self):
        # 10/s need 10/50, 10/50 and 10/5 instances
        assert self.exact() == pytest.approx({"images": 1, "store": 0.2, "resize": 0.2, "recognise": 2})

    def test_a_backlog_between_functions_counts_before_its_reader_alone(self):
        # 700 written in 10 s at a selectivity of 1; 500 overdue in 20 s are 25/s more: (10 + 25) / 5
        exact = self.exact(resized=(350, 350))
        assert exact == pytest.approx({"images": 1, "store": 0.2, "resize": 0.2, "recognise": 7})

    def test_what_is_caught_up_with_is_passed_on(self):
        # 400 overdue in 20 s are 20/s more for resize, (10 + 20) / 50, and for recognise, 30 / 5
        exact = self.exact(waiting=400.0)
        assert exact == pytest.approx({"images": 1, "store": 0.2, "resize": 0.6, "recognise": 6})

    def test_one_that_keeps_up_needs_no_more_because_another_reader_is_behind(self):
        # 600 overdue for store in 20 s are 30/s more: (10 + 30) / 50
        exact = self.exact(stored_behind=600.0)
        assert exact == pytest.approx({"images": 1, "store": 0.8, "resize": 0.2, "recognise": 2})

    def test_a_function_that_cannot_grow_is_not_fed_less_for_what_waits_before_it(self):
        # recognise stays at 4 instances, 20/s: more than the 10/s that it is fed, whatever waits there
        exact = self.exact(resized=(350, 350), fixed=("recognise",))
        assert exact["resize"] == pytest.approx(0.2)


def test_the_queueing_policy_serves_what_is_overdue_and_learns_from_what_is_fed():
    (load,) = read_loads(window_of(resized=(350, 350)), frozenset(), 20.0)
    station = load.stations["recognise"]
    assert (station.arrival, station.fed) == pytest.approx((35.0, 10.0))
    assert (load.stations["resize"].arrival, load.offered_per_second) == (10.0, 10.0)


@pytest.mark.parametrize(("resized", "needed"), [((50, 50), 3), ((350, 350), 9)])
def test_the_queueing_policy_grows_for_what_waits_between_functions(resized, needed):
    # at a load of 0.8 and 5/s each: 10/s need 2.5 instances, 35/s need 8.75
    answer = built("queueing", latency_target=30.0, catch_up=20.0).propose(window_of(resized=resized))
    assert isinstance(answer, Scale)
    assert answer.parallelism["recognise"] == needed


def test_autrascale_catches_up_and_takes_the_rate_from_outside_for_that_of_its_model():
    policy = built("autrascale", utilisation=1.0, catch_up=20.0, latency_target=30.0)
    answer = policy.propose(window_of(resized=(350, 350)))
    assert isinstance(answer, Scale)
    assert answer.parallelism["recognise"] == 7
    (model,) = policy.models
    assert model.rate == 10.0


@pytest.mark.parametrize("records", [float("nan"), float("inf"), -1.0])
def test_a_backlog_that_cannot_be_is_not_decided_by(records):
    window = window_of()
    (query,) = window.queries
    topics = {"recognise": replace(query.topics["recognise"], overdue_records=records)}
    query = replace(query, topics=topics)
    for policy in (Ds2Policy(DS2), built("queueing", latency_target=30.0)):
        answer = policy.propose(replace(window, queries=(query,)))
        assert isinstance(answer, NotReady) and "the backlog of 'recognise' cannot be right" in answer.reason


def test_figures_of_a_pipeline_count_what_comes_from_outside_and_every_backlog_once():
    # 40 wait for resize, and 100 − 50 for recognise; 10 images come and are read in a second
    window = window_of(recognised=(25, 25), waiting=40.0)
    (query,) = window.queries
    summary = summarise(query)
    assert (summary.offered_per_second, summary.observed_per_second) == (10.0, 10.0)
    assert summary.backlog_records == 90.0
    assert measure_figures(window)["offered_per_second"] == 10.0


def test_a_recorded_window_is_decided_alike():
    window = window_of(resized=(350, 350))
    (query,) = window.queries
    again = read_operator_query(
        replace(summarise(query), detail=write_query(query)), window.start, window.end
    )
    assert again.topics == query.topics and again.sources == query.sources
    decided = [Ds2Policy(DS2).propose(replace(window, queries=(one,))) for one in (query, again)]
    assert decided[0] == decided[1]


def test_a_backlog_between_functions_is_worked_off_and_the_size_comes_back():
    # for 100 s five instances of count do 505 words of 2,000 in a second; with a minute for the 150,000 that
    # then wait it needs 44 and may have 40, which do 4,040; once these are read 20 are enough again
    settings = Settings(policy="ds2", **{**SETTINGS, "utilisation_low": 0.95, "catch_up": 60.0})
    run = VirtualPipeline(settings)
    run.board.pin("split", 10)
    run.board.pin("count", 5)
    run.run(100)
    assert run.waiting["count"] == pytest.approx(150_000, rel=0.02)
    for name in ("split", "count"):
        run.board.pin(name, None)
    run.run(130)
    assert run.board.wanted == {"split": 10, "count": 40}
    run.run(400)
    assert run.errors == [] and run.board.wanted == {"split": 10, "count": 20}
    assert run.waiting["count"] < 2 * 20 * 505


@pytest.mark.parametrize("activation", [1, 2])
def test_a_hot_key_does_not_feed_growth_and_is_named(activation):
    # one word of four makes one instance of count serve a quarter: 404 words in a second of 2,000
    settings = Settings(policy="ds2", **{**SETTINGS, "activation_intervals": activation, "catch_up": 600.0})
    run = VirtualPipeline(settings, hot=0.25).run(1200)
    assert run.errors == [] and run.waiting["count"] > 1_000_000
    largest = max(action.planned["count"] for action in run.record.records)
    assert largest <= 22, [action.planned for action in run.record.records]
    reason = list(run.record.verdicts)[-1].verdict.reason
    assert "count: 1 of " in reason and "a key is hot" in reason
