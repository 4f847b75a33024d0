"""Dhalion's rules: one bottleneck at a time, what did not help is not repeated, and a day in its life."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import Hold, Scale
from tests.decide.built import built
from tests.decide.pipelines import Pipeline
from tests.fakes import a_query, a_window


def policy(**settings):
    return built("dhalion", **settings)


def changed(answer, pipeline_before):
    return {name: size for name, size in answer.parallelism.items() if size != pipeline_before[name]}


def test_the_bottleneck_grows_by_what_backpressure_takes():
    # 200 offered, 50 taken: three quarters of the time is lost, so four times as many are needed
    pipeline = Pipeline({"parse": 100.0, "store": 50.0})
    answer = policy().propose(pipeline.run(200.0))
    assert isinstance(answer, Scale) and answer.parallelism == {"source": 1, "parse": 1, "store": 4}
    assert answer.reason == "store 1 → 4: sources are held back by 75%, and it is the bottleneck"


def test_one_operator_at_a_time():
    pipeline, asked = Pipeline({"parse": 100.0, "store": 50.0}), policy()
    sizes = [dict(pipeline.held)]
    for _ in range(5):
        answer = pipeline.steered(asked, [200.0])[0]
        if isinstance(answer, Scale):
            assert len(changed(answer, sizes[-1])) == 1
        sizes.append(dict(pipeline.held))
    assert pipeline.held["store"] >= 4
    assert pipeline.held["parse"] >= 2


def test_a_standstill_asks_for_tenfold_at_most():
    answer = policy().propose(a_window(queries=(a_query(offered=100.0, observed=0.0),)))
    assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 20}


def test_a_backlog_without_backpressure_is_waited_for():
    answer = policy().propose(a_window(queries=(a_query(offered=100.0, observed=110.0, backlog=900.0),)))
    assert isinstance(answer, Hold) and answer.reason == "no backpressure; a backlog of 900 still waits"


def test_a_growing_queue_inside_is_a_symptom_too():
    pipeline, asked = Pipeline({"parse": 200.0, "store": 50.0}, unbounded=True), policy()
    assert isinstance(asked.propose(pipeline.run(100.0)), Hold)
    answer = asked.propose(pipeline.run(100.0))
    assert isinstance(answer, Scale)
    # 500 records more in ten seconds, 500 taken: half is lost
    assert answer.reason == "store 1 → 2: the queue of store grows by 50%, and it is the bottleneck"


class TestBlacklist:
    def stuck(self, held=2):
        """Executors do not help: half of what is offered is read, whatever is held."""
        return a_window(executors=held, queries=(a_query(offered=100.0, observed=50.0),))

    def test_an_action_that_did_not_help_is_not_repeated(self):
        asked = policy()
        first = asked.propose(self.stuck(2))
        assert isinstance(first, Scale)
        later = [asked.propose(self.stuck(first.parallelism[EXECUTORS])).reason for _ in range(3)]
        assert later == [
            "waits to see what 4 of executors bring",
            "waits to see what 4 of executors bring",
            "sources are held back by 50%, and nothing is left to try; blacklisted: executors up",
        ]

    def test_an_action_that_never_took_effect_is_not_judged(self):
        asked = policy()
        assert isinstance(asked.propose(self.stuck(2)), Scale)
        assert isinstance(asked.propose(self.stuck(2)), Scale)

    def test_another_load_is_another_situation(self):
        asked = policy()
        answers = [asked.propose(self.stuck(held)) for held in (2, 4, 4, 4)]
        assert "blacklisted" in answers[-1].reason
        heavier = a_window(executors=4, queries=(a_query(offered=200.0, observed=50.0),))
        assert isinstance(asked.propose(heavier), Scale)

    def test_a_reduction_that_brought_backpressure_is_taken_back_and_not_repeated(self):
        asked, pipeline = policy(), Pipeline({"store": 50.0}, {"store": 4})
        down, up, *rest = pipeline.steered(asked, [180.0] * 8)
        assert "no backpressure and no queue, it may be too large" in down.reason
        assert "sources are held back by" in up.reason
        assert pipeline.held["store"] == 4
        assert rest[-1].reason == "no backpressure and no queue; blacklisted: store down"

    def test_the_next_busiest_is_tried_when_the_bottleneck_did_not_gain(self):
        asked = policy(patience_windows=1)
        window = Pipeline({"parse": 60.0, "store": 50.0}).run(100.0)
        first = asked.propose(window)
        assert isinstance(first, Scale) and first.parallelism["store"] == 2
        # the same pressure although store has two: a service behind it is slow
        again = Pipeline({"parse": 60.0, "store": 25.0}, {"store": 2}).run(100.0)
        second = asked.propose(again)
        assert isinstance(second, Scale) and second.parallelism["store"] == 2
        assert second.parallelism["parse"] > 1


def test_what_cannot_be_scaled_is_left_alone():
    pipeline = Pipeline({"store": 50.0}, fixed=frozenset({"store"}))
    answer = policy().propose(pipeline.run(200.0))
    assert isinstance(answer, Hold) and "nothing is left to try" in answer.reason


def test_an_unknown_rate_is_waited_for():
    answer = policy().propose(a_window(queries=(a_query(observed=math.nan),)))
    assert isinstance(answer, NotReady) and "the rate read from source 'read' is unknown" in answer.reason


def test_story_word_count_of_ds2_section_5_2():
    """From one instance each it takes several decisions, each for one operator; DS2 takes one for both."""
    pipeline, asked = Pipeline({"flatmap": 100.0, "count": 50.0}), policy()
    up = pipeline.steered(asked, [1000.0] * 60)
    steps = [answer for answer in up if isinstance(answer, Scale)]
    told = [answer.reason.partition(":")[0] for answer in steps]
    assert told == ["count 1 → 10", "flatmap 1 → 10", "count 10 → 20"]
    assert "no backpressure; a backlog of" in up[-1].reason

    down = pipeline.steered(asked, [100.0] * 120)
    assert (pipeline.held["flatmap"], pipeline.held["count"]) < (5, 8)
    assert isinstance(down[-1], Hold)


@given(st.floats(1, 1e5), st.floats(0, 1e5), st.integers(1, 20))
def test_one_unit_moves_within_its_limits(offered, observed, held):
    asked = policy(most=16)
    answer = asked.propose(a_window(executors=held, queries=(a_query(offered=offered, observed=observed),)))
    if isinstance(answer, Scale):
        wanted = answer.parallelism[EXECUTORS]
        assert 1 <= wanted <= max(held, 16)
        assert wanted != held
