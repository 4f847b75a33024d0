"""The manager: waiting, activation, and the correction for costs that measurements miss."""

from __future__ import annotations

import pytest

from penstock.dataflow.readiness import NotReady
from penstock.dataflow.window import EXECUTORS
from penstock.decide.manager.manager import Accepted, NothingToDo, Rejected, Statistic, Waiting
from penstock.decide.policy import ExpectedEffect, Hold, Scale
from tests.decide.manager_run import EAGER, Run, size
from tests.decide.situations import INTERVAL, hold, scale


def test_intervals_after_the_start_are_ignored():
    run = Run(EAGER.change(warm_up_intervals=2))
    first, second, third = (run.step(scale(6)) for _ in range(3))
    assert isinstance(first, Waiting)
    assert "warming up" in first.reason
    # the first window began at 1000, so windows count from 1020 on, and the first of them ends at 1030
    assert first.until == 1030.0
    assert isinstance(second, Waiting)
    assert size(third) == 6


def test_intervals_after_an_action_are_ignored():
    run = Run(EAGER.change(warm_up_intervals=1))
    run.step(scale(6))
    run.perform(run.step(scale(6)))
    assert isinstance(run.step(scale(8)), Waiting)
    assert size(run.step(scale(8))) == 8


def test_nothing_is_judged_while_an_action_is_under_way():
    run = Run()
    accepted = run.step(scale(6))
    run.manager.action_started(run.now, accepted.action)
    waiting = run.step(scale(8))
    assert isinstance(waiting, Waiting)
    assert "under way" in waiting.reason


def test_not_ready_is_waiting_with_its_own_reason():
    verdict = Run().step(NotReady("nothing ran yet", "a batch", until=1234.0))
    assert verdict == Waiting("nothing ran yet; awaiting a batch", 1234.0)


def test_hold_is_nothing_to_do():
    assert Run().step(hold()) == NothingToDo("the size is right")


def test_several_decisions_are_considered():
    run = Run(EAGER.change(activation_intervals=3))
    first, second, third = run.step(scale(6)), run.step(scale(20)), run.step(scale(7))
    assert isinstance(first, Waiting)
    assert "1 of 3" in first.reason
    assert isinstance(second, Waiting)
    assert size(third) == 7


def test_the_maximum_can_be_taken_instead():
    run = Run(EAGER.change(activation_intervals=3, activation_statistic=Statistic.MAXIMUM))
    verdicts = [run.step(scale(wanted)) for wanted in (6, 11, 7)]
    assert size(verdicts[-1]) == 11


@pytest.mark.parametrize(
    ("needs", "left"),
    [((4, 20), None), ((20, 4), None), ((6, 7), 7), ((7, 6), 7), ((2, 3), 3), ((2, 4), None)],
)
def test_of_two_decisions_one_outlier_does_not_decide(needs, left):
    run = Run(EAGER.change(activation_intervals=2))
    verdicts = [run.step(hold() if need == 4 else scale(need)) for need in needs]
    if left is None:
        assert isinstance(verdicts[-1], NothingToDo)
    else:
        assert size(verdicts[-1]) == left


def test_a_change_is_told_in_the_words_of_the_decision_that_asked_for_it():
    run = Run(EAGER.change(activation_intervals=3))
    run.step(Scale({EXECUTORS: 6}, "first words", ExpectedEffect("")))
    run.step(Scale({EXECUTORS: 6}, "second words", ExpectedEffect("")))
    verdict = run.step(hold())
    assert size(verdict) == 6
    assert verdict.action.reason == "second words"


def test_a_policy_that_decides_seldom_says_that_its_decision_stands():
    """Between its own decisions it held, so of two in a row one never asked for a change."""
    run = Run(EAGER.change(activation_intervals=2))
    assert isinstance(run.step(scale(6)), Waiting)
    verdict = run.step(Hold("decided a minute ago", stands=True))
    assert size(verdict) == 6
    assert "it stands: decided a minute ago" in verdict.reason


def test_what_stands_without_a_decision_before_it_is_a_hold():
    run = Run()
    assert isinstance(run.step(Hold("nothing yet", stands=True)), NothingToDo)
    run.perform(run.step(scale(6)))
    # what was asked for is there, and counts no more
    assert isinstance(run.step(Hold("decided before", stands=True)), NothingToDo)


