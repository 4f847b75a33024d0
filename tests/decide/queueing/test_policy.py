"""The queueing policy: targets per operator and per path, limits, and a day in its life."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dataflow.graph import LogicalGraph
from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS, OperatorBatches
from penstock.decide.policy import HELD_UTILISATION, Hold, Scale
from penstock.decide.queueing.plan import Queue, plan_operator, plan_paths
from penstock.decide.queueing.policy import Correction
from penstock.decide.queueing.queues import Station
from penstock.decide.queueing.slots import batch_response_seconds
from tests.dataflow.graphs import graphs
from tests.dataflow.synthetic_batches import word_count
from tests.decide.built import built
from tests.decide.pipelines import Pipeline
from tests.decide.slot_windows import window as on_slots
from tests.decide.slot_windows import words

CHAIN = LogicalGraph(["source", "a", "b"], [("source", "a"), ("a", "b")])
FORK = LogicalGraph(["source", "a", "b", "c"], [("source", "a"), ("a", "b"), ("source", "c")])


def queue(name="a", arrival=8.0, service=5.0, most=15, least=1, most_load=1.0, variations=(1.0, 1.0)):
    return Queue(name, 1, arrival, service, *variations, least, most, most_load)


class TestOneOperator:
    # 8/s at 5/s each: k = 2 (0.8): 0.2 + 2/4 · 0.72 / (5 · 0.2) = 0.56 s
    # k = 3 (0.533): P = 0.533² = 0.2844; 0.2 + 2/6 · 0.2844 / (5 · 0.4667) = 0.2406 s
    # k = 4 (0.4): P = 0.4 ^ 2.5 = 0.1012; 0.2 + 2/8 · 0.1012 / (5 · 0.6) = 0.2084 s
    @pytest.mark.parametrize(("count", "seconds"), [(1, math.inf), (2, 0.56), (3, 0.2406), (4, 0.2084)])
    def test_response_times_by_hand(self, count, seconds):
        assert queue().seconds(count) == pytest.approx(seconds, abs=5e-5)

    @pytest.mark.parametrize(("target", "count"), [(10.0, 2), (0.56, 2), (0.55, 3), (0.23, 4)])
    def test_the_fewest_that_meet_the_target(self, target, count):
        assert plan_operator(queue(), target) == count

    def test_headroom_counts_as_overload(self):
        assert queue(most_load=0.7).seconds(2) == math.inf
        assert plan_operator(queue(most_load=0.7), 10.0) == 3

    def test_a_target_below_the_service_time_does_not_take_everything(self):
        assert plan_operator(queue(most=1000), 0.1) == 6

    def test_the_most_allowed_is_taken_when_it_is_not_enough(self):
        assert plan_operator(queue(arrival=1000.0), 1.0) == 15

    @given(st.floats(0.1, 500), st.floats(0.5, 50), st.floats(0.05, 5), st.floats(0, 4), st.floats(0, 4))
    def test_minimal(self, arrival, service, target, arrivals, services):
        asked = queue(arrival=arrival, service=service, most=40, variations=(arrivals, services))
        found = plan_operator(asked, target)
        assert 1 <= found <= 40
        if asked.seconds(found) <= target:
            assert all(asked.seconds(fewer) > target for fewer in range(1, found))


class TestPaths:
    def test_the_slowest_of_a_violating_path_is_scaled_out(self):
        # a takes 0.56 s with 2, b 0.24 s with 3: together 0.80; one more for a makes 0.48
        plan = plan_paths(CHAIN, {"a": queue("a"), "b": queue("b")}, {"a": 2, "b": 3}, 0.5, 0.1)
        assert plan.sizes == {"a": 3, "b": 3}
        assert plan.seconds == pytest.approx(2 * 0.2406, abs=1e-4)
        assert plan.path == ("a", "b")
        assert plan.limits == ()

    def test_a_path_in_range_is_left_alone(self):
        sizes = {"a": 2, "b": 3}
        plan = plan_paths(CHAIN, {"a": queue("a"), "b": queue("b")}, sizes, 1.0, 0.5)
        assert plan.sizes == sizes

    def test_the_fastest_of_a_path_under_alpha_gives_back(self):
        # a 0.2084 + b 0.2406 < 0.9 · 1: a gives 4 → 3 → 2 while the sum stays within the target
        plan = plan_paths(CHAIN, {"a": queue("a"), "b": queue("b")}, {"a": 4, "b": 3}, 1.0, 0.9)
        assert plan.sizes == {"a": 2, "b": 3}
        assert plan.seconds == pytest.approx(0.8006, abs=1e-4)

    def test_groups_are_treated_apart(self):
        # source → a → b violates, source → c is far under its share
        queues = {"a": queue("a"), "b": queue("b"), "c": queue("c", arrival=1.0, service=10.0)}
        plan = plan_paths(FORK, queues, {"a": 2, "b": 2, "c": 6}, 0.9, 0.5)
        assert plan.sizes == {"a": 3, "b": 2, "c": 1}

    def test_all_unstable_operators_are_made_stable_at_once(self):
        queues = {"a": queue("a", arrival=48.0), "b": queue("b", arrival=58.0)}
        plan = plan_paths(CHAIN, queues, {"a": 1, "b": 1}, 10.0, 0.1)
        assert plan.sizes == {"a": 10, "b": 12}

    def test_an_overload_at_the_limit_is_reported_and_the_rest_still_made_stable(self):
        queues = {"a": queue("a", arrival=48.0, most=4), "b": queue("b", arrival=48.0)}
        plan = plan_paths(CHAIN, queues, {"a": 1, "b": 1}, 1.0, 0.5)
        assert plan.sizes == {"a": 4, "b": 10}
        assert plan.seconds == math.inf
        assert plan.limits == ("a is overloaded with the 4 that it may have (load 2.40)",)

    def test_the_most_allowed_is_reported(self):
        plan = plan_paths(CHAIN, {"a": queue("a", most=2), "b": queue("b")}, {"a": 2, "b": 2}, 0.5, 0.1)
        assert plan.sizes["a"] == 2
        assert plan.limits == ("no more instances are allowed of a",)

    def test_service_alone_too_slow_is_reported_without_taking_everything(self):
        plan = plan_paths(CHAIN, {"a": queue("a"), "b": queue("b")}, {"a": 2, "b": 2}, 0.3, 0.1)
        assert max(plan.sizes.values()) <= 5
        assert plan.limits == ("more instances would hardly help: service alone takes 0.4 s",)

    def test_what_hardly_helps_is_given_back_where_no_size_meets_the_target(self):
        # service alone takes 0.4 s of 0.3 s: with 15 or with 6, an operator needs little more than 0.2 s
        asked = {"a": queue("a"), "b": queue("b")}
        plan = plan_paths(CHAIN, asked, {"a": 15, "b": 4}, 0.3, 0.1)
        assert plan.sizes["a"] < 8
        assert asked["a"].seconds(plan.sizes["a"]) - asked["a"].seconds(15) < 0.01 * 0.3
        assert plan.limits[-1] == "instances that hardly help are given back: a"

    @given(graphs(most=5), st.data())
    def test_within_the_target_or_says_why(self, graph, data):
        fed = [o.name for o in graph.operators if o.name not in graph.sources]
        queues = {
            name: queue(name, data.draw(st.floats(0, 60)), data.draw(st.floats(1, 20)), most=20)
            for name in fed
        }
        sizes = {name: data.draw(st.integers(1, 20)) for name in fed}
        target = data.draw(st.floats(0.1, 10))
        plan = plan_paths(graph, queues, sizes, target, 0.5)
        assert all(1 <= size <= 20 for size in plan.sizes.values())
        assert plan.seconds <= target * (1 + 1e-8) or plan.limits
        again = plan_paths(graph, queues, plan.sizes, target, 0.5)
        assert again.sizes == plan.sizes

    @given(st.floats(1, 60), st.floats(1, 60), st.floats(0.2, 10), st.floats(0, 3), st.floats(-0.5, 2))
    def test_batches_are_within_the_target_or_it_says_why(self, first, second, target, fixed, correction):
        batches = {"batches": OperatorBatches(1.0, 2.0, fixed), "correction": correction}
        queues = {"a": replace(queue("a", first), **batches), "b": queue("b", second)}
        plan = plan_paths(CHAIN, queues, {"a": 1, "b": 1}, target, 0.5)
        assert plan.seconds <= target * (1 + 1e-8) or plan.limits
        assert plan_paths(CHAIN, queues, plan.sizes, target, 0.5).sizes == plan.sizes

    def test_a_target_that_batches_cannot_meet_takes_few_more_instances(self):
        # 8/s at 5/s each, 2 s fixed: with k a batch takes 2 / (1 − 1.6/k), a record 1.5 times that. The least
        # is 3 s, a hundredth of which is 0.03: from 12 to 13 it gains 3 · (12/10.4 − 13/11.4) = 0.0405 s,
        # from 13 to 14 0.0339 s and from 14 to 15 0.0289 s
        asked = {"a": replace(queue("a", most=64), batches=OperatorBatches(1.0, 3.0, 2.0))}
        graph = LogicalGraph(["source", "a"], [("source", "a")])
        plan = plan_paths(graph, asked, {"a": 4}, 0.5, 0.5)
        assert plan.sizes == {"a": 14}
        limit = "waiting for batches and their fixed costs alone take 3 s"
        assert plan.limits == (f"more instances would hardly help: {limit}",)

    @given(st.floats(1, 40), st.floats(1, 40), st.floats(0.5, 5))
    def test_from_one_instance_each_no_smaller_size_is_as_good(self, first, second, target):
        queues = {"a": queue("a", first), "b": queue("b", second)}
        plan = plan_paths(CHAIN, queues, {"a": 1, "b": 1}, target, 1.0)
        if plan.seconds <= target:
            smaller = product(range(1, plan.sizes["a"] + 1), range(1, plan.sizes["b"] + 1))
            for a, b in smaller:
                if (a, b) != (plan.sizes["a"], plan.sizes["b"]):
                    assert queues["a"].seconds(a) + queues["b"].seconds(b) > target


def policy(**settings):
    return built("queueing", **{"latency_target": 1.0, "utilisation": 1.0, **settings})


class TestPolicy:
    def test_without_a_target_it_waits_for_one(self):
        answer = built("queueing").propose(Pipeline({"a": 5.0}).run(8.0))
        assert answer == NotReady("no latency target is set", "the setting latency_target")

    @pytest.mark.parametrize(("held", "rate", "needed"), [(4, 8.0, 1), (1, 88.0, 3)])
    def test_beside_an_operator_target_the_others_get_what_their_rate_needs(self, held, rate, needed):
        # 88/s and 50/s of each: 2.2 instances at a load of 0.8
        asked = policy(latency_target=None, operator_targets={"b": 0.3}, utilisation=0.8)
        answer = asked.propose(
            Pipeline({"a": 50.0, "b": 55.0}, {"a": held, "b": 2}, unbounded=True).run(rate)
        )
        assert isinstance(answer, Scale) and answer.parallelism["a"] == needed

    def test_an_operator_target_sizes_that_operator(self):
        asked = policy(latency_target=None, operator_targets={"b": 0.3})
        answer = asked.propose(Pipeline({"a": 50.0, "b": 5.0}, {"a": 1, "b": 2}).run(8.0))
        assert isinstance(answer, Scale) and answer.parallelism == {"source": 1, "a": 1, "b": 3}

    def test_an_operator_target_that_cannot_be_met_is_reported(self):
        asked = policy(latency_target=None, operator_targets={"b": 0.3}, most=2)
        answer = asked.propose(Pipeline({"a": 50.0, "b": 5.0}, {"a": 1, "b": 2}).run(8.0))
        assert isinstance(answer, Hold)
        assert "b takes 0.56 s of 0.3 s with the 2 that it may have" in answer.reason

    def test_a_path_target_is_met_in_one_step(self):
        answer = policy(latency_target=0.5).propose(Pipeline({"a": 5.0}).run(8.0))
        assert isinstance(answer, Scale)
        # the backlog of the first window, 30 records, adds 0.05/s to the arrivals
        assert answer.parallelism == {"source": 1, "a": 3}
        assert answer.reason.startswith(
            "to meet the latency target: a 1 → 3; the slowest path, a, takes 0.24"
        )
        assert answer.expected.figures["latency_seconds"] == pytest.approx(0.241, abs=1e-3)

    def test_a_change_for_headroom_alone_may_be_damped(self):
        # 0.9 busy and 0.21 s of 1 s: only the headroom of 0.8 asks for a second instance
        pipeline = Pipeline({"a": 50.0})
        answer = policy(utilisation=0.8).propose(pipeline.run(45.0))
        assert isinstance(answer, Scale) and answer.exact == pytest.approx({"a": 45 / 50 / 0.8})

    def test_a_change_for_latency_may_not(self):
        answer = policy(latency_target=0.1, utilisation=0.8).propose(Pipeline({"a": 50.0}).run(45.0))
        assert isinstance(answer, Scale) and answer.exact == {}

    def test_what_cannot_be_scaled_stays(self):
        pipeline = Pipeline({"a": 5.0, "b": 5.0}, fixed=frozenset({"b"}))
        answer = policy().propose(pipeline.run(8.0))
        assert isinstance(answer, Scale) and answer.parallelism["b"] == 1
        assert "b is overloaded with the 1 that it may have" in answer.reason

    def test_constant_work_needs_less_than_random_work(self):
        # learned: arrivals and services that never vary do not wait
        regular, asked = Pipeline({"a": 5.0}, {"a": 2}), policy(latency_target=0.5)
        answers = regular.steered(asked, [8.0] * 8)
        assert isinstance(answers[0], Scale)
        assert regular.held["a"] == 2 or isinstance(answers[-1], Hold)
        assert answers[-1].figures["latency_seconds"] == pytest.approx(0.2, abs=1e-3)

    def test_story_load_up_stable_and_down(self):
        pipeline, asked = Pipeline({"resize": 50.0, "recognise": 5.0}), policy(utilisation=0.8)
        quiet = pipeline.steered(asked, [3.0, 3.0])
        assert isinstance(quiet[-1], Hold)
        assert "the slowest path, resize → recognise, takes" in quiet[-1].reason

        up = pipeline.steered(asked, [30.0] * 4)
        assert isinstance(up[0], Scale)
        assert "recognise 1 →" in up[0].reason
        # 30 / 5 / 0.8 = 7.5, and a backlog to read
        assert pipeline.held["recognise"] == 8
        assert all(isinstance(answer, Hold) for answer in up[1:])

        down = pipeline.steered(asked, [3.0] * 60)
        assert pipeline.held["recognise"] == 1
        assert sum(isinstance(answer, Scale) for answer in down) <= 3
        assert isinstance(down[-1], Hold)


class TestCorrection:
    """10/s at 5/s each, 4 instances, 1 s fixed: batches of 2 s back to back, and 3 s for a record."""

    def corrected(self, *seen):
        correction = Correction()
        for response, seconds, overdue in seen:
            batches = OperatorBatches(0.5, seconds, 1.0, response)
            correction.remember(Station("a", 4, 10.0, 10.0, 5.0, 5.0, True, batches, overdue))
        return correction.seconds

    def test_the_median_of_what_was_seen_beyond_the_model(self):
        assert self.corrected() == 0.0
        assert self.corrected((4.0, 2.0, 0.0)) == pytest.approx(1.0)
        assert self.corrected((4.0, 2.0, 0.0), (2.5, 2.0, 0.0), (9.0, 2.0, 0.0)) == pytest.approx(1.0)

    def test_only_the_newest_count(self):
        assert self.corrected(*[(9.0, 2.0, 0.0)] * 20, *[(3.5, 2.0, 0.0)] * 3) == pytest.approx(0.5)

    def test_the_age_of_a_backlog_is_none_of_it(self):
        # 60 records are what comes in twice the 3 s
        assert self.corrected((90.0, 2.0, 61.0), (3.5, 2.0, 59.0)) == pytest.approx(0.5)
        assert self.corrected((90.0, 60.0, 0.0), (None, 2.0, 0.0)) == 0.0


class TestSharedSlots:
    def test_response_of_batches_by_hand(self):
        # every 10 s a batch of 5 s: half a period, the batch, and 0.5 · 0.5^1 · 5 / (1 − 0.5) = 2.5 s of wait
        assert batch_response_seconds(10.0, 5.0, 1.0) == pytest.approx(5 + 5 + 2.5)
        assert batch_response_seconds(10.0, 5.0, 0.0) == pytest.approx(10.0)
        assert batch_response_seconds(10.0, 10.0, 1.0) == math.inf

    def proposed(self, target, rate=50.0, executors=2, **settings):
        asked = on_slots(words(word_count(), rate, executors * 5), executors=executors)
        return policy(latency_target=target, utilisation=0.8, **settings).propose(asked)

    def test_a_tighter_target_takes_more_executors(self):
        sizes = []
        for target in (30.0, 9.0, 7.0):
            answer = self.proposed(target)
            sizes.append(answer.parallelism[EXECUTORS] if isinstance(answer, Scale) else 2)
            figures = answer.expected.figures if isinstance(answer, Scale) else answer.figures
            assert figures["latency_seconds"] <= target
        assert sizes == [1, 2, 3]
        assert self.proposed(9.0).reason == "words needs 8 slots: its records are through in 8.43 s of 9 s"

    def test_a_target_just_missed_keeps_what_comes_nearest(self):
        answer = self.proposed(6.9)
        assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 3}
        assert "no size up to 320 slots does better" in answer.reason

    def test_a_target_below_the_wait_for_a_batch_takes_no_more_than_the_rate_needs(self):
        answer = self.proposed(2.0)
        assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 1}
        assert (
            "cannot meet 2 s with any size, since waiting for a batch every 10 s takes 5 s" in answer.reason
        )

    def test_never_below_what_throughput_needs(self):
        answer = self.proposed(600.0, rate=200.0, executors=1)
        assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 2}
        assert "needs 8 slots" in answer.reason

    def test_the_most_allowed_executors_are_kept(self):
        answer = self.proposed(7.0, executors=1, most=2)
        assert isinstance(answer, Scale) and answer.parallelism == {EXECUTORS: 2}
        assert "no size up to 10 slots does better" in answer.reason

    def test_only_a_change_that_latency_does_not_ask_for_may_be_damped(self):
        # two waves of each stage on 10 slots: 0.5 + 0.908 + 1.175 + 0.84 = 3.423 s of 10 s
        slower, later = self.proposed(30.0), self.proposed(7.0)
        assert isinstance(slower, Scale)
        assert slower.expected.figures[HELD_UTILISATION] == pytest.approx(0.3423, abs=1e-4)
        assert isinstance(later, Scale) and HELD_UTILISATION not in later.expected.figures

    def test_queries_add_up(self):
        one = words(word_count(), 50.0, 10)
        two = replace(one, query_id="two", name="two")
        answer = policy(latency_target=30.0, utilisation=0.8).propose(on_slots(one, two))
        assert answer.reason.count("needs 3 slots") == 2

    def test_a_query_without_batches_is_named(self):
        asked = on_slots(replace(words(word_count(), 50.0, 10), batches=()))
        answer = policy().propose(asked)
        assert isinstance(answer, NotReady)
        assert answer.reason == "words: no batch of the window has usable metrics"
