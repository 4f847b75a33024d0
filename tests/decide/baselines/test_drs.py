"""DRS: the Jackson network by hand, its greedy search, observed and true rates, and a day in its life."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.readiness import NotReady
from penstock.decide.baselines.drs import SizedStation, find_least_sizes, sojourn_seconds
from penstock.decide.policy import Hold, Scale
from tests.decide.built import built
from tests.decide.pipelines import Pipeline
from tests.fakes import a_window


def policy(target=1.0, name="drs", **given_settings):
    return built(name, latency_target=target, **given_settings)


class TestNetwork:
    def test_one_queue_is_m_m_1(self):
        assert sojourn_seconds({"a": SizedStation(3, 5, 1, 9)}, {"a": 1}, 3) == pytest.approx(0.5)

    def test_visits_weigh(self):
        # a: 1 / (5 − 3) = 0.5 s; b is fed twice for each record: 1 / (10 − 6) = 0.25 s; 0.5 + 2 · 0.25
        servers = {"a": SizedStation(3, 5, 1, 9), "b": SizedStation(6, 10, 1, 9)}
        assert sojourn_seconds(servers, {"a": 1, "b": 1}, 3) == pytest.approx(1.0)

    def test_two_servers_by_hand(self):
        # a = 1, k = 2: C = 1/3; 1 + (1/3) / (2 − 1) = 4/3 s
        assert sojourn_seconds({"a": SizedStation(1, 1, 1, 9)}, {"a": 2}, 1) == pytest.approx(4 / 3)

    def test_an_operator_that_gets_nothing_takes_no_time(self):
        servers = {"a": SizedStation(3, 5, 1, 9), "b": SizedStation(0, 5, 1, 9)}
        assert sojourn_seconds(servers, {"a": 1, "b": 1}, 3) == pytest.approx(0.5)


class TestGreedy:
    def test_it_starts_with_what_is_stable(self):
        assert find_least_sizes({"a": SizedStation(48, 5, 1, 99)}, 48, 1e9) == {"a": 10}
        assert find_least_sizes({"a": SizedStation(50, 5, 1, 99)}, 50, 1e9) == {"a": 11}

    def test_it_gives_where_most_is_saved(self):
        # a is nearly full: 1 / (5 − 4.5) = 2 s, b takes 0.11 s
        servers = {"a": SizedStation(4.5, 5, 1, 9), "b": SizedStation(1, 10, 1, 9)}
        assert find_least_sizes(servers, 4.5, 0.5) == {"a": 2, "b": 1}

    def test_it_goes_to_the_limit_for_a_target_out_of_reach(self):
        assert find_least_sizes({"a": SizedStation(3, 5, 1, 7)}, 3, 0.1) == {"a": 7}

    def test_a_size_that_cannot_change_is_kept(self):
        assert find_least_sizes({"a": SizedStation(3, 5, 4, 4)}, 3, 0.1) == {"a": 4}

    @settings(max_examples=50)
    @given(
        st.lists(st.tuples(st.floats(0.5, 20), st.floats(2, 10)), min_size=1, max_size=3), st.floats(0.3, 5)
    )
    def test_no_total_is_smaller(self, rates, target):
        """M/M/k times are convex in k, so greedy is optimal: checked against all sizes."""
        servers = {
            str(n): SizedStation(arrival, service, 1, 12) for n, (arrival, service) in enumerate(rates)
        }
        found = find_least_sizes(servers, 1.0, target)
        if sojourn_seconds(servers, found, 1.0) <= target:
            for sizes in product(range(1, 13), repeat=len(servers)):
                if sum(sizes) < sum(found.values()):
                    assert sojourn_seconds(servers, dict(zip(servers, sizes, strict=True)), 1.0) > target


class TestPolicy:
    def test_without_a_target_it_waits_for_one(self):
        answer = policy(None).propose(Pipeline({"a": 5.0}).run(8.0))
        assert answer == NotReady("no latency target is set", "the setting latency_target")

    def test_shared_slots_are_not_for_it(self):
        answer = policy().propose(a_window())
        assert isinstance(answer, NotReady) and "share the slots" in answer.reason

    def test_nothing_offered_is_no_ground_for_a_change(self):
        pipeline = Pipeline({"a": 5.0}, backlog=20.0)
        answer = policy().propose(pipeline.run(0.0))
        assert answer == NotReady("idle: the sources offer nothing", "records")

    def test_true_rates_size_at_once(self):
        answer = policy(1.0).propose(Pipeline({"a": 5.0}, {"a": 2}).run(8.0))
        assert isinstance(answer, Hold)
        # k = 2, a = 1.6: C = 0.7111; 0.2 + 0.7111 / 2 = 0.556 s
        assert answer.figures["latency_seconds"] == pytest.approx(0.5556, abs=1e-4)

    def test_observed_rates_take_waiting_for_slowness_and_ask_for_more(self):
        window = Pipeline({"a": 5.0}, {"a": 4}).run(8.0)
        true, observed = policy(0.6).propose(window), policy(0.6, "drs-observed").propose(window)
        assert isinstance(true, Scale)
        assert isinstance(observed, Scale)
        assert true.parallelism["a"] == 2
        # half busy, an instance looks as if it could do 2 a second, not 5
        assert observed.parallelism["a"] > 4

    def test_a_target_out_of_reach_takes_all_that_is_allowed_and_says_so(self):
        answer = policy(0.1, most=6).propose(Pipeline({"a": 5.0}).run(8.0))
        assert isinstance(answer, Scale) and answer.parallelism["a"] == 6
        assert "more than it should with all that is allowed" in answer.reason

    def test_an_overload_at_the_limit_is_said(self):
        answer = policy(1.0, most=2).propose(Pipeline({"a": 5.0}).run(80.0))
        assert "even the most instances allowed do not keep up" in answer.reason

    def test_story_load_up_stable_and_down(self):
        pipeline, asked = Pipeline({"resize": 50.0, "recognise": 5.0}), policy(1.0)
        assert isinstance(pipeline.steered(asked, [3.0])[0], Hold)
        up = pipeline.steered(asked, [30.0] * 4)
        assert isinstance(up[0], Scale)
        assert "recognise 1 → 7" in up[0].reason or "recognise 1 → 8" in up[0].reason
        assert all(isinstance(answer, Hold) for answer in up[2:])
        down = pipeline.steered(asked, [3.0] * 60)
        assert pipeline.held["recognise"] == 1
        assert isinstance(down[-1], Hold)