def test_a_change_that_lapses_because_the_next_answer_holds_is_told():
    run = Run(EAGER.change(activation_intervals=2))
    run.step(scale(6))
    verdict = run.step(Hold("decided a minute ago"))
    assert isinstance(verdict, NothingToDo)
    assert (
        "executors 6 lapses: 2 answers in a row have to ask for it, or to say that it stands"
        in verdict.reason
    )
    assert run.step(hold()) == NothingToDo("the size is right")


def test_decisions_far_apart_are_not_consecutive():
    run = Run(EAGER.change(activation_intervals=2))
    run.step(scale(6))
    run.now += 20 * INTERVAL
    assert isinstance(run.step(scale(6)), Waiting)


def test_not_ready_in_between_does_not_start_over():
    run = Run(EAGER.change(activation_intervals=2))
    run.step(scale(6))
    run.step(NotReady("a long batch runs"))
    assert size(run.step(scale(6))) == 6


def test_costs_that_measurements_miss_are_made_up_for():
    run = Run(EAGER.change(activation_intervals=2))
    verdicts = [run.step(hold(), offered=1000.0, observed=500.0) for _ in range(2)]
    # twice as much is offered as is read: 4 · 2 = 8
    assert isinstance(verdicts[0], NothingToDo)
    assert size(verdicts[1]) == 8
    assert "offered is 2.00 times observed" in verdicts[1].action.reason


@pytest.mark.parametrize(
    "load",
    [
        {"offered": 1000.0, "observed": 700.0},  # within the ratio of 1.5
        {"offered": 1000.0, "observed": 0.0},  # stalled: the ratio says nothing
        {"offered": 1000.0, "observed": 500.0, "busy": 0.2},  # read with a limit: executors would idle
        {"offered": 1000.0, "observed": 1000.0},
    ],
)
def test_no_correction_where_it_would_not_help(load):
    run = Run(EAGER.change(activation_intervals=2))
    assert [type(run.step(hold(), **load)) for _ in range(3)] == [NothingToDo] * 3


def test_low_rates_without_a_growing_backlog_are_not_corrected():
    run = Run()
    for _ in range(4):
        run.backlog = 0.0  # so that it is the same 6000 records in every window
        assert isinstance(run.step(hold(), offered=1000.0, observed=400.0), NothingToDo)


def test_no_correction_while_the_policy_begins_to_ask_for_growth():
    run = Run(EAGER.change(activation_intervals=2))
    run.step(hold(), offered=1000.0, observed=500.0)
    verdict = run.step(scale(6), offered=1000.0, observed=500.0)
    assert isinstance(verdict, NothingToDo)
    assert size(run.step(scale(6), offered=1000.0, observed=500.0)) == 6


def test_reductions_that_the_band_dismissed_do_not_count_towards_the_delay():
    run = Run(EAGER.change(scale_down_delay=30.0))
    dismissed = [run.step(scale(3, utilisation=0.7)) for _ in range(10)]
    delayed = [run.step(scale(1, utilisation=0.2)) for _ in range(4)]
    assert {verdict.guardrail for verdict in dismissed} == {"utilisation-band"}
    assert [type(verdict) for verdict in delayed] == [Rejected, Rejected, Rejected, Accepted]


def test_the_correction_leaves_sources_and_unscalable_operators_alone():
    run = Run(EAGER.change(activation_intervals=2), held={"read": 2, "map": 4, "write": 1})
    verdict = [run.step(hold(), offered=1000.0, observed=500.0) for _ in range(2)][-1]
    assert isinstance(verdict, Accepted)
    assert verdict.action.parallelism == {"read": 2, "map": 8, "write": 1}


def test_overrunning_batches_count_as_falling_behind():
    run = Run()
    run.step(hold(), busy=1.3)
    verdict = run.step(scale(3, utilisation=0.3), busy=1.3)
    assert isinstance(verdict, Rejected)
    assert verdict.guardrail == "falling-behind"


def test_minor_growth_is_not_ignored_while_the_backlog_grows():
    run = Run(EAGER.change(ignore_changes_below=3))
    ignored = run.step(scale(5))
    assert isinstance(ignored, Rejected)
    assert ignored.guardrail == "minor-change"
    assert size([run.step(scale(5), offered=1000.0, observed=800.0) for _ in range(2)][-1]) == 5


def test_a_size_that_is_too_large_for_a_quarter_of_an_hour_is_noticed():
    run = Run(EAGER.change(scale_down_delay=3600))
    reasons = [run.step(scale(2)).reason for _ in range(100)]
    assert "too large" not in "".join(reasons[:89])
    assert "too large for 15 minutes" in reasons[91]
    # one window in which what is held is right ends it
    run.step(hold())
    assert "too large" not in run.step(scale(2)).reason
