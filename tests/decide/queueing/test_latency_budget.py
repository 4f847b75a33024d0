"""Changes for latency alone are bounded, changes that throughput needs are not, and nothing goes below it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.policy import Hold, Scale
from penstock.decide.queueing.policy import LatencyBudget
from penstock.plugins.windows import on_slots
from tests.decide.built import built
from tests.decide.pipelines import Pipeline
from tests.decide.situations import scale, window


def asked(budget, at, held, wanted, urgent=False):
    return budget.apply(window(at, held), scale(wanted), urgent)


def test_so_many_changes_in_an_hour_and_no_more():
    budget, held, made = LatencyBudget(3), 4, 0
    for number in range(50):
        answer = asked(budget, 100.0 + 10 * number, held, 9 - held)
        if isinstance(answer, Scale):
            held, made = 9 - held, made + 1
    assert made == 3
    assert isinstance(answer, Hold)
    assert answer.reason.startswith("3 changes for latency were made in the last hour, the most allowed")
    assert "the load asks for it" in answer.reason


def test_an_hour_later_there_is_room_again():
    budget = LatencyBudget(1)
    asked(budget, 100.0, 4, 5)
    assert isinstance(asked(budget, 110.0, 5, 4), Hold)
    assert isinstance(asked(budget, 110.0 + 3_600, 5, 4), Scale)


def test_what_throughput_needs_is_not_held_back_and_does_not_count():
    budget = LatencyBudget(1)
    asked(budget, 100.0, 4, 5)
    for number in range(5):
        assert isinstance(asked(budget, 110.0 + 10 * number, 5 + number, 6 + number, urgent=True), Scale)
    assert isinstance(asked(budget, 200.0, 10, 9), Hold)


def test_a_change_that_was_asked_for_and_not_made_does_not_count():
    budget = LatencyBudget(1)
    for number in range(10):
        assert isinstance(asked(budget, 100.0 + 10 * number, 4, 5), Scale)


def test_holds_and_unready_windows_pass():
    budget = LatencyBudget(1)
    assert budget.apply(window(100.0), Hold("right"), False) == Hold("right")
    unready = NotReady("no batch", "a batch")
    assert budget.apply(window(110.0), unready, False) is unready


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(1, 3_000),
    held=st.integers(1, 30),
    target=st.floats(0.005, 10),
    per_instance=st.floats(20, 200),
)
def test_queueing_never_goes_below_what_throughput_needs(rate, held, target, per_instance):
    chosen = built("queueing", latency_target=target, most=1_000)
    pipeline = Pipeline({"work": per_instance}, {"work": held}, unbounded=True)
    answer = chosen.propose(pipeline.run(rate))
    wanted = answer.parallelism["work"] if isinstance(answer, Scale) else held
    assert isinstance(answer, Hold | Scale)
    assert wanted * per_instance * 0.8 >= rate * (1 - 1e-9) or wanted == 1_000


def test_queueing_holds_when_its_budget_is_used_up_but_follows_the_load():
    chosen = built("queueing", latency_target=0.05, changes_per_hour=1)
    policy, pipeline = chosen, Pipeline({"work": 100.0}, {"work": 8}, unbounded=True)
    answers = pipeline.steered(policy, [150.0, 150.0])
    assert isinstance(answers[0], Scale)
    pipeline.held["work"] = 8
    again = pipeline.steered(policy, [150.0])[0]
    assert isinstance(again, Hold) and "the most allowed" in again.reason
    more = pipeline.steered(policy, [1_500.0])[0]
    assert isinstance(more, Scale) and more.parallelism["work"] >= 19


def test_on_slots_throughput_is_urgent_and_latency_is_not():
    chosen = built("queueing", latency_target=9.0, changes_per_hour=1)
    policy = chosen
    first = on_slots(20.0, 0.0, 6)
    assert isinstance(policy.propose(first), Scale)
    later = replace(on_slots(20.0, 0.0, 5), start=100.0, end=140.0)
    assert "the most allowed" in policy.propose(later).reason
    much = replace(on_slots(200.0, 0.0, 1), start=200.0, end=240.0)
    assert policy.propose(much).parallelism[EXECUTORS] >= 2
